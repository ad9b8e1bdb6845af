"""Charts are placed by the room there is, most important first."""

from __future__ import annotations

from itertools import combinations

import pytest

from specdec_tui.tui.figures.chart_layout import LEAST_CELL_ROWS, LEAST_PANE_ROWS, Chart, arrange, without_blanks

ALL = tuple(Chart)


def test_a_pane_of_three_rows_has_the_gauges_alone() -> None:
    places = arrange(76, 3, 3, ALL)
    assert (places.gauges, places.compact, places.cells) == (3, (), ())


def test_rows_too_few_for_a_plot_say_the_rest_in_text() -> None:
    places = arrange(76, 6, 3, ALL)
    assert places.compact == (Chart.LATENCY, Chart.POSITIONS, Chart.LENGTHS)
    assert places.cells == ()


def test_two_columns_of_a_120_wide_screen_hold_two_charts_and_rows_of_text() -> None:
    places = arrange(57, 12, 3, ALL)
    assert [chart for chart, _ in places.cells] == [Chart.SPEED, Chart.LATENCY]
    assert places.compact == (Chart.POSITIONS, Chart.LENGTHS, Chart.PASSES)
    (_, left), (_, right) = places.cells
    assert left.y == right.y == 6 and left.height == right.height == 6
    assert right.x > left.right and right.right == 57


def test_a_maximised_pane_holds_all_charts_two_in_a_row_and_the_last_across() -> None:
    places = arrange(115, 30, 3, ALL)
    assert [chart for chart, _ in places.cells] == list(ALL)
    assert places.compact == ()
    rows = [region.y for _, region in places.cells]
    assert rows[0] == rows[1] < rows[2] == rows[3] < rows[4]
    assert places.cells[-1][1].width == 115


def test_four_charts_and_a_row_of_text_are_a_square() -> None:
    places = arrange(115, 30, 3, ALL, pictures=4)
    assert [chart for chart, _ in places.cells] == list(ALL[:4])
    assert places.compact == (Chart.PASSES,)
    assert len({region.y for _, region in places.cells}) == len({region.x for _, region in places.cells}) == 2


def test_a_wide_and_low_pane_has_its_charts_side_by_side() -> None:
    places = arrange(196, 12, 3, ALL)
    assert len(places.cells) == 4 and len({region.y for _, region in places.cells}) == 1


def test_pictures_come_before_rows_of_text() -> None:
    for height, rows_of_text in ((9, 0), (10, 1), (11, 2)):
        places = arrange(57, height, 3, ALL)
        assert [chart for chart, _ in places.cells] == [Chart.SPEED, Chart.LATENCY]
        assert len(places.compact) == rows_of_text


@pytest.mark.parametrize("height", range(40))
def test_the_narrowest_of_panes_decides_on_charts_and_rows_of_all(height: int) -> None:
    wide, narrow = arrange(118, height, 3, ALL, 57), arrange(57, height, 3, ALL, 57)
    assert wide.compact == narrow.compact
    rows = [[(chart, region.y, region.height) for chart, region in places.cells] for places in (wide, narrow)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("height", range(40))
def test_the_last_chart_takes_no_room_from_those_before_it(height: int) -> None:
    with_it, without = arrange(57, height, 3, ALL), arrange(57, height, 3, ALL[:-1])
    assert [chart for chart, _ in with_it.cells][: len(without.cells)] == [chart for chart, _ in without.cells]


@pytest.mark.parametrize("height", [12, 16, 24, 30])
def test_a_place_that_no_chart_of_a_run_fills_has_what_passes_cost(height: int) -> None:
    own = (Chart.SPEED, Chart.LATENCY, Chart.PASSES)
    places = arrange(115, height, 3, ALL, pictures=4)
    filled = without_blanks(places, own)
    blank = [index for index, (chart, _) in enumerate(places.cells) if chart not in own]
    assert [region for _, region in filled.cells] == [region for _, region in places.cells]
    assert [index for index, (chart, _) in enumerate(filled.cells) if chart is Chart.PASSES] == blank[:1]
    assert without_blanks(places, ALL) is places and without_blanks(places, (Chart.SPEED,)) is places


def test_a_pane_of_the_least_rows_has_a_picture() -> None:
    chrome = 4  # border, figures, status
    assert arrange(57, LEAST_PANE_ROWS - chrome, 3, ALL).cells
    assert not arrange(57, LEAST_PANE_ROWS - chrome - 1, 3, ALL).cells


def test_a_run_without_charts_has_its_gauges() -> None:
    assert arrange(80, 24, 1, ()).cells == ()


@pytest.mark.parametrize("charts", [ALL, (Chart.SPEED, Chart.LATENCY), ()])
def test_nothing_overlaps_or_lies_outside_at_any_size(charts: tuple[Chart, ...]) -> None:
    for width in range(1, 220, 3):
        for height in range(70):
            places = arrange(width, height, 3, charts)
            assert places.gauges + len(places.compact) <= height
            for _, region in places.cells:
                assert region.y >= places.gauges + len(places.compact)
                assert region.bottom <= height and region.x >= 0 and region.right <= width
                assert region.height >= LEAST_CELL_ROWS and region.width > 20
            for (_, one), (_, other) in combinations(places.cells, 2):
                assert not one.overlaps(other)
