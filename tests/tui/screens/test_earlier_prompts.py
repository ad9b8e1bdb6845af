"""The list of earlier prompts, and the prompt box across sessions."""

from __future__ import annotations

from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, toasts, until
from textual.widgets import OptionList

from specdec_tui.data_folder import data_folder
from specdec_tui.tui.screens.earlier_prompts import EarlierPrompts, fitting

SIZE = (100, 30)


def test_prompts_that_hold_all_words_come_newest_first_and_once() -> None:
    prompts = ["Why is the sky blue", "sky", "a BLUE sea", "sky", "other"]
    assert fitting(prompts, "") == ["other", "sky", "a BLUE sea", "Why is the sky blue"]
    assert fitting(prompts, "blue SK") == ["Why is the sky blue"]
    assert fitting(prompts, "nothing") == []


async def test_a_prompt_of_the_last_session_comes_back_with_up_and_what_was_unsent_with_down() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "why blue")
        await until(pilot, lambda: not app.runs.running)
    app = make_app(ScriptedEngine())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("h", "a", "up")
        assert app.prompt_box.text == "why blue"
        await pilot.press("exclamation_mark", "down")
        assert app.prompt_box.text == "ha"
        await pilot.press("up")
        assert app.prompt_box.text == "why blue"


async def test_ctrl_r_finds_an_earlier_prompt_and_puts_it_into_the_box_without_running_it() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    for prompt in ("first [/x] prompt", "second\nof two lines", "third"):
        app.texts.prompts.remember(prompt)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("n", "e", "w", "ctrl+r")
        await until(pilot, lambda: isinstance(app.screen, EarlierPrompts))
        rows = app.screen.query_one(OptionList)
        assert [str(option.prompt) for option in rows.options] == ["third", "second of two lines", "first [/x] prompt"]
        await pilot.press("o", "f", "enter")
        await until(pilot, lambda: not isinstance(app.screen, EarlierPrompts))
        assert app.prompt_box.text == "second\nof two lines"
        assert app.focused is app.prompt_box
        assert engine.runs == []
        await pilot.press("up", "up")
        assert app.prompt_box.text == "first [/x] prompt"
        await pilot.press("down", "down", "down", "down", "down")
        assert app.prompt_box.text == "new"


async def test_escape_leaves_the_box_as_it_was() -> None:
    app = make_app()
    app.texts.prompts.remember("old")
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("n", "ctrl+r", "z", "enter", "escape")
        await until(pilot, lambda: not isinstance(app.screen, EarlierPrompts))
        assert app.prompt_box.text == "n"


async def test_without_earlier_prompts_ctrl_r_says_so() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("ctrl+r")
        await until(pilot, lambda: any("No prompt has run" in toast for toast in toasts(app)))


async def test_a_data_folder_that_cannot_be_used_costs_a_toast_and_nothing_else() -> None:
    data_folder().write_text("in the way")
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        for prompt in ("one", "two"):
            await ask(pilot, prompt)
            await until(pilot, lambda: not app.runs.running)
        assert len([toast for toast in toasts(app) if "this session only" in toast]) == 1
        await pilot.press("up", "up")
        assert app.prompt_box.text == "one"


async def test_a_run_that_begins_does_not_disturb_a_walk_through_the_history() -> None:
    engine = ScriptedEngine()
    engine.load_gate.clear()
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ask(pilot, "early")
        await pilot.press("x", "up")
        assert app.prompt_box.text == "early"
        engine.load_gate.set()
        await until(pilot, lambda: len(engine.runs) == 1 and not app.runs.running)
        await pilot.press("down")
        assert app.prompt_box.text == "x"
