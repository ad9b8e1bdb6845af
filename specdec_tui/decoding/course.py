"""The course of a run: its last rounds, and its speed over time. No torch here."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque

from specdec_tui.decoding.records import RoundVerified

WINDOW_ROUNDS = 50
LEAST_SECONDS = 1e-9
"""What took less was not measured: no clock here counts finer, and no speed follows from it."""


class RunCourse:
    """Kept as rounds arrive, in constant time each; what it answers takes bounded work however long the run."""

    def __init__(self) -> None:
        self._recent: deque[RoundVerified] = deque(maxlen=WINDOW_ROUNDS)
        # Entry i: the sums over the first i rounds.
        self._seconds = array("d", [0.0])
        self._tokens = array("q", [0])

    def add(self, record: RoundVerified, new_tokens: int) -> None:
        """Count one round; the rounds of a run come in their order."""
        self._recent.append(record)
        self._seconds.append(self._seconds[-1] + record.seconds)
        self._tokens.append(self._tokens[-1] + new_tokens)

    @property
    def seconds(self) -> float:
        """Decode seconds of all rounds."""
        return self._seconds[-1]

    def latest(self, count: int = WINDOW_ROUNDS) -> list[RoundVerified]:
        """The last rounds, oldest first; at most WINDOW_ROUNDS of them are kept."""
        return list(self._recent)[-count:] if count > 0 else []

    def speeds(self, points: int) -> list[tuple[float, float]]:
        """At most `points` pairs (decode seconds, tokens per second), spread evenly over the time so far.

        Each speed is that of the rounds in the window that ends there, so the last one is the
        rolling window's own. Rounds that took no measurable time give no point.
        """
        rounds = len(self._seconds) - 1
        if rounds <= max(0, points):
            ends = list(range(1, rounds + 1))
        else:
            marks = (self.seconds * (i + 1) / points for i in range(points))
            # The last end is exact: rounding must not lose the newest round.
            found = {min(rounds, max(1, bisect_left(self._seconds, mark))) for mark in marks}
            ends = sorted(found | {rounds})[-points:] if points > 0 else []
        pairs = []
        for end in ends:
            start = max(0, end - WINDOW_ROUNDS)
            seconds = self._seconds[end] - self._seconds[start]
            if seconds >= LEAST_SECONDS:
                pairs.append((self._seconds[end], (self._tokens[end] - self._tokens[start]) / seconds))
        return pairs
