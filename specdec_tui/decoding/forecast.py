"""What another γ would bring: the speedup to expect of one strategy at any number of drafts a round. No torch here.

The model is that of `costs`, after Leviathan et al. 2023 (arXiv 2211.17192) but with a rate for each place of a
round: a draft fares the same at its place however many follow it. At the γ of the run that everything was measured in
it is `measured_costs`, to the last digit. Elsewhere it says of each forecast what of it was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import median

from specdec_tui.decoding.costs import costs, seconds_of_rounds, tokens_of_rounds
from specdec_tui.decoding.course import LEAST_SECONDS
from specdec_tui.decoding.figures import DRAFT_NOTHING, RunFigures
from specdec_tui.decoding.reliability import TOLERANCE
from specdec_tui.decoding.stretch import in_common
from specdec_tui.settings import SPECULATIVE

LEAST_PASSES = 3
"""Passes of a width below which their median is no measurement: rounds that the room left cut short, mostly."""
_POOLED = 20  # judged drafts that the rate beyond the measured places is taken from, the last places first
_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class Basis:
    """What was measured of a strategy in one run of it against its baseline.

    `rates`: at index i the share of draft i+1 accepted where all before it were; `beyond`: that of the last places
    together, which stands for those that no round had. `counts`: number of drafts -> rounds. `own_tokens`: of the
    target's own a round. `step`: seconds of the target's plain pass. `drafting`, `passes`: number of drafts -> median
    seconds of drafting so many and of the target's side of their round; `seen`: of how many rounds. `beforehand`: what
    such a pass took by itself before the run, `swept`: the target's side as a sweep measured it, both in the time of
    this run. `goes_on`: the drafter always has a next draft. `by_calls`: every round is a call to a server, of which
    `wire` seconds are the way. `pads`: every pass is over γ+1 tokens. `stands_in`: it is a run of the sweep, one of
    several at its γ. `alpha`, `cost_ratio`, `verify_ratio`: the run's own figures.
    """

    gamma: int
    rates: tuple[float, ...]
    beyond: float
    counts: Mapping[int, int]
    own_tokens: float
    step: float
    drafting: Mapping[int, float]
    passes: Mapping[int, float]
    seen: Mapping[int, int]
    goes_on: bool
    pads: bool
    recomputes: bool
    alpha: float
    cost_ratio: float
    verify_ratio: float | None
    beforehand: Mapping[int, float] = field(default_factory=dict)
    swept: Mapping[int, float] = field(default_factory=dict)
    stands_in: bool = False
    by_calls: bool = False
    wire: float = 0.0


@dataclass(frozen=True, slots=True)
class Supposed:
    """Figures that stand in place of the measured ones; None: as measured."""

    alpha: float | None = None
    cost_ratio: float | None = None
    verify_ratio: float | None = None

    @property
    def is_nothing(self) -> bool:
        return self == Supposed()


AS_MEASURED = Supposed()


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of a mean round at `gamma`: `tokens` it makes, `drafts` it has, and what drafting and the target's side cost.

    Costs are in plain steps of the target. `steps` is the whole, never below 1 unless passes recompute. `speedup`:
    tokens / steps. `full_drafting`, `full_verifying`: the same costs of a round with `gamma` drafts. `wire`: what of
    the target's side is the way to a server, of any round.
    `rates_extended`, `passes_estimated`: whether places without a measured rate, or widths of a pass that were not
    measured, are in it.
    """

    gamma: int
    tokens: float
    drafts: float
    drafting: float
    verifying: float
    steps: float
    speedup: float
    full_drafting: float
    full_verifying: float
    rates_extended: bool = False
    passes_estimated: bool = False
    wire: float = 0.0


def missing(run: RunFigures, baseline: RunFigures | None) -> str:
    """Why no forecast can be made of a run, in one sentence; empty where one can."""
    if run.strategy in DRAFT_NOTHING or run.searches:
        return f"{run.strategy or 'this strategy'} has no drafts: there is no γ to choose"
    if run.served:
        return "a server drafted by itself: what a draft cost is not told, so nothing can be predicted"
    if not run.drafted:
        return "no draft yet: nothing is known of it"
    if baseline is None or not baseline.rounds:
        return "no run of target to measure against: nothing can be predicted"
    told = costs(run, baseline)
    if told.missing:
        return f"{told.missing}: nothing can be predicted of this run"
    if told.predicted_speedup is None or told.cost_ratio is None or run.acceptance_rate is None:
        return "too little was measured to predict anything"
    return ""


