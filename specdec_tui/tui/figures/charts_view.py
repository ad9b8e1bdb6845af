"""A run in charts: gauges in words and numbers, then as many charts as the room allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events
from textual.geometry import Offset, Region

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.tui.figures.chart_layout import Chart, arrange, without_blanks
from specdec_tui.tui.figures.chart_lines import Ink, gauge_lines, padded
from specdec_tui.tui.figures.drawn import DrawnView
from specdec_tui.tui.figures.scale import Scale, common_scale

if TYPE_CHECKING:
    from specdec_tui.tui.figures.speed_plot import SpeedPlot

_MOST_GAUGES = 3


class ChartsView(DrawnView):
    """Shows the figures it was last given. All is text drawn here but the speed's plot, which lies above it.

    The plot's own room is blank in its lines.
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._figures = RunFigures()
        self._baseline: RunFigures | None = None
        self._is_target = False
        self._scale = Scale()
        self._plot: SpeedPlot | None = None
        self._plot_region: Region | None = None
        self._rows = 0  # of those that it has, as many as the lowest of all panes

    @property
    def plot(self) -> SpeedPlot | None:
        """The plot of the speed, once there was room for it."""
        return self._plot

    def show(
        self, figures: RunFigures, baseline: RunFigures | None, is_target: bool, scale: Scale | None = None
    ) -> None:
        """Draw these figures, if the view can be seen; ask again when they have changed.

        `scale`: that of all panes; without one, what these two runs need.
        """
        self._figures, self._baseline, self._is_target = figures, baseline, is_target
        runs = [figures] if baseline is None else [figures, baseline]
        self._scale = (scale or common_scale(runs, baseline)).covering(run.course for run in runs)
        self._draw()

    def _draw(self) -> None:
        width, height = self.size
        if not self.display or not self.is_attached:
            return
        if width <= 0 or height <= 0:
            self._place_plot(None)
            return
        from specdec_tui.tui.figures.chart_cells import applicable, compact_chart, full_chart  # not at a start

        figures, baseline, scale = self._figures, self._baseline, self._scale
        window = figures.window()
        gauges = gauge_lines(figures, window, baseline, self._is_target, width, scale)
        charts = applicable(figures)
        beside = self._beside()
        # Where nothing was measured of passes why is told in a row.
        pictures = len(Chart) if any(view._figures.passes for view in [*beside, self]) else len(Chart) - 1
        height = self._rows = min((view.region.height for view in beside if view.region), default=height) or height
        if len(beside) > 1 and charts:
            # A chart has its place and height in all panes, in the target's too, which has fewer of them.
            narrowest = min((view.region.width for view in beside if view.region), default=width)
            places = without_blanks(arrange(width, height, _MOST_GAUGES, tuple(Chart), narrowest, pictures), charts)
        else:
            pictures = min(pictures, len(charts) - (not figures.passes))
            places = arrange(width, height, len(gauges), charts, pictures=pictures)
        in_text = [c for c in charts if all(c is not chart for chart, _ in places.cells)]
        compact = [compact_chart(c, figures, baseline, width, scale) if c in in_text else [] for c in places.compact]
        lines = [*gauges, *[[]] * (places.gauges - len(gauges))][: places.gauges] + compact
        rows = [padded(line, width) for line in lines]
        rows += [[] for _ in range(height - len(rows))]
        plot_region: Region | None = None
        for chart, region in places.cells:
            if chart not in charts:
                continue
            drawn = full_chart(chart, figures, window, baseline, region.width, region.height, scale)
            if chart is Chart.SPEED:
                plot_region = Region(region.x, region.y + 1, region.width, region.height - 1)
            for index in range(region.height):
                row = rows[region.y + index]
                filled = sum(len(text) for text, _ in row)
                row += padded([], region.x - filled)
                row += padded(drawn[index] if index < len(drawn) else [], region.width)
        self._lines = [padded(row, width) for row in rows]
        self._place_plot(plot_region)
        self.refresh()

    def _beside(self) -> list[ChartsView]:
        """The charts of all panes, this one's among them, whether they have room on the screen or not."""
        panes = [] if self.parent is None or self.parent.parent is None else self.parent.parent.children
        return [view for pane in panes if pane.display for view in pane.query(ChartsView) if view.display]

    def _place_plot(self, region: Region | None) -> None:
        if region is None:
            if self._plot is not None:
                self._plot.display = False
            return
        if self._plot is None:
            # Not before it is seen: it brings seven widgets, and imports numpy.
            from specdec_tui.tui.figures.speed_plot import SpeedPlot

            self._plot = SpeedPlot()
            self.mount(self._plot)
        plot = self._plot
        plot.display = True
        if region != self._plot_region:
            self._plot_region = region
            plot.styles.offset = Offset(*region.offset)
            plot.styles.width, plot.styles.height = region.width, region.height
        if plot.is_mounted and plot.size == region.size:
            self._fill_plot()
        else:
            self.call_after_refresh(self._fill_plot)

    def _fill_plot(self) -> None:
        if self._plot is None or not self._plot.is_mounted or not self._plot.display or not self.display:
            return
        if not self.is_attached:  # the app is closing: no styles are left
            return
        baseline = None if self._baseline is None else self._baseline.course
        self._plot.show(self._figures.course, baseline, self._style(Ink.RUN), self._style(Ink.BASELINE), self._scale)

    def on_resize(self, event: events.Resize) -> None:
        self._draw()
        for view in self._beside():  # one that keeps its size has no message of it
            if view is not self and view.region and view._rows != self._rows:
                view._draw()

    def on_show(self) -> None:
        self._draw()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_attached and self._plot is not None:
            self.call_after_refresh(self._fill_plot)
