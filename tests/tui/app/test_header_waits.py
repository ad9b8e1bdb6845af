"""A run that waits for those of other tabs, as its header says it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from widget_data import painted

from specdec_tui.decoding.records import Event
from specdec_tui.session import Waiting
from specdec_tui.tui.commands.header import Header


class QueuedEngine(ScriptedEngine):
    """One of others' runs comes first, until `turn` says that it is ours."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = threading.Event()

    def run(self, *given: Any, **named: Any) -> Iterator[Event | Waiting]:  # type: ignore[override]
        yield Waiting(1)
        self.turn.wait(30)
        yield from super().run(*given, **named)


async def test_the_header_says_that_a_run_waits_and_how_to_stop_it_and_not_that_it_is_running() -> None:
    engine = QueuedEngine()
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "why")
        await until(pilot, lambda: "ctrl+c stops  ◌ waiting" in painted(app.query_one(Header))[0])
        engine.turn.set()
        await until(pilot, lambda: app.header.state == "ready")