def basis_of(run: RunFigures, baseline: RunFigures) -> Basis:
    """Of a run that lacks nothing (`missing`). Takes bounded work however long the runs."""
    own, other = in_common(run.course, baseline.course)
    told, counts = costs(run, baseline), own.draft_counts
    fates = own.course.fates(own.first, own.last)
    step, alpha = other.target_seconds(0), run.acceptance_rate
    assert step and alpha is not None and told.cost_ratio is not None
    often = {n for n, count in counts.items() if count >= LEAST_PASSES}
    passes = {n: own.target_seconds(n) or 0.0 for n in counts}
    return Basis(
        gamma=run.gamma,
        rates=tuple(own.conditional_acceptance),
        beyond=_rate_beyond(fates),
        counts=counts,
        own_tokens=own.own_tokens_per_round,
        step=step,
        drafting={n: own.drafting_seconds(n) for n in counts},
        passes=passes,
        seen=counts,
        goes_on=run.strategy in SPECULATIVE,
        pads=run.pads,
        recomputes=run.recomputes,
        alpha=alpha,
        cost_ratio=told.cost_ratio,
        verify_ratio=told.verify_ratio,
        beforehand=_beforehand(run, step, {n: passes[n] for n in often}),
        by_calls=run.by_calls,
        wire=own.wire_seconds,
    )


def _beforehand(run: RunFigures, step: float, own: Mapping[int, float]) -> dict[int, float]:
    """Number of drafts -> seconds of a pass over one token more, as measured before the run, in plain steps of the run.

    None of it where the clock was disturbed: where passes get cheaper by being longer, or the run's `own` take another
    time at the middle of their widths, both by more than clocks may differ. Or those were other passes.
    """
    found = dict(run.passes)
    if run.pads or run.recomputes or run.by_calls or not rises(found):
        return {}
    plain = found.pop(1)
    told = {length - 1: seconds / plain * step for length, seconds in found.items()}
    ratios = [told[n] / own[n] for n in told if own.get(n)]
    return told if not ratios or 1 / (1 + TOLERANCE) <= median(ratios) <= 1 + TOLERANCE else {}


def rises(passes: Mapping[int, float]) -> bool:
    """Whether no pass takes less than a shorter one, by more than clocks may differ. `passes`: tokens -> seconds."""
    longest = passes.get(1, 0.0)
    for _, seconds in sorted(passes.items()):
        if seconds * (1 + TOLERANCE) < longest:
            return False
        longest = max(longest, seconds)
    return longest > 0 and passes.get(1, 0.0) >= LEAST_SECONDS


def _rate_beyond(fates: Sequence[tuple[int, int]]) -> float:
    judged = accepted = 0
    for count, kept in reversed(fates):
        judged, accepted = judged + count, accepted + kept
        if judged >= _POOLED:
            break
    return accepted / judged if judged else 0.0


def forecast(basis: Basis, gamma: int, supposed: Supposed = AS_MEASURED) -> Forecast:
    """At any γ ≥ 0; γ 0 is the target's own decoding, and so 1."""
    if gamma == 0:
        return Forecast(0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0)
    counts = _counts_at(basis, gamma)
    most = max(counts)
    places = len(basis.rates)
    known = basis.rates if gamma <= basis.gamma else (*basis.rates, *[basis.beyond] * (most - places))
    rates = [scaled_rate(rate, basis.alpha, supposed.alpha) for rate in known]
    tokens = tokens_of_rounds(rates, counts, basis.own_tokens)
    clock = _Clock(basis, gamma, supposed)
    seconds = seconds_of_rounds(counts, lambda n: clock.drafting(n) + clock.verifying(n))
    if not basis.recomputes:
        seconds = max(seconds, basis.step)  # reading more tokens cannot take less
    seconds = max(seconds, LEAST_SECONDS)
    verifying = seconds_of_rounds(counts, clock.verifying) / basis.step
    rounds = sum(counts.values())
    return Forecast(
        gamma=gamma,
        tokens=tokens,
        drafts=sum(n * count for n, count in counts.items()) / rounds,
        drafting=seconds_of_rounds(counts, clock.drafting) / basis.step,
        verifying=verifying,
        steps=seconds / basis.step,
        speedup=tokens * basis.step / seconds,
        full_drafting=clock.drafting(gamma) / basis.step,
        full_verifying=clock.verifying(gamma) / basis.step,
        rates_extended=gamma > basis.gamma and most > places,
        passes_estimated=gamma != basis.gamma and not all(clock.is_measured(n) for n in counts),
        wire=min(basis.wire / basis.step, verifying),
    )


def curve(basis: Basis, top: int, supposed: Supposed = AS_MEASURED) -> list[Forecast]:
    """From γ 0 to `top`."""
    return [forecast(basis, gamma, supposed) for gamma in range(top + 1)]


def top_of(gamma: int, most: int) -> int:
    """Up to where a curve is drawn that has the present `gamma` on it: half as far again, at least 8."""
    return min(most, max(8, ceil(1.5 * gamma)))


def best_of(forecasts: Sequence[Forecast]) -> Forecast:
    """The γ that is expected to be fastest, the smallest of equals: 0 where speculation does not pay."""
    return max(forecasts, key=lambda found: (found.speedup, -found.gamma))


