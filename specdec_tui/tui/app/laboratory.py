"""The γ-lab of the run on the screen: what it is given to read, and what becomes of what is chosen there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from specdec_tui.decoding.figures import DRAFT_NOTHING, RunFigures
from specdec_tui.decoding.records import Event, strategy_of
from specdec_tui.several_drafters import key_of
from specdec_tui.tui.app.sweeping import Sweeping
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.commands.table import key
from specdec_tui.tui.figures.summary import summary

if TYPE_CHECKING:
    from specdec_tui.backends.pair import PairInfo
    from specdec_tui.decoding.sweep import SweepFigures
    from specdec_tui.tui.app.front import Front
    from specdec_tui.tui.app.joining import Home
    from specdec_tui.tui.app.preferences import Preferences
    from specdec_tui.tui.app.recordings import Recordings
    from specdec_tui.tui.app.runs import Runs
    from specdec_tui.tui.app.stage import Stage
    from specdec_tui.tui.lab.reading import Progress, Subject
    from specdec_tui.tui.lab.recorded import RecordedLaboratory
    from specdec_tui.tui.lab.screen import LabScreen


class Laboratory:
    """`unfinished`: why the figures of the panes are not those of a finished run; empty where they are."""

    def __init__(
        self,
        front: Front,
        stage: Stage,
        recordings: Recordings,
        preferences: Preferences,
        runs: Runs,
        unfinished: Callable[[], str],
    ) -> None:
        self._front = front
        self._stage = stage
        self._recordings = recordings
        self._preferences = preferences
        self._runs = runs
        self._unfinished = unfinished
        self._sweeping = Sweeping(front, runs, self._keep, self._changed)
        self._home: Home | None = None  # of the sweep at work
        self._screen: LabScreen | None = None
        self._read: tuple[tuple[Event, ...], SweepFigures] | None = None

    def enter(self) -> None:
        """On the strategy of the current pane."""
        trace = self._recordings.trace
        why = "" if self.progress is not None else self._unfinished()
        if why:
            self._front.say(f"The γ-lab reads a finished run: {why}", holds=lambda: self._unfinished() == why)
        elif trace is None or not self.strategies:
            nothing = f"Nothing has run yet: type a prompt first, or open a trace ({key('history')})"
            self._front.say(nothing, holds=lambda: self._recordings.trace is None)
        else:
            names = self.strategies
            current = self._stage.grid.current.strategy
            keys = [str(key_of(name)) for name in names]
            self._screen = _screen(self, current if current in names else names[0], keys)
            self._front.ask(self._screen, lambda _: None, left=self._left)

    def draws_a_curve(self, strategy: str) -> bool:
        """Whether anything can be predicted of this strategy's run."""
        from specdec_tui.tui.lab.reading import read  # not at a start

        return strategy in self.strategies and bool(read(self.subject(strategy)).curve)

    def show(self, other: RecordedLaboratory) -> None:
        """The lab of a recording in place of the run's own."""
        self._front.ask(_screen(other, other.strategies[0]), lambda _: None)

    def _left(self) -> None:
        self._screen = None

    # What the screen asks

    @property
    def strategies(self) -> Sequence[str]:
        names = [result.strategy for result in self._stage.grid.results]
        return [name for name in names if strategy_of(name) == name]

    @property
    def about(self) -> str:
        trace = self._recordings.trace
        if trace is None:
            return ""
        return f"{summary(trace.header.run_settings())} · “{one_row(trace.header.prompt)}”"

    @property
    def notice(self) -> str:
        return ""

    @property
    def progress(self) -> Progress | None:
        return self._sweeping.progress

    def subject(self, strategy: str) -> Subject:
        from specdec_tui.decoding.sweep import SweepFigures
        from specdec_tui.tui.lab.reading import Subject

        baseline, elsewhere = self._stage.grid.baseline
        trace = self._recordings.trace
        if trace is None:
            return Subject(strategy, self._run_of(strategy), baseline, elsewhere)
        if self._read is None or trace.events is not self._read[0]:
            self._read = trace.events, SweepFigures(trace.events)
        return Subject(strategy, self._run_of(strategy), baseline, elsewhere, self._read[1].of(strategy))

    def take(self, gamma: int) -> None:
        word = f"γ {gamma} from the next run" + (": the target alone, without drafts" if not gamma else "")
        self._preferences.change({"gamma": gamma}, word)

    # Sweeps

    def sweep(self, strategy: str) -> None:
        if self.progress is not None:
            self._front.say("A sweep is at work already: escape stops it")
        elif problem := self.no_sweep(strategy) or ("the models are busy" if self._runs.state != "ready" else ""):
            self._front.say(f"No sweep: {problem}", "warning")
        elif (trace := self._recordings.trace) is not None:
            self._home = self._recordings.home()
            self._sweeping.begin(trace, strategy, self._run_of(strategy).new_tokens)

    def no_sweep(self, strategy: str) -> str:
        """Why none can be made; empty where one can, once the models are free."""
        trace, pair = self._recordings.trace, self._runs.pair
        run = self._run_of(strategy)
        if strategy in DRAFT_NOTHING or run.searches:
            return f"{strategy} has no drafts"
        if run.served:
            return "a server drafted by itself: it cannot be asked from here"
        if self._runs.state in ("loading", "running"):
            return ""
        if pair is None:
            return f"no models are loaded ({key('models')})"
        made_by = None if trace is None else trace.header.pair()
        if made_by is None or _identity(made_by) != _identity(pair):
            return "this run was made by other models than the loaded ones"
        return ""

    def _run_of(self, strategy: str) -> RunFigures:
        results = self._stage.grid.results
        return next((result.figures for result in results if result.strategy == strategy), RunFigures())

    def stop_sweep(self) -> None:
        self._sweeping.stop()

    def _keep(self, events: Sequence[Event]) -> None:
        """A heat belongs to the trace of its run, whatever the panes show by now."""
        if self._home is not None:
            self._recordings.keep_what_ifs(events, self._home)

    def _changed(self) -> None:
        if self._screen is not None:
            self._screen.update()
        self._front.settle()


def _screen(of: Laboratory | RecordedLaboratory, strategy: str, keys: Sequence[str] = ()) -> LabScreen:
    """Its plot brings numpy, which is imported when it is first seen."""
    from specdec_tui.tui.lab.screen import LabScreen

    return LabScreen(of, strategy, keys)


def _identity(pair: PairInfo) -> object:
    """What makes two pairs decode alike."""
    models = (pair.target, *pair.drafters)
    return [(m.name, m.dtype, m.quantization, m.device, m.weights or "expanded") for m in models]
