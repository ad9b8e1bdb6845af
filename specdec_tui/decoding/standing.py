"""How a run stands against the target's own: one verdict, the same in panes, charts, tables, lists and reports."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from specdec_tui.decoding.figures import OF_THE_DRAFTER, OTHER_TEXTS, RunFigures, speedup
from specdec_tui.decoding.records import EndReason
from specdec_tui.decoding.reliability import DOUBTS, Reliability, reliability
from specdec_tui.decoding.stretch import in_common

RECOMPUTES, SAME_TEXT, BEYOND_TAU, BEYOND_TOKENS = "†", "‡", "¶", "°"
"""Marks beside a speedup: the baseline recomputes; tokens per second or τ told with it are of more text than it is; it
is more than the τ told with it, though no more than the tokens of a round; it is more than these too, but by so little
that the clock is believed."""

OF_SPEEDUPS = SAME_TEXT, BEYOND_TAU, BEYOND_TOKENS
MARKS = RECOMPUTES, *OF_SPEEDUPS
_WORDS = {
    RECOMPUTES: "target recomputes",
    SAME_TEXT: "over the text both have",
    BEYOND_TAU: "τ counts the prefill",
    BEYOND_TOKENS: "above τ by less than a tenth",
}
MEANINGS = {
    RECOMPUTES: "target recomputes its whole text at each step: that flatters the others",
    SAME_TEXT: "over the text both have; tok/s and τ are over all that each wrote",
    BEYOND_TAU: "more than τ, which counts the prefill; a round makes as many tokens",
    BEYOND_TOKENS: "more than its tokens allow, by less than a tenth: two clocks may differ by as much",
}
"""The same in full, for the line below a table that has them."""

_AGREES = 0.05  # of the ratio of two speeds and a speedup


class Verdict(StrEnum):
    """What may be said of a speedup."""

    FASTER = "faster"  # more than luck, and no more than its tokens per pass allow
    SLOWER = "slower"
    DISTURBED = "disturbed"  # the clock contradicts itself: the ratio is not that of the strategies
    SHORT = "short"  # too little to go by
    UNCHECKED = "unchecked"  # nothing tells whether both had the same machine
    OPEN = "open"  # about equal


@dataclass(frozen=True, slots=True)
class Standing:
    """A measured speedup; `low` to `high` is where that of a repeat is to be expected, if that is known.

    `marks`: what keeps it from being what it seems, told in short by these and in `remarks` in words.
    """

    ratio: float
    verdict: Verdict
    low: float | None = None
    high: float | None = None
    reason: str = ""
    marks: str = ""

    @property
    def is_disturbed(self) -> bool:
        return self.verdict is Verdict.DISTURBED

    @property
    def word(self) -> str:
        """Whether the clock can be believed, one of `reliability.WORDS`."""
        return self.verdict.value if self.verdict.value in DOUBTS else "steady"

    @property
    def doubt(self) -> str:
        """What keeps the clock from being believed, in two words; empty where it is steady."""
        return DOUBTS.get(self.verdict.value, "")

    @property
    def range(self) -> tuple[float, float]:
        """What is shown of it: the ratio as both ends, of a disturbed run its interval alone."""
        if self.is_disturbed and self.low is not None and self.high is not None:
            return self.low, self.high
        return self.ratio, self.ratio

    @property
    def text(self) -> str:
        if self.verdict is Verdict.SHORT and self.ratio < 0.005:
            return "–"  # a ratio of the first moments, which is none yet
        if not self.is_disturbed:
            return f"{self.ratio:.2f}×"
        return "?" if self.low is None or self.high is None else interval_text(self.low, self.high)

    @property
    def marked(self) -> str:
        return self.text + self.marks

    @property
    def remarks(self) -> str:
        """The marks with what they mean."""
        return ", ".join(f"{mark} {_WORDS[mark]}" for mark in self.marks)


def standing(run: RunFigures, baseline: RunFigures | None) -> Standing | None:
    """None before both have rounds that took measurable time, and of a what-if and a run that is none.

    Those wrote different texts, at different times.
    """
    if baseline is None or run.is_what_if != baseline.is_what_if or (ratio := speedup(baseline, run)) is None:
        return None
    told = reliability(run, baseline)
    if told is None:
        return None
    has_failed = run.end is not None and run.end.reason is EndReason.ERROR
    doubts = has_failed, baseline.recomputes, run.strategy in OTHER_TEXTS
    together = not baseline.is_of_another_time
    verdict = verdict_of(told, ratio, run.tokens_per_target_call, together, not any(doubts))
    found = Standing(ratio, verdict, told.low, told.high, told.reason)
    marks = {_beyond(found, run, baseline)}
    if baseline.recomputes:
        marks.add(RECOMPUTES)
    if _is_over_the_same_text(found, run, baseline):
        marks.add(SAME_TEXT)
    return replace(found, marks="".join(mark for mark in MARKS if mark in marks))


def verdict_of(
    told: Reliability, ratio: float, tokens_per_call: float | None, together: bool, is_praiseworthy: bool
) -> Verdict:
    """What a clock and the tokens of a target pass let one say of a speedup.

    Where the two clocks never ran `together` neither faster nor slower: the machine may have been another one.
    Praise is not for a run that failed, nor where the baseline is slower than it has to be, nor for what
    writes another text.
    """
    if not told.is_steady:
        return Verdict(told.word)
    if not together:
        return Verdict.OPEN
    if ratio < 0.995:
        return Verdict.SLOWER
    if is_praiseworthy and (told.low or 0.0) > 1 and 1.005 < ratio <= (tokens_per_call or 0.0):
        return Verdict.FASTER
    return Verdict.OPEN


def _is_over_the_same_text(found: Standing, run: RunFigures, baseline: RunFigures) -> bool:
    """Whether a reader who divides the two speeds gets another figure than the speedup.

    Speeds are over all that each has written, a speedup over what both have: while one is ahead, the other's
    passes may cost less where the text is still short.
    """
    own, other = run.decode_tokens_per_second, baseline.decode_tokens_per_second
    if not own or not other:
        return False
    low, high = min(found.ratio, found.range[0]), max(found.ratio, found.range[1])
    return not low / (1 + _AGREES) <= own / other <= high * (1 + _AGREES)


def _beyond(found: Standing, run: RunFigures, baseline: RunFigures) -> str:
    """The mark of a speedup that is shown as more than the τ beside it; empty where it is not.

    It may be: a round makes more tokens than the prefill, which τ counts, and the text that both have may have better
    rounds than the whole. It may be more than these tokens allow, too, as far as clocks may disagree. Where passes grow
    with the text the tokens of a round are no bound: such a target is marked as it is.
    """
    tau = run.tokens_per_target_call
    if found.is_disturbed or tau is None or run.strategy in OF_THE_DRAFTER or round(found.ratio, 2) <= round(tau, 2):
        return ""
    compared, _ = in_common(run.course, baseline.course)
    if round(found.ratio, 2) > round(compared.tokens / compared.rounds, 2):
        return "" if run.recomputes else BEYOND_TOKENS
    return BEYOND_TAU if compared.rounds == run.rounds else SAME_TEXT


def interval_text(low: float, high: float) -> str:
    """`0.92–2.04×`; `≤ 3.68×` where all is beyond the possible.

    Both ends are rounded as τ beside them and points of the γ-lab are: the same number is the same text everywhere,
    and an end that is what the tokens allow is never shown as more than these.
    """
    ends = [f"{end:.2f}" for end in (low, high)]
    return ("–".join(ends) if high - low >= 0.005 and ends[0] != ends[1] else f"≤ {ends[1]}") + "×"