def break_even(basis: Basis, gamma: int, supposed: Supposed = AS_MEASURED) -> float | None:
    """The α at which this γ is expected to give 1.00×, with these c and v; None where no α does."""

    def speedup(alpha: float) -> float:
        return forecast(basis, gamma, Supposed(alpha, supposed.cost_ratio, supposed.verify_ratio)).speedup

    low, high = 0.0, 1.0
    if gamma == 0 or speedup(high) < 1:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if speedup(middle) >= 1 else (middle, high)
    return high


def _counts_at(basis: Basis, gamma: int) -> Mapping[int, float]:
    """Number of drafts -> rounds with so many, at another γ.

    Rounds that had fewer drafts than they might have keep them. Those that had all go on: with a drafter that always
    has a next one up to γ, with one that stops where it knows nothing as often as it went on at the places before.
    """
    if gamma == basis.gamma:
        return basis.counts
    found: dict[int, float] = {}
    for n, count in basis.counts.items():
        if n < basis.gamma or gamma < n:
            found[min(n, gamma)] = found.get(min(n, gamma), 0.0) + count
            continue
        going = 1.0 if basis.goes_on else _going_on(basis)
        left = float(count)
        for place in range(n, gamma):
            found[place] = found.get(place, 0.0) + left * (1 - going)
            left *= going
        found[gamma] = found.get(gamma, 0.0) + left
    return {n: count for n, count in sorted(found.items()) if count > 0}


def _going_on(basis: Basis) -> float:
    """The share of drafts that were followed by another one, of those that might have been."""
    might = does = 0
    for n, count in basis.counts.items():
        might += count * min(n, basis.gamma - 1)
        does += count * max(0, n - 1)
    return does / might if might else 1.0


def scaled_rate(rate: float, alpha: float, wanted: float | None) -> float:
    """The rate of a place where α is another one: below it in proportion, above it refusals in proportion."""
    if wanted is None or wanted == alpha:
        return rate
    return rate * wanted / alpha if wanted < alpha else 1 - (1 - rate) * (1 - wanted) / (1 - alpha)


class _Clock:
    """Seconds of both sides of a round with so many drafts, at one γ."""

    def __init__(self, basis: Basis, gamma: int, supposed: Supposed) -> None:
        self._basis = basis
        self._gamma = gamma
        self._supposed = supposed
        often = {n for n, count in basis.seen.items() if count >= LEAST_PASSES}
        own = {n: basis.passes[n] for n in often if n == basis.gamma or not basis.pads}
        self._is_own = gamma == basis.gamma and not basis.stands_in
        swept = {n: seconds for n, seconds in basis.swept.items() if n != basis.gamma or basis.stands_in}
        self._passes = {0: basis.step, **basis.beforehand, **own, **swept}
        if basis.by_calls:  # a plain step is no call: where nothing else is known, one takes what another does
            self._passes = {**own, **swept} or dict(basis.passes)
        self._drafting = {0: 0.0, **{n: basis.drafting[n] for n in often}}
        if max(self._drafting) == 0:
            self._drafting[1] = basis.cost_ratio * basis.step

    def is_measured(self, drafts: int) -> bool:
        return self._width(drafts) in self._passes

    def drafting(self, drafts: int) -> float:
        basis, wanted = self._basis, self._supposed.cost_ratio
        exact = basis.drafting.get(drafts) if self._is_own else None
        seconds = along(self._drafting, drafts) if exact is None else exact
        if wanted is None or wanted == basis.cost_ratio:
            return seconds
        return seconds * wanted / basis.cost_ratio if basis.cost_ratio else drafts * wanted * basis.step

    def verifying(self, drafts: int) -> float:
        basis, wanted = self._basis, self._supposed.verify_ratio
        exact = basis.passes.get(drafts) if self._is_own else None
        seconds = along(self._passes, self._width(drafts)) if exact is None else exact
        if wanted is None or basis.verify_ratio is None or wanted == basis.verify_ratio:
            return seconds
        share = 1.0 if basis.by_calls else self._width(drafts) / basis.gamma
        more = (wanted - basis.verify_ratio) * share
        return max(0.0, seconds + more * basis.step)

    def _width(self, drafts: int) -> int:
        return self._gamma if self._basis.pads else drafts


def along(points: Mapping[int, float], place: float) -> float:
    """The value at a place: on the straight line between its neighbours, beyond the last on that through all of them.

    Never falling beyond the last: no pass gets cheaper by being wider.
    """
    places = sorted(points)
    first, last = places[0], places[-1]
    if place > last:
        slope = max(0.0, (points[last] - points[first]) / (last - first)) if last > first else 0.0
        return points[last] + slope * (place - last)
    below = max((p for p in places if p <= place), default=first)
    above = min(p for p in places if p >= place)
    if below == above:
        return points[above]
    return points[below] + (points[above] - points[below]) * (place - below) / (above - below)
