"""The last rounds of a run and its speed over time, against runs counted by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from specdec_tui.decoding.course import WINDOW_ROUNDS, RunCourse
from specdec_tui.decoding.figures import RunFigures, speedup
from specdec_tui.decoding.records import PrefillDone, RoundVerified, RunStarted, Status, Token

FATES = {"a": Status.ACCEPTED, "r": Status.REJECTED, "u": Status.UNVERIFIED}


def round_of(number: int, fates: str, seconds: float) -> RoundVerified:
    """A round whose drafts met these fates and whose time was half drafting, half verifying."""
    drafts = tuple(Token(1, FATES[fate], 0) for fate in fates)
    return RoundVerified(number, drafts, Token(2, Status.BONUS, 0), seconds / 2, seconds / 2, 0.0)


def run_of(*rounds: RoundVerified) -> RunFigures:
    figures = RunFigures()
    for record in (RunStarted("speculative", 3, 2, 999), PrefillDone(Token(0, Status.SAMPLED, 0), 9.0), *rounds):
        figures.add(record)
    return figures


def test_the_window_has_the_last_fifty_rounds_and_nothing_else() -> None:
    old = [round_of(i, "ru", 10.0) for i in range(30)]
    new = [round_of(30 + i, "aa", 1.0) for i in range(WINDOW_ROUNDS)]
    run = run_of(*old, *new)
    window = run.window()
    assert run.acceptance_rate == pytest.approx(100 / 130)
    assert window.acceptance_rate == 1.0
    assert (window.rounds, window.new_tokens, window.gamma) == (50, 150, 2)
    assert window.decode_tokens_per_second == pytest.approx(3.0)
    assert window.accepted_lengths == [0, 0, 50]
    assert window.conditional_acceptance == [1.0, 1.0]


def test_the_window_of_a_short_run_is_the_run_without_its_prefill() -> None:
    run = run_of(round_of(0, "aa", 1.0), round_of(1, "ru", 3.0))
    window = run.window()
    assert window.decode_tokens_per_second == run.decode_tokens_per_second == pytest.approx(4 / 4)
    assert window.new_tokens == run.new_tokens - 1
    assert RunFigures().window().rounds == 0


def test_the_windows_speedup_is_against_the_whole_run_of_the_target() -> None:
    target = run_of(*(round_of(i, "", 0.5) for i in range(3)))
    run = run_of(*(round_of(i, "ru", 9.0) for i in range(9)), *(round_of(i, "aa", 1.0) for i in range(50)))
    assert speedup(target, run.window()) == pytest.approx(3 / 2)


def test_a_short_run_has_a_point_a_round_and_its_speed_is_that_of_the_rounds_so_far() -> None:
    course = RunCourse()
    for tokens, seconds in ((3, 1.0), (1, 1.0), (2, 2.0)):
        course.add(round_of(0, "", seconds), tokens - 1, tokens - 1)
    assert course.speeds(10) == pytest.approx([(1.0, 3.0), (2.0, 2.0), (4.0, 1.5)])
    assert course.seconds == 4.0


def test_a_long_run_is_thinned_out_evenly_in_time_and_keeps_its_newest_round() -> None:
    course = RunCourse()
    for index in range(20_000):
        course.add(round_of(index, "", 0.01 if index < 10_000 else 0.02), 0, 0)
    points = course.speeds(30)
    assert len(points) == 30
    assert points[-1] == pytest.approx((300.0, 50.0))
    steps = [b[0] - a[0] for a, b in pairwise(points)]
    assert max(steps) == pytest.approx(min(steps), abs=0.05)
    assert points[4][1] == pytest.approx(100.0)


def test_the_last_point_is_the_speed_of_the_window() -> None:
    run = run_of(*(round_of(i, "aru"[: i % 3], 0.1 + i / 50) for i in range(170)))
    assert run.course.speeds(20)[-1][1] == pytest.approx(run.window().decode_tokens_per_second)


@pytest.mark.parametrize("points", [0, 1, 2])
def test_no_more_points_are_given_than_asked_for(points: int) -> None:
    course = RunCourse()
    assert course.speeds(points) == []
    for _ in range(5):
        course.add(round_of(0, "", 1.0), 0, 0)
    assert len(course.speeds(points)) == points


def test_rounds_that_took_no_time_give_no_point() -> None:
    course = RunCourse()
    course.add(round_of(0, "", 0.0), 0, 0)
    assert course.speeds(9) == []


def test_the_latest_rounds_come_oldest_first() -> None:
    course = RunCourse()
    for index in range(60):
        course.add(round_of(index, "", 1.0), 0, 0)
    assert [record.round for record in course.latest(10)] == list(range(50, 60))
    assert len(course.latest()) == WINDOW_ROUNDS
    assert course.latest(0) == []
