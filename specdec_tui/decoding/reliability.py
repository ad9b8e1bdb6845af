"""Whether the clock of a run can be believed: what the run and its baseline know of each other. No torch here.

A target pass over one token costs the same in every run of a target, a pass over more tokens costs no
less, so nothing is faster than its tokens per round allow. Where the clock says otherwise the
machine's pace changed between the two runs, and their ratio is not that of the strategies.

Rounds are compared near in their place in the text: there passes cost the same however they grow with
its length, and with the schedule `interleaved` the two ran at about the same time, so that a load
which comes and goes hits both alike and their ratio stands. Runs of different times (`sequential`, a baseline
of an earlier run) share nothing but their one-token passes: without any, nothing tells which of the two had
the faster machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, sqrt

from specdec_tui.decoding.course import LEAST_SECONDS, Passes
from specdec_tui.decoding.figures import OF_THE_DRAFTER, RunFigures, speedup
from specdec_tui.decoding.stretch import in_common

WORDS = ("steady", "disturbed", "short", "unchecked")
DOUBTS = {"disturbed": "clock disturbed", "short": "too short", "unchecked": "clock unchecked"}
"""What is told of a speedup whose word is not `steady`."""
TOLERANCE = 0.1
"""Passes that must take the same, a speedup and what is possible, or one and its repeat, may differ by this share."""
_LEAST_ROUNDS = 8
_UNCHECKED = "no one-token passes to hold against target's, which ran at another time"
_MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class Reliability:
    """`word`, one of `WORDS`: whether the speedup can be believed. `reason`: one sentence, empty when steady.

    `short`: nothing contradicts the clock, but there is too little to go by. `unchecked`: the two ran at
    different times, and no one-token pass of this run can be held against the baseline's.

    `low` to `high`: where the speedup of a repeat is to be expected (about 95 %), as far as the clock
    decides it and the tokens of a round allow it. Of a steady run the measured one lies in it, which may be
    above what these allow by `TOLERANCE`; of a disturbed run it reaches from what its own plain rounds say to
    what was measured, but never above what its tokens allow.
    None where that cannot be told. A speedup is more than luck only where `low` is above 1.
    """

    word: str
    reason: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def is_steady(self) -> bool:
        return self.word == "steady"

    @property
    def is_disturbed(self) -> bool:
        return self.word == "disturbed"


def reliability(run: RunFigures, baseline: RunFigures | None) -> Reliability | None:
    """The reliability of a run's speedup over `baseline`, the target's own run; None where there is no speedup (yet).

    Takes bounded work however long the runs, so a screen may ask at every repaint.
    """
    if baseline is None or not run.rounds or (ratio := speedup(baseline, run)) is None:
        return None
    if run.strategy == baseline.strategy:
        return Reliability("steady", "", 1.0, 1.0)
    parts = _parts(run, baseline)
    clock = _compare([(part.seconds, due) for part, due in zip(parts, _due(parts), strict=True)])
    plain = wide = most = limit = None
    if run.strategy not in OF_THE_DRAFTER:  # passes of another model tell nothing of the target's
        most = _most(run, baseline, parts)
        limit = _limit(run, baseline, most)
        plain = _compare_passes([(part.plain, part.step) for part in parts])
        wide = _compare_passes([(part.wide, part.step) for part in parts])
    reason = _disagreement(ratio, most, limit, plain, wide, clock)
    if not reason and clock is None:
        return Reliability("short", _too_little(run, baseline))
    is_blind = plain is None and (run.is_alone or baseline.is_of_another_time)
    if not reason and is_blind:
        return Reliability("unchecked", _UNCHECKED)
    spread = 1.0 if clock is None else 1 + clock.uncertainty
    values = [ratio / spread, ratio * spread]
    if reason:
        values += [ratio * found.ratio for found in (plain, wide) if found and (found is plain or found.ratio < 1)]
    if is_blind and most is not None and not (wide and wide.ratio < 1):  # this machine may have been the slower one
        values.append(most)
    if most is not None:  # more than its tokens allow, no repeat can reach
        values = [min(value, most) for value in values]
    if not reason:
        values.append(ratio)
    return Reliability("disturbed" if reason else "steady", reason, min(values), max(values))


def _disagreement(
    ratio: float,
    most: float | None,
    limit: float | None,
    plain: _Passes | None,
    wide: _Passes | None,
    clock: _Found | None,
) -> str:
    """The first thing that the clock says and that cannot be, so short that a pane has room for it; empty for none."""
    if plain is not None and plain.is_beyond(TOLERANCE):
        return f"one-token passes took {_ms(plain.seconds)}, target's {_ms(plain.due)}"
    if wide is not None and wide.ratio < 1 and wide.is_beyond(TOLERANCE):
        return f"many-token passes took {_ms(wide.seconds)}, target's one-token {_ms(wide.due)}"
    if limit is not None and ratio > limit:
        return f"{most:.2f} tokens a round after the prefill do not allow {ratio:.2f}×"
    if clock is not None and clock.uncertainty > TOLERANCE:
        return f"the machine's pace changed: ±{clock.uncertainty:.0%}"
    return ""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rounds of a run that follow each other, beside the baseline's over the same tokens.

    `rounds`: by their number of drafts. `target`: the baseline's passes, all over one token.
    """

    rounds: Mapping[int, Passes]
    plain: Passes
    wide: Passes
    target: Passes

    @property
    def seconds(self) -> float:
        return sum(rounds.seconds for rounds in self.rounds.values())

    @property
    def step(self) -> float:
        """Seconds of a pass of the baseline."""
        return self.target.seconds / self.target.count


