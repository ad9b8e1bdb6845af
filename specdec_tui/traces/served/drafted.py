"""How many drafts each step of a vLLM run checked, as far as its counts say so: nothing is guessed. Pure functions.

A step that adds n tokens had n-1 drafts accepted. How many were refused vLLM tells in counts: of all steps that had
drafts, one by one (`per_step_accepted`, `per_step_drafted`), or only their sums. Steps without drafts are in neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """Of a whole run: steps that had `drafts`, drafts in all of them, accepted ones; γ that was asked for.

    `each`: (accepted, drafted) of those steps in their order, empty where it is not told.
    """

    steps: int
    drafted: int
    accepted: int
    gamma: int
    each: tuple[tuple[int, int], ...] = ()

    @property
    def is_possible(self) -> bool:
        sums = len(self.each), sum(drafted for _, drafted in self.each), sum(kept for kept, _ in self.each)
        return (
            self.steps <= self.drafted <= self.steps * self.gamma
            and self.accepted <= self.drafted
            and (not self.each or sums == (self.steps, self.drafted, self.accepted))
            and all(kept <= drafted <= self.gamma for kept, drafted in self.each)
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """`drafted`: of each step; None where it is not known. `unplaced`: (steps, drafts) of those of the unknown ones
    that had any, where all others are known; None where that is not told either.
    """

    drafted: tuple[int | None, ...]
    unplaced: tuple[int, int] | None = None


def place(accepted: Sequence[int], counts: Counts) -> Placed | None:
    """What the counts say of steps that accepted so many drafts. None where they contradict them."""
    kept = [number for number in accepted if number]
    if not counts.is_possible or sum(kept) != counts.accepted or not len(kept) <= counts.steps <= len(accepted):
        return None
    return _one_by_one(accepted, counts) if counts.each else _from_sums(accepted, counts)


def _from_sums(accepted: Sequence[int], counts: Counts) -> Placed:
    """Where every step had as many drafts as it can have, or only those that accepted some, sums tell all."""
    kept = sum(number > 0 for number in accepted)
    full = counts.gamma if counts.drafted == counts.steps * counts.gamma else None
    refusing = full if counts.steps == len(accepted) else 0 if counts.steps == kept else None
    placed = tuple(full if number else refusing for number in accepted)
    rest = counts.steps - kept
    unplaced = (rest, rest * counts.gamma) if full and refusing is None else None
    return Placed(placed, unplaced)


def _one_by_one(accepted: Sequence[int], counts: Counts) -> Placed | None:
    """Steps that accepted something are in both lists in the same order. Between two of them stand those that did not:
    as many in both, or none in the counts, is known; else it is not told which of them had drafts.
    """
    drafted: list[int | None] = []
    rounds = drafts = 0
    gaps, steps = _gaps(counts.each), _gaps([(kept, 0) for kept in accepted])
    if [kept for _, kept, _ in gaps] != [kept for _, kept, _ in steps]:
        return None
    for (refusing, kept, number), (here, _, _) in zip(gaps, steps, strict=True):
        if len(refusing) > len(here):
            return None
        if len(refusing) in (0, len(here)):
            drafted += refusing or [0] * len(here)
        else:
            drafted += [None] * len(here)
            rounds, drafts = rounds + len(refusing), drafts + sum(refusing)
        drafted += [number] * (kept > 0)
    return Placed(tuple(drafted), (rounds, drafts) if rounds else None)


def _gaps(steps: Sequence[tuple[int, int]]) -> list[tuple[list[int], int, int]]:
    """(drafted of steps that accepted nothing, accepted and drafted of the one behind them); 0 and 0 at the end."""
    found: list[tuple[list[int], int, int]] = []
    refusing: list[int] = []
    for kept, drafted in steps:
        if kept:
            found.append((refusing, kept, drafted))
            refusing = []
        else:
            refusing.append(drafted)
    return [*found, (refusing, 0, 0)]
