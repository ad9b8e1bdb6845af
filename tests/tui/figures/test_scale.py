"""One scale for all panes."""

from __future__ import annotations

import pytest
from widget_data import run_steps

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.standing import standing
from specdec_tui.tui.figures.scale import Scale, common_scale, round_number

TEXT = ["x"] * 90


def run(strategy: str, **settings: float) -> RunFigures:
    found = RunFigures()
    for step in run_steps(strategy, TEXT, **({"gamma": 0} if strategy == "target" else {}), **settings):  # type: ignore[arg-type]
        found.add(step.record)
    return found


def test_nothing_is_outside_the_scale_of_all_runs() -> None:
    target, fast, slow = run("target"), run("speculative", alpha=0.9), run("ngram", alpha=0.1)
    scale = common_scale([target, fast, slow], target)
    for one in (target, fast, slow):
        assert (one.decode_tokens_per_second or 0) <= scale.peak
        assert one.decode_seconds <= scale.seconds
        assert one.decode_seconds / one.rounds <= scale.round_seconds
        for points in (3, 20, 500):
            assert all(x <= scale.seconds and y <= scale.peak for x, y in one.course.speeds(points))
    assert scale.speedup == 3


def test_of_a_disturbed_run_the_scale_takes_what_is_shown_of_it() -> None:
    """It once reached 4× for an interval of 1.0–1.7×: for the ratio that cannot be and that nobody sees."""
    target, run_ = run("target", round_seconds=0.2), run("lookup", alpha=0.2, round_seconds=0.04)
    found = standing(run_, target)
    assert found is not None and found.is_disturbed and found.high is not None
    assert found.ratio > 3 and found.high < 2
    assert common_scale([target, run_], target).speedup == 2


def test_runs_that_have_not_begun_leave_it_empty() -> None:
    assert common_scale([RunFigures()], None) == Scale()
    assert common_scale([], None) == Scale()


@pytest.mark.parametrize(
    ("least", "expected"),
    [(0.0, 0.0), (5e-324, 0.0), (1.0, 1.0), (1.01, 1.2), (8.1, 10.0), (99.0, 100.0), (0.031, 0.04), (2500.0, 2500.0)],
)
def test_ends_of_scales_are_round_numbers_that_are_no_less(least: float, expected: float) -> None:
    assert round_number(least) == pytest.approx(expected)


def test_a_run_that_grows_a_little_keeps_its_scale() -> None:
    assert len({round_number(value / 10) for value in range(200, 400)}) == 4


def test_a_scale_that_is_kept_grows_where_a_figure_is_larger_on_the_way_than_in_the_end() -> None:
    """A bar of a race ended in an arrow: 2.15× where the whole run came to 1.95×."""
    kept = Scale(2.0, 80.0, 5.0, 0.5)
    assert kept.with_room_for(Scale(3.0, 90.0, 1.0, 0.4)) == Scale(3.0, 90.0, 5.0, 0.5)
    assert kept.with_room_for(Scale()) == kept
