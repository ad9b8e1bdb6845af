"""Loads and runs: the traffic with the engine's thread, and the one prompt that may wait for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from time import thread_time
from typing import TYPE_CHECKING, Literal

from specdec_tui.backends.pair import Health, PairInfo, Progress
from specdec_tui.decoding.records import Event, Finished, PrefillDone, RoundVerified, Step
from specdec_tui.session import Engine, Waiting
from specdec_tui.several_drafters import drafters_in
from specdec_tui.tui.app.engine_thread import EngineThread, JobEnded
from specdec_tui.tui.commands.table import key

if TYPE_CHECKING:
    from specdec_tui.settings import ModelChoice, Settings
    from specdec_tui.tui.app.run_screen import RunScreen
    from specdec_tui.what_ifs import WhatIf

# A painting takes the interpreter for some milliseconds, whatever it shows, and decoding waits that
# long. So there are as many paintings as fit into this share of the time, within these limits.
PAINTING_SHARE = 0.015
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.25

_A_NEW_CHAT = "Models loaded: a new chat begins"
_NO_CHAT = "Models loaded, without a chat template: the chat ends"


@dataclass(slots=True)
class Run:
    """A run as it was asked for, and everything that has happened in it so far."""

    prompt: str
    settings: Settings
    events: list[Event] = field(default_factory=list)
    turn: int = 0
    """Of the conversation; 0: of none."""
    is_aside: bool = False
    """It is none of the user's own."""


@dataclass(frozen=True, slots=True)
class Play:
    """What the engine is at in the place of a prompt: what-ifs. Who asked for them hears what comes of it.

    `went_on` with what has happened, in batches; `ended` once, with the engine's error or nothing.
    """

    went_on: Callable[[Sequence[Event]], object]
    ended: Callable[[str], object]
    gives_way: bool = False
    """Whether it ends for a prompt or a load; else they wait for it."""


