"""Matrices of cases of which `make test` takes a cover, and `make test-all` the rest."""

from __future__ import annotations

from collections import Counter, defaultdict
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


def leave_out_repeated_values(items: Sequence[pytest.Item]) -> None:
    """Of tests marked `each_value`: large become all cases but so few as have each value of each parameter."""
    tests = defaultdict(list)
    for item in items:
        if item.get_closest_marker("each_value") and not item.get_closest_marker("large"):
            values = {(name, repr(value)) for name, value in item.callspec.params.items()}  # type: ignore[attr-defined]
            tests[item.nodeid.split("[")[0]].append((item, values))
    for cases in tests.values():
        missing = set[tuple[str, str]]().union(*(values for _, values in cases))
        kept, used = set(), Counter[tuple[str, str]]()
        while missing:
            best, values = max(cases, key=lambda case: (len(case[1] & missing), -sum(used[one] for one in case[1])))
            kept.add(best)
            missing -= values
            used.update(values)
        for item, _ in cases:
            if item not in kept:
                item.add_marker(pytest.mark.large)
