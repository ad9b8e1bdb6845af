"""How a run stands against the target's own: one verdict, the same in panes, charts and table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specdec_tui.decoding.figures import RunFigures, speedup
from specdec_tui.decoding.records import EndReason
from specdec_tui.decoding.reliability import reliability


class Verdict(StrEnum):
    """What may be said of a speedup."""

    FASTER = "faster"  # more than luck, and no more than its tokens per pass allow
    SLOWER = "slower"
    DISTURBED = "disturbed"  # the clock contradicts itself: the ratio is not that of the strategies
    SHORT = "short"  # too little to go by
    OPEN = "open"  # about equal


@dataclass(frozen=True, slots=True)
class Standing:
    """A measured speedup; `low` to `high` is where that of a repeat is to be expected, if that is known."""

    ratio: float
    verdict: Verdict
    low: float | None = None
    high: float | None = None
    reason: str = ""

    @property
    def is_disturbed(self) -> bool:
        return self.verdict is Verdict.DISTURBED

    @property
    def text(self) -> str:
        """The ratio; of a disturbed run its interval alone."""
        if self.is_disturbed and self.low is not None and self.high is not None:
            return interval_text(self.low, self.high)
        return f"{self.ratio:.2f}×"


def standing(run: RunFigures, baseline: RunFigures | None) -> Standing | None:
    """None before both have rounds that took measurable time."""
    if baseline is None or (ratio := speedup(baseline, run)) is None:
        return None
    told = reliability(run, baseline)
    if told is None:
        return None
    verdict = Verdict.OPEN
    if not told.is_steady:
        verdict = Verdict(told.word)
    elif ratio < 0.995:
        verdict = Verdict.SLOWER
    elif run.end is not None and run.end.reason is EndReason.ERROR:
        verdict = Verdict.OPEN  # nothing good is said of a run that failed
    elif baseline.is_of_another_time:
        verdict = Verdict.OPEN  # nor of two clocks that never ran side by side
    elif run.strategy != "drafter" and (told.low or 0.0) > 1 and 1.005 < ratio <= (run.tokens_per_target_call or 0.0):
        verdict = Verdict.FASTER  # the drafter alone writes another text
    return Standing(ratio, verdict, told.low, told.high, told.reason)


def interval_text(low: float, high: float) -> str:
    """`0.9–2.0×`, with a digit more where both ends would read the same; `≤ 3.67×` where all is beyond the possible."""
    if high - low < 0.005:
        return f"≤ {high:.2f}×"
    short = f"{low:.1f}", f"{high:.1f}"
    ends = short if short[0] != short[1] else (f"{low:.2f}", f"{high:.2f}")
    return "–".join(ends) + "×"
