"""Matrices of cases of which `make test` takes a cover, and `make test-all` the rest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

import pytest


def every_pair(*lists: Sequence[Any]) -> list[Any]:
    """All combinations as parameters; large are those that `make test` can leave out.

    What it keeps has each value of any list together with each value of any other at least once: faults of
    one value, and of two that meet, are found; faults of three that meet are for `make test-all`.
    """
    places = [range(len(each)) for each in lists]

    def pairs(case: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(combinations(enumerate(case), 2))

    cases = list(product(*places))
    missing = set[tuple[tuple[int, int], ...]]().union(*map(pairs, cases))
    kept = set[tuple[int, ...]]()
    while missing:
        best = max(cases, key=lambda case: len(pairs(case) & missing))
        kept.add(best)
        missing -= pairs(best)
    return [
        pytest.param(*values, marks=[pytest.mark.large] * (case not in kept))
        for case, values in zip(cases, product(*lists), strict=True)
    ]
