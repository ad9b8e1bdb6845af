"""Tokens per second over time, a run's against the target's: textual-plot in the app's colours."""

from __future__ import annotations

from contextlib import ExitStack
from math import floor, log10
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.app import ComposeResult, RenderResult
from textual.containers import Grid
from textual.strip import Strip
from textual_hires_canvas import Canvas
from textual_plot import HiResMode, PlotWidget
from textual_plot.plot_widget import Legend

from specdec_tui.decoding.course import RunCourse
from specdec_tui.tui.figures.scale import Scale


def ticks(top: float, most: int) -> list[float]:
    """Even ticks from 0 up to `top` > 0, in steps of 1, 2 or 5 times a power of ten.

    At most `most`, but never one alone: where there is no room for such steps, 0 and the largest round number.
    """
    least = top / max(1, most - 1)
    power = 10.0 ** floor(log10(least))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= least * (1 - 1e-9))
    if step > top:
        power = 10.0 ** floor(log10(top))
        return [0.0, floor(top / power) * power]
    return [index * step for index in range(floor(top / step * (1 + 1e-9)) + 1)]


class PlotCanvas(Canvas):
    """A canvas that is blank where it has no row yet.

    textual-hires-canvas 0.14 gives such rows a segment without a style, and Textual's filter
    for NO_COLOR then takes the app down: whenever a plot is painted before it was sized anew.
    """

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        return strip if strip.cell_length else Strip.blank(self.size.width, self.rich_style)


class SpeedPlot(PlotWidget, can_focus=False):
    """Draws only when told to: no zoom, no pan, no keys of its own, and the wheel stays with the pane."""

    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(allow_pan_and_zoom=False)
        # The heading above it says what it shows, so that all rows but one of ticks are the plot's.
        self.set_reactive(SpeedPlot.margin_top, 0)
        self.set_reactive(SpeedPlot.margin_bottom, 1)
        self.set_reactive(SpeedPlot.margin_left, 6)

    def compose(self) -> ComposeResult:
        with Grid():
            for name in ("margin-top", "margin-left", "plot", "margin-bottom"):
                yield PlotCanvas(1, 1, id=name)
        yield Legend(id="legend")

    def show(
        self, run: RunCourse, baseline: RunCourse | None, style: Style, baseline_style: Style, scale: Scale
    ) -> None:
        """Plot both, thinned out to the columns there are; the target's line is dotted.

        The `scale` covers them.
        """
        columns = max(2, self.size.width - self.margin_left - 2)
        own = run.speeds(columns)
        theirs = [] if baseline is None or baseline is run else baseline.speeds(columns)
        self.clear()
        # Both axes from zero, and the same in all panes: a small difference must not look like a large one.
        self.set_xlimits(0.0, scale.seconds)
        self.set_ylimits(0.0, scale.top)
        self.set_xticks(ticks(scale.seconds, columns // 6))
        self.set_yticks(ticks(scale.top, self.size.height // 2))
        if theirs:
            x, y = zip(*theirs, strict=True)
            self.scatter(x, y, marker="•", marker_style=str(baseline_style))
        if own:
            x, y = zip(*(own if len(own) > 1 else [(0.0, own[0][1]), *own]), strict=True)
            self.plot(x, y, line_style=str(style), hires_mode=HiResMode.BRAILLE)

        self.render()  # now: drawn while the screen is painted, the canvases would be painted twice

    def render(self) -> RenderResult:
        with ExitStack() as batch:
            # Else each of its pixels asks for a repaint, which takes half of the time.
            for canvas in self.query(Canvas):
                batch.enter_context(canvas.batch_refresh())
            return super().render()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.prevent_default()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.prevent_default()
