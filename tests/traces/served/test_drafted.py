"""Drafts are given to steps where the counts leave no choice, and to none elsewhere."""

import pytest

from specdec_tui.traces.served.drafted import Counts, Placed, place


def of(each: list[tuple[int, int]], gamma: int = 4) -> Counts:
    return Counts(len(each), sum(d for _, d in each), sum(a for a, _ in each), gamma, tuple(each))


def test_steps_that_all_had_drafts_are_known_one_by_one() -> None:
    assert place([0, 2, 0], of([(0, 4), (2, 3), (0, 1)])) == Placed((4, 3, 1))


def test_steps_between_which_none_had_refused_drafts_had_none_at_all() -> None:
    assert place([2, 0, 0, 1], of([(2, 3), (1, 4)])) == Placed((3, 0, 0, 4))


def test_of_steps_some_of_which_had_refused_drafts_it_is_not_known_which() -> None:
    assert place([0, 0, 2, 0], of([(0, 4), (2, 3)])) == Placed((None, None, 3, 0), (1, 4))


def test_sums_tell_all_where_every_step_had_as_many_as_it_can() -> None:
    assert place([0, 2, 4], Counts(3, 12, 6, 4)) == Placed((4, 4, 4))


def test_sums_tell_all_where_only_steps_that_accepted_had_as_many_as_they_can() -> None:
    assert place([0, 2, 4], Counts(2, 8, 6, 4)) == Placed((0, 4, 4))


def test_full_sums_of_some_steps_leave_refused_ones_without_a_place() -> None:
    assert place([0, 0, 4], Counts(2, 8, 4, 4)) == Placed((None, None, 4), (1, 4))


def test_other_sums_tell_of_no_step() -> None:
    assert place([0, 2, 4], Counts(3, 10, 6, 4)) == Placed((None, None, None))
    assert place([0, 2, 4], Counts(2, 7, 6, 4)) == Placed((0, None, None))


@pytest.mark.parametrize(
    "counts",
    [
        Counts(3, 12, 5, 4),  # others accepted
        Counts(0, 0, 6, 4),
        Counts(4, 16, 6, 4),  # more steps than there were
        Counts(1, 4, 6, 4),
        Counts(3, 13, 6, 4),  # more drafts than γ allows
        Counts(2, 8, 6, 4, ((4, 4), (2, 4))),  # in another order
        Counts(2, 8, 6, 4, ((2, 4),)),  # that do not add up
        Counts(3, 5, 6, 4, ((0, 0), (2, 1), (4, 4))),
    ],
)
def test_counts_that_contradict_the_steps_tell_nothing(counts: Counts) -> None:
    assert place([0, 2, 4], counts) is None
