"""What the γ-lab tells of one strategy: its forecasts at the figures that are set, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specdec_tui.decoding.forecast import (
    AS_MEASURED,
    Basis,
    Forecast,
    Supposed,
    basis_of,
    best_of,
    break_even,
    curve,
    forecast,
    missing,
    top_of,
)
from specdec_tui.decoding.latency import Latency, break_even_latency
from specdec_tui.decoding.reliability import TOLERANCE
from specdec_tui.decoding.sweep import Point, points_of, with_passes
from specdec_tui.gamma_sweep import REPEATS, gammas_of, shares
from specdec_tui.traces.bounds import MOST_DRAFTS

if TYPE_CHECKING:
    from specdec_tui.decoding.figures import RunFigures

FIGURES = ("α", "c", "v")
"""What can be set to other values than the measured ones."""
_NAMES = {"α": "alpha", "c": "cost_ratio", "v": "verify_ratio"}
_MOST = {"α": 1.0, "c": 5.0, "v": 20.0}
_LEAST = {"α": 0.0, "c": 0.0, "v": 0.1}
_DIGITS = 2


@dataclass(frozen=True, slots=True)
class Progress:
    """Of a sweep at work: `done` of `heats`, said to be its parts, and the seconds that the rest takes, if known."""

    strategy: str
    done: int
    heats: int
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Subject:
    """A strategy of the run that is on the screen, and what a sweep measured of it.

    `baseline`: None where the target did not run, of which `elsewhere` says when it did otherwise. `swept`: runs of
    the strategy in a sweep, each with the target's of its heat.
    """

    strategy: str
    run: RunFigures
    baseline: RunFigures | None
    elsewhere: str = ""
    swept: Sequence[tuple[RunFigures, RunFigures]] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """`lacking`: why there are no forecasts, in a sentence; then there is nothing but points.

    `gamma` is the γ that the sum and the round are of. `curve`: from γ 0 on. `best`: of the curve.
    `break_even`: the α at which `gamma` is expected to give 1.00×; None where none does. `stand_in`: what is lacking of
    the run itself, where all is from a run of the sweep instead.
    """

    subject: Subject
    points: dict[int, Point]
    lacking: str = ""
    gamma: int = 0
    supposed: Supposed = AS_MEASURED
    basis: Basis | None = None
    curve: tuple[Forecast, ...] = ()
    here: Forecast | None = None
    best: Forecast | None = None
    break_even: float | None = None
    stand_in: str = ""
    swept: frozenset[int] = frozenset()
    """The γ whose points are of the sweep; the run's own is of another time, and no better or worse than these."""

    @property
    def by_calls(self) -> bool:
        """Whether each round is a call to a server."""
        return self.basis is not None and self.basis.by_calls

    @property
    def far(self) -> Latency | None:
        """From which latency on `gamma` loses; None without a server, or drafts."""
        here, basis = self.here, self.basis
        if here is None or basis is None or not basis.by_calls or not here.gamma:
            return None
        return break_even_latency(here.tokens, here.drafting + here.verifying, basis.step, here.wire * basis.step)

    @property
    def best_measured(self) -> Point | None:
        """The fastest of several γ of the sweep whose clock can be believed."""
        clear = [point for point in self.points.values() if self.not_compared(point) == ""]
        return max(clear, key=lambda point: (point.ratio or 0.0, -point.gamma)) if len(clear) > 1 else None

    def not_compared(self, point: Point) -> str:
        """Why a point is no candidate for the best, in a few words; empty where it is one."""
        if point.doubt or point.ratio is None:
            return point.doubt or "clock disturbed"
        return "" if point.gamma in self.swept else "of the run alone, at another time"

    @property
    def passed_over(self) -> list[Point]:
        """Those that stand above the best measured and are not compared with it."""
        best = self.best_measured
        others = [point for point in self.points.values() if self.not_compared(point)]
        return [point for point in others if best is not None and middle_of(point) > (best.ratio or 0.0)]

    @property
    def least_slow(self) -> Point | None:
        """The fastest of several γ of a sweep without a best, all of which lose however far their clocks are off."""
        swept = [point for point in self.points.values() if point.gamma in self.swept]
        if len(swept) < 2 or self.best_measured is not None or not all(map(_surely_loses, swept)):
            return None
        return max(swept, key=lambda point: (middle_of(point), -point.gamma))

    @property
    def wanted(self) -> int | None:
        """The γ to take: the best that was measured, else that of the curve; 0 where none is faster than the target."""
        if self.least_slow is not None:
            return 0
        if (measured := self.best_measured) is not None:
            return measured.gamma if measured.ratio is not None and measured.ratio > 1 else 0
        return None if self.best is None else self.best.gamma

    @property
    def contradicts(self) -> bool:
        """Whether what was measured here is beyond what it was predicted as, by more than clocks may differ."""
        point = self.points.get(self.gamma)
        if self.here is None or point is None or point.ratio is None or not self.supposed.is_nothing:
            return False
        low, high = point.low or point.ratio, point.high or point.ratio
        expected = self.here.speedup
        return not low / (1 + TOLERANCE) <= expected <= high * (1 + TOLERANCE)


