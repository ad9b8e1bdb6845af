"""One scale for the bars and plots of all panes that are compared, so that the longer bar is the faster run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace
from math import ceil, floor, log10
from typing import TYPE_CHECKING

from specdec_tui.decoding.course import LEAST_SECONDS, RunCourse
from specdec_tui.decoding.standing import standing

if TYPE_CHECKING:
    from specdec_tui.decoding.figures import RunFigures

_ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """What a full bar or an axis stands for; 0 where nothing was measured yet."""

    speedup: float = 2.0
    peak: float = 0.0
    """Tokens/s of a run, and at any time of it."""
    seconds: float = 0.0
    """Decode seconds of a run."""
    round_seconds: float = 0.0
    """A round: half as much again as the slowest run's mean, so that one slow round does not flatten all others."""

    @property
    def top(self) -> float:
        """Tokens/s where bars and the axis of a plot end, with some room above the fastest."""
        return self.peak * 1.1

    def with_room_for(self, other: Scale) -> Scale:
        """The larger one in each of what they measure."""
        return Scale(*map(max, astuple(self), astuple(other)))

    def covering(self, courses: Iterable[RunCourse]) -> Scale:
        """The same, with room for these plots, which may be a moment ahead of it."""
        courses = list(courses)
        peak, seconds = max((c.peak for c in courses), default=0.0), max((c.seconds for c in courses), default=0.0)
        peak, seconds = round_number(max(self.peak, peak)), round_number(max(self.seconds, seconds))
        return replace(self, peak=peak or 1.0, seconds=seconds or 1.0)


def common_scale(runs: Iterable[RunFigures], baseline: RunFigures | None) -> Scale:
    """Round numbers, so that all panes are drawn anew only now and then while runs go on."""
    runs = [run for run in runs if run.rounds]
    ratios = [found.range[1] for run in runs if (found := standing(run, baseline)) is not None]
    rates = [max(run.decode_tokens_per_second or 0.0, run.course.peak) for run in runs]
    return Scale(
        float(max(2, ceil(max(ratios, default=0.0)))),
        round_number(max(rates, default=0.0)),
        round_number(max((run.decode_seconds for run in runs), default=0.0)),
        round_number(1.5 * max((run.decode_seconds / run.rounds for run in runs), default=0.0)),
    )


def round_number(least: float) -> float:
    """The smallest of 1, 1.2, 1.5, 2 … 8 times a power of ten that is no less; 0 of nothing."""
    if least < LEAST_SECONDS:
        return 0.0
    power = 10.0 ** floor(log10(least))
    return next(step * power for step in _ROUND if step * power >= least * (1 - 1e-9))
