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


def arrange(count: int, screen_width: int, width: int, height: int) -> list[Region]:
    """Regions of `count` panes in a room of `width` × `height` cells; they reach below it where not all fit.

    Columns by the width of the screen: a panel beside the panes does not change them. The last pane
    takes what its row leaves.
    """
    columns = max(1, min(count, 1 if screen_width < NARROW else 2 if screen_width < WIDE else 3))
    rows = -(-count // columns)
    edges = [round(width * column / columns) for column in range(columns + 1)]
    regions: list[Region] = []
    y = 0
    for row, rows_high in enumerate(_heights(rows, height)):
        own = range(row * columns, min((row + 1) * columns, count))
        for left, right in pairwise([*edges[: len(own)], width]):
            regions.append(Region(left, y, right - left, rows_high))
        y += rows_high
    return regions


def _heights(rows: int, height: int) -> list[int]:
    """Rows that fill the room but stay readable: else as many whole ones at a time as can be read."""
    each, spare = divmod(height, max(1, rows))
    if each < LEAST_PANE_ROWS:
        each, spare = max(LEAST_PANE_ROWS, height // max(1, height // LEAST_PANE_ROWS)), 0
    return [each + (row < spare) for row in range(rows)]


class PaneLayout(Layout):
    """Puts the shown panes where `arrange` says."""

    name = "panes"

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        regions = arrange(len(children), parent.app.size.width, size.width, size.height)
        return [
            WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, pane)
            for region, pane in zip(regions, children, strict=True)
        ]
