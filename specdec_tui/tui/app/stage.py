"""The panes and the table below them: they tell of the same run, whether it is at work, kept or raced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING

from textual.timer import Timer
from textual.widget import Widget

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import Checked, Event, Finished, RunEnded, Step
from specdec_tui.decoding.standing import Standing, standing
from specdec_tui.settings import SERVED, STRATEGIES, Settings
from specdec_tui.several_drafters import drafters_in, labels, running, shown
from specdec_tui.tui.app.since_pin import SincePin, made_with
from specdec_tui.tui.commands.header import local_time, one_row
from specdec_tui.tui.commands.table import key
from specdec_tui.tui.figures.chart_layout import LEAST_PANE_ROWS
from specdec_tui.tui.panes import arrangement
from specdec_tui.tui.race.panel import RacePanel

if TYPE_CHECKING:
    from specdec_tui.backends.pair import PairInfo
    from specdec_tui.traces.baseline import Baseline
    from specdec_tui.traces.format import Trace
    from specdec_tui.tui.figures.comparison import ComparisonTable, Row
    from specdec_tui.tui.panes.grid import PaneGrid
    from specdec_tui.tui.race.race import Race

LOW_FOR_TABLE, LOW_FOR_BOTH, LEAST_FOR_TABLE = 26, 16, 10
"""Rows of a screen below which the table does not open by itself, has no room beside a pane, and has none at all."""

_SLICE, _BETWEEN_SLICES = 800, 0.005
"""Events of a trace that are shown at once, and seconds for keys between: thousands would hold the screen up."""


class Stage:
    """`at_work` says whether more is to come in the panes."""

    def __init__(
        self, grid: PaneGrid, table: ComparisonTable, at_work: Callable[[], bool], lanes: RacePanel | None = None
    ) -> None:
        self.grid = grid
        self.table = table
        self.lanes = RacePanel() if lanes is None else lanes
        self._at_work = at_work
        self._hidden: set[str] = set()
        self._elsewhere: tuple[RunFigures | None, str] = (None, "")
        self._table_is_wanted = self._table_is_asked_for = self._table_is_instead = False
        self._can_repeat, self._is_raced = True, False
        self._turn, self._prompt = 0, ""
        self._drafters: Mapping[str, str] = {}
        self.since_pin = SincePin(grid)
        self._filling: Timer | None = None

    def allow_repeating(self, can_repeat: bool) -> None:
        """Whether there are models to run again with: where not, no word says that a key does."""
        self._can_repeat = can_repeat
        for pane in self.grid.panes.values():
            pane.can_repeat = can_repeat

    @property
    def rows(self) -> list[Row]:
        """The rows of the comparison table: of runs at work there are no figures to compare yet."""
        return [
            (r.strategy, r.figures if r.figures.end is not None or not self._at_work() else RunFigures(), r.lossless)
            for r in self.grid.results
        ]

    @property
    def standings(self) -> dict[str, Standing | None]:
        """How the strategies stand against the target, by what the panes have been told."""
        baseline, _ = self.grid.baseline
        return {result.strategy: standing(result.figures, baseline) for result in self.grid.results}

    @property
    def table_is_open(self) -> bool:
        """Whether it is wanted; charts may have its room."""
        return self._table_is_wanted

    @table_is_open.setter
    def table_is_open(self, wanted: bool) -> None:
        self._table_is_wanted = wanted
        self.give_room()

    def give_room(self) -> None:
        """The table yields where charts would lose their pictures to it, and comes back when they are left.

        On a low screen it is there only when asked for: the strip above the panes has the speedups.
        On a very low one it then stands in the place of the panes, and where it would leave too little of them
        when asked for again. Called whenever the room changes.
        """
        rows, crowds = self.grid.app.size.height, self._crowds(self.table)
        low = rows < (LEAST_FOR_TABLE if self._table_is_asked_for else LOW_FOR_TABLE)
        has_room = self._table_is_asked_for or self._has_room_for_table()
        yields = crowds and rows >= LOW_FOR_BOTH and not self._table_is_instead
        self.table.display = self._table_is_wanted and not low and has_room and not yields
        alone = self.table.display and (crowds or rows < LOW_FOR_BOTH)
        if self.lanes.display:  # they stand in the table's place
            self.table.display, alone = False, self._crowds(self.lanes)
        self.lanes.set_class(alone, "-alone")
        if alone and self.grid.focused is not None:
            self.grid.screen.set_focus(None)  # else it would go to the prompt, and the next key with it
        self.grid.display = not alone
        self.table.set_class(alone, "-alone")
        if isinstance(body := self.grid.parent, Widget):
            body.set_class(alone and len(body.children) == 1, "-empty")
        self.grid.strip.display = self.grid.is_one_at_a_time and not alone
        self.grid.screen.set_class(self.lanes.display, "-racing")

    def scroll_table(self, how: str) -> bool:
        """Move the table where it stands in the place of the panes and does not show all; else False."""
        if self.grid.display or not self.table.overflows:
            return False
        self.table.scroll(how)
        return True

    def make_way(self) -> None:
        """A pane is wanted: a table or lanes in its place go."""
        if not self.grid.display:
            self.lanes.display = self.table_is_open = False

    def _crowds(self, below: ComparisonTable | RacePanel) -> bool:
        """Whether what stands below the panes leaves less than a pane needs."""
        body = self.grid.parent
        if not isinstance(body, Widget) or not (body.size.height or body.has_class("-empty")):
            return False
        # In a new size the screen may not be laid out yet: what is around panes and table keeps its rows.
        laid_out = max(child.region.bottom for child in body.screen.children)
        shown = [widget for widget in (self.table, self.lanes) if widget.display]
        around = laid_out - body.size.height - sum(widget.size.height for widget in shown)
        return self.grid.app.size.height - around - below.height_wanted < arrangement.LEAST_PANE_ROWS

    @property
    def table_yields(self) -> str:
        """Why a table that was asked for is not there."""
        if not (self._table_is_wanted and self._table_is_asked_for) or self.table.display:
            return ""
        if self.grid.app.size.height < LEAST_FOR_TABLE:
            return "No room for the table"
        return f"No room beside the pane: {key('table')} again shows the table instead"

    def _has_room_for_table(self) -> bool:
        panes = self.grid.shown
        if all(pane.view != "charts" for pane in panes):
            return True
        high = self.grid.size.height if self.grid.is_one_at_a_time else panes[0].size.height
        below = max(1, round(self.grid.size.height / max(1, high)))
        height = self.grid.size.height - (0 if self.table.display else self.table.row_count + 1)
        return height // below >= LEAST_PANE_ROWS

    def toggle_table(self) -> bool:
        """Show or hide the table; False when there is nothing to compare, or nothing yet."""
        if not any(figures.rounds for _, figures, _ in self.rows) and not self.table.display:
            return False
        self._fill_table()
        self._table_is_asked_for, self._table_is_instead = not self.table.display, bool(self.table_yields)
        self.table_is_open = not self.table.display
        return True

    # A run at work

    def learn(self, pair: PairInfo, strategies: Iterable[str]) -> None:
        """What is loaded from now on, and the strategies that a run of it would have; none: the panes stay."""
        self.grid.offer(shown(len(pair.drafters)))
        for pane in self.grid.panes.values():
            if pane.state.is_empty:  # the others tell of a run of before
                pane.name_drafter(labels(pair).get(pane.strategy, ""))
        if strategies := tuple(strategies):
            self.grid.show_only(strategies)

    def begin(self, settings: Settings, turn: int = 0, prompt: str = "", pair: PairInfo | None = None) -> None:
        """Clear the panes for a run of a pair that answers `prompt` as a turn of the conversation; 0: of none."""
        self._stop_filling()
        self._turn, self._prompt = turn, prompt
        self._hidden, self._elsewhere = set(), (None, "")
        self._name_drafters(pair)
        self.since_pin.made = made_with(settings, prompt, pair)
        self.grid.begin(
            running(settings.strategies, drafters_in(pair)), settings.max_new_tokens, turn=turn, prompt=prompt
        )
        self._table_is_asked_for = self._table_is_instead = self.table_is_open = False

    def rest(self, pair: PairInfo | None, strategies: Iterable[str]) -> None:
        """Empty panes, as they were before anything ran, for the strategies of a run of a pair."""
        self._stop_filling()
        self._hidden, self._elsewhere = set(), (None, "")
        self._name_drafters(pair)
        self.grid.rest(strategies)
        self._table_is_asked_for = self._table_is_instead = self.table_is_open = False

    def go_on(self, batch: Sequence[Event]) -> None:
        """Show what has happened in a run; its end opens the table."""
        ended = any(isinstance(event, Step) and isinstance(event.record, RunEnded) for event in batch)
        if (finished := self.grid.deliver(batch)) is not None:
            self._show_table(not finished.cancelled)
            self.grid.show_start()
        elif ended and self.table.display:
            self._fill_table()

    def go_on_beside(self, batch: Sequence[Step | Checked]) -> None:
        """Show what has happened in a what-if of the run that the panes show."""
        self.grid.deliver(batch)
        is_over = any(isinstance(event, Checked) or isinstance(event.record, RunEnded) for event in batch)
        if is_over and self.table.display:
            self._fill_table()

    # A run of the past

    def open(self, trace: Trace, turn: int = 0, prompt: str = "") -> None:
        """All of a trace that was not shown before, as this turn of the conversation; 0: of none."""
        self._turn, self._prompt = turn, prompt
        self._hidden, self._elsewhere = set(), (None, "")
        self._name_drafters(trace.header.pair())
        self.since_pin.made = made_with(trace.header.run_settings(), trace.header.prompt, trace.header.pair())
        self.show_whole(trace)

    def _name_drafters(self, pair: PairInfo | None) -> None:
        self._drafters = {strategy: one_row(name) for strategy, name in labels(pair).items()}
        for pane in self.grid.panes.values():
            pane.name_drafter(self._drafters.get(pane.strategy, ""))

    def toggle_pane(self, name: str) -> str:
        """Show or hide what a strategy did in a run of the past; one pane stays. Says what has become of it."""
        took_part = {result.strategy for result in self.grid.results if not result.figures.is_what_if}
        shown = took_part - self._hidden
        if name not in shown | self._hidden:
            return f"The trace has no {name}"
        if shown == {name}:
            return "At least one pane stays"
        self._hidden ^= {name}
        self.grid.show_only(shown ^ {name})
        return f"{name} hidden; {key(f'toggle {name}')} shows it again" if name in shown else f"{name} shown"

    @property
    def hidden(self) -> frozenset[str]:
        """Strategies of a run of the past that a person hid."""
        return frozenset(self._hidden)

    def hide(self, strategies: Iterable[str]) -> None:
        """These are hidden; whoever says so shows the others."""
        self._hidden = set(strategies)

    def clear_for(self, trace: Trace, *, keep_scale: bool = False) -> None:
        """Empty panes for the strategies of a trace; `keep_scale`: of the one that was just in them."""
        self._stop_filling()
        known = [name for name in trace.strategies if name in (*STRATEGIES, *SERVED)]
        length = trace.header.run_settings().max_new_tokens
        self.grid.begin(known, length, keep_scale=keep_scale, turn=self._turn, prompt=self._prompt)
        self.grid.show_only(set(known) - self._hidden)

    def deliver(self, events: Sequence[Event]) -> None:
        """Show some of what happened in the trace that the panes were cleared for."""
        self.grid.deliver(events)

    # A race of it

    @property
    def focused_strategy(self) -> str:
        """Of the pane that a person is in; empty where they are in none."""
        return "" if self.grid.focused is None else self.grid.focused.strategy

    @property
    def front_strategy(self) -> str:
        """Of the pane that stands in front."""
        return self.grid.current.strategy

    def begin_again(self) -> None:
        """Empty the panes for the same trace once more."""
        self.grid.begin_again()

    def come_to_rest(self) -> None:
        """Every figure is to be that of what has been delivered."""
        self.grid.come_to_rest()

    def bring_forward(self, strategy: str) -> None:
        """Have a pane in sight."""
        self.grid.bring_forward(strategy)

    def show_race(
        self, race: Race | None, chosen: str = "", standings: Mapping[str, Standing | None] | None = None
    ) -> None:
        """Lanes and round in the place of the table, as the race stands; None: there is none any more."""
        comes_or_goes = self._is_raced != (race is not None)
        self.lanes.show(race, chosen, standings)
        if comes_or_goes and self.grid.is_mounted:
            self._is_raced = race is not None
            for pane in self.grid.panes.values():
                pane.counts_at_once = self._is_raced
            self._show_lanes(self._is_raced)

    def toggle_lanes(self) -> None:
        """Put the lanes of a race away, or bring them back."""
        self._show_lanes(not self.lanes.display)

    def _show_lanes(self, wanted: bool) -> None:
        self.lanes.display = wanted
        self.give_room()
        self.grid.call_after_refresh(self.give_room)

    def show_whole(self, trace: Trace, with_table: bool | None = None) -> None:
        """All of a trace, a slice at a time where it is long; by default with the table where the run is whole."""
        self.clear_for(trace)
        if with_table is None:
            with_table = any(isinstance(event, Finished) and not event.cancelled for event in trace.events[-1:])
        self.grid.expect_all(trace.events)
        self._fill(trace.events, 0, with_table)

    def _fill(self, events: Sequence[Event], begin: int, with_table: bool) -> None:
        end = begin + _SLICE
        self._filling = None
        self.grid.deliver(events[begin:end])
        if end < len(events):
            self._filling = self.grid.set_timer(_BETWEEN_SLICES, lambda: self._fill(events, end, with_table))
        else:
            self.end(with_table)

    def _stop_filling(self) -> None:
        if self._filling is not None:
            self._filling.stop()
            self._filling = None

    @property
    def is_filling(self) -> bool:
        """Whether more of a trace is to come into the panes."""
        return self._filling is not None

    def measure_against(self, baseline: RunFigures | None, label: str) -> None:
        """An earlier run of the target, for a run that has none; `label` says which.

        None: nobody knows of any, and `label` says how to come by one.
        """
        self._elsewhere = baseline, label
        self.grid.measure_against(baseline, label)
        self._fill_table()

    def measure_against_earlier(self, baseline: Baseline) -> None:
        """The same of a kept run, which is named by its time of day, or its day where that was another."""
        created = local_time(baseline.created)
        today = created.startswith(date.today().isoformat())
        self.measure_against(baseline.figures, f"target of {created[11:] if today else created}")

    @property
    def lacks_baseline(self) -> bool:
        """Whether that is said."""
        return self._elsewhere[0] is None and bool(self._elsewhere[1])

    def end(self, with_table: bool) -> None:
        """Nothing more comes."""
        self.grid.measure_against(*self._elsewhere)
        self.grid.break_off()
        self._show_table(with_table)

    def pin(self, letter: str, when: str) -> str:
        """Later runs are told with how they differ from what the panes show. Says what that was."""
        said = self.since_pin.pin(letter, when)
        self._fill_table()
        return said

    def unpin(self) -> str:
        """No more of that. Says what was pinned; empty where nothing was."""
        said = self.since_pin.unpin()
        self._fill_table()
        return said

    def _fill_table(self) -> None:
        changes, note = self.since_pin.tell()
        self.table.show(
            self.rows,
            *self.grid.baseline,
            can_repeat=self._can_repeat,
            drafters=self._drafters,
            changes=changes,
            pinned=note,
        )

    def _show_table(self, wanted: bool) -> None:
        self._fill_table()
        self.table_is_open = wanted and len(self.grid.results) > 1
