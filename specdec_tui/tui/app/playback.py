"""What becomes of finished runs: they are kept as traces, opened again, and raced against each other."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from textual.content import Content
from textual.message import Message
from textual.timer import Timer

from specdec_tui.backends.pair import PairInfo
from specdec_tui.benchmark.environment import describe_environment
from specdec_tui.decoding.records import Event, Finished, RunStarted, Step
from specdec_tui.session import Engine
from specdec_tui.settings import ModelChoice, SettingError, Settings, parse_path, parse_speed
from specdec_tui.traces.files import read_trace, write_lines
from specdec_tui.traces.format import Trace, TraceError, new_header
from specdec_tui.traces.store import TraceStore
from specdec_tui.tui.app.race import Race
from specdec_tui.tui.app.text_actions import TextActions
from specdec_tui.tui.commands.header import State, local_time, one_row
from specdec_tui.tui.figures.summary import summary
from specdec_tui.tui.screens.export import ExportScreen, Target
from specdec_tui.tui.screens.history import Chosen, HistoryScreen

RACE_SECONDS = 1 / 30


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace to open with, and the speed of a race of it (None: shown at once)."""

    trace: Trace
    speed: float | None = None


class TraceRead(Message):
    """A trace file was read, or could not be."""

    def __init__(self, path: Path, found: Trace | TraceError, race: bool) -> None:
        super().__init__()
        self.path, self.found, self.race = path, found, race


