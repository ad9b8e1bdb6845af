"""What a pane says of its run in figures: the rows above and below its views, its charts, and where its time went."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import Lossless, strategy_of
from specdec_tui.decoding.standing import Standing, standing
from specdec_tui.tui.figures.charts_view import ChartsView
from specdec_tui.tui.figures.pinned import Changes, groups
from specdec_tui.tui.figures.time_view import TimeView
from specdec_tui.tui.figures.words import (
    PLAIN_STRATEGIES,
    PaneState,
    Part,
    figure_lines,
    is_so_far,
    status_line,
    status_parts,
)
from specdec_tui.tui.panes.pace import Pace
from specdec_tui.tui.tokens.cursor_pane import CursorPane

if TYPE_CHECKING:
    from specdec_tui.tui.figures.scale import Scale
    from specdec_tui.tui.figures.time_lines import Beside

# Numbers that change faster than this cannot be read, and painting them takes time from decoding.
_FIGURES_SECONDS = 0.4


class FiguredPane(CursorPane):
    """Keeps the figures of a run and what they are measured against."""

    view: str
    """What it shows, one of `VIEWS`."""

    def __init__(self, strategy: str, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.strategy = strategy
        self.state = PaneState.IDLE
        self._figures = RunFigures()
        self._baseline: RunFigures | None = None
        self._baseline_label = ""
        self._scale: Scale | None = None
        self.told: tuple[Standing | None, float | None] = (None, None)
        """What stands on the screen: how the run stands against the target's, and its tokens/s."""
        self.told_so_far = False
        """Whether that still changes though the run is over."""
        self.tells: Callable[[], object] = lambda: None
        """Called when that has changed: elsewhere the same must be said."""
        self.can_repeat = True
        """Whether there are models to run again with."""
        self.lossless: Lossless | None = None
        """The verdict on the run, once there is one."""
        self._max_new_tokens = 0
        self.counts_at_once = False
        """Whether its tokens are counted in every painting of its text, as in a race, whose lanes count them too."""
        self._lines = Pace(self, _FIGURES_SECONDS, self._paint_lines)
        self._subtitle: list[Part] = []
        self._figure_line = Static(classes="figures", markup=False)
        self.charts_view = ChartsView(classes="view")
        self.time_view = TimeView(classes="view")
        self._wall = 0.0
        self._changes: Changes | None = None
        self.beside: Callable[[], Beside] = tuple
        """Where the time of panes went that are not in sight."""
        self._status_line = Static(classes="status", markup=False)

    @property
    def is_plain(self) -> bool:
        """Whether its strategy drafts nothing."""
        return strategy_of(self.strategy) in PLAIN_STRATEGIES

    @property
    def figures(self) -> RunFigures:
        """The figures of the run so far."""
        return self._figures

    @property
    def _caption(self) -> str:
        """What stands in the lower border."""
        raise NotImplementedError

    def set_baseline(self, figures: RunFigures | None, label: str = "", at_once: bool = False) -> None:
        """Measure speedup against the target's own run, as far as it is; None: no such run.

        `label` says which one it is where it is none of those beside this run, and without one, how to come by it.
        """
        self._baseline, self._baseline_label = figures, label
        if at_once or self.state is PaneState.ENDED:
            self._lines.now()
        else:
            self._lines.soon()

    def set_scale(self, scale: Scale) -> None:
        """Draw bars and plots on this scale, which is that of all panes."""
        if scale != self._scale:
            self._scale = scale
            if self.view == "charts":
                self._lines.now()

    def set_changes(self, changes: Changes | None) -> None:
        """Tell by how much the run differs from the pinned one; None: there is nothing to compare it with."""
        if changes != self._changes:
            self._changes = changes
            self._lines.now()

    def set_wall(self, seconds: float) -> None:
        """What a full bar of where the time went stands for in all panes."""
        if seconds != self._wall:
            self._wall = seconds
            if self.view == "time":
                self._lines.soon()

    def _paint_lines(self) -> None:
        width = max(1, self.size.width - 2)
        is_target = self.strategy == "target"
        # A pane too low for a status line has it in its border.
        short = self.has_class("-short")
        in_charts = self.view == "charts"
        figures = figure_lines(
            self._figures,
            self._baseline,
            is_target,
            width,
            label=self._baseline_label,
            rows=2 if self.has_class("-tall") and not in_charts else 1,
            beside_gauges=in_charts and not short,
            can_grow=not in_charts and not short,
            can_repeat=self.can_repeat,
            pinned=groups(self._changes, width),
        )
        self.set_class("\n" in figures.plain, "-two-rows")
        self._figure_line.update(figures, layout=False)
        self._paint_status()
        if in_charts:
            self.charts_view.show(self._figures, self._baseline, is_target, self._scale)
        elif self.view == "time":
            self.time_view.show(self._figures, self._baseline, self._wall, self.beside())
        found = None if is_target else standing(self._figures, self._baseline)
        self.told = found, self._figures.decode_tokens_per_second
        self.told_so_far = is_so_far(self._figures, self._baseline)
        self.tells()

    def _paint_status(self) -> None:
        width, short = max(1, self.size.width - 2), self.has_class("-short")
        is_target = self.strategy == "target"
        status, first = status_parts(self.state, self._figures, self._max_new_tokens, self.lossless, is_target)
        line = status_line(status, max(1, width - 4) if short else width, first)
        self._status_line.update(Content.assemble(*line), layout=False)
        self._write_below(line if short else self._named)

    def _paint_caption(self) -> None:
        """What its view is, and what the figures in it are: known once lines have been laid out."""
        if not self.has_class("-short"):
            self._write_below(self._named)

    @property
    def _named(self) -> list[Part]:
        return [(self._caption, "")] if self._caption else []

    def _write_below(self, subtitle: list[Part]) -> None:
        """In the lower border."""
        if subtitle != self._subtitle:
            self._subtitle = subtitle
            self.border_subtitle = Content.assemble(*subtitle) if subtitle else None
