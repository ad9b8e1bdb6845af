"""The figures of every strategy of a trace, summed up from its events under the benchmark's names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from specdec_tui.decoding.costs import NAMES, costs
from specdec_tui.decoding.figures import RunFigures, speedup
from specdec_tui.decoding.latency import call_figures
from specdec_tui.decoding.records import Checked, Event, Lossless, Step
from specdec_tui.decoding.reliability import reliability
from specdec_tui.decoding.standing import standing
from specdec_tui.traces.values import plain

AGAINST = (
    "baseline_created",
    "speedup",
    *NAMES,
    "no_prediction",
    "reliability",
    "marks",
)
"""Figures against a baseline."""


def figures_of(events: Iterable[Event]) -> dict[str, RunFigures]:
    """The figures of each strategy, in the order in which their runs began."""
    runs: dict[str, RunFigures] = {}
    for event in events:
        if isinstance(event, Step):
            runs.setdefault(event.strategy, RunFigures()).add(event.record)
    return runs


def summarise(
    events: Iterable[Event], borrowed: RunFigures | None = None, created: str = ""
) -> dict[str, dict[str, Any]]:
    """JSON-ready figures of each strategy, seconds and tokens per second; None where a figure does not exist.

    Where the target took no part, they are against its `borrowed` run of another time, `created` then. Those of
    what-ifs are against nothing: no run beside them wrote that text.
    """
    events = tuple(events)
    runs = figures_of(events)
    verdicts = {event.strategy: event.lossless for event in events if isinstance(event, Checked)}
    baseline = runs.get("target")
    since = None
    if baseline is None and borrowed is not None:
        borrowed.is_of_another_time = True
        baseline, since = borrowed, created
    return {
        name: {
            **plain(_summary(run, None if run.is_what_if else baseline, verdicts.get(name))),
            "baseline_created": None if run.is_what_if else since,
        }
        for name, run in runs.items()
    }


def _summary(run: RunFigures, baseline: RunFigures | None, verdict: Lossless | None) -> dict[str, Any]:
    end, told, stands = run.end, reliability(run, baseline), standing(run, baseline)
    return {
        "prompt_tokens": run.prompt_tokens,
        "new_tokens": run.new_tokens,
        "gamma": run.gamma,
        "finish_reason": None if end is None else end.reason,
        "message": "" if end is None else end.message,
        "prefill_seconds": run.prefill_seconds,
        "capture_seconds": run.capture_seconds,
        "decode_seconds": run.decode_seconds,
        "decode_tokens_per_second": run.decode_tokens_per_second,
        "speedup": None if baseline is None else speedup(baseline, run),
        "rounds": run.rounds,
        "drafted": run.drafted if run.drafts_are_told else None,
        "accepted": run.accepted,
        "rejected": run.rejected if run.drafts_are_told else None,
        "unverified": run.unverified if run.drafts_are_told else None,
        "acceptance_rate": run.acceptance_rate,
        "tokens_per_target_call": run.tokens_per_target_call,
        "accepted_lengths": run.accepted_lengths,
        "conditional_acceptance": run.conditional_acceptance,
        "draft_seconds": run.draft_seconds,
        "verify_seconds": run.verify_seconds,
        "other_seconds": run.other_seconds,
        **call_figures(run, baseline),
        **costs(run, baseline).named(),
        "reliability": told,
        "marks": "" if stands is None else stands.marks,
        "recomputes": run.recomputes,
        "lossless": verdict,
    }
