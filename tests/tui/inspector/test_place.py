"""The inspector covers neither the pane it tells of, where there is room beside it, nor ever the token's row."""

from __future__ import annotations

import pytest
from textual.geometry import Region

from specdec_tui.tui.inspector.place import stand

PANES = Region(0, 2, 120, 30)


def test_it_stands_on_the_side_away_from_the_pane() -> None:
    assert stand(PANES, 38, Region(0, 2, 60, 15), 5, Region()) == Region(60, 2, 60, 30)
    assert stand(PANES, 38, Region(60, 17, 60, 15), 20, Region()) == Region(0, 2, 60, 30)


def test_a_wide_screen_does_not_give_it_everything() -> None:
    wide = Region(0, 2, 200, 50)
    assert stand(wide, 58, Region(0, 2, 50, 50), 9, Region()) == Region(50, 2, 104, 50)
    assert stand(wide, 58, Region(150, 2, 50, 50), 9, Region()) == Region(46, 2, 104, 50)


def test_it_cuts_no_other_pane_in_the_middle() -> None:
    """Of three panes the lower one spans both columns: its text and figures were hidden from their middle on."""
    left, right, below = Region(0, 2, 60, 15), Region(60, 2, 60, 15), Region(0, 17, 120, 15)
    assert stand(PANES, 38, left, 5, Region(), [right, below]) == right
    assert stand(PANES, 38, right, 5, Region(), [left, below]) == left
    assert stand(PANES, 38, below, 20, Region(), [left, right]) == Region(0, 2, 120, 15)
    rows = [Region(0, y, 60, 10) for y in (2, 12)], [Region(60, y, 60, 10) for y in (2, 12)], [Region(0, 22, 120, 10)]
    others = [pane for column in rows for pane in column if pane != rows[0][0]]
    assert stand(PANES, 38, rows[0][0], 5, Region(), others) == Region(60, 2, 60, 20)
    wide, upper = Region(0, 2, 200, 50), [Region(0, 2, 67, 25), Region(67, 2, 66, 25), Region(133, 2, 67, 25)]
    lower = [Region(0, 27, 100, 25), Region(100, 27, 100, 25)]
    assert stand(wide, 58, upper[0], 9, Region(), [*upper[1:], *lower]).bottom == 27
    assert stand(wide, 58, lower[1], 30, Region(), [*upper, lower[0]]) == Region(0, 27, 100, 25)


@pytest.mark.parametrize(
    "panes", [Region(0, 2, 80, 17), Region(0, 2, 40, 5), Region(0, 2, 200, 50), Region(0, 0, 60, 18)]
)
def test_without_room_beside_the_pane_it_lies_over_it_but_not_over_the_row(panes: Region) -> None:
    bottom = panes.bottom + 5
    for row in range(panes.y, panes.bottom):
        place = stand(panes, bottom, panes, row, Region())
        assert not place.y <= row < place.bottom
        assert place.width == panes.width and place.height >= 5
        assert place.y >= panes.y and place.bottom <= max(bottom, panes.bottom)


def test_where_rows_are_few_it_takes_the_larger_side_of_the_row() -> None:
    panes = Region(0, 2, 40, 6)
    assert stand(panes, 8, panes, 6, Region()) == Region(0, 2, 40, 4)
    assert stand(panes, 8, panes, 3, Region()) == Region(0, 4, 40, 4)


def test_it_stays_where_it_is_as_long_as_the_row_is_free() -> None:
    panes = Region(0, 2, 80, 30)
    now = stand(panes, 38, panes, 30, Region())
    assert now.y == 2
    assert stand(panes, 38, panes, 20, now) == now
    assert stand(panes, 38, panes, 5, now).y > 5
