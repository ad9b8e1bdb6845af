"""Speedup over γ: the predicted curve, and what was measured with its intervals on it."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor
from typing import TYPE_CHECKING, ClassVar

from textual_plot import HiResMode

from specdec_tui.decoding.forecast import top_of
from specdec_tui.traces.bounds import MOST_DRAFTS
from specdec_tui.tui.figures.plot import Plot, PlotCanvas
from specdec_tui.tui.figures.speed_plot import ticks
from specdec_tui.tui.lab.reading import Reading, middle_of

if TYPE_CHECKING:
    from specdec_tui.decoding.sweep import Point

MEASURED, DOUBTED, BEST, HERE = "●", "?", "◆", "○"
_MARGIN = 0.4  # of a γ, beside the first and the last
_COLUMNS_FOR_TICK = 4
_MOST_TICKS = 9
_LEAST_TICKS = 3  # fewer, and no speedup can be read off


class GammaPlot(Plot):
    """Shows a reading; γ is the axis below, and a line stands at 1×, the target's own speed."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "lab--curve",
        "lab--measured",
        "lab--best",
        "lab--target",
    }

    _reading: Reading | None = None

    @property
    def seen(self) -> str:
        """All that is drawn, in characters: marks may lie on each other. Empty where nothing is drawn yet."""
        canvas = self.query_one("#plot", PlotCanvas)
        return "".join(canvas.render_line(row).text for row in range(canvas.size.height)).strip()

    def on_resize(self) -> None:
        """Ticks are for a size."""
        if self._reading is not None:
            self.call_after_refresh(self.show, self._reading)

    def show(self, reading: Reading) -> None:
        """Draw it, in the size that there is. Nothing where nothing is known."""
        self._reading = reading
        if not self.is_attached:  # the screen is closing
            return
        self.clear()
        columns, rows = self.size.width - self.margin_left - 2, self.size.height - 1
        speeds = [found.speedup for found in reading.curve]
        if columns < 2 or rows < 2 or not (speeds or reading.points):
            self.render()
            return
        top = max([len(speeds) - 1 if speeds else top_of(reading.subject.run.gamma, MOST_DRAFTS), *reading.points])
        low, high = _limits([*speeds, *_ends(reading.points.values()), 1.0])
        self.set_xlimits(-_MARGIN, top + _MARGIN)
        self.set_ylimits(low, high)
        step = max(1, ceil(_COLUMNS_FOR_TICK * (top + 1) / columns))
        self.set_xticks(list(range(0, top + 1, step)))
        self.set_yticks(round_ticks(low, high, min(_MOST_TICKS, max(2, rows // 2))))
        line = [-_MARGIN + (top + 2 * _MARGIN) * half / (2 * columns) for half in range(2 * columns + 1)]
        self.scatter(line, [1.0] * len(line), marker="┈", marker_style=self._style("target"))
        if len(speeds) > 1:
            places = list(range(len(speeds)))
            self.plot(places, speeds, line_style=self._style("curve"), hires_mode=HiResMode.BRAILLE)
        if reading.here is not None:
            self.scatter([reading.gamma], [reading.here.speedup], marker=HERE, marker_style=self._style("curve"))
        if reading.best is not None:
            best = reading.best
            self.scatter([best.gamma], [best.speedup], marker=BEST, marker_style=self._style("best"))
        for point in reading.points.values():
            self._mark(point)
        self.render()  # now: drawn while the screen is painted, the canvases would be painted twice

    def _mark(self, point: Point) -> None:
        style, ends = self._style("measured"), list(_ends([point]))
        if not ends:
            return
        low, high = min(ends), max(ends)
        if high > low:
            middle = (low + high) / 2
            self.errorbar([point.gamma], [middle], yerr=[(high - low) / 2], marker="│", marker_style=style)
        at = middle_of(point)
        mark = DOUBTED if _is_doubted(point) else MEASURED
        self.scatter([point.gamma], [at], marker=mark, marker_style=style)

    def _style(self, name: str) -> str:
        return str(self.get_component_rich_style(f"lab--{name}"))


def _is_doubted(point: Point) -> bool:
    return bool(point.doubt) or point.ratio is None


def legend_of(reading: Reading, seen: str = "") -> list[str]:
    """What the marks mean that stand in the picture of a reading, and no others; nothing where there is none.

    `seen`: what is drawn, where it is: what lies under another mark is not told of.
    """
    drawn = [point for point in reading.points.values() if list(_ends([point]))]
    best, here = reading.best, reading.here
    if not (reading.curve or drawn):
        return []
    is_covered = best is not None and best.gamma == reading.gamma  # by the mark of the best, in the same cell
    marks = (
        ("⠤⠒ predicted", len(reading.curve) > 1),
        (f"{BEST} best", best is not None),
        (f"{HERE} γ of the sum", here is not None and not is_covered),
        (f"{MEASURED} measured", not all(map(_is_doubted, drawn))),
        (f"{DOUBTED} clock in doubt", any(map(_is_doubted, drawn))),
        ("┈ target", True),
    )
    hidden = {mark for mark in (BEST, HERE, MEASURED, DOUBTED) if seen and mark not in seen}
    return [words for words, is_drawn in marks if is_drawn and words[0] not in hidden]


def _ends(points: Iterable[Point]) -> Iterable[float]:
    return (end for point in points for end in (point.low, point.ratio, point.high) if end is not None)


def _limits(values: list[float]) -> tuple[float, float]:
    """A little more than all of them take."""
    low, high = min(values), max(values)
    room = max(0.05, (high - low) / 12)
    return max(0.0, low - room), high + room


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """About so many round numbers between two, and never fewer than three: an axis with one says nothing."""
    found: list[float] = []
    for wanted in range(most, most + _MOST_TICKS):
        steps = ticks(high - low, wanted)
        step = steps[1] - steps[0]
        found = [step * index for index in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]
        if len(found) >= _LEAST_TICKS:
            break
    return found
