"""The target's run that a run without one can be measured against: an earlier one that took the same steps.

Nothing here makes two clocks comparable: whoever shows such a baseline says from when it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import EndReason
from specdec_tui.settings import CONTROLS
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace, TraceError, TraceHeader
from specdec_tui.traces.store import TraceStore
from specdec_tui.traces.summary import figures_of, summarise

SERVED_BY = "served_by"
"""In the environment of runs that a server drafted by itself: its name and version."""
_LEAST_TOKENS = 8
_PROMPT_TOKENS = 256
_SAMPLING = ("processor", "temperature", "top_k", "top_p", "min_p", "typical_p")
_SETTINGS = ("cache", "capture", "insight", *_SAMPLING, *CONTROLS)
_MACHINE = ("specdec_tui", "processor", "cpu_count", "threads", "cuda_devices")
_PACKAGES = ("torch", "numba", "transformers")
_MODEL = ("name", "device", "dtype", "quantization", "parameters")


@dataclass(frozen=True, slots=True)
class Baseline:
    """The target's own run of another time: its figures, and when it was made (ISO 8601)."""

    figures: RunFigures
    created: str


def is_comparable(earlier: TraceHeader, header: TraceHeader) -> bool:
    """Whether the target of `earlier` took the steps a target in `header` would have taken, and was timed to its end.

    That is: the same pair in the same types on the same devices and machine, with the same versions of
    what computes; the same cache, capture, insight and sampling, which a plain step contains; prompts
    that differ by at most 256 tokens, for a step reads the whole context. What is drafted and how, the
    seed, the length and the schedule do not change a step of the target.
    """
    theirs = earlier.strategies.get("target", {})
    ends = (EndReason.END_TOKEN, EndReason.LENGTH)
    if theirs.get("finish_reason") not in ends or (theirs.get("new_tokens") or 0) < _LEAST_TOKENS:
        return False
    if earlier.created > header.created or _made_with(earlier) != _made_with(header):
        return False
    if SERVED_BY in earlier.environment or SERVED_BY in header.environment:  # nothing tells on what it ran
        return False
    lengths = [figures.get("prompt_tokens") for figures in (theirs, *header.runs.values())]
    known = [length for length in lengths if isinstance(length, int)]
    return len(known) == len(lengths) and max(known) - min(known) <= _PROMPT_TOKENS


def of_trace(trace: Trace) -> Baseline | None:
    """The target's own run in a trace."""
    figures = figures_of(trace.events).get("target")
    return None if figures is None else Baseline(figures, trace.header.created)


def measured_against(trace: Trace, baseline: Baseline) -> Trace:
    """The trace with figures against a borrowed baseline in its header, each marked with when that was made."""
    strategies = summarise(trace.events, baseline.figures, baseline.created)
    return replace(trace, header=replace(trace.header, strategies=strategies))


def last_baseline(header: TraceHeader, recent: Iterable[Trace], store: TraceStore) -> Baseline | None:
    """The newest comparable run of the target, of `recent` traces (newest first) or else of those that were kept."""
    for trace in recent:
        if is_comparable(trace.header, header):
            return of_trace(trace)
    for entry in store.entries():
        if entry.header is not None and is_comparable(entry.header, header):
            try:
                return of_trace(read_trace(entry.path))
            except TraceError:  # damaged behind its header, or deleted since
                continue
    return None


def _made_with(header: TraceHeader) -> tuple[object, ...]:
    others = header.models.get("drafters")  # the first is told beside them, and alone by older versions
    models = [header.models.get(role) for role in ("target", "drafter")]
    models += others[1:] if isinstance(others, list) else []
    versions = header.environment.get("versions")
    return (
        [_of_model(model) if isinstance(model, dict) else model for model in models],
        [header.settings.get(name) for name in _SETTINGS],
        [header.environment.get(name) for name in _MACHINE],
        [versions.get(name) for name in _PACKAGES] if isinstance(versions, dict) else versions,
    )


def _of_model(model: dict[str, Any]) -> list[object]:
    """What decides the steps of a model; before `weights` were told of, all were expanded."""
    return [*(model.get(name) for name in _MODEL), model.get("weights") or "expanded"]
