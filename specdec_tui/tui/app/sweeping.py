"""A sweep over γ behind the screen: heat by heat, each kept in the trace of its run as soon as it is whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from textual.notifications import SeverityLevel

from specdec_tui.decoding.records import Checked, EndReason, Event, RunEnded, Step
from specdec_tui.tui.app.notices import Holds, always
from specdec_tui.tui.app.runs import Play

if TYPE_CHECKING:
    from specdec_tui.gamma_sweep import Pace
    from specdec_tui.traces.format import Trace
    from specdec_tui.tui.lab.reading import Progress
    from specdec_tui.what_ifs import WhatIf


class SweepRunner(Protocol):
    """Plays what-ifs in the place of a run."""

    def play(self, requests: Sequence[WhatIf], play: Play) -> bool:
        """Begin; False where the engine is not free."""

    def stop(self) -> str:
        """End what is at work."""


class SweepScreen(Protocol):
    """What a sweep asks of the screen."""

    def say(
        self, text: str, severity: SeverityLevel = "information", timeout: float = 5, holds: Holds = always
    ) -> None:
        """Tell a person."""


class Sweeping:
    """At most one sweep is at work. `keep` takes a run's trace and the events of a whole heat; `changed` is called
    whenever there is more to be seen.
    """

    def __init__(
        self,
        screen: SweepScreen,
        runner: SweepRunner,
        keep: Callable[[Sequence[Event]], None],
        changed: Callable[[], None],
    ) -> None:
        self._screen = screen
        self._runner = runner
        self._keep = keep
        self._changed = changed
        self._strategy = ""
        self._left: list[list[WhatIf]] = []
        self._heats = self._done = 0
        self._events: list[Event] = []
        self._pace: Pace  # of the one at work
        self._is_at_work = False

    @property
    def progress(self) -> Progress | None:
        """None where no sweep is at work."""
        if not self._is_at_work:
            return None
        from specdec_tui.tui.lab.reading import Progress

        return Progress(self._strategy, self._done, self._heats, self._pace.seconds_left)

    def begin(self, trace: Trace, strategy: str, tokens: int) -> None:
        """Sweep a strategy of this run. `tokens`: how long a run of it is to be expected."""
        from specdec_tui.gamma_sweep import CannotSweep, Pace, gammas_of, heats  # not at a start

        settings = trace.header.run_settings()
        try:
            found = heats(trace.events, settings, strategy, gammas_of(settings.gamma))
        except CannotSweep as problem:
            self._screen.say(f"No sweep: {problem}", "warning")
            return
        self._strategy, self._left, self._heats, self._done = strategy, found, len(found), 0
        self._pace = Pace(sum(map(len, found)), tokens)
        if not self._next():
            self._screen.say("No sweep: the engine is at work for something else", "warning")

    def stop(self) -> None:
        """End it; whole heats stay."""
        if self._is_at_work:
            self._left = []
            self._runner.stop()

    def _next(self) -> bool:
        """Begin the next heat; False where something else is waiting for the engine."""
        self._events = []
        play = Play(self._take, self._heat_ended, gives_way=True)
        self._is_at_work = self._runner.play(self._left.pop(0), play)
        self._changed()
        return self._is_at_work

    def _take(self, batch: Sequence[Event]) -> None:
        self._events += batch
        for event in batch:
            self._pace.take(event)

    def _heat_ended(self, error: str) -> None:
        runs = [event for event in self._events if isinstance(event, Step) and isinstance(event.record, RunEnded)]
        checks = [event for event in self._events if isinstance(event, Checked)]
        problem = error or next((_problem(step) for step in runs if _problem(step)), "")
        is_whole = not problem and len(runs) == len(checks) > 0 and not any(map(_was_stopped, runs))
        if is_whole:
            self._done += 1
            self._keep([event for event in self._events if isinstance(event, Step | Checked)])
        if is_whole and self._left and self._next():
            return
        self._left, self._is_at_work, self._events = [], False, []
        told = f"{self._done} of {self._heats} parts measured"
        if problem:
            self._screen.say(f"The sweep failed: {problem}", "error", timeout=20)
        elif self._done < self._heats:
            self._screen.say(f"Sweep stopped: {told}")
        else:
            self._screen.say(f"Sweep of {self._strategy} done: all {self._heats} parts measured")
        self._changed()


def _problem(step: Step) -> str:
    record = step.record
    return record.message if isinstance(record, RunEnded) and record.reason is EndReason.ERROR else ""


def _was_stopped(step: Step) -> bool:
    return isinstance(step.record, RunEnded) and step.record.reason is EndReason.CANCELLED
