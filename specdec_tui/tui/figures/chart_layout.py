"""Which charts have room in a pane, and where: pure arithmetic over columns and rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from textual.geometry import Region

LEAST_CELL_COLUMNS, LEAST_CELL_ROWS = 27, 6
GAP = 2
LEAST_PANE_ROWS = 2 + 1 + 3 + LEAST_CELL_ROWS + 1
"""A pane with its border, figures, gauges, one row of pictures and status."""


class Chart(StrEnum):
    """A chart with room of its own, in order of importance."""

    SPEED = "speed"  # tokens/s over time
    LATENCY = "latency"  # drafting and verifying of the last rounds, beside the target's own step
    POSITIONS = "positions"  # acceptance by draft position
    LENGTHS = "lengths"  # how many drafts of a round were accepted
    PASSES = "passes"  # what a pass over n tokens costs


@dataclass(frozen=True, slots=True)
class Arrangement:
    """`gauges` and then `compact` take one row each, from the top; each cell is a chart in full."""

    gauges: int
    compact: tuple[Chart, ...]
    cells: tuple[tuple[Chart, Region], ...]


# Cells by grid: two columns keep plots wide and low, which is how time is read best.
_GRIDS = {5: (2, 3, 1), 4: (2, 4, 1), 3: (3, 1), 2: (2, 1), 1: (1,)}


def arrange(
    width: int,
    height: int,
    gauges: int,
    charts: Sequence[Chart],
    narrowest: int | None = None,
    pictures: int | None = None,
) -> Arrangement:
    """As many charts in full as the room allows; the others as a row of text, as far as rows go.

    `charts` come most important first. The speed over time has no compact form: its gauge says the number.
    `narrowest`: of the panes that are to have the same charts in as many rows. `pictures`: at most so many in full.
    """
    least_columns = width if narrowest is None else min(width, narrowest)
    gauges = min(gauges, max(0, height))
    for count in range(len(charts) if pictures is None else min(pictures, len(charts)), 0, -1):
        rest = _compact(charts[count:])
        # A picture first: the rows of text give way to the last one that would fit without them.
        least = 0 if count <= 2 else max(0, len(rest) - 1)
        for compact in (rest[:left] for left in range(len(rest), least - 1, -1)):
            room = height - gauges - len(compact)
            for columns in _GRIDS[count]:
                rows = -(-count // columns)
                if room // rows >= LEAST_CELL_ROWS and (least_columns + GAP) // columns >= LEAST_CELL_COLUMNS:
                    blank = room // rows > LEAST_CELL_ROWS
                    top = gauges + len(compact) + blank
                    cells = _cells(charts[:count], Region(0, top, width, room - blank), columns, rows)
                    return Arrangement(gauges, compact, cells)
    return Arrangement(gauges, _compact(charts)[: height - gauges], ())


def without_blanks(places: Arrangement, charts: Sequence[Chart]) -> Arrangement:
    """The same, with what passes cost in the first place that no other of a run's `charts` fills.

    Not where it stands in full already, nor where its own row of text is all the room that there is.
    """
    blank = [index for index, (chart, _) in enumerate(places.cells) if chart not in charts]
    if Chart.PASSES not in charts or any(chart is Chart.PASSES for chart, _ in places.cells) or not blank:
        return places
    cells = list(places.cells)
    cells[blank[0]] = Chart.PASSES, cells[blank[0]][1]
    return replace(places, cells=tuple(cells))


def _compact(charts: Sequence[Chart]) -> tuple[Chart, ...]:
    return tuple(chart for chart in charts if chart is not Chart.SPEED)


def _cells(charts: Sequence[Chart], area: Region, columns: int, rows: int) -> tuple[tuple[Chart, Region], ...]:
    across, down = (area.width + GAP) // columns, area.height // rows
    cells = []
    for index, chart in enumerate(charts):
        row, column = divmod(index, columns)
        last = column == columns - 1 or index == len(charts) - 1
        width = area.width - column * across if last else across - GAP
        height = area.height - row * down if row == rows - 1 else down
        cells.append((chart, Region(area.x + column * across, area.y + row * down, width, height)))
    return tuple(cells)