class Runs:
    """Loads pairs and runs prompts, one at a time. `wake` is called from the engine's thread: `take` is due."""

    def __init__(
        self, screen: RunScreen, engine: Engine, choice: ModelChoice, prompt: str, wake: Callable[[], bool]
    ) -> None:
        self._screen = screen
        self.engine = EngineThread(engine, wake)
        self.choice = choice
        self.pair: PairInfo | None = None
        self.waiting = prompt
        self.last_prompt = ""
        self.run: Run | None = None
        """The run at work, else the last one."""
        self._own: Run | None = None  # of the user, while the last one is aside
        self.turns = 0
        """Of the conversation, answered so far."""
        self.before: int | None = None
        """How many that others asked for come before what is at work here; None where it has begun."""
        self.health: Health | None = None
        """How the target's server was when it was last heard of; None of a target that is here."""
        self._looks: set[int] = set()
        self._loads: dict[int, ModelChoice] = {}
        self._abandoned: dict[int, ModelChoice] = {}
        self._new_chats: set[int] = set()
        self._job: int | None = None
        self._play: Play | None = None
        self._again = False
        self._spent = 0.0

    @property
    def asks(self) -> Mapping[str, str]:
        """What the target's files ask of settings at `auto`, in words."""
        return {} if self.pair is None else self.pair.target.asks

    @property
    def drafters(self) -> int:
        """How many are loaded."""
        return drafters_in(self.pair)

    @property
    def running(self) -> bool:
        """Whether a run is at work (asked to stop or not)."""
        return self._job is not None

    @property
    def state(self) -> Literal["loading", "ready", "running", "failed"]:
        if self.running:
            return "running"
        if self._loads:
            return "loading"
        return "failed" if self.pair is None else "ready"

    # Models

    @property
    def wanted(self) -> ModelChoice:
        """The models that were asked for last, loaded or on their way: a further change is one to them."""
        return next(reversed(self._loads.values()), self.choice)

    def load(self, choice: ModelChoice) -> None:
        """Load a pair in the background; the present one stays until the new one is ready."""
        self._make_way()
        self._loads[self.engine.load(choice)] = choice
        if self.running:
            self._screen.say("The models are loaded when the run has ended", holds=lambda: self.running)
        self._settle()

    def prepare(self) -> None:
        """Have made, while the engine is idle, what a run with the present settings will need."""
        if self.pair is not None and not self.waiting:  # a waiting prompt makes what it needs itself
            self.engine.prepare(self._screen.settings)

    def look_after_server(self) -> None:
        """While nothing else is at work: is the target's server there, and how far is it?"""
        if self.pair is not None and self.pair.target.is_served and self.state == "ready" and not self._looks:
            self._looks.add(self.engine.look_after())

    def lacks_models(self) -> bool:
        """Whether nothing can run, now or soon; said if so."""
        lacking = self.pair is None and not self._loads
        if lacking:
            missing = f"No models are loaded: choose a pair ({key('panes')}, then {key('models')})"
            self._screen.say(missing, "warning", holds=lambda: self.pair is None and not self._loads)
        return lacking

    # Prompts

    def submit(self, prompt: str, accept: Callable[[str], None]) -> None:
        """Run a prompt or let it wait; `accept` is called where it does not have to stay in its box."""
        if not prompt.strip():
            self._screen.say(f"Type a prompt first; {key('run again')} runs the last one again")
        elif self.state in ("loading", "running") and self.waiting:
            already = "One prompt is waiting already; this one stays in the box"
            self._screen.say(already, holds=lambda: bool(self.waiting))
        elif not self.lacks_models():
            accept(prompt)
            self._run_or_wait(prompt)

    def run_again(self) -> None:
        """The last prompt once more; it replaces the last turn of the chat, unless it is that of an opened trace."""
        if not self.last_prompt:
            self._screen.say("Nothing has run yet: type a prompt first", holds=lambda: not self.last_prompt)
        elif self.waiting:
            self._screen.say("One prompt is waiting already", holds=lambda: bool(self.waiting))
        elif not self.lacks_models():
            self._run_or_wait(self.last_prompt, again=self.run is None or self.run.prompt == self.last_prompt)

    def play(self, requests: Sequence[WhatIf], play: Play) -> bool:
        """Have what-ifs played as a run of their own, which `stop` ends too; False where the engine is not free."""
        if self.state != "ready" or self.waiting:
            return False
        self._play, self._job = play, self.engine.what_ifs(requests)
        self._settle()
        return True

    def stop(self) -> str:
        """End the run within a round and keep its text, or else abandon the loads. Says what it did.

        A waiting prompt goes back to the box.
        """
        said = []
        if self._job is not None:
            self.engine.cancel(self._job)
            said.append("Stopping")
        elif self._loads:
            said.append(self._abandon_loads())
        if self.waiting and self._job is None:
            said.append("the prompt is back in the box" if said else "The prompt is back in the box")
        self._return_waiting()
        self._settle()
        return "; ".join(said)

    def _abandon_loads(self) -> str:
        """The present pair stays at once; the engine's thread lets go with the load's next step."""
        self.engine.cancel(*self._loads)
        self._abandoned |= self._loads
        self._loads.clear()
        self._screen.show_progress(None)
        kept = (
            f"no models are loaded, {key('models')} loads some"
            if self.pair is None
            else f"{self.pair.target.name} stays"
        )
        return f"Load abandoned: {kept}"

    def new_chat(self) -> None:
        """Forget the conversation, behind the run at work."""
        self._new_chats.add(self.engine.new_chat())

    def _make_way(self) -> None:
        if self._play is not None and self._play.gives_way and self._job is not None:
            self.engine.cancel(self._job)

    def _run_or_wait(self, prompt: str, *, again: bool = False) -> None:
        self.waiting, self._again = prompt, again
        self._make_way()
        state = self.state
        when = {"loading": "as soon as the models are ready", "running": "after this one"}.get(state)
        if when is not None:
            self._screen.say(
                f"Waiting: the prompt runs {when}", holds=lambda: bool(self.waiting) and self.state == state
            )
        self._settle()

    @property
    def chats(self) -> bool:
        """Whether a prompt goes on with a conversation: asked for, and the models have a template that says how."""
        return self._screen.settings.chat and (self.pair is None or self.pair.chat_template)

    def _begin(self, prompt: str) -> None:
        settings = self._screen.settings
        turns = 0 if self._new_chats else self.turns  # the engine forgets them before it comes to this run
        turn = (max(1, turns) if self._again else turns + 1) if self.chats else 0
        self.last_prompt, self.run = prompt, Run(prompt, settings, turn=turn)
        self._start(self.run, again=self._again)

    def _start(self, run: Run, *, again: bool = False) -> None:
        seen = self._screen.run_begins(run)
        if self._abandoned:
            self._screen.say("The run begins as soon as the abandoned load has let go")
        self._job = self.engine.run(run.prompt, run.settings, again=again, aside=run.is_aside, seen=seen)

    def run_aside(self, prompt: str, settings: Settings) -> None:
        """Run now, for the tour, what belongs to no conversation; `r` and the earlier prompts know nothing of it."""
        if self.run is None or not self.run.is_aside:
            self._own = self.run
        self.run = Run(prompt, settings, is_aside=True)
        self._start(self.run)
        self._settle()

    def forget_aside(self) -> None:
        """The user's own last run is the last one again, once nothing is at work."""
        if self.run is not None and self.run.is_aside and not self.running:
            self.run = self._own

    def _return_waiting(self) -> None:
        if self.waiting:
            self._screen.give_back(self.waiting)
            self.waiting = ""

    def _settle(self) -> None:
        """Start a waiting prompt once it can run, and bring the screen in line."""
        if self.waiting and self.state == "ready":
            prompt, self.waiting = self.waiting, ""
            self._begin(prompt)
        self._screen.settle()

    # What the engine reports

    def take(self) -> float | None:
        """Pass on what has gathered; returns the seconds after which to come back, None when that is not needed."""
        reports = self.engine.drain()
        if not reports:
            return None
        batch: list[Event] = []
        for report in reports:
            match report.item:
                case Progress() if report.job in self._abandoned:
                    pass
                case Progress() as progress:
                    self._screen.show_progress(progress)
                case PairInfo() as pair:
                    self._loaded(report.job, pair)
                case Waiting(before=before):
                    if report.job == self._job:
                        self.before = before or None
                        self._screen.settle()
                case Health() as health:
                    self.health = health
                case JobEnded() if report.job in self._looks:
                    self._looks.discard(report.job)
                    self._settle()
                case JobEnded(error=error):
                    self._deliver(batch)
                    batch = []
                    self._job_ended(report.job, error)
                case event if report.job == self._job:
                    batch.append(event)
        self._deliver(batch)
        return self._pause()

    def _pause(self) -> float:
        """Seconds until the next batch, from what this thread has spent since the last one."""
        spent = thread_time() - self._spent
        self._spent += spent
        return min(max(spent / PAINTING_SHARE, SHORTEST_PAUSE), LONGEST_PAUSE)

    def _deliver(self, batch: list[Event]) -> None:
        if batch and self.before is not None:
            self.before = None
            self._screen.settle()
        if batch and self._play is not None:
            self._play.went_on(batch)
            return
        if not batch or self.run is None:
            return
        self.run.events += batch
        self._screen.run_goes_on(batch)
        self._hear_of_server(batch)
        over = any(isinstance(event, Finished) for event in batch)
        if over and self.run.turn and any(map(_wrote, self.run.events)):
            self.turns = self.run.turn

    def _hear_of_server(self, batch: Sequence[Event]) -> None:
        """Rounds tell of it too."""
        records = [event.record for event in batch if isinstance(event, Step)]
        calls = [one for one in records if isinstance(one, RoundVerified | PrefillDone) and one.wire_seconds]
        if calls and self.run is not None:
            self.health = Health(calls[-1].wire_seconds, added=self.run.settings.added_latency / 1000)
            self._screen.settle()

    def _job_ended(self, job: int, error: str) -> None:
        self._screen.show_progress(None)
        if job in self._loads:
            self._load_ended(job, error)
        elif job in self._abandoned:
            del self._abandoned[job]
            self.prepare()
        elif job == self._job:
            self._run_ended(error)
        elif error:
            self._screen.say(error, "error")
        elif job in self._new_chats:
            self.turns = 0  # not before: a run ahead of it has counted its turn meanwhile
            self._screen.chat_is_new()
            self.prepare()
        self._new_chats.discard(job)
        self._settle()

    def _loaded(self, job: int, pair: PairInfo) -> None:
        had_turns = self.turns > 0 and self._screen.settings.chat
        self.pair, self.turns, self.health = pair, 0, None
        self._screen.chat_is_new()
        # An abandoned load may have been over already: then its pair is what answers.
        self.choice = (self._abandoned | self._loads).get(job, self.choice)
        self._screen.pair_loaded(pair)
        told = [*([_A_NEW_CHAT if self.chats else _NO_CHAT] if had_turns else []), *pair.notes]
        if told:
            self._screen.say(" · ".join(told), timeout=10)

    def _load_ended(self, job: int, error: str) -> None:
        del self._loads[job]
        self.prepare()
        if error:
            said, seconds = error, inf  # nothing matters more until another load
            if self.pair is not None:
                said = f"{error.removesuffix('.')}. The present pair stays: {self.pair.target.name}."
                seconds = 20
            self._screen.say(said, "error", timeout=seconds)
            if self.pair is None and not self._loads:
                self._return_waiting()

    def _run_ended(self, error: str) -> None:
        self._job = self.before = None
        if self._play is not None:
            play, self._play = self._play, None
            play.ended(error)
            self.prepare()
            return
        assert self.run is not None
        if error:
            self.run.events += self._screen.run_breaks(error)
            self._screen.say(f"The run failed: {error}", "error", timeout=20)
        self._screen.run_ended(self.run)
        self.prepare()


def _wrote(event: Event) -> bool:
    """Whether a token came of it."""
    match event:
        case Step(record=PrefillDone(token=token)):
            return token is not None
        case Step(record=RoundVerified(new_tokens=tokens)):
            return bool(tokens)
    return False
