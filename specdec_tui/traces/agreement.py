"""Whether the figures in a header are those of its rounds: every one of them can be computed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from specdec_tui import __version__
from specdec_tui.decoding.records import Event
from specdec_tui.traces.header import TraceError, TraceHeader
from specdec_tui.traces.summary import AGAINST, summarise
from specdec_tui.traces.values import shown

_REL, _ABS = 1e-6, 1e-9  # what another order of adding up, or another library's rounding, may change


def check_header(header: TraceHeader, events: Sequence[Event], *, ended: bool) -> None:
    """TraceError at the first figure that contradicts the events. `ended`: they are all there.

    How speeds are judged (`AGAINST`) may change between versions, and what a borrowed baseline was is not in
    the file: such figures are compared where this version wrote them, of its own events. One that is null
    claims nothing, but for the end of a run that did end.
    """
    found = summarise(events)
    for strategy, told in header.strategies.items():
        known = found.get(strategy)
        if known is None:
            if ended:
                raise TraceError(f"damaged: header says {shown(strategy)} ran, there are no rounds of it")
            continue
        judged = header.app == __version__ and ("target" in found or told.get("baseline_created") is None)
        for name, figure in known.items():
            claims = told.get(name) is not None or (name == "finish_reason" and name in told and ended)
            if claims and (judged or name not in AGAINST) and not _agree(told[name], figure):
                said = f"header says {name} {_words(told[name])} for {shown(strategy)}"
                raise TraceError(f"damaged: {said}, rounds say {_words(figure)}")


def _agree(told: Any, found: Any) -> bool:
    if isinstance(told, Mapping) and isinstance(found, Mapping):
        return all(_agree(told[name], value) for name, value in found.items() if name in told)
    if isinstance(told, list) and isinstance(found, list):
        return len(told) == len(found) and all(map(_agree, told, found))
    if isinstance(told, bool) or isinstance(found, bool):
        return told is found
    if isinstance(told, int | float) and isinstance(found, int | float):
        return isclose(told, found, rel_tol=_REL, abs_tol=_ABS)
    return bool(told == found)


def _words(value: Any) -> str:
    return "nothing" if value is None else f"{value:.6g}" if isinstance(value, float) else shown(value)