class Exported(Message):
    """A file was written, or could not be."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__()
        self.path, self.problem = path, problem


class PlaybackApp(TextActions):
    """Adds to the traffic of runs what is done with them afterwards."""

    def __init__(
        self, engine: Engine, settings: Settings, choice: ModelChoice, prompt: str, ansi_color: bool | None
    ) -> None:
        super().__init__(engine, settings, choice, prompt, ansi_color)
        self.store = TraceStore()
        self.trace: Trace | None = None
        """What the panes show, once it has ended."""
        self.race: Race | None = None
        self._environment: dict[str, Any] = {}
        self._opened = ""
        self._race_timer: Timer | None = None
        self._race_time = 0.0
        self._table_was_open = False

    # Keeping

    def _loaded(self, job: int, pair: PairInfo) -> None:
        super()._loaded(job, pair)
        self.engine.call(self._learn_environment)

    def _learn_environment(self) -> None:
        if "torch" in sys.modules:  # else the engine computes elsewhere, and importing it would hold the screen up
            self._environment = describe_environment()

    def _begin(self, prompt: str) -> None:
        self._stop_race()
        self.trace, self._opened = None, ""
        super()._begin(prompt)

    def keep_run(self) -> None:
        trace = self._as_trace()
        if trace is None:
            return
        self.trace = trace
        if self._run_settings.record:
            # Behind the run and before the next: writing must not take time from decoding.
            self.engine.call(lambda: self.store.save(trace))

    def _as_trace(self) -> Trace | None:
        """The last run, complete or not; None where it did not begin."""
        began = {e.strategy for e in self._events if isinstance(e, Step) and isinstance(e.record, RunStarted)}
        events = [e for e in self._events if getattr(e, "strategy", None) in began or not hasattr(e, "strategy")]
        if not began:
            return None
        header = new_header(
            self.last_prompt, events, pair=self._pair, settings=self._run_settings, environment=self._environment
        )
        return Trace(header, tuple(events))

    def keep_unfinished(self) -> None:
        """The app is left: the run at work is kept as far as it went, and a text not sent becomes an earlier prompt."""
        if self.running and self._run_settings.record and (trace := self._as_trace()) is not None:
            self.store.save(trace)
        unsent = self.prompt_box.text if hasattr(self, "prompt_box") else ""  # it may not have got so far
        if unsent.strip() and unsent not in self.prompt_history.entries:
            self.prompt_box.remember(unsent)

    # Opening

    def open_file(self, path: Path, *, race: bool = False) -> None:
        """Read a trace in a thread of its own, then show it."""

        def read() -> None:
            try:
                found: Trace | TraceError = read_trace(path)
            except TraceError as error:
                found = error
            self.post_message(TraceRead(path, found, race))

        threading.Thread(target=read, daemon=True).start()

    def on_trace_read(self, message: TraceRead) -> None:
        if not self.is_running:
            return
        if isinstance(message.found, TraceError):
            self.say(str(message.found), "error", timeout=20)
        elif self.running:
            self.say("A run is at work: stop it first (ctrl+c), then open the trace", "warning")
        else:
            self.show(message.found)
            if message.race:
                self.action_race()

    def show(self, trace: Trace) -> None:
        """Fill the panes with a finished run."""
        self._stop_race()
        names = _strategies(trace)
        missing = ", ".join(name for name in names if name not in self.grid.panes)
        self._opened = _title(trace)
        if not set(names) & set(self.grid.panes):
            self.say(f"The trace has no strategy that this version knows: {missing or 'it is empty'}", "error", 20)
            self._settle()
            return
        if missing:
            self.say(f"Strategies this version does not know are left out: {missing}", "warning")
        self.trace = trace
        if self._pair is None:
            self.header.pair = trace.header.pair()
        self.last_prompt = trace.header.prompt
        self._show_whole(trace)
        self.grid.show_start()
        self._settle()

    def _show_whole(self, trace: Trace) -> None:
        self._fill(trace, trace.events)
        self.grid.break_off()
        ended = any(isinstance(event, Finished) and not event.cancelled for event in trace.events)
        self._show_table(ended)

    @property
    def at_work(self) -> bool:
        return super().at_work or self.race is not None

    def _show_table(self, shown: bool) -> None:
        self.table.show(self.finished_rows)
        self.table.display = shown and len(self.grid.results) > 1

    def _summary(self) -> Content | str:
        """What the open trace was made with, where there is one: else what the next run will be."""
        if self._opened and self.trace is not None:
            return Content.assemble("trace: ", summary(self.trace.header.run_settings(), 0))
        return super()._summary()

    @property
    def _state(self) -> State:
        state = super()._state
        return "trace" if state == "failed" and self._opened else state

    def _fill(self, trace: Trace, events: tuple[Event, ...] = ()) -> None:
        known = [name for name in _strategies(trace) if name in self.grid.panes]
        self.grid.begin(known, trace.header.run_settings().max_new_tokens)
        if events:
            self.grid.deliver(events)

    def action_open_trace(self, name: str = "") -> None:
        """Open a file by its name; without one, choose among those that were kept."""
        if not name:
            self.action_history()
            return
        try:
            self.open_file(parse_path(name))
        except SettingError as error:
            self.say(f"open trace: {error}", "error")

    def action_history(self) -> None:
        def chosen(answer: Chosen | None) -> None:
            if answer is not None:
                self.open_file(answer.path, race=answer.race)

        self.push_screen(HistoryScreen(self.store), chosen)

    def action_export(self, words: str = "") -> None:
        """Write what the panes show: `words` is a format and a file, what is missing is asked for."""
        trace = self.trace
        if trace is None:
            self.say(
                "The run is still at work: export it when it has ended"
                if self.running
                else "Nothing to export yet: run a prompt first, or open a trace (h)"
            )
            return
        kind, _, name = words.strip().partition(" ")
        picture = self.export_screenshot(title="specdec-tui") if len(self.screen_stack) == 1 else ""

        def write(target: Target | None) -> None:
            if target is not None:
                self._write(trace, target, picture)

        try:
            target = Target.of(kind, name) if kind and name else None
        except ValueError as error:
            self.say(str(error), "error")
            return
        if target is not None and not target.path.exists():
            write(target)
        else:
            self.push_screen(ExportScreen(trace, kind, name), write)

    def _write(self, trace: Trace, target: Target, picture: str) -> None:
        """In a thread of its own: a report of a long run takes a second."""

        def write() -> None:
            try:
                write_lines(target.path, [target.text_of(trace, picture)])
                problem = ""
            except TraceError as error:
                problem = str(error)
            self.post_message(Exported(target.path, problem))

        threading.Thread(target=write, daemon=True).start()

    def on_exported(self, message: Exported) -> None:
        if message.problem:
            self.say(f"Not exported: {message.problem}", "error", timeout=20)
        else:
            self.say(f"Exported to {message.path}", timeout=10)

    # Racing

    def action_race(self, speed: str = "") -> None:
        """Begin a race of what the panes show, at a speed; without one: begin or end it."""
        try:
            wanted = parse_speed(speed or "1")
        except SettingError as error:
            self.say(str(error), "error")
            return
        if self.race is not None:
            if speed:
                self.race.speed = wanted
            else:
                self._end_race()
        elif self.running:
            self.say("The race replays a finished run: this one is still at work")
        elif self.trace is None:
            self.say("Nothing has run yet: type a prompt first, or open a trace (h)")
        elif not (race := Race(self.trace.events, wanted)).length:
            self.say("The run has no clock readings: there is nothing to race")
        else:
            self._begin_race(self.trace, race)
        self._settle()

    def action_race_speed(self, step: int) -> None:
        if self.race is None:
            self.say("No race is on: R begins one")
        else:
            self.race.change_speed(step)
            self._settle()

    def _begin_race(self, trace: Trace, race: Race) -> None:
        results = self.grid.results
        baseline = next((r.figures for r in results if r.strategy == "target"), None)
        self.race = race
        self._fill(trace)
        for pane in self.grid.shown:
            if pane.strategy != "target":  # it has no speed to reach but its own
                pane.set_baseline(baseline)
        self._table_was_open = self.table.display
        self.table.display = False  # it knows the winner
        self._race_time = monotonic()
        self._race_timer = self.set_interval(RACE_SECONDS, self._advance_race)

    def _advance_race(self) -> None:
        race, trace = self.race, self.trace
        if race is None or trace is None or not self.is_running:
            return
        now = monotonic()
        passed, self._race_time = now - self._race_time, now
        if steps := race.advance(passed):
            self.grid.deliver(steps)
        if race.over:
            self._stop_race()
            self.grid.deliver([event for event in trace.events if not isinstance(event, Step)])
            self.grid.break_off()
            self._show_table(self._table_was_open)
        self.run_line.update(self._run_line())

    def _end_race(self) -> None:
        """Stop where it is, and show the whole run again."""
        self._stop_race()
        if self.trace is not None:
            self._show_whole(self.trace)
            self.table.display = self._table_was_open

    def _stop_race(self) -> None:
        self.race = None
        if self._race_timer is not None:
            self._race_timer.stop()
            self._race_timer = None

    def _run_line(self) -> Content:
        if (race := self.race) is not None:
            clock = f"race {race.speed:g}×  {race.seconds:.1f} of {race.length:.1f} s"
            return Content.assemble((clock, "bold $text-accent"), ("  , slower  . faster  R ends", "$text-muted"))
        line = super()._run_line()
        return Content.assemble((f"{self._opened} ", "$text-accent"), line) if self._opened else line


def _strategies(trace: Trace) -> list[str]:
    """The strategies that ran, in the order in which they began."""
    steps = (event for event in trace.events if isinstance(event, Step))
    return list(dict.fromkeys(step.strategy for step in steps if isinstance(step.record, RunStarted)))


def _title(trace: Trace) -> str:
    """When a trace was made, and with which pair."""
    when, pair = local_time(trace.header.created), trace.header.pair()
    names = [] if pair is None else [m.name for m in (pair.target, pair.drafter) if m is not None]
    return one_row(" · ".join(["trace", when, " + ".join(names)] if names else ["trace", when]))
