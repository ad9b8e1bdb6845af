from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import pytest
from covering import every_pair, leave_out_repeated_values


@pytest.mark.parametrize("sizes", [(3, 4), (2, 2, 2), (12, 3, 3), (2, 3, 4, 5)])
def test_every_two_values_meet_in_the_cases_that_are_kept_and_no_case_is_lost(sizes: tuple[int, ...]) -> None:
    lists = [[f"{name}{value}" for value in range(size)] for name, size in zip("abcd", sizes, strict=False)]
    cases = every_pair(*lists)
    small = [case.values for case in cases if not case.marks]
    met = {pair for values in small for pair in combinations(values, 2)}
    assert met == {(x, y) for one, other in combinations(lists, 2) for x in one for y in other}
    assert len({case.values for case in cases}) == len(cases) and len(small) < 1.4 * max(sizes) * sorted(sizes)[-2]


class Case:
    """A test's case as pytest collects it."""

    def __init__(self, marks: set[str], **params: object) -> None:
        self.nodeid = f"test[{params}]"
        self.callspec, self.marks = SimpleNamespace(params=params), marks

    def get_closest_marker(self, name: str) -> object:
        return name if name in self.marks else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.add(mark.name)


@pytest.mark.parametrize(("kinds", "sizes"), [(5, 3), (2, 7), (4, 1)])
def test_each_value_is_in_a_case_that_is_kept_and_no_case_is_kept_for_nothing(kinds: int, sizes: int) -> None:
    cases = [Case({"each_value"}, kind=kind, size=size) for kind in range(kinds) for size in range(sizes)]
    other, large = Case(set(), kind=0, size=0), Case({"each_value", "large"}, kind=9, size=9)
    leave_out_repeated_values([*cases, other, large])  # type: ignore[list-item]
    kept = [case.callspec.params for case in cases if "large" not in case.marks]
    assert {one["kind"] for one in kept} == set(range(kinds)) and {one["size"] for one in kept} == set(range(sizes))
    assert len(kept) == max(kinds, sizes) and "large" not in other.marks
