"""Whether the clock of a run can be believed: what the run and its baseline know of each other. No torch here.

A target pass over one token costs the same in every run of a target, a pass over more tokens costs no
less, so nothing is faster than its tokens per round allow. Where the clock says otherwise the
machine's pace changed between the two runs, and their ratio is not that of the strategies.
Of a target on a server a round without drafts is a call, and no step of a stream: then only the latter holds,
of calls with their way, for how much of one is the server's is not known as well.

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

from specdec_tui.decoding.blocking import LEAST_ROUNDS, Found, blocks, compare
from specdec_tui.decoding.course import LEAST_SECONDS, Passes
from specdec_tui.decoding.figures import OF_THE_DRAFTER, RunFigures, speedup
from specdec_tui.decoding.stretch import in_common

WORDS = ("steady", "disturbed", "short", "unchecked")
DOUBTS = {"disturbed": "clock disturbed", "short": "too short", "unchecked": "clock unchecked"}
"""What is told of a speedup whose word is not `steady`."""
TOLERANCE = 0.1
"""Passes that must take the same, a speedup and what is possible, or one and its repeat, may differ by this share."""
_UNCHECKED = "no one-token passes to hold against target's, which ran at another time"


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
    clock = compare([(part.seconds, due) for part, due in zip(parts, _due(parts), strict=True)])
    plain = wide = most = limit = None
    if run.strategy not in OF_THE_DRAFTER:  # passes of another model tell nothing of the target's
        most = _most(run, baseline, parts)
        limit = _limit(run, baseline, most)
        plain = _compare_passes([(part.plain, part.step) for part in parts])
        wide = _compare_passes([(part.wide, part.step) for part in parts])
    reason = _disagreement(ratio, most, limit, plain, wide, clock, run.by_calls)
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
    clock: Found | None,
    by_calls: bool,
) -> str:
    """The first thing that the clock says and that cannot be, so short that a pane has room for it; empty for none."""
    if plain is not None and plain.is_beyond(TOLERANCE):
        return f"one-token passes took {ms_text(plain.seconds)}, target's {ms_text(plain.due)}"
    if wide is not None and wide.ratio < 1 and wide.is_beyond(TOLERANCE):
        if by_calls:
            return f"calls took {ms_text(wide.seconds)}, a token of target's stream {ms_text(wide.due)}"
        return f"many-token passes took {ms_text(wide.seconds)}, target's one-token {ms_text(wide.due)}"
    if limit is not None and ratio > limit:
        return f"{most:.2f} tokens a round after the prefill do not allow {ratio:.2f}×"
    if clock is not None and clock.uncertainty > TOLERANCE:
        what = "calls of a kind took unlike times" if by_calls else "the machine's pace changed"
        return f"{what}: ±{clock.uncertainty:.0%}"
    return ""


@dataclass(frozen=True, slots=True)
class _Part:
    """Rounds of a run that follow each other, beside the baseline's over the same tokens.

    `rounds`: by their number of drafts. `target`: the baseline's passes, all over one token. `wire`: seconds of the
    rounds on the way to a server.
    """

    rounds: Mapping[int, Passes]
    plain: Passes
    wide: Passes
    target: Passes
    wire: float

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
    if ours.begin < theirs.begin:
        return []
    found = []
    for first, last in blocks(rounds):
        begin, end = (theirs.rounds_within(ours.tokens_after(edge)) for edge in (first, last))
        target = theirs.plain_passes(begin, end)
        if target.seconds >= LEAST_SECONDS:
            plain, wide = ours.plain_passes(first, last), ours.wide_passes(first, last)
            if run.pads or run.by_calls:
                plain, wide = Passes(0, 0.0), Passes(plain.count + wide.count, plain.seconds + wide.seconds)
            by_drafts, wire = ours.rounds_by_drafts(first, last), ours.wire_between(first, last)
            found.append(_Part(by_drafts, plain, wide, target, wire))
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
    """Seconds each part would have taken if rounds of as many drafts cost as many target passes in all of them.

    And as much of the way to a server, which is no longer where passes are.
    """
    seconds: defaultdict[int, float] = defaultdict(float)
    steps: defaultdict[int, float] = defaultdict(float)
    count = sum(rounds.count for part in parts for rounds in part.rounds.values())
    wire = sum(part.wire for part in parts) / count if count else 0.0
    for part in parts:
        for drafts, rounds in part.rounds.items():
            seconds[drafts] += rounds.seconds - rounds.count * wire
            steps[drafts] += rounds.count * part.step
    return [sum(r.count * (part.step * seconds[n] / steps[n] + wire) for n, r in part.rounds.items()) for part in parts]


@dataclass(frozen=True, slots=True)
class _Passes(Found):
    """The same of passes, with the mean seconds of one of them and what was due in its place."""

    seconds: float
    due: float


def _compare_passes(passes: Sequence[tuple[Passes, float]]) -> _Passes | None:
    """Passes of the parts of a run against what each of them was due, in seconds; None with too few of them."""
    count = sum(own.count for own, _ in passes)
    found = compare([(own.seconds, own.count * due) for own, due in passes]) if count >= LEAST_ROUNDS else None
    if found is None:
        return None
    seconds = sum(own.seconds for own, _ in passes) / count
    return _Passes(found.ratio, found.error, seconds, seconds / found.ratio)


def _too_little(run: RunFigures, baseline: RunFigures) -> str:
    rounds = run.course.rounds_within(baseline.course.end)
    if rounds >= LEAST_ROUNDS:
        return "passes are too short for this clock"
    return f"{rounds} round{'s' * (rounds != 1)} beside target's {'are' if rounds != 1 else 'is'} too few to tell"


def ms_text(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"
