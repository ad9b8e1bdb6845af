"""Where each pane stands: pure arithmetic, and the layout that asks it.

A layout, for styles set after a resize would be a second pass: for a frame the panes would stand where
there is no room for them any more.
"""

from __future__ import annotations

from itertools import pairwise

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

NARROW, WIDE = 100, 181
LEAST_PANE_ROWS = 7
LEAST_PANE_COLUMNS = 40
_GOOD_ROWS = 12
_AROUND, _TABLE = 9, 6  # rows of a screen that are not the panes'
LOW = 30
"""Rows of a screen from which panes stand below each other; below it one stands in front of the others."""


def one_at_a_time(count: int, screen: Size) -> bool:
    """Whether only one pane is in sight: on a low screen, unless all stand beside each other, and where not all fit."""
    columns = _columns(count, screen.width, screen.height - _AROUND)
    rows = -(-count // max(1, columns))
    return rows > 1 and (screen.height < LOW or rows * LEAST_PANE_ROWS > screen.height - _AROUND - _TABLE)


def arrange(count: int, screen: Size, width: int, height: int) -> list[Region]:
    """Regions of `count` panes in a room of `width` × `height` cells; they reach below it where not all fit.

    Columns by the size of the screen: a panel beside the panes does not change them. Panes of a row
    are equally wide.
    """
    columns = _columns(count, screen.width, height)
    rows = -(-count // max(1, columns))
    regions: list[Region] = []
    y = 0
    for row, rows_high in enumerate(_heights(rows, height)):
        own = min(columns, count - row * columns)
        edges = [round(width * column / own) for column in range(own + 1)]
        for left, right in pairwise(edges):
            regions.append(Region(left, y, right - left, rows_high))
        y += rows_high
    return regions


def _columns(count: int, screen_width: int, height: int) -> int:
    """One on a narrow screen, two on a medium one; on a wide one as many as leave no row with a gap.

    Where rows would be low and there is room beside each other, all stand in one row.
    """
    most = min(count, 1 if screen_width < NARROW else 2 if screen_width < WIDE else 3)
    if most < count <= screen_width // LEAST_PANE_COLUMNS and height // -(-count // max(1, most)) < _GOOD_ROWS:
        return count
    if most == 3:
        return next((columns for columns in (3, 2) if count % columns == 0), 3)
    return max(1, most)


def _heights(rows: int, height: int) -> list[int]:
    """Rows that fill the room but stay readable: else as many whole ones at a time as can be read."""
    each, spare = divmod(height, max(1, rows))
    if each < LEAST_PANE_ROWS:
        each, spare = max(LEAST_PANE_ROWS, height // max(1, height // LEAST_PANE_ROWS)), 0
    return [each + (row < spare) for row in range(rows)]


class PaneLayout(Layout):
    """Puts the shown panes where `arrange` says; one at a time, only the `front` one has a place."""

    name = "panes"

    def __init__(self) -> None:
        self.front: Widget | None = None
        self.order: list[Widget] = []
        """Of the panes; those that are not in it stand last."""

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        screen = parent.app.size
        places = {pane: place for place, pane in enumerate(self.order)}
        children = sorted(children, key=lambda pane: places.get(pane, len(places)))
        if self.front in children and one_at_a_time(len(children), screen):
            children, regions = [self.front], [size.region]
        else:
            regions = arrange(len(children), screen, size.width, size.height)
        return [
            WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, pane)
            for region, pane in zip(regions, children, strict=True)
        ]
