"""Where the inspector stands: over the panes, so that none of them moves, but never over what it tells of."""

from __future__ import annotations

from collections.abc import Iterable

from textual.geometry import Region

LEAST_BESIDE, MOST_BESIDE = 42, 104
_LEAST_ROWS, _MOST_ROWS = 5, 20
_LOW = 24


def stand(panes: Region, bottom: int, pane: Region, row: int, now: Region, others: Iterable[Region] = ()) -> Region:
    """Beside the inspected `pane` where there is room, else above or below the `row` of the token.

    Beside it, it leaves out the rows of those of the `others` that it would cut in the middle.

    `panes` is where panes are; where that is low, the inspector reaches down to `bottom`; where that is low
    too, it takes the larger side of the row. Else it stays where it is `now` as long as it can. All in cells
    of the screen.
    """
    left, right = pane.x - panes.x, panes.right - pane.right
    if max(left, right) >= LEAST_BESIDE:
        width = min(max(left, right), MOST_BESIDE)
        x = pane.right if right >= left else pane.x - width
        y, end = _rows_beside(panes, pane, [other for other in others if _is_cut(other, x, x + width)])
        return Region(x, y, width, end - y)
    height = panes.height if panes.height >= _LOW else max(panes.height, bottom - panes.y)
    if height < 2 * _LEAST_ROWS:
        above, below = row - panes.y, panes.y + height - row - 1
        if max(above, below) > 1:
            return Region(panes.x, panes.y if above >= below else row + 1, panes.width, max(above, below))
    own = max(_LEAST_ROWS, min(_MOST_ROWS, height // 2))
    places = [Region(panes.x, panes.y + height - own, panes.width, own), Region(panes.x, panes.y, panes.width, own)]
    free = [place for place in places if not place.y <= row < place.bottom]
    return now if now in free else (free or places)[0]


def _is_cut(other: Region, left: int, right: int) -> bool:
    """Whether a panel from `left` to `right` would cover a part of each of its lines."""
    return other.x < left < other.right or other.x < right < other.right


def _rows_beside(panes: Region, pane: Region, cut: Iterable[Region]) -> tuple[int, int]:
    """The rows beside the pane, first and end, up to what would be cut above and below it; all where few are left."""
    top, end = panes.y, panes.bottom
    for other in cut:
        if other.bottom <= pane.y:
            top = max(top, other.bottom)
        elif other.y >= pane.bottom:
            end = min(end, other.y)
    return (top, end) if end - top >= _LEAST_ROWS else (panes.y, panes.bottom)
