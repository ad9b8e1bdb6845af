"""The header knows how the server of a target is: looked after while nothing else is at work, and told by rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until

from specdec_tui.backends.pair import Health
from specdec_tui.tui.app import app as app_module


async def test_a_server_is_looked_after_while_nothing_else_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "SERVER_SECONDS", 3600)  # only when it is asked to
    engine = ScriptedEngine(gated=True, server=Health(0.25))
    engine.pair = replace(engine.pair, target=replace(engine.pair.target, device="server host:1"))
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        assert app.header.health is None
        app.runs.look_after_server()
        await until(pilot, lambda: app.header.health == Health(0.25))
        engine.server = Health(None, "no server answers")
        app.runs.look_after_server()
        await until(pilot, lambda: app.header.health == Health(None, "no server answers"))
        looks = engine.looks
        await ask(pilot, "a prompt")
        await until(pilot, lambda: app.runs.running)
        app.runs.look_after_server()
        engine.gated = False
        engine.step(1000)
        await until(pilot, lambda: not app.runs.running)
        assert engine.looks == looks


async def test_a_target_that_is_here_has_no_server_to_look_after() -> None:
    engine = ScriptedEngine(server=Health(0.25))
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        app.runs.look_after_server()
        await pilot.pause(0.1)
        assert engine.looks == 0 and app.header.health is None