def read(subject: Subject, gamma: int | None = None, supposed: Supposed = AS_MEASURED) -> Reading:
    """`gamma`: None for that of the run."""
    swept = points_of(subject.swept)
    own = points_of([(subject.run, subject.baseline)]) if subject.run.drafted else {}
    points = dict(sorted({**own, **swept}.items()))
    compared = frozenset(swept)
    lacking = missing(subject.run, subject.baseline)
    run, baseline, stand_in = subject.run, subject.baseline, ""
    if lacking and subject.swept:
        found_in = min(subject.swept, key=lambda pair: (bool(missing(*pair)), abs(pair[0].gamma - run.gamma)))
        if not missing(*found_in):
            stand_in, lacking = lacking, ""
            run, baseline = found_in
    if lacking or baseline is None:
        return Reading(subject, points, lacking, swept=compared)
    basis = replace(with_passes(basis_of(run, baseline), subject.swept), stands_in=bool(stand_in))
    whole = Reading(subject, points, "", subject.run.gamma, basis=basis, stand_in=stand_in, swept=compared)
    return read_on(whole, whole.gamma if gamma is None else gamma, supposed)


def read_on(reading: Reading, gamma: int, supposed: Supposed) -> Reading:
    """The same measurements, at another γ or with other figures."""
    basis = reading.basis
    if basis is None:
        return reading
    top = max(top_of(reading.subject.run.gamma, MOST_DRAFTS), gamma, *reading.points)
    found = tuple(curve(basis, top, supposed))
    return replace(
        reading,
        gamma=gamma,
        supposed=supposed,
        curve=found,
        here=forecast(basis, gamma, supposed),
        best=best_of(found),
        break_even=break_even(basis, gamma, supposed),
    )


def sweep_seconds(reading: Reading) -> float | None:
    """About how long a sweep of its strategy takes, by the run and its forecasts; None where no target ran beside it.

    Decoding and prefills alone: loading and checks come to little beside them.
    """
    run, baseline = reading.subject.run, reading.subject.baseline
    if baseline is None or not run.drafted or not baseline.decode_seconds:
        return None
    gammas = gammas_of(run.gamma)
    plain = baseline.prefill_seconds + baseline.decode_seconds
    speeds = {found.gamma: found.speedup for found in reading.curve} if reading.supposed.is_nothing else {}
    own = [baseline.decode_seconds / speeds[n] if speeds.get(n) else run.decode_seconds for n in gammas]
    heats = len(shares(gammas, 0))
    return REPEATS * (heats * plain + sum(own) + len(gammas) * run.prefill_seconds)


def _surely_loses(point: Point) -> bool:
    """By its ends as they are said: where all of its clocks are disturbed these are what the tokens allow at most."""
    ends = [end for end in (point.ratio, point.high) if end is not None]
    return bool(ends) and round(max(ends), 2) < 1


def middle_of(point: Point) -> float:
    """Where a point stands: of one without a ratio, in the middle of its interval."""
    if point.ratio is not None:
        return point.ratio
    return ((point.low or 0.0) + (point.high or 0.0)) / 2


def value_of(reading: Reading, figure: str) -> float | None:
    """A figure of `FIGURES` as it is set now; None where it was not measured."""
    basis = reading.basis
    if basis is None:
        return None
    wanted: float | None = getattr(reading.supposed, _NAMES[figure])
    return wanted if wanted is not None else getattr(basis, _NAMES[figure])


def is_set(reading: Reading, figure: str) -> bool:
    """Whether a person has set it."""
    return getattr(reading.supposed, _NAMES[figure]) is not None


def moved(reading: Reading, figure: str, by: float) -> Supposed:
    """The what-ifs with one figure moved, as far as it may go; from the measured value to the next round one."""
    now = value_of(reading, figure)
    if now is None:
        return reading.supposed
    value = round(round(now, _DIGITS) + by, _DIGITS)
    value = min(_MOST[figure], max(_LEAST[figure], value))
    return replace(reading.supposed, **{_NAMES[figure]: value})