def _parts(run: RunFigures, baseline: RunFigures) -> list[_Part]:
    """The rounds that lie in the text of both, cut into 4, 8 or 16 parts; none where they are too few."""
    ours, theirs = run.course, baseline.course
    rounds = ours.rounds_within(theirs.end)
    if rounds < _LEAST_ROUNDS or ours.begin < theirs.begin:
        return []
    count = 4
    while count < _MOST_PARTS and 4 * count <= rounds:
        count *= 2
    found = []
    for first, last in pairwise(rounds * index // count for index in range(count + 1)):
        begin, end = (theirs.rounds_within(ours.tokens_after(edge)) for edge in (first, last))
        target = theirs.plain_passes(begin, end)
        if target.seconds >= LEAST_SECONDS:
            plain, wide = ours.plain_passes(first, last), ours.wide_passes(first, last)
            if run.pads:
                plain, wide = Passes(0, 0.0), Passes(plain.count + wide.count, plain.seconds + wide.seconds)
            found.append(_Part(ours.rounds_by_drafts(first, last), plain, wide, target))
    return found


def _most(run: RunFigures, baseline: RunFigures, parts: Sequence[_Part]) -> float:
    """The speedup of rounds that cost no more than one-token passes: the tokens of a round.

    Of the rounds that `speedup` compares.
    Where passes grow with the text, many tokens a round at its end are worth more than at its beginning:
    there, the speedup of rounds that cost no more than a one-token pass at their place.
    """
    least = sum(rounds.count * part.step for part in parts for rounds in part.rounds.values())
    if not run.recomputes or least < LEAST_SECONDS:
        compared, _ = in_common(run.course, baseline.course)
        return compared.tokens / compared.rounds
    return sum(part.target.seconds for part in parts) / least


def _limit(run: RunFigures, baseline: RunFigures, most: float) -> float:
    """The speedup beyond which a clock is not believed: more than the tokens of a round allow, by `TOLERANCE`.

    By so much more than τ of the rounds compared, where that is less because of the prefill's token: a reader has
    it beside the speedup. But never less than these rounds allow.
    """
    if run.recomputes:
        return most * (1 + TOLERANCE)
    compared, _ = in_common(run.course, baseline.course)
    tau = (compared.tokens + run.prefill_tokens) / (compared.rounds + 1)
    return max(most, min(most, tau) * (1 + TOLERANCE))


def _due(parts: Sequence[_Part]) -> list[float]:
    """Seconds each part would have taken if rounds of as many drafts cost as many target passes in all of them."""
    seconds: defaultdict[int, float] = defaultdict(float)
    steps: defaultdict[int, float] = defaultdict(float)
    for part in parts:
        for drafts, rounds in part.rounds.items():
            seconds[drafts] += rounds.seconds
            steps[drafts] += rounds.count * part.step
    return [sum(r.count * part.step * seconds[n] / steps[n] for n, r in part.rounds.items()) for part in parts]


@dataclass(frozen=True, slots=True)
class _Found:
    """How much of what was due was measured, and the standard error of that, as a share of it."""

    ratio: float
    error: float

    @property
    def uncertainty(self) -> float:
        """The share by which a repeat may differ (about 95 %)."""
        return exp(2 * self.error) - 1

    def is_beyond(self, tolerance: float) -> bool:
        """Whether it differs from 1 by more than `tolerance`."""
        return abs(log(self.ratio)) > log(1 + tolerance)


@dataclass(frozen=True, slots=True)
class _Passes(_Found):
    """The same of passes, with the mean seconds of one of them and what was due in its place."""

    seconds: float
    due: float


def _compare_passes(passes: Sequence[tuple[Passes, float]]) -> _Passes | None:
    """Passes of the parts of a run against what each of them was due, in seconds; None with too few of them."""
    count = sum(own.count for own, _ in passes)
    found = _compare([(own.seconds, own.count * due) for own, due in passes]) if count >= _LEAST_ROUNDS else None
    if found is None:
        return None
    seconds = sum(own.seconds for own, _ in passes) / count
    return _Passes(found.ratio, found.error, seconds, seconds / found.ratio)


def _compare(pairs: Sequence[tuple[float, float]]) -> _Found | None:
    """Σ measured / Σ due over the parts of a run that follow each other; None with too little to go by.

    Neighbours resemble each other where the pace of a machine changes slowly, so the error is the largest
    of those for parts, pairs of parts, … (blocking: Flyvbjerg and Petersen 1989, doi 10.1063/1.457480).
    """
    pairs = [(measured, due) for measured, due in pairs if due >= LEAST_SECONDS]
    measured, due = sum(m for m, _ in pairs), sum(d for _, d in pairs)
    if len(pairs) < 3 or measured < LEAST_SECONDS:
        return None
    ratio, error = measured / due, 0.0
    while (count := len(pairs)) >= 3:
        squares = sum((m - ratio * d) ** 2 for m, d in pairs)
        error = max(error, sqrt(squares * count / (count - 1)) / measured)
        pairs = [(sum(m for m, _ in pairs[i : i + 2]), sum(d for _, d in pairs[i : i + 2])) for i in range(0, count, 2)]
    return _Found(ratio, error)


def _too_little(run: RunFigures, baseline: RunFigures) -> str:
    rounds = run.course.rounds_within(baseline.course.end)
    if rounds >= _LEAST_ROUNDS:
        return "passes are too short for this clock"
    return f"{rounds} round{'s' * (rounds != 1)} beside target's {'are' if rounds != 1 else 'is'} too few to tell"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"
