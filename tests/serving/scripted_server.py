"""Models for several tabs that are scripted engines, and tabs without a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from scripted_engine import ScriptedEngine

from specdec_tui.backends.pair import PairInfo, ReportProgress
from specdec_tui.decoding.records import Event
from specdec_tui.serving.engine_server import EngineServer
from specdec_tui.serving.messages import Welcome
from specdec_tui.serving.shared_engine import SharedEngine
from specdec_tui.session import Waiting
from specdec_tui.settings import ModelChoice, Settings

PATIENCE_SECONDS = 30
SETTINGS = Settings(max_new_tokens=8, strategies=("target", "speculative"))


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.005)


class ScriptedServer(EngineServer):
    """`engines`: one for each tab, and one more for each load it asks for; gated ones where `gated`."""

    def __init__(self, *, gated: bool = False, models: ScriptedEngine | None = None) -> None:
        self.models = ScriptedEngine() if models is None else models
        self.engines: list[ScriptedEngine] = []
        self.errors: list[str] = []
        self.gated = gated
        super().__init__(
            Welcome(SETTINGS, ModelChoice()), self._load, self._make, lambda: {"threads": 3}, self.errors.append
        )

    def _load(self, progress: ReportProgress) -> PairInfo:
        return self.models.load(self.welcome.choice, progress)

    def _make(self) -> ScriptedEngine:
        self.engines.append(ScriptedEngine(gated=self.gated))
        return self.engines[-1]


@dataclass
class Tab:
    """What a tab's process does, in a thread: a run, whose events are gathered."""

    engine: SharedEngine
    connection: Connection
    script: ScriptedEngine
    """What answers behind the server."""
    events: list[Event | Waiting] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def load(self) -> PairInfo:
        return self.engine.load(ModelChoice(), lambda step: None)

    def begin(self, prompt: str = "why", settings: Settings = SETTINGS) -> threading.Thread:
        return self.do(lambda: self.engine.run(prompt, settings, self.stop.is_set))

    def do(self, work: Callable[[], Iterator[Event | Waiting]]) -> threading.Thread:
        def listen() -> None:
            try:
                for event in work():
                    self.events.append(event)
            except Exception as error:
                self.errors.append(error)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        return thread

    @property
    def waits_for(self) -> list[int]:
        return [event.before for event in self.events if isinstance(event, Waiting)]

    @property
    def own(self) -> list[Event]:
        return [event for event in self.events if not isinstance(event, Waiting)]


def open_tab(server: ScriptedServer, *, loaded: bool = True) -> Tab:
    _, theirs = server.open()
    connection = Connection(theirs.detach())
    engine = SharedEngine(connection)
    assert engine.welcome() == server.welcome
    if loaded:
        engine.load(ModelChoice(), lambda step: None)
    return Tab(engine, connection, server.engines[-1])
