"""What becomes of finished runs: they are kept as traces, opened again, and exported."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specdec_tui.config_table import config_file
from specdec_tui.data_folder import data_folder
from specdec_tui.decoding.records import Event, RunStarted, Step, strategy_of
from specdec_tui.doors import writing
from specdec_tui.settings import SERVED, STRATEGIES, SettingError, parse_path
from specdec_tui.several_drafters import drafters_in, running
from specdec_tui.traces.baseline import Baseline, last_baseline, measured_against
from specdec_tui.traces.files import read_trace, write_lines
from specdec_tui.traces.format import Trace, TraceError, TraceHeader, new_header, summarise
from specdec_tui.traces.journal import Journal
from specdec_tui.traces.store import TraceStore
from specdec_tui.tui.app.joining import Home, is_same_run
from specdec_tui.tui.app.recording_messages import BaselineFound, BaselineKnown, Exported, NotKept, SummedUp, TraceRead
from specdec_tui.tui.commands.command import EXPORTS, export_kind
from specdec_tui.tui.commands.header import local_time, one_row
from specdec_tui.tui.commands.table import key

if TYPE_CHECKING:
    from specdec_tui.backends.pair import PairInfo
    from specdec_tui.tui.app.recording_screen import RecordingScreen
    from specdec_tui.tui.app.runs import Run
    from specdec_tui.tui.screens.export import Target
    from specdec_tui.tui.screens.history import Purpose

WRITES = "specdec-writes"
"""The name of threads that write files: they are waited for when the app is left."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A trace to open with, and the speed of a race of it (None: shown at once).

    `path`: where it was read from. `left_out`: in a line each, settings of environment and config file that are wrong.
    """

    trace: Trace
    speed: float | None = None
    left_out: Sequence[str] = ()
    path: Path | None = None


class _Own(NamedTuple):
    """A run that was made here. `journal`: what keeps it, where runs are recorded."""

    trace: Trace
    run: Run
    journal: Journal | None


class Recordings:
    """`later` does something when no run is timed; `describe` tells what the engine computes on."""

    def __init__(
        self,
        screen: RecordingScreen,
        later: Callable[[Callable[[], object]], object],
        describe: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self._screen = screen
        self._later = later
        self._describe = describe
        self._environment: dict[str, Any] = {}
        self.store = TraceStore()
        self.trace: Trace | None = None
        """What the panes show, once it has ended."""
        self._last_target: Trace | None = None
        self._begun: datetime | None = None
        self._journal: Journal | None = None  # of the last run, where it is to be kept
        self._own: _Own | None = None  # the last run that was made here
        self._file: Path | None = None  # of the open trace
        self.opened = ""
        """When and with which models the open trace was made; empty where the last run was made here."""

        self.refusal = ""
        """Why the open trace cannot be shown."""

    # Keeping

    def sweep(self) -> None:
        """At the start: what writers of before, who were killed, left where the app writes by itself."""
        folders = {self.store.folder, data_folder(), Path(os.path.realpath(config_file())).parent}

        def sweep() -> None:
            for folder in folders:
                writing.sweep(folder)

        self._later(sweep)

    def learn_environment(self) -> None:
        """Behind a load: what traces will say of this machine."""
        self._later(self._learn_environment)

    def _learn_environment(self) -> None:
        self._environment = dict(self._describe())

    def begin(self, run: Run, pair: PairInfo | None) -> Callable[[Event], object]:
        """The panes are for a new run. What comes back is called with its events, in the engine's thread."""
        self.trace, self.opened, self._journal = None, "", None
        self._begun = datetime.now(UTC)
        header = self._header_of(run, pair)
        takes: list[Callable[[Event], object]] = []
        strategies = running(run.settings.strategies, drafters_in(pair))
        if "target" not in strategies:
            takes.append(self._look_for_baseline(run, header))
        if run.settings.record:
            self._journal = Journal(self.store, header, strategies, self._not_kept)
            takes.append(self._journal.take)

        def seen(event: Event) -> None:
            for take in takes:
                take(event)

        return seen

    def _look_for_baseline(self, run: Run, header: TraceHeader) -> Callable[[Event], None]:
        """What looks for an earlier run of the target as soon as the prompt's length is told, before any clock runs."""
        looked = False

        def take(event: Event) -> None:
            nonlocal looked
            if looked or not isinstance(event, Step) or not isinstance(event.record, RunStarted):
                return
            looked = True
            begun = {event.strategy: {"prompt_tokens": event.record.prompt_tokens}}
            with suppress(Exception):  # nor does the run suffer from a folder of traces; its end looks again
                if (baseline := self._last_baseline(replace(header, strategies=begun))) is not None:
                    self._screen.post_message(BaselineKnown(run, baseline))

        return take

    def _last_baseline(self, header: TraceHeader) -> Baseline | None:
        recent = [] if self._last_target is None else [self._last_target]
        return last_baseline(header, recent, self.store)

    def _not_kept(self, problem: str) -> None:
        self._screen.post_message(NotKept(problem))

    def keep(self, run: Run, pair: PairInfo | None) -> None:
        """A run is over."""
        trace, journal = self._trace_of(run, pair), self._journal
        if trace is None:
            return
        self.trace = trace
        if not run.is_aside:
            self._own = _Own(trace, run, journal)

        def sum_up() -> None:
            whole = _summed_up(trace)
            if "target" not in whole.strategies:
                self._find_baseline(trace, whole, journal)
                return
            self._last_target = whole
            self._screen.post_message(SummedUp(trace, whole))
            if journal is not None:
                journal.settle(whole)

        # Behind the run and before the next: neither reading nor writing may take time from decoding.
        self._later(sum_up)

    def keep_unfinished(self, run: Run, pair: PairInfo | None) -> str:
        """The app is left: the last run is kept as far as it went. In one line, why it cannot be; else empty."""
        if self._journal is not None and (trace := self._trace_of(run, pair)) is not None:
            try:
                self._journal.settle(_summed_up(trace))
            except TraceError as error:
                return str(error)
        return ""

    def find_baseline(self, trace: Trace) -> None:
        """Look for an earlier run of the target for a trace that has none."""
        self._later(lambda: self._find_baseline(trace, trace, None))

    def _find_baseline(self, trace: Trace, whole: Trace, journal: Journal | None) -> None:
        """For what the panes show and its `whole`, which is then kept with what came of that."""
        try:
            if (baseline := self._last_baseline(whole.header)) is not None:
                whole = measured_against(whole, baseline)
            self._screen.post_message(BaselineFound(trace, baseline, whole))
        finally:
            if journal is not None:
                journal.settle(whole)

    def _trace_of(self, run: Run, pair: PairInfo | None) -> Trace | None:
        """A run, complete or not, with no figures yet; None where it did not begin."""
        began = {e.strategy for e in run.events if isinstance(e, Step) and isinstance(e.record, RunStarted)}
        events = [e for e in run.events if getattr(e, "strategy", None) in began or not hasattr(e, "strategy")]
        return Trace(self._header_of(run, pair), tuple(events)) if began else None

    def _header_of(self, run: Run, pair: PairInfo | None) -> TraceHeader:
        return new_header(
            run.prompt, (), pair=pair, settings=run.settings, environment=self._environment, created=self._begun
        )

    # Opening

    def history(self) -> None:
        """Choose among the runs that were kept."""
        from specdec_tui.tui.screens.history import HistoryScreen  # not at a start

        self._screen.ask(HistoryScreen(self.store), lambda chosen: self.open_file(chosen.path, chosen.purpose))

    def open_named(self, name: str) -> None:
        """Open a file by its name; without one, choose among those that were kept."""
        if not name:
            self.history()
            return
        try:
            self.open_file(parse_path(name))
        except SettingError as error:
            self._screen.say(f"open trace: {error}", "error")

    def leave(self) -> bool:
        """Out of an opened trace, to the last run that was made here; False where there is neither."""
        return bool(self.opened) and self._own is not None and self.show_own()

    def show_own(self) -> bool:
        """The last run that was made here in the panes again; False where there is none: then they show nothing."""
        if self._own is None:
            self.trace, self.opened, self.refusal = None, "", ""
            return False
        self.trace, self.opened, self.refusal, self._file = self._own.trace, "", "", None
        self._screen.show_trace(self.trace, False, self._own.run)
        if "target" not in self.trace.strategies:
            self.find_baseline(self.trace)
        return True

    def home(self) -> Home:
        """Where what-ifs of what the panes show now belong."""
        assert self.trace is not None, "what-ifs are of a trace"
        own, journal = self._own, self._journal
        of_own_run = own is not None and is_same_run(own.trace, self.trace)
        if own is not None and (of_own_run or self.opened):
            journal = own.journal
        if not self.opened:
            return Home(self.trace, False, None, journal, of_own_run)
        of_own_file = journal is not None and self._file is not None and self._file == journal.path
        return Home(self.trace, True, self._file, None, of_own_file)

    def add(self, events: Sequence[Event], home: Home) -> Callable[[], None]:
        """What-ifs have been played: they join the run that they are of. What comes back writes that. TraceError.

        Its file is replaced as a whole or stays as it was; there is none where runs are not recorded.
        """
        own, shown = self._own, self.trace
        for known in (shown, None if own is None else own.trace):
            if known is not None and is_same_run(known, home.trace):
                home.trace = known  # with what was found out of it meanwhile
        whole = home.join(events)
        if own is not None and (home.is_own or is_same_run(own.trace, whole)):
            if is_same_run(shown, own.trace):
                self.trace = whole
            self._own = own._replace(trace=whole)  # what is added to the run itself later must not leave this out
        if is_same_run(shown, whole):
            self.trace = whole
        return lambda: home.keep(whole)

    def keep_what_ifs(self, events: Sequence[Event], home: Home) -> None:
        """They join their run, and its file when no run is timed: where that cannot be, it is said."""
        write = self.add(events, home)

        def keep() -> None:
            try:
                write()
            except TraceError as error:
                self._not_kept(f"the what-if is not kept: {error}")

        self._later(keep)

    def complete(self, trace: Trace, whole: Trace) -> None:
        """What was found out of a run's trace behind its end takes its place."""
        if self.trace is trace:
            self.trace = whole
        if self._own is not None and self._own.trace is trace:
            self._own = self._own._replace(trace=whole)

    def open_file(self, path: Path, purpose: Purpose = "show") -> None:
        """Read a trace in a thread of its own, then show it, race it, or ask where it is exported to."""

        def read() -> None:
            try:
                found: Trace | TraceError = read_trace(path)
            except TraceError as error:
                found = error
            self._screen.post_message(TraceRead(path, found, purpose))

        threading.Thread(target=read, daemon=True).start()

    def read(self, message: TraceRead, running: bool) -> None:
        """A file was read: its run is shown, unless one is at work."""
        if isinstance(message.found, TraceError):
            self._screen.say(str(message.found), "error", timeout=20)
        elif message.purpose == "export":
            from specdec_tui.tui.screens.export import ExportScreen

            trace = message.found
            without_screen = [kind for kind in EXPORTS if kind != "svg"]  # that one is a picture of what is shown
            dialog = ExportScreen(trace, kinds=without_screen)
            self._screen.ask(dialog, lambda target: self._write(trace, target, ""), left=self.history)
        elif running:
            at_work = f"A run is at work: stop it first ({key('stop or quit')}), then open the trace"
            self._screen.say(at_work, "warning", holds=lambda: self.trace is None)
        else:
            self.show(message.found, message.purpose == "race", message.path)

    def show(self, trace: Trace, race: bool = False, path: Path | None = None) -> None:
        """Fill the panes with a finished run, read from `path`."""
        names = trace.strategies
        known = {*STRATEGIES, *SERVED}
        missing = ", ".join(name for name in names if strategy_of(name) not in known)
        if not known.intersection(names):
            problem = f"The trace has no strategy that this version knows: {missing or 'it is empty'}"
            if self.trace is None:
                self.opened, self.refusal = _title(trace), problem
            self._screen.say(problem, "error", timeout=20)
            self._screen.settle()
            return
        if missing:
            self._screen.say(f"Strategies this version does not know are left out: {missing}", "warning")
        self.trace, self.opened, self.refusal, self._file = trace, _title(trace), "", path
        self._screen.show_trace(trace, race)
        if "target" not in names:
            self.find_baseline(trace)

    # Exporting

    def export(self, words: str, running: bool) -> None:
        """Write what the panes show: `words` is a format and a file, what is missing is asked for."""
        trace = self.trace
        if trace is None:
            self._screen.say(
                "The run is still at work: export it when it has ended"
                if running
                else f"Nothing to export yet: run a prompt first, or open a trace ({key('history')})",
                holds=lambda: self.trace is None,
            )
            return
        from specdec_tui.tui.screens.export import ExportScreen, Target  # not at a start

        word, _, name = words.strip().partition(" ")
        kind = export_kind(word)
        picture = self._screen.photograph()

        def write(target: Target) -> None:
            # A baseline may have been found while the dialog was open.
            now = self.trace
            self._write(now if now is not None and now.events is trace.events else trace, target, picture)

        try:
            target = Target.of(kind, name) if kind and name else None
        except ValueError as error:
            self._screen.say(str(error), "error")
            return
        if target is not None and not os.path.exists(target.path):
            write(target)
        else:
            self._screen.ask(ExportScreen(trace, kind, name), write)

    def _write(self, trace: Trace, target: Target, picture: str) -> None:
        """In a thread of its own: a report of a long run takes a second."""

        def write() -> None:
            try:
                write_lines(target.path, [target.text_of(trace, picture)])
                problem = ""
            except TraceError as error:
                problem = str(error)
            self._screen.post_message(Exported(target.path, problem))

        threading.Thread(target=write, name=WRITES, daemon=True).start()

    def exported(self, message: Exported) -> None:
        """A file was written, or could not be: said."""
        if message.problem:
            self._screen.say(f"Not exported: {message.problem}", "error", timeout=20)
        else:
            self._screen.say(f"Exported to {message.path}", timeout=10)


def _summed_up(trace: Trace) -> Trace:
    """With its figures in its header: what a long run takes a second for."""
    return replace(trace, header=replace(trace.header, strategies=summarise(trace.events)))


def _title(trace: Trace) -> str:
    """When a trace was made, and with which pair."""
    when, pair = local_time(trace.header.created), trace.header.pair()
    return one_row(" · ".join(["trace", when] if pair is None else ["trace", when, pair.name]))
