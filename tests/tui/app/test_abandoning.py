"""ctrl+c in a load: the header says so, the load is abandoned at once, and one goes on with what there was."""

from __future__ import annotations

from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, toasts, until
from widget_data import painted

from specdec_tui.settings import ModelChoice
from specdec_tui.tui.commands.header import Header


async def test_ctrl_c_abandons_a_load_and_the_previous_pair_answers() -> None:
    engine = ScriptedEngine(reports=2)
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        engine.load_gate.clear()
        app.front.load(ModelChoice(target="other"))
        await until(pilot, lambda: "ctrl+c abandons" in painted(app.query_one(Header))[0])
        await pilot.press("ctrl+c")
        await ready(pilot)
        assert "Load abandoned: scripted-target stays; ctrl+c again quits" in toasts(app)
        engine.load_gate.set()
        await ask(pilot, "hello")
        await until(pilot, lambda: engine.runs and not app.runs.running)
        assert app.runs.pair is engine.pair and app.is_running


async def test_ctrl_c_in_the_first_load_leaves_an_app_that_can_load_another_pair() -> None:
    engine = ScriptedEngine(reports=2)
    engine.load_gate.clear()
    app = make_app(engine, "early")
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: engine.loads)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.header.state == "failed")
        assert app.prompt_box.text == "early"
        engine.load_gate.set()
        app.front.load(ModelChoice(target="other"))
        await ready(pilot)
        assert app.runs.choice.target == "other"
