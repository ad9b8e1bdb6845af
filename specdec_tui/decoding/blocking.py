"""How far a ratio of sums over a run can be trusted, from how it scatters between parts of that run. No torch here.

Neighbours resemble each other where the pace of a machine changes slowly, so the error is the largest of those for
parts, pairs of parts, … (blocking: Flyvbjerg and Petersen 1989, doi 10.1063/1.457480).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log, sqrt

from specdec_tui.decoding.course import LEAST_SECONDS

LEAST_ROUNDS = 8
"""Fewer say nothing of how they scatter."""
_MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class Found:
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


def compare(pairs: Sequence[tuple[float, float]]) -> Found | None:
    """Σ measured / Σ due over the parts of a run that follow each other; None with too little to go by."""
    pairs = [(measured, due) for measured, due in pairs if due >= LEAST_SECONDS]
    measured, due = sum(m for m, _ in pairs), sum(d for _, d in pairs)
    if len(pairs) < 3 or measured < LEAST_SECONDS:
        return None
    ratio, error = measured / due, 0.0
    while (count := len(pairs)) >= 3:
        squares = sum((m - ratio * d) ** 2 for m, d in pairs)
        error = max(error, sqrt(squares * count / (count - 1)) / measured)
        pairs = [(sum(m for m, _ in pairs[i : i + 2]), sum(d for _, d in pairs[i : i + 2])) for i in range(0, count, 2)]
    return Found(ratio, error)


def blocks(rounds: int) -> list[tuple[int, int]]:
    """So many rounds cut into 4, 8 or 16 parts that follow each other: first and behind the last; none of too few."""
    if rounds < LEAST_ROUNDS:
        return []
    count = 4
    while count < _MOST_PARTS and 4 * count <= rounds:
        count *= 2
    return list(pairwise(rounds * index // count for index in range(count + 1)))
