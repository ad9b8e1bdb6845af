"""The arithmetic of sides that take turns: who goes when, and what is compared with what.

A turn is one piece of work done once by each side, right after each other. Ratios are taken within a turn and only
then joined, so that a slow minute of the machine hits both numbers of a ratio.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Spread:
    """A median, with the lowest and highest single value."""

    median: float
    low: float
    high: float


def order(sides: Sequence[Name], turn: int) -> list[Name]:
    """The sides as they go in a turn, counted from 0: who went first goes last in the next one."""
    begin = turn % len(sides)
    return [*sides[begin:], *sides[:begin]]


def spread(values: Sequence[float]) -> Spread:
    """Of single values. ValueError where there are none."""
    if not values:
        raise ValueError("there is nothing to take a median of")
    return Spread(median(values), min(values), max(values))


def ratios(turns: Sequence[Mapping[Name, float]], over: Name, under: Name) -> list[float]:
    """`over` / `under` of each turn that both took part in."""
    return [turn[over] / turn[under] for turn in turns if over in turn and under in turn]


def of_groups(groups: Sequence[Sequence[float]]) -> Spread:
    """Median over groups (prompts), each by the median of its own values (repeats); lowest and highest of all."""
    whole = [value for group in groups for value in group]
    return Spread(median(median(group) for group in groups if group), min(whole), max(whole))


def equal_share(ids: Sequence[int], others: Sequence[int]) -> float:
    """Which share of two texts of one length is equal before their first difference: 1 where there is none."""
    if len(ids) != len(others) or not ids:
        raise ValueError(f"texts of {len(ids)} and {len(others)} tokens are not compared")
    return next((i for i, (a, b) in enumerate(zip(ids, others, strict=True)) if a != b), len(ids)) / len(ids)


def best(rates: Mapping[int, Spread]) -> int:
    """The γ of the highest median; the smallest of equal ones."""
    return min(rates, key=lambda gamma: (-rates[gamma].median, gamma))
