"""The clock of a race: it begins, is steered, stands at its end, and is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from textual.notifications import SeverityLevel
from textual.timer import Timer

from specdec_tui.decoding.records import Event, Step
from specdec_tui.settings import SettingError, parse_speed
from specdec_tui.tui.app.notices import Holds, always
from specdec_tui.tui.commands.table import key

if TYPE_CHECKING:
    from specdec_tui.decoding.standing import Standing
    from specdec_tui.traces.format import Trace
    from specdec_tui.tui.race.race import Race

RACE_SECONDS = 1 / 30
_CATCH_UP_SECONDS = 0.005
"""Between two slices of a long way to the time of the race: keys have their turn there."""

_FILLED_SECONDS = 0.05
"""Between begin and end by a key held down: each empties and fills all panes, and other keys have their turn there."""


class RaceStage(Protocol):
    """Where a race is shown."""

    table_is_open: bool

    @property
    def focused_strategy(self) -> str:
        """Of the pane that a person is in; empty where they are in none."""

    @property
    def front_strategy(self) -> str:
        """Of the pane that stands in front."""

    @property
    def standings(self) -> Mapping[str, Standing | None]:
        """How the strategies stand against the target, by what the panes have been told."""

    def clear_for(self, trace: Trace, *, keep_scale: bool = False) -> None:
        """Empty panes for the strategies of a trace; `keep_scale`: of the one that was just in them."""

    def begin_again(self) -> None:
        """Empty the panes for the same once more."""

    def deliver(self, events: Sequence[Event]) -> None:
        """Show some of what happened."""

    def come_to_rest(self) -> None:
        """Every figure is to be that of what has been delivered."""

    def bring_forward(self, strategy: str) -> None:
        """Have a pane in sight."""

    def show_race(
        self, race: Race | None, chosen: str = "", standings: Mapping[str, Standing | None] | None = None
    ) -> None:
        """Lanes and round in the place of the table, as the race stands; None: there is none any more."""

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
    """At most one race is on; `race` is where it stands, from its begin until it is left."""

    def __init__(self, screen: RaceScreen, stage: RaceStage) -> None:
        self._screen = screen
        self._stage = stage
        self.race: Race | None = None
        self._trace: Trace | None = None
        self._timer: Timer | None = None
        self._catching_up: Timer | None = None
        self._time = 0.0
        self._chosen = ""
        self._is_told = False  # that it is over: verdicts and ranking are there
        self._table_was_open = False
        self._filled: Timer | None = None
        self._pressed: Trace | None = None  # what a key has asked to race meanwhile, or to leave
        self._is_asked_again = False

    def press(self, trace: Trace | None) -> None:
        """`toggle` by key: of presses that come faster than panes are filled, two take each other back."""
        if self._filled is not None:
            self._pressed, self._is_asked_again = trace, not self._is_asked_again
            return
        self._filled = self._screen.every(_FILLED_SECONDS, self._take_pressed)
        self.toggle(trace)

    def _take_pressed(self) -> None:
        if self._filled is not None:
            self._filled.stop()
            self._filled = None
        if self._is_asked_again:
            self._is_asked_again = False
            self.press(self._pressed)

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
                self._leave()
        elif trace is None:
            self._screen.say(f"Nothing has run yet: type a prompt first, or open a trace ({key('history')})")
        elif not self.begin(trace, wanted):
            self._screen.say("The run has no clock readings: there is nothing to race")
        self._screen.settle()

    def begin(self, trace: Trace, speed: float = 1.0) -> bool:
        """Race a trace; False where its runs took no time."""
        from specdec_tui.tui.race.race import Race  # not at a start

        race = Race(trace.events, speed)
        if not race.length:
            return False
        self.stop()
        self.race, self._trace = race, trace
        self._table_was_open = self._stage.table_is_open
        # Nothing from the future but the scale of the pictures, which tells of no pane in particular:
        # figures, and ratios to the target, come from what has happened so far.
        self._stage.clear_for(trace, keep_scale=True)
        self._stage.table_is_open = False  # it knows the winner
        front = self._stage.front_strategy
        self._chosen = front if front in race.strategies else race.strategies[0]
        self._stage.bring_forward(self._chosen)
        self._time = monotonic()
        self._timer = self._screen.every(RACE_SECONDS, self.advance)
        self._show()
        return True

    @property
    def chosen(self) -> str:
        """The strategy whose rounds are stepped through: that of the pane a person is in, else the one last chosen."""
        if self.race is not None and (focused := self._stage.focused_strategy) in self.race.strategies:
            self._chosen = focused
        return self._chosen

    # What keys ask

    def change_speed(self, step: int) -> None:
        if self.race is None:
            self._screen.say("No race is on: R begins one", holds=lambda: self.race is None)
        else:
            self.race.change_speed(step)
            self._screen.settle()

    def pause(self) -> None:
        """Stand still, or go on; what is over begins once more."""
        if (race := self.race) is not None:
            if race.over:
                race.seek(0.0)
            race.playing = not race.playing
            self._time = monotonic()
            self._show()
            self._screen.settle()

    def stand_still(self) -> None:
        """Nobody looks on for a while."""
        if self.race is not None and self.race.playing:
            self.pause()

    def step(self, by: int) -> None:
        """To the end of the chosen strategy's next round (1) or of the one before (-1), and stay there."""
        if (race := self.race) is not None:
            race.step(self.chosen, by)
            self._show()

    def jump(self, by: int) -> None:
        """A tenth of the race further (1) or back (-1)."""
        if (race := self.race) is not None:
            race.jump(by)
            self._show()

    def to_end(self, which: int) -> None:
        """To its begin (-1) or its end (1)."""
        if (race := self.race) is not None:
            race.seek(race.length if which > 0 else 0.0)
            self._show()

    def choose(self, by: int) -> None:
        """The next lane (1) or the one before (-1)."""
        if (race := self.race) is not None:
            from specdec_tui.tui.race.lanes import lanes_of

            lanes = [lane.strategy for lane in lanes_of(race, {})]
            self.pick(lanes[(lanes.index(self.chosen) + by) % len(lanes)])

    def pick(self, strategy: str) -> None:
        """Show the rounds of this strategy."""
        if self.race is not None and strategy in self.race.strategies:
            self._chosen = strategy
            self._stage.bring_forward(strategy)
            self._show()

    # The clock

    def advance(self) -> None:
        """Show what has happened since the last time."""
        now = monotonic()
        passed, self._time = now - self._time, now
        if self.race is not None and self.race.playing:
            self.race.advance(passed)
            self._show()

    def _show(self) -> None:
        """Bring panes, lanes and clock to the time of the race: of a long way a slice, and the rest soon."""
        race, trace = self.race, self._trace
        if race is None or trace is None:
            return
        due = race.due()
        if due.again:
            self._stage.begin_again()
            self._is_told = False
        if due.steps:
            self._stage.deliver(due.steps)
        self._catch_up(due.more)
        if not due.more and race.over and not self._is_told:
            self._is_told = True
            self._stage.deliver([event for event in trace.events if not isinstance(event, Step)])
            self._stage.end(False)
        if not (due.more or race.playing):
            self._stage.come_to_rest()
        self._stage.show_race(race, self.chosen, self._stage.standings if self._is_told else {})
        if race.playing:
            self._screen.show_clock()
        else:
            self._screen.settle()

    def _catch_up(self, wanted: bool) -> None:
        if wanted and self._catching_up is None:
            self._catching_up = self._screen.every(_CATCH_UP_SECONDS, self._show)
        elif not wanted and self._catching_up is not None:
            self._catching_up.stop()
            self._catching_up = None

    def stop(self) -> None:
        """No race is on any more; the panes stay as they are."""
        self.race, self._is_told, self._is_asked_again = None, False, False
        self._catch_up(False)
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._stage.show_race(None)

    def _leave(self) -> None:
        """Out of it, and show the whole run again."""
        self.stop()
        if self._trace is not None:
            self._stage.show_whole(self._trace, self._table_was_open)
