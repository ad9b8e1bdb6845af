"""The traffic between the prompt, the engine's thread and the panes: loads, runs, one waiting prompt."""

from __future__ import annotations

from time import monotonic, thread_time

from textual.content import Content
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.widgets import Static

from specdec_tui.backends.pair import PairInfo, Progress
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import Event, Finished, RunEnded, Step
from specdec_tui.session import Engine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.tui.app.engine_thread import EngineThread, JobEnded
from specdec_tui.tui.commands.header import Header, State, one_row
from specdec_tui.tui.figures.comparison import ComparisonTable, Row
from specdec_tui.tui.figures.summary import summary
from specdec_tui.tui.panes.grid import PaneGrid
from specdec_tui.tui.prompt.box import PromptBox
from specdec_tui.tui.terminal.collector import collect_everything
from specdec_tui.tui.terminal.key_order import KeysInOrder

# A painting takes the interpreter for some milliseconds, whatever it shows, and decoding waits that
# long. So there are as many paintings as fit into this share of the time, within these limits.
PAINTING_SHARE = 0.015
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.25


class EngineReported(Message):
    """The mailbox of the engine's thread has something in it."""


class EngineApp(KeysInOrder):
    """Loads pairs and runs prompts. `SpecdecApp` adds what is on the screen and what keys do."""

    header: Header
    run_line: Static
    grid: PaneGrid
    table: ComparisonTable
    prompt_box: PromptBox

    def __init__(
        self, engine: Engine, settings: Settings, choice: ModelChoice, prompt: str, ansi_color: bool | None
    ) -> None:
        super().__init__(ansi_color=ansi_color)
        self.settings = settings
        self.choice = choice
        self.engine = EngineThread(engine, lambda: self.post_message(EngineReported()))
        self.waiting = prompt
        self.last_prompt = ""
        self._pair: PairInfo | None = None
        self._loads: dict[int, ModelChoice] = {}
        self._new_chats: set[int] = set()
        self._run: int | None = None
        self._again = False
        self._spent = 0.0
        self._said = ("", 0.0)
        self._chat = False
        self._turns = 0
        self._events: list[Event] = []
        self._run_settings = settings

    def on_unmount(self) -> None:
        self.engine.close()

    @property
    def running(self) -> bool:
        """Whether a run is at work (asked to stop or not)."""
        return self._run is not None

    # Models

    def load(self, choice: ModelChoice) -> None:
        """Load a pair in the background; the present one stays until the new one is ready."""
        self._loads[self.engine.load(choice)] = choice
        if self._run is not None:
            self.say("The models are loaded when the run has ended")
        self._settle()

    def prepare(self) -> None:
        """Have made, while the engine is idle, what a run with the present settings will need."""
        if self._pair is not None and not self.waiting:  # a waiting prompt makes what it needs itself
            self.engine.prepare(self.settings)

    def _loaded(self, job: int, pair: PairInfo) -> None:
        self._pair, self._turns = pair, 0
        self.choice = self._loads.get(job, self.choice)
        self.header.pair = pair
        for note in pair.notes:
            self.say(note, timeout=10)

    def _load_ended(self, job: int, error: str) -> None:
        del self._loads[job]
        self.prepare()
        if error:
            kept = "" if self._pair is None else f" The present pair stays: {self._pair.target.name}."
            self.say(f"{error}{kept}", "error", timeout=20)
            if self._pair is None and not self._loads:
                self._return_waiting()

    # Runs

    def stop(self) -> None:
        """End the run within a round and keep its text; a waiting prompt goes back to the box."""
        if self._run is not None:
            self.engine.cancel()
        self._return_waiting()
        self._settle()

    def new_chat(self) -> None:
        """Forget the conversation, behind the run at work."""
        self._new_chats.add(self.engine.new_chat())

    def on_prompt_box_submitted(self, message: PromptBox.Submitted) -> None:
        text = message.text
        if not text.strip():
            self.say("Type a prompt first; r runs the last one again")
        elif self._state in ("loading", "running") and self.waiting:
            self.say("One prompt is waiting already; this one stays in the box")
        elif not self.lacks_models():
            self.prompt_box.accept(text)
            self.run_or_wait(text)

    def lacks_models(self) -> bool:
        """Whether nothing can run, now or soon; said if so."""
        lacking = self._pair is None and not self._loads
        if lacking:
            self.say("No models are loaded: choose a pair (escape, then m)", "warning")
        return lacking

    def run_or_wait(self, prompt: str, *, again: bool = False) -> None:
        """Run a prompt now, or as soon as the engine is free; `again` replaces the last turn of the chat."""
        self.waiting, self._again = prompt, again
        if self._state == "loading":
            self.say("Waiting: the prompt runs as soon as the models are ready")
        elif self._state == "running":
            self.say("Waiting: the prompt runs after this one")
        self._settle()

    def _begin(self, prompt: str) -> None:
        self.last_prompt = prompt
        self.prompt_box.remember(prompt)
        self._events, self._run_settings = [], self.settings
        self.grid.begin(self.settings.strategies, self.settings.max_new_tokens)
        self.table.display = False
        self._chat = self.settings.chat
        self._run = self.engine.run(prompt, self.settings, again=self._again)

    def keep_run(self) -> None:
        """The run that was at work is over; its events are `self._events`."""

    def _return_waiting(self) -> None:
        if self.waiting:
            self.prompt_box.give_back(self.waiting)
            self.waiting = ""

    def _run_ended(self, error: str) -> None:
        self._run = None
        if error:
            self._events += self.grid.abandon(error)
            self.say(f"The run failed: {error}", "error", timeout=20)
        self.keep_run()
        self.prepare()
        self.grid.show_only(self.settings.strategies)
        self.call_after_refresh(collect_everything)

    def _finished(self, finished: Finished) -> None:
        results = self.grid.results
        self.table.show(self.finished_rows)
        self.table.display = len(results) > 1 and not finished.cancelled
        self.grid.show_start()
        if self._chat and any(result.figures.new_tokens for result in results):
            self._turns = max(1, self._turns) if self._again else self._turns + 1

    # What the engine reports

    def on_engine_reported(self) -> None:
        """Take what has gathered, and come back for more after a while: one batch per painting."""
        if not self.is_running:  # the widgets are being taken down
            return
        reports = self.engine.drain()
        if not reports:
            return
        batch: list[Event] = []
        for report in reports:
            match report.item:
                case Progress() as progress:
                    self.header.progress = progress
                case PairInfo() as pair:
                    self._loaded(report.job, pair)
                case JobEnded(error=error):
                    self._deliver(batch)
                    batch = []
                    self._job_ended(report.job, error)
                case event if report.job == self._run:
                    batch.append(event)
        self._deliver(batch)
        self.set_timer(self._pause(), self.on_engine_reported)

    def _pause(self) -> float:
        """Seconds until the next batch, from what this thread has spent since the last one."""
        spent = thread_time() - self._spent
        self._spent += spent
        return min(max(spent / PAINTING_SHARE, SHORTEST_PAUSE), LONGEST_PAUSE)

    def _deliver(self, batch: list[Event]) -> None:
        if not batch:
            return
        self._events += batch
        ended = any(isinstance(event, Step) and isinstance(event.record, RunEnded) for event in batch)
        if (finished := self.grid.deliver(batch)) is not None:
            self._finished(finished)
        elif ended and self.table.display:
            self.table.show(self.finished_rows)

    @property
    def finished_rows(self) -> list[Row]:
        """The rows of the comparison table: of runs at work there are no figures to compare yet."""
        known = [r.figures.end is not None or not self.at_work for r in self.grid.results]
        return [
            (r.strategy, r.figures if is_known else RunFigures(), r.lossless)
            for r, is_known in zip(self.grid.results, known, strict=True)
        ]

    @property
    def at_work(self) -> bool:
        """Whether more is to come in the panes."""
        return self.running

    def _job_ended(self, job: int, error: str) -> None:
        self.header.progress = None
        if job in self._loads:
            self._load_ended(job, error)
        elif job == self._run:
            self._run_ended(error)
        elif error:
            self.say(error, "error")
        elif job in self._new_chats:
            self._turns = 0  # not before: a run ahead of it has counted its turn meanwhile
            self.prepare()
        self._new_chats.discard(job)
        self._settle()

    def _settle(self) -> None:
        """Bring state and header in line, and start a waiting prompt once it can run."""
        if self.waiting and self._run is None and not self._loads and self._pair is not None:
            prompt, self.waiting = self.waiting, ""
            self._begin(prompt)
        self.header.state = self._state
        self.prompt_box.cursor_blink = self._run is None  # each blink is a painting
        self.run_line.update(self._run_line())
        self.run_line.display = bool(self.waiting or self.last_prompt)
        self.prompt_box.border_subtitle = self._summary()

    def _summary(self) -> Content | str:
        return summary(self.settings, self._turns)

    def _run_line(self) -> Content:
        if self.waiting:
            return Content.assemble(("waiting  ", "$text-warning"), one_row(self.waiting))
        return Content.assemble(("› ", "bold $text-primary"), one_row(self.last_prompt))

    @property
    def _state(self) -> State:
        if self._run is not None:
            return "running"
        if self._loads:
            return "loading"
        return "failed" if self._pair is None else "ready"

    def say(self, text: str, severity: SeverityLevel = "information", timeout: float = 5) -> None:
        """A toast, once while it is up. The text may come from anyone, so it is never read as markup."""
        if text == self._said[0] and monotonic() < self._said[1]:
            return
        self._said = (text, monotonic() + timeout)
        self.notify(one_row(text), severity=severity, timeout=timeout, markup=False)
