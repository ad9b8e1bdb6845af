"""Where the time of a run went, in a pane."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.tui.figures.chart_lines import padded
from specdec_tui.tui.figures.drawn import DrawnView

if TYPE_CHECKING:
    from specdec_tui.tui.figures.time_lines import Beside


class TimeView(DrawnView):
    """Shows the figures it was last given."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._figures = RunFigures()
        self._baseline: RunFigures | None = None
        self._wall = 0.0
        self._beside: Beside = ()

    def show(self, figures: RunFigures, baseline: RunFigures | None, wall: float, beside: Beside = ()) -> None:
        """Draw these figures, if the view can be seen; ask again when they have changed.

        `wall`: seconds of a full bar. `beside`: where the time of panes went that are not in sight.
        """
        self._figures, self._baseline, self._wall, self._beside = figures, baseline, wall, beside
        self._draw()

    def _draw(self) -> None:
        if not self.display or not self.is_attached or not self.size:
            return
        from specdec_tui.tui.figures.time_lines import time_lines  # not at a start

        lines = time_lines(self._figures, self._baseline, self._wall, *self.size, self._beside)
        self._lines = [padded(line, self.size.width) for line in lines]
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def on_show(self) -> None:
        self._draw()
