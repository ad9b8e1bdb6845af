"""The panes and the table below them: they tell of the same run, whether it is at work, kept or raced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import Event, Finished, RunEnded, Step
from specdec_tui.settings import STRATEGIES, Settings
from specdec_tui.traces.format import Trace
from specdec_tui.tui.figures.comparison import ComparisonTable, Row
from specdec_tui.tui.panes.grid import PaneGrid


class Stage:
    """`at_work` says whether more is to come in the panes."""

    def __init__(self, grid: PaneGrid, table: ComparisonTable, at_work: Callable[[], bool]) -> None:
        self.grid = grid
        self.table = table
        self._at_work = at_work
        self._hidden: set[str] = set()

    @property
    def rows(self) -> list[Row]:
        """The rows of the comparison table: of runs at work there are no figures to compare yet."""
        return [
            (r.strategy, r.figures if r.figures.end is not None or not self._at_work() else RunFigures(), r.lossless)
            for r in self.grid.results
        ]

    @property
    def baseline(self) -> RunFigures | None:
        """The target's own run in the panes."""
        return next((r.figures for r in self.grid.results if r.strategy == "target"), None)

    @property
    def table_is_open(self) -> bool:
        return self.table.display

    @table_is_open.setter
    def table_is_open(self, wanted: bool) -> None:
        self.table.display = wanted

    def toggle_table(self) -> bool:
        """Show or hide the table; False when there is nothing to compare."""
        if not self.grid.results:
            return False
        self.table.show(self.rows)
        self.table.display = not self.table.display
        return True

    # A run at work

    def begin(self, settings: Settings) -> None:
        """Clear the panes for a run."""
        self._hidden = set()
        self.grid.begin(settings.strategies, settings.max_new_tokens)
        self.table.display = False

    def go_on(self, batch: Sequence[Event]) -> None:
        """Show what has happened in a run; its end opens the table."""
        ended = any(isinstance(event, Step) and isinstance(event.record, RunEnded) for event in batch)
        if (finished := self.grid.deliver(batch)) is not None:
            self._show_table(not finished.cancelled)
            self.grid.show_start()
        elif ended and self.table.display:
            self.table.show(self.rows)

    # A run of the past

    def open(self, trace: Trace) -> None:
        """All of a trace that was not shown before."""
        self._hidden = set()
        self.show_whole(trace)

    def toggle_pane(self, name: str) -> str:
        """Show or hide what a strategy did in a run of the past; one pane stays. Says what has become of it."""
        shown = {result.strategy for result in self.grid.results} - self._hidden
        if name not in shown | self._hidden:
            return f"The trace has no {name}"
        if shown == {name}:
            return "At least one pane stays"
        self._hidden ^= {name}
        self.grid.show_only(shown ^ {name})
        return f"{name} hidden; {self.grid.panes[name].number} shows it again" if name in shown else f"{name} shown"

    def clear_for(self, trace: Trace) -> None:
        """Empty panes for the strategies of a trace."""
        known = [name for name in trace.strategies if name in STRATEGIES]
        self.grid.begin(known, trace.header.run_settings().max_new_tokens)
        self.grid.show_only(set(known) - self._hidden)

    def deliver(self, events: Sequence[Event]) -> None:
        """Show some of what happened in the trace that the panes were cleared for."""
        self.grid.deliver(events)

    def measure_against(self, baseline: RunFigures | None) -> None:
        """Speedups are against this; the target has none to reach but its own."""
        for pane in self.grid.shown:
            if pane.strategy != "target":
                pane.set_baseline(baseline)

    def show_whole(self, trace: Trace) -> None:
        """All of a trace at once."""
        self.clear_for(trace)
        self.grid.deliver(trace.events)
        self.end(any(isinstance(event, Finished) and not event.cancelled for event in trace.events))

    def end(self, with_table: bool) -> None:
        """Nothing more comes."""
        self.grid.break_off()
        self._show_table(with_table)

    def _show_table(self, wanted: bool) -> None:
        self.table.show(self.rows)
        self.table.display = wanted and len(self.grid.results) > 1
