"""What all plots of the app share: textual-plot, drawn only when told to, in the app's colours."""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar

from textual import events
from textual.app import ComposeResult, RenderResult
from textual.containers import Grid
from textual.strip import Strip
from textual_hires_canvas import Canvas
from textual_plot import PlotWidget
from textual_plot.plot_widget import Legend


class PlotCanvas(Canvas):
    """A canvas that is blank where it has no row yet.

    textual-hires-canvas 0.14 gives such rows a segment without a style, and Textual's filter
    for NO_COLOR then takes the app down: whenever a plot is painted before it was sized anew.
    """

    def render_line(self, y: int) -> Strip:
        strip = super().render_line(y)
        return strip if strip.cell_length else Strip.blank(self.size.width, self.rich_style)


class Plot(PlotWidget, can_focus=False):
    """Draws only when told to: no zoom, no pan, no keys of its own, and the wheel stays with what is around it."""

    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(allow_pan_and_zoom=False)
        # The heading above it says what it shows, so that all rows but one of ticks are the plot's.
        self.set_reactive(Plot.margin_top, 0)
        self.set_reactive(Plot.margin_bottom, 1)
        self.set_reactive(Plot.margin_left, 6)

    def compose(self) -> ComposeResult:
        with Grid():
            for name in ("margin-top", "margin-left", "plot", "margin-bottom"):
                yield PlotCanvas(1, 1, id=name)
        yield Legend(id="legend")

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
