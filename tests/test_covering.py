from __future__ import annotations

from itertools import combinations

import pytest
from covering import every_pair


@pytest.mark.parametrize("sizes", [(3, 4), (2, 2, 2), (12, 3, 3), (2, 3, 4, 5)])
def test_every_two_values_meet_in_the_cases_that_are_kept_and_no_case_is_lost(sizes: tuple[int, ...]) -> None:
    lists = [[f"{name}{value}" for value in range(size)] for name, size in zip("abcd", sizes, strict=False)]
    cases = every_pair(*lists)
    small = [case.values for case in cases if not case.marks]
    met = {pair for values in small for pair in combinations(values, 2)}
    assert met == {(x, y) for one, other in combinations(lists, 2) for x in one for y in other}
    assert len({case.values for case in cases}) == len(cases) and len(small) < 1.4 * max(sizes) * sorted(sizes)[-2]
