"""How the strategies of a kept run stood, from its header alone: the verdicts that the run itself had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specdec_tui.decoding.figures import OTHER_TEXTS
from specdec_tui.decoding.records import EndReason
from specdec_tui.decoding.reliability import TOLERANCE, Reliability
from specdec_tui.decoding.standing import MARKS, RECOMPUTES, Standing, Verdict, verdict_of
from specdec_tui.traces.header import TraceHeader


def standings(header: TraceHeader) -> dict[str, Standing]:
    """Of each strategy but the target, as far as a speedup was kept."""
    target = header.strategies.get("target", {})
    return {
        name: found
        for name, figures in header.strategies.items()
        if name != "target" and (found := _standing(header, name, figures, target)) is not None
    }


def words(header: TraceHeader) -> dict[str, str]:
    """Whether the clock of each of them can be believed, a word of `reliability.WORDS`, where anybody looked."""
    found = standings(header).items()
    return {name: one.word for name, one in found if one.is_disturbed or header.reliability(name) is not None}


def best_of(header: TraceHeader) -> str:
    """The strategy that stands for a run; empty where none has a speedup.

    The fastest of those that may be called faster; without one the fastest of those with a steady clock, which may
    still be slow, and behind these what was too short or could not be checked. Nothing that a disturbed clock says
    goes before what another says, nor what a strategy did that failed. What writes another text, as the drafter
    alone, stands for none.
    """
    found = {name: one for name, one in standings(header).items() if name not in OTHER_TEXTS}
    rank = {name: (*_rank(one), one.range[0]) for name, one in found.items()}
    failed = {name for name in found if header.strategies[name].get("finish_reason") == EndReason.ERROR}
    return max(found, key=lambda name: (name not in failed, rank[name]), default="")


def _rank(found: Standing) -> tuple[int, bool]:
    return ("disturbed", "unchecked", "short", "steady").index(found.word), found.verdict is Verdict.FASTER


def _standing(header: TraceHeader, name: str, figures: Mapping[str, Any], target: Mapping[str, Any]) -> Standing | None:
    ratio, most = figures.get("speedup"), figures.get("tokens_per_target_call")
    if not ratio:
        return None
    told, recomputes = header.reliability(name), bool(target.get("recomputes", figures.get("recomputes")))
    if told is None:
        told = _supposed(ratio, None if recomputes else most)
    has_failed = figures.get("finish_reason") == EndReason.ERROR
    doubts = has_failed, recomputes, name in OTHER_TEXTS
    verdict = verdict_of(told, ratio, most, not header.is_borrowed(name), not any(doubts))
    kept = figures.get("marks")
    if kept is None:
        kept = RECOMPUTES * recomputes
    marks = "".join(mark for mark in MARKS if mark in kept)
    return Standing(ratio, verdict, told.low, told.high, told.reason, marks)


def _supposed(ratio: float, most: float | None) -> Reliability:
    """Of a trace that does not tell: it is from before anyone looked, but more than its tokens allow cannot be."""
    if most is not None and ratio > most * (1 + TOLERANCE):
        return Reliability("disturbed", f"{most:.2f} tokens a pass do not allow {ratio:.2f}×", most, most)
    return Reliability("steady")
