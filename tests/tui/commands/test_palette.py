"""The palette on the screen, and the stale-enter fault it must not have (Textualize/textual #6701)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_engine import ScriptedEngine
from shell import make_app, ready, toasts, until
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widgets import Input, OptionList
from widget_data import painted

from specdec_tui.settings import ModelChoice
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.commands.palette import Palette
from specdec_tui.tui.screens.model_picker import ModelPicker


def press_fast(app: SpecdecApp, text: str) -> None:
    """All keys of `text` and enter, without a pause between them."""
    for character in text:
        app.post_message(events.Key(_character_to_key(character), character))
    app.post_message(events.Key("enter", "\r"))


async def command(pilot: Pilot[int], text: str) -> None:
    await pilot.press("ctrl+p")
    press_fast(pilot.app, text)
    await until(pilot, lambda: not isinstance(pilot.app.screen, Palette) or _entered(pilot.app, text))


def _entered(app: SpecdecApp, text: str) -> bool:
    return app.screen.query_one(Input).value.startswith(text) and bool(toasts(app))


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("gamma 8", "gamma", 8),
        ("length 200", "max_new_tokens", 200),
        ("rule block", "rule", "block"),
        ("chat off", "chat", False),
        ("seed 9", "seed", 9),
        ("theme specdec-light", "theme", "specdec-light"),
    ],
)
async def test_fast_typing_and_enter_runs_what_was_typed_and_nothing_else(text: str, name: str, value: object) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        before = app.settings
        await command(pilot, text)
        await until(pilot, lambda: getattr(app.settings, name) == value)
        assert not isinstance(app.screen, Palette)
        assert app.settings == replace(before, **{name: value})


async def test_an_unknown_word_and_enter_runs_nothing_and_says_so() -> None:
    app = make_app()
    async with app.run_test() as pilot:
        before = app.settings
        await command(pilot, "xyzzy")
        await until(pilot, lambda: any("xyzzy" in toast for toast in toasts(app)))
        assert isinstance(app.screen, Palette)
        assert app.settings == before


async def test_a_bad_value_stays_in_the_palette_and_says_what_is_allowed() -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await command(pilot, "gamma 99")
        await until(pilot, lambda: any("from 0 to 32" in toast for toast in toasts(app)))
        assert isinstance(app.screen, Palette)
        assert app.settings.gamma == 4


async def test_a_bare_name_opens_its_values_and_one_can_be_picked() -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p", *"rule", "enter")
        assert app.screen.query_one(Input).value == "rule "
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.settings.rule == "coupled")


async def test_a_list_row_highlighted_before_more_was_typed_is_not_run() -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p", "down", "down", "down")
        press_fast(app, "seed 7")
        await until(pilot, lambda: app.settings.seed == 7)


async def test_the_models_of_a_preset_are_loaded() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await ready(pilot)
        await command(pilot, "preset gpt2")
        await until(pilot, lambda: len(engine.loads) == 2)
        assert engine.loads[1] == ModelChoice(preset="gpt2")
        await command(pilot, "quantize int8")
        await until(pilot, lambda: len(engine.loads) == 3)
        assert engine.loads[2] == ModelChoice(preset="gpt2", quantize="int8")


async def test_a_target_opens_the_picker_with_it_filled_in() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test() as pilot:
        await ready(pilot)
        await command(pilot, "target my/model")
        await until(pilot, lambda: isinstance(app.screen, ModelPicker))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: len(engine.loads) == 2)
        assert engine.loads[1].target == "my/model"


async def test_a_command_runs_by_its_name() -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await command(pilot, "drafter")
        await until(pilot, lambda: "drafter" in app.settings.strategies)
        await command(pilot, "quit")
        await until(pilot, lambda: not app.is_running)


@pytest.mark.parametrize("text", ["q", "qu", "qui", "exit", "clear"])
async def test_the_first_letters_and_enter_neither_quit_nor_forget(text: str) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p", *text, "enter")
        await pilot.pause()
        assert app.is_running and isinstance(app.screen, Palette)


async def test_what_cannot_be_undone_is_chosen_by_an_arrow() -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p", *"qui", "down", "enter")
        await until(pilot, lambda: not app.is_running)


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_what_is_allowed_stands_in_full(width: int) -> None:
    app = make_app()
    async with app.run_test(size=(width, 24)) as pilot:
        await pilot.press("ctrl+p", *"rule best")
        await pilot.pause()
        shown = " ".join(" ".join(painted(app.screen.query_one(OptionList))).split())
        assert "rejection, coupled, block, skip-adjustment" in shown


async def test_a_temperature_under_greedy_draws_with_it_and_says_so() -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await command(pilot, "temperature 0.5")
        await until(pilot, lambda: app.settings.temperature == 0.5)
        assert app.settings.processor == "multinomial"
        assert any("multinomial in place of greedy" in text for text in toasts(app))
        assert "multinomial T 0.5" in str(app.prompt_box.border_subtitle)


async def test_markup_and_escapes_in_the_query_are_text() -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("ctrl+p")
        app.screen.query_one(Input).value = "gamma [/x]\x1b[31m"
        await pilot.pause()
        prompt = str(app.screen.query_one(OptionList).get_option_at_index(0).prompt)
        assert "[/x]␛[31m" in prompt and "\x1b" not in prompt
        await pilot.press("enter")
        await until(pilot, lambda: any("[/x]" in toast and "31m" in toast for toast in toasts(app)), "the toast")
        assert not any("\x1b" in toast for toast in toasts(app))


async def test_on_a_very_low_screen_there_are_rows_to_choose_from() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(20, 6)) as pilot:
        await ready(pilot)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, Palette))
        rows = app.screen.query_one(OptionList)
        assert rows.scrollable_content_region.height >= 2
        assert app.screen.region.contains_region(rows.region)
