"""The clock of a race: it begins, pauses between paintings, changes its speed and ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import monotonic
from typing import Protocol

from textual.notifications import SeverityLevel
from textual.timer import Timer

from specdec_tui.decoding.records import Event, Step
from specdec_tui.settings import SettingError, parse_speed
from specdec_tui.traces.format import Trace
from specdec_tui.tui.app.notices import Holds, always
from specdec_tui.tui.app.race import Race, finish_words

RACE_SECONDS = 1 / 30


class RaceStage(Protocol):
    """Where a race is shown."""

    table_is_open: bool

    @property
    def disturbed(self) -> Collection[str]:
        """Strategies whose clock cannot be believed."""

    def clear_for(self, trace: Trace, *, keep_scale: bool = False) -> None:
        """Empty panes for the strategies of a trace; `keep_scale`: of the one that was just in them."""

    def deliver(self, events: Sequence[Event]) -> None:
        """Show some of what happened."""

    def show_whole(self, trace: Trace, with_table: bool | None = None) -> None:
        """All of a trace; by default with the table where the run is whole."""

    def end(self, with_table: bool) -> None:
        """Nothing more comes."""


class RaceScreen(Protocol):
    """What a race asks of the screen."""

    def say(
        self, text: str, severity: SeverityLevel = "information", timeout: float = 5, holds: Holds = always
    ) -> None:
        """Tell a person."""

    def every(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call again and again."""

    def show_clock(self) -> None:
        """The race has gone on."""

    def settle(self) -> None:
        """Something here is not as it was."""


class Racing:
    """At most one race is on; `race` is where it stands."""

    def __init__(self, screen: RaceScreen, stage: RaceStage) -> None:
        self._screen = screen
        self._stage = stage
        self.race: Race | None = None
        self.outcome = ""
        """Who was when at the end of the last race, while its panes are on the screen."""
        self._trace: Trace | None = None
        self._timer: Timer | None = None
        self._time = 0.0
        self._table_was_open = False

    def toggle(self, trace: Trace | None, speed: str = "") -> None:
        """Begin a race of `trace` at a speed, or give the one that is on that speed; without one: begin or end it."""
        try:
            wanted = parse_speed(speed or "1")
        except SettingError as error:
            self._screen.say(str(error), "error")
            return
        if self.race is not None:
            if speed:
                self.race.speed = wanted
            else:
                self._give_up()
        elif trace is None:
            self._screen.say("Nothing has run yet: type a prompt first, or open a trace (H)")
        elif not (race := Race(trace.events, wanted)).length:
            self._screen.say("The run has no clock readings: there is nothing to race")
        else:
            self._begin(trace, race)
        self._screen.settle()

    def change_speed(self, step: int) -> None:
        if self.race is None:
            self._screen.say("No race is on: R begins one", holds=lambda: self.race is None)
        else:
            self.race.change_speed(step)
            self._screen.settle()

    def stop(self) -> None:
        """No race is on any more; the panes stay as they are."""
        self.race, self.outcome = None, ""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _begin(self, trace: Trace, race: Race) -> None:
        self.race, self._trace, self.outcome = race, trace, ""
        self._table_was_open = self._stage.table_is_open
        # Nothing from the future but the scale of the pictures, which tells of no pane in particular:
        # figures, and ratios to the target, come from what has happened so far.
        self._stage.clear_for(trace, keep_scale=True)
        self._stage.table_is_open = False  # it knows the winner
        self._time = monotonic()
        self._timer = self._screen.every(RACE_SECONDS, self.advance)

    def advance(self) -> None:
        """Show what has happened since the last time."""
        race, trace = self.race, self._trace
        if race is None or trace is None:
            return
        now = monotonic()
        passed, self._time = now - self._time, now
        if steps := race.advance(passed):
            self._stage.deliver(steps)
        if race.over:
            self.stop()
            self.outcome = finish_words(race.finished, self._stage.disturbed)
            self._stage.deliver([event for event in trace.events if not isinstance(event, Step)])
            self._stage.end(self._table_was_open)
            self._screen.settle()
        else:
            self._screen.show_clock()

    def _give_up(self) -> None:
        """Stop where it is, and show the whole run again."""
        self.stop()
        if self._trace is not None:
            self._stage.show_whole(self._trace, self._table_was_open)
