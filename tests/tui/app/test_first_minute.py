"""The recording that plays while models load."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine
from shell import make_app, ready, toasts, until
from textual.pilot import Pilot

from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.format import Trace, TraceError
from specdec_tui.traces.recorded import recorded
from specdec_tui.tui.app import first_minute as recording
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.first_minute import NOT_YOURS
from specdec_tui.tui.app.recordings import Replay
from specdec_tui.tui.commands.examples import EXAMPLES
from specdec_tui.tui.figures.words import PaneState


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(recording, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(recording, "SPEED", 50.0)


def loading_app() -> tuple[ScriptedEngine, SpecdecApp]:
    engine = ScriptedEngine()
    engine.load_gate.clear()
    return engine, make_app(engine)


async def played(pilot: Pilot[int]) -> None:
    app = pilot.app
    assert isinstance(app, SpecdecApp)
    await until(pilot, lambda: app.grid.panes["speculative"].lossless is not None, "all of it was shown")


def said(app: SpecdecApp) -> str:
    return app.run_line._line.plain


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (4, 4)])
async def test_while_models_load_a_recording_plays_and_says_what_it_is(size: tuple[int, int]) -> None:
    engine, app = loading_app()
    async with app.run_test(size=size) as pilot:
        await played(pilot)
        assert app.header.state == "loading"
        assert app.grid.panes["speculative"].plain_text == app.grid.panes["target"].plain_text != ""
        assert all("a recording" in str(pane.border_title) for pane in app.grid.shown)
        assert app.explaining.text.count(". ") == 3 and NOT_YOURS in str(app.explaining.border_title)
        assert "esc, then ?" in str(app.prompt_box.placeholder), "the tour is told all the while"
        if size == (80, 24):
            assert NOT_YOURS in said(app)
            assert 3 <= app.explaining.size.height <= 5
        await pilot.press("h", "i")
        assert app.prompt_box.text == "hi"
        engine.load_gate.set()
        await ready(pilot)
        await until(pilot, lambda: not app.recording.is_on, "at its end it goes")
        assert not app.explaining.display and {pane.state for pane in app.grid.panes.values()} == {PaneState.IDLE}
        assert NOT_YOURS not in said(app) and not any("a recording" in str(p.border_title) for p in app.grid.shown)
        assert [pane.strategy for pane in app.grid.shown] == list(app.settings.strategies)


async def test_no_key_takes_the_recording_for_a_run_of_yours() -> None:
    engine, app = loading_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await played(pilot)
        for key, answer in [
            ("r", "Nothing has run yet"),
            ("R", "Nothing has run yet"),
            ("e", "Nothing to export yet"),
            ("t", "The table compares strategies after a run"),
        ]:
            await pilot.press("escape") if app.prompt_box.has_focus else None
            await pilot.press(key)
            await until(pilot, lambda answer=answer: any(answer in one for one in toasts(app)), key)
        assert app.recording.is_on and not app.table.display and not engine.runs
        await pilot.press("escape")
        assert not app.recording.is_on
        await pilot.pause(0.1)
        assert not app.recording.is_on  # it does not come back by itself
        assert not list(app.recordings.store.folder.glob("*"))
        engine.load_gate.set()


async def test_a_prompt_that_waited_takes_the_place_of_the_recording() -> None:
    engine, app = loading_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await played(pilot)
        await pilot.press("f3")
        assert app.runs.waiting == EXAMPLES[1].prompt and app.recording.is_on
        engine.load_gate.set()
        await until(pilot, lambda: app.recordings.trace is not None, "the run is over")
        assert not app.recording.is_on and not app.explaining.display
        assert app.runs.last_prompt == EXAMPLES[1].prompt
        assert [pane.figures.new_tokens for pane in app.grid.shown] == [24] * 4
        assert not any("a recording" in str(pane.border_title) for pane in app.grid.panes.values())


async def test_whoever_is_in_a_pane_is_not_thrown_out_of_it() -> None:
    engine, app = loading_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await played(pilot)
        await pilot.press("escape", "alt+3", "i")
        engine.load_gate.set()
        await ready(pilot)
        await pilot.pause(0.1)
        assert app.recording.is_on and app.inspection.panel is not None
        await pilot.press("escape", "escape")
        await until(pilot, lambda: not app.recording.is_on, "then it goes")
        assert app.inspection.panel is None


async def test_there_is_no_recording_over_a_trace_nor_where_a_prompt_waits() -> None:
    engine = ScriptedEngine()
    engine.load_gate.clear()
    app = SpecdecApp(engine, Settings(), ModelChoice(), "a prompt")
    async with app.run_test() as pilot:
        await pilot.pause(0.1)
        assert not app.recording.is_on
    trace = recorded()
    app = SpecdecApp(engine, Settings(), ModelChoice(), replay=Replay(trace))
    async with app.run_test() as pilot:
        await pilot.press("m")
        app.front.load(ModelChoice())
        await pilot.pause(0.1)
        assert not app.recording.is_on and app.recordings.trace is trace
        engine.load_gate.set()


async def test_an_installation_without_the_recording_loads_all_the_same() -> None:
    def missing() -> Trace:
        raise TraceError("there is no such file")

    engine, app = loading_app()
    app.recording._read = missing
    async with app.run_test() as pilot:
        await pilot.pause(0.1)
        assert not app.recording.is_on
        engine.load_gate.set()
        await ready(pilot)


@pytest.mark.parametrize("example", range(3))
async def test_an_example_is_one_key_in_the_prompt_and_outside_of_it(example: int, tmp_path: Path) -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    wanted = EXAMPLES[example]
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        assert f"{wanted.key} {wanted.letter}  {wanted.prompt}" in str(app.grid.front._welcome.render())
        await pilot.press("escape", wanted.letter)
        await until(pilot, lambda: app.recordings.trace is not None and app.header.state == "ready", "it ran")
        # A letter beside the panes is a slip by then, and a run that one looks at stays.
        await pilot.press(wanted.letter)
        says = {
            "a": "f2 runs the example",
            "b": "i inspects a token, then b goes on from it",
            "c": "f4 runs the example",
        }
        await until(pilot, lambda: any(says[wanted.letter] in said for said in toasts(app)), "said")
        assert len(engine.runs) == 1
        await pilot.press("slash", "x", wanted.key)
        await until(pilot, lambda: len(engine.runs) == 2, "it ran again")
        assert app.prompt_box.text == "x"  # what was typed stays
        assert {prompt for prompt, _ in engine.runs} == {wanted.prompt}
