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


class Rounds:
    """Rounds of a run with equally many drafts: their numbers, rising, and what they took, in seconds."""

    def __init__(self) -> None:
        self._numbers = array("q")
        self._until = array("d", [0.0])  # entry i: the sum over the first i
        self._drafting = array("d")
        self._target = array("d")

    def add(self, number: int, record: RoundVerified) -> None:
        self._numbers.append(number)
        self._until.append(self._until[-1] + record.seconds)
        self._drafting.append(record.draft_seconds)
        self._target.append(record.verify_seconds + record.other_seconds + record.wire_seconds)

    def between(self, first: int, last: int) -> Passes:
        """Those from number `first` up to `last`, which is not in it."""
        begin, end = self._span(first, last)
        return Passes(end - begin, self._until[end] - self._until[begin])

    def drafting(self, first: int, last: int, every: int = 1) -> array[float]:
        """What drafting took in each of them, or in one of `every` so many."""
        begin, end = self._span(first, last)
        return self._drafting[begin:end:every]

    def target(self, first: int, last: int, every: int = 1) -> array[float]:
        """The same of the target's side: the pass, or the call with its way, draws and updates."""
        begin, end = self._span(first, last)
        return self._target[begin:end:every]

    def _span(self, first: int, last: int) -> tuple[int, int]:
        return bisect_left(self._numbers, first), bisect_left(self._numbers, last)


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
        self._wire = array("d", [0.0])
        self._peak = 0.0
        self.asks = False
        """Whether its drafts are verified by calls to a server, whose times vary by themselves."""
        self._own = array("q", [0])
        self._rounds_of: dict[int, Rounds] = {}  # number of drafts -> the rounds with so many
        # Number of drafts judged, and of those accepted -> the numbers of the rounds with so many.
        self._judged: dict[int, array[int]] = {}
        self._accepted: dict[int, array[int]] = {}

    def add(self, record: RoundVerified, judged: int, accepted: int, *, searches: bool = False) -> None:
        """Count one round; the rounds of a run come in their order. `judged`: of its drafts, `accepted` of these.

        Each step of a search is a place further in the text, by a pass that is over several texts.
        """
        drafts = len(record.drafts) + (record.untold or 0)
        self._rounds_of.setdefault(drafts, Rounds()).add(self.rounds, record)
        for numbers, count in ((self._judged, judged), (self._accepted, accepted)):
            if count:
                numbers.setdefault(count, array("q")).append(self.rounds)
        self._own.append(self._own[-1] + (record.emitted is not None))
        self.asks = self.asks or bool(record.calls and record.drafts)
        self._recent.append(record)
        plain = not (drafts or searches or record.untold is None)
        passing = record.verify_seconds + record.wire_seconds
        self._seconds.append(self._seconds[-1] + record.seconds)
        self._tokens.append(self._tokens[-1] + (1 if searches else accepted + (record.emitted is not None)))
        self._plain.append(self._plain[-1] + plain)
        self._plain_seconds.append(self._plain_seconds[-1] + plain * passing)
        self._wide_seconds.append(self._wide_seconds[-1] + (not plain) * passing)
        self._wire.append(self._wire[-1] + record.wire_seconds)
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

    def seconds_between(self, first: int, last: int) -> float:
        """Decode seconds of the rounds from `first` up to `last`, which is not in it."""
        return self._seconds[last] - self._seconds[first]

    def own_tokens(self, first: int, last: int) -> int:
        """Tokens of the target's own of these rounds: one each, but for a round that ended the text on a draft."""
        return self._own[last] - self._own[first]

    def fates(self, first: int, last: int) -> list[tuple[int, int]]:
        """At index i: how many drafts of these rounds were judged at place i+1 of their round, and accepted there."""
        judged, accepted = (
            {n: bisect_left(numbers, last) - bisect_left(numbers, first) for n, numbers in kept.items()}
            for kept in (self._judged, self._accepted)
        )

        def beyond(place: int, counts: dict[int, int]) -> int:
            return sum(count for n, count in counts.items() if n > place)

        places = range(max((n for n, count in judged.items() if count), default=0))
        return [(beyond(place, judged), beyond(place, accepted)) for place in places]

    def plain_passes(self, first: int, last: int) -> Passes:
        """The passes over one token among the rounds from `first` up to `last`, which is not in it.

        They are the passes of rounds without drafts, and their seconds those of the pass or call alone, without
        draws and updates.
        """
        return Passes(self._plain[last] - self._plain[first], self._plain_seconds[last] - self._plain_seconds[first])

    def wide_passes(self, first: int, last: int) -> Passes:
        """The passes that verified drafts among these rounds; of calls to a server with their way."""
        count = last - first - (self._plain[last] - self._plain[first])
        return Passes(count, self._wide_seconds[last] - self._wide_seconds[first])

    def wire_between(self, first: int, last: int) -> float:
        """Seconds of these rounds on the way to a server and back."""
        return self._wire[last] - self._wire[first]

    def wires(self, first: int, last: int, every: int = 1) -> list[float]:
        """The same of each of them, or of one in `every` so many."""
        return [self._wire[number + 1] - self._wire[number] for number in range(first, last, every)]

    def rounds_by_drafts(self, first: int, last: int) -> dict[int, Passes]:
        """Number of drafts -> those of these rounds that had so many, with all their seconds."""
        found = {drafts: rounds.between(first, last) for drafts, rounds in sorted(self._rounds_of.items())}
        return {drafts: rounds for drafts, rounds in found.items() if rounds.count}

    def rounds_with(self, drafts: int) -> Rounds:
        """All rounds with so many drafts."""
        return self._rounds_of.get(drafts, Rounds())

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
