"""What there is to watch while models load for the first time: a run that comes with the package, as a race."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from textual.timer import Timer

from specdec_tui.decoding.records import Step
from specdec_tui.traces.format import Trace, TraceError
from specdec_tui.traces.recorded import recorded
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.commands.table import key

if TYPE_CHECKING:
    from specdec_tui.tui.app.stage import Stage
    from specdec_tui.tui.race.race import Race
    from specdec_tui.tui.tour.panel import ExplainingPanel

NOT_YOURS = "a recording, not your models"
IN_FOUR_SENTENCES = (
    "A small model, the drafter, guesses the next 4 tokens. "
    "The big one, the target, checks them all in one pass, which takes less time than writing them one by one. "
    "It keeps the guesses it would have written itself and replaces the first it would not, so the text is its own. "
    "The more guesses are kept, the faster this is; where few are, it only costs time."
)
SPEED = 0.1
"""Of true time: at 40 tokens a second nobody sees what happens."""
WAIT_SECONDS, TICK_SECONDS, REST_SECONDS = 2.5, 0.5, 20.0
"""A load shorter than the first needs nothing to watch; each painting takes time from it; then it plays once more."""


class RecordingScreen(Protocol):
    """What a recording asks of the screen."""

    @property
    def is_bare(self) -> bool:
        """Whether models load, and nothing was run, opened or asked for yet."""

    @property
    def is_loading(self) -> bool:
        """Whether models are still on their way."""

    @property
    def is_looked_into(self) -> bool:
        """Whether a person is in one of the panes."""

    def every(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call again and again."""

    def empty_panes(self) -> None:
        """As they were before anything ran."""

    def show_clock(self) -> None:
        """The recording has gone on."""

    def settle(self) -> None:
        """Something here is not as it was."""


class Recording:
    """Begins by itself, and goes without a trace of it: with the first run, or at its end when the models are ready."""

    def __init__(self, screen: RecordingScreen, stage: Stage, read: Callable[[], Trace] = recorded) -> None:
        self._screen = screen
        self._stage = stage
        self._read = read
        self._panel: ExplainingPanel | None = None
        self._trace: Trace | None = None
        self._race: Race | None = None
        self._timer: Timer | None = None
        self._time = self._over_since = 0.0

    @property
    def is_on(self) -> bool:
        return self._race is not None

    @property
    def words(self) -> tuple[str, str]:
        """What it is and how far it is, and the prompt that was answered in it."""
        if self._race is None or self._trace is None:
            return "", ""
        clock = f"{NOT_YOURS} · {self._race.seconds:.1f} of {self._race.length:.1f} s at {SPEED:g}×"
        return clock, one_row(self._trace.header.prompt)

    def wait(self, panel: ExplainingPanel) -> None:
        """Begin in a moment, if there is still nothing else to see then."""
        self._panel = panel
        if self._timer is None and self._screen.is_bare:
            self._timer = self._screen.every(TICK_SECONDS, self.advance)
            self._time = monotonic() + WAIT_SECONDS

    def advance(self) -> None:
        """Show what has happened since the last time."""
        now = monotonic()
        if self._race is None:
            if not self._screen.is_bare:
                self.end(emptied=False)
            elif now >= self._time:
                self._begin(now)
            return
        passed, self._time = now - self._time, now
        if not self._race.over:
            self._play(self._race, passed)
            self._over_since = now
        elif not self._screen.is_looked_into:
            if not self._screen.is_loading:
                self.end()
            elif now - self._over_since >= REST_SECONDS:
                self._begin(now)

    def _play(self, race: Race, passed: float) -> None:
        race.advance(passed)
        self._stage.deliver(race.due().steps)
        if race.over and self._trace is not None:
            self._stage.deliver([event for event in self._trace.events if not isinstance(event, Step)])
        self._screen.show_clock()

    def _begin(self, now: float) -> None:
        try:
            self._trace = self._trace or self._read()
        except TraceError:  # of a damaged installation: the welcome says what is to be said
            self.end(emptied=False)
            return
        from specdec_tui.tui.race.race import Race  # not at a start

        self._race, self._time = Race(self._trace.events, SPEED), now
        self._stage.clear_for(self._trace)
        for pane in self._stage.grid.panes.values():
            pane.name_drafter("a recording")
        if self._panel is not None:
            self._panel.explain(NOT_YOURS, f"{key('run')} runs your own prompt", IN_FOUR_SENTENCES)
        self._screen.settle()

    def end(self, emptied: bool = True) -> None:
        """No more of it. `emptied`: nothing else comes into the panes."""
        was_on, self._race = self.is_on, None
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if was_on and self._panel is not None:
            self._panel.leave()
        if was_on and emptied:
            self._screen.empty_panes()
            self._screen.settle()
