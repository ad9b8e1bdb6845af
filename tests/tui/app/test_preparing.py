"""What runs need is made ahead while the engine is idle, with progress, and in nobody's way."""

from __future__ import annotations

from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from widget_data import painted

from specdec_tui.settings import ModelChoice
from specdec_tui.tui.commands.header import Header


async def test_after_a_load_the_header_counts_what_is_made_and_the_app_is_ready() -> None:
    engine = ScriptedEngine(captures=2)
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        header = app.query_one(Header)
        await until(pilot, lambda: "Capturing rounds" in painted(header)[0])
        assert "0%" in painted(header)[0] and painted(header)[0].strip().endswith("● ready")
        assert "scripte…target" in painted(header)[0]
        engine.capture()
        await until(pilot, lambda: "50%" in painted(header)[0])
        engine.capture()
        await until(pilot, lambda: "Capturing" not in painted(header)[0])
        assert engine.prepared == [app.settings]


async def test_a_prompt_does_not_wait_for_all_that_is_made_ahead() -> None:
    engine = ScriptedEngine(captures=3)
    app = make_app(engine)
    async with app.run_test() as pilot:
        await until(pilot, lambda: engine.prepared)
        await ready(pilot)
        await ask(pilot, "hi")
        await until(pilot, lambda: app.runs.running)
        engine.capture()
        await until(pilot, lambda: not app.runs.running)
        assert len(engine.runs) == 1
        await until(pilot, lambda: len(engine.prepared) == 2)  # goes on behind the run
        engine.capture(3)
        await until(pilot, lambda: app.header.progress is None)


async def test_a_change_of_settings_and_a_new_chat_are_prepared_for() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await ready(pilot)
        app.preferences.change({"gamma": 7})
        await until(pilot, lambda: engine.prepared and engine.prepared[-1].gamma == 7)
        count = len(engine.prepared)
        app.action_new_chat()
        await until(pilot, lambda: len(engine.prepared) > count)


async def test_a_load_takes_precedence_over_what_is_made_ahead() -> None:
    engine = ScriptedEngine(captures=3)
    app = make_app(engine)
    async with app.run_test() as pilot:
        await until(pilot, lambda: engine.prepared)
        await ready(pilot)
        app.front.load(ModelChoice(target="other"))
        engine.capture()
        await until(pilot, lambda: len(engine.loads) == 2)
        await ready(pilot)
        engine.capture(3)


async def test_a_waiting_prompt_runs_before_anything_is_made_ahead() -> None:
    engine = ScriptedEngine(captures=3)
    app = make_app(engine, prompt="hi")
    async with app.run_test() as pilot:
        await until(pilot, lambda: engine.runs)
        assert not engine.prepared or engine.prepared == [app.settings]
        await until(pilot, lambda: not app.runs.running and engine.prepared)
        engine.capture(3)
