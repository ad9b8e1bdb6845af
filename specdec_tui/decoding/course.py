"""The course of a run: its last rounds, its speed over time, and what any stretch of it took. No torch here."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass

from specdec_tui.decoding.records import RoundVerified

WINDOW_ROUNDS = 50
LEAST_SECONDS = 1e-9
"""What took less was not measured: no clock here counts finer, and no speed follows from it."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of the target, or rounds: how many, and their seconds together."""

    count: int
    seconds: float

    @property
    def mean(self) -> float | None:
        return self.seconds / self.count if self.count else None


class _Rounds:
    """Some of the rounds of a run: their numbers, rising, and the seconds up to each of them."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._seconds = array("d", [0.0])

    def add(self, number: int, seconds: float) -> None:
        self._numbers.append(number)
        self._seconds.append(self._seconds[-1] + seconds)

    def between(self, first: int, last: int) -> Passes:
        """Those from number `first` up to `last`, which is not in it."""
        begin, end = bisect_left(self._numbers, first), bisect_left(self._numbers, last)
        return Passes(end - begin, self._seconds[end] - self._seconds[begin])


class RunCourse:
    """Kept as rounds arrive, in constant time each; what it answers takes bounded work however long the run.

    `begin`: tokens of the rounds before its first, for the course of a part of a run.
    """

    def __init__(self, begin: int = 0) -> None:
        self._recent: deque[RoundVerified] = deque(maxlen=WINDOW_ROUNDS)
        self._begin = begin
        # Entry i: the sums over the first i rounds.
        self._seconds = array("d", [0.0])
        self._tokens = array("q", [begin])
        self._plain = array("q", [0])
        self._plain_seconds = array("d", [0.0])
        self._wide_seconds = array("d", [0.0])
        self._peak = 0.0
        self._rounds_of: dict[int, _Rounds] = {}  # number of drafts -> the rounds with so many

    def add(self, record: RoundVerified, new_tokens: int) -> None:
        """Count one round; the rounds of a run come in their order."""
        self._rounds_of.setdefault(len(record.drafts), _Rounds()).add(self.rounds, record.seconds)
        self._recent.append(record)
        plain = not record.drafts
        self._seconds.append(self._seconds[-1] + record.seconds)
        self._tokens.append(self._tokens[-1] + new_tokens)
        self._plain.append(self._plain[-1] + plain)
        self._plain_seconds.append(self._plain_seconds[-1] + plain * record.verify_seconds)
        self._wide_seconds.append(self._wide_seconds[-1] + (not plain) * record.verify_seconds)
        if (speed := self._speed_at(self.rounds)) is not None:
            self._peak = max(self._peak, speed)

    @property
    def rounds(self) -> int:
        return len(self._seconds) - 1

    @property
    def seconds(self) -> float:
        """Decode seconds of all rounds."""
        return self._seconds[-1]

    @property
    def begin(self) -> int:
        """Place of the first round's first token among the tokens of all rounds, from 0."""
        return self._begin

    @property
    def end(self) -> int:
        """Place behind the last round's last token."""
        return self._tokens[-1]

    def tokens_after(self, rounds: int) -> int:
        """Place in the text behind the first `rounds` rounds."""
        return self._tokens[rounds]

    def rounds_within(self, place: int) -> int:
        """Rounds that end no later than at this place of the text."""
        return bisect_right(self._tokens, place) - 1

    def seconds_until(self, place: int) -> float:
        """Decode seconds until the text had grown to `place`; inside a round, its share of that round."""
        last = min(max(bisect_right(self._tokens, place) - 1, 0), self.rounds)
        known = self._seconds[last]
        if place <= self._tokens[last] or last == self.rounds:
            return known
        share = (place - self._tokens[last]) / (self._tokens[last + 1] - self._tokens[last])
        return known + share * (self._seconds[last + 1] - known)

    def plain_passes(self, first: int, last: int) -> Passes:
        """The passes over one token among the rounds from `first` up to `last`, which is not in it.

        They are the passes of rounds without drafts, and their seconds those of the pass alone, without
        draws and updates.
        """
        return Passes(self._plain[last] - self._plain[first], self._plain_seconds[last] - self._plain_seconds[first])

    def wide_passes(self, first: int, last: int) -> Passes:
        """The passes that verified drafts among these rounds."""
        count = last - first - (self._plain[last] - self._plain[first])
        return Passes(count, self._wide_seconds[last] - self._wide_seconds[first])

    def rounds_by_drafts(self, first: int, last: int) -> dict[int, Passes]:
        """Number of drafts -> those of these rounds that had so many, with all their seconds."""
        found = {drafts: rounds.between(first, last) for drafts, rounds in self._rounds_of.items()}
        return {drafts: rounds for drafts, rounds in found.items() if rounds.count}

    def latest(self, count: int = WINDOW_ROUNDS) -> list[RoundVerified]:
        """The last rounds, oldest first; at most WINDOW_ROUNDS of them are kept."""
        return list(self._recent)[-count:] if count > 0 else []

    def speeds(self, points: int) -> list[tuple[float, float]]:
        """At most `points` pairs (decode seconds, tokens per second), spread evenly over the time so far.

        Each speed is that of the rounds in the window that ends there, so the last one is the
        rolling window's own. Rounds that took no measurable time give no point.
        """
        rounds = self.rounds
        if rounds <= max(0, points):
            ends = list(range(1, rounds + 1))
        else:
            marks = (self.seconds * (i + 1) / points for i in range(points))
            # The last end is exact: rounding must not lose the newest round.
            found = {min(rounds, max(1, bisect_left(self._seconds, mark))) for mark in marks}
            ends = sorted(found | {rounds})[-points:] if points > 0 else []
        pairs = ((self._seconds[end], self._speed_at(end)) for end in ends)
        return [(seconds, speed) for seconds, speed in pairs if speed is not None]

    @property
    def peak(self) -> float:
        """The largest of all these speeds, at whatever points; 0 before the first."""
        return self._peak

    def _speed_at(self, end: int) -> float | None:
        """Tokens per second of the rounds in the window that ends behind so many rounds."""
        start = max(0, end - WINDOW_ROUNDS)
        seconds = self._seconds[end] - self._seconds[start]
        return (self._tokens[end] - self._tokens[start]) / seconds if seconds >= LEAST_SECONDS else None
