"""Going to a pane, and out again one step at a time."""

from __future__ import annotations

import pytest
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, toasts, until
from textual.pilot import Pilot

from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.panes.find_bar import FindBar
from specdec_tui.tui.screens.help import HelpScreen

SIZE = (120, 40)


async def after_a_run(pilot: Pilot[int]) -> SpecdecApp:
    app = pilot.app
    assert isinstance(app, SpecdecApp)
    await ready(pilot)
    await ask(pilot, "why blue")
    await until(pilot, lambda: app.recordings.trace is not None and not app.runs.running)
    await pilot.press("escape")
    return app


def focused(app: SpecdecApp) -> str:
    pane = app.grid.focused
    return "" if pane is None else pane.strategy


async def test_tab_and_shift_tab_walk_over_the_shown_panes_alone() -> None:
    async with make_app().run_test(size=SIZE) as pilot:
        app = await after_a_run(pilot)
        seen = []
        for key in ("tab", "tab", "tab", "tab", "tab", "shift+tab", "shift+tab"):
            await pilot.press(key)
            seen.append(focused(app))
        assert seen == ["target", "speculative", "ngram", "lookup", "target", "lookup", "ngram"]
        await pilot.press("slash", "shift+tab")
        assert focused(app) == "lookup"


async def test_alt_and_a_digit_go_to_a_pane_from_anywhere_and_change_nothing() -> None:
    async with make_app().run_test(size=(80, 24)) as pilot:
        app = await after_a_run(pilot)
        await pilot.press("slash", "alt+4")
        assert focused(app) == "ngram"
        assert app.grid.region.contains_region(app.grid.panes["ngram"].region)
        await pilot.press("alt+2")
        assert focused(app) == "ngram" and app.settings == make_app().settings
        assert any("drafter is not shown: 2 brings it" in toast for toast in toasts(app))


async def test_going_to_a_pane_keeps_it_maximised_and_takes_the_inspector_along() -> None:
    async with make_app().run_test(size=SIZE) as pilot:
        app = await after_a_run(pilot)
        await pilot.press("alt+3", "z", "tab")
        assert app.screen.maximized is app.grid.panes["ngram"]
        await pilot.press("escape", "i", "left", "left", "tab")
        panes = app.grid.panes
        await until(pilot, lambda: panes["lookup"].inspecting and not panes["ngram"].inspecting)
        place = panes["lookup"].cursor
        assert place is not None and panes["lookup"].run_log.token(place).position == 21


@pytest.mark.parametrize("key", ["h", "f1"])
async def test_help_opens_and_closes_with_each_of_its_keys(key: str) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("escape", key)
        assert isinstance(app.screen, HelpScreen)
        await pilot.press(key)
        assert not app.dialog_is_open


@pytest.mark.parametrize("opened", ["maximised", "side bar"])
async def test_escape_leads_out_one_rung_at_a_time(opened: str) -> None:
    app = make_app(ScriptedEngine(), max_new_tokens=400)
    async with app.run_test(size=SIZE) as pilot:
        await after_a_run(pilot)
        app.action_race("0.05")
        await pilot.press("alt+3", "z" if opened == "maximised" else "s", "f1")
        # From the inside out: what is there, and what is gone after one escape.
        rungs = {
            "help": lambda: app.dialog_is_open,
            "maximised": lambda: app.screen_stack[0].maximized is not None,
            "side bar": lambda: app.side_bar is not None,
            "pane": lambda: app.grid.focused is not None or app.side_bar is not None,
            "race": lambda: app.racing.race is not None,
        }
        del rungs["side bar" if opened == "maximised" else "maximised"]
        for gone in range(len(rungs) + 1):
            expected = [False] * gone + [True] * (len(rungs) - gone)
            await until(pilot, lambda expected=expected: [there() for there in rungs.values()] == expected)
            await pilot.press("escape")
        assert app.focused is None


async def test_escape_closes_the_find_bar_before_the_inspector_and_that_before_the_pane() -> None:
    async with make_app().run_test(size=SIZE) as pilot:
        app = await after_a_run(pilot)
        await pilot.press("alt+3", "i", "f", "b")
        app.grid.panes["target"].focus()  # the rungs do not depend on where the focus is
        await pilot.press("escape")
        await until(pilot, lambda: not app.query(FindBar))
        assert app.inspection.panel is not None
        await pilot.press("escape")
        await until(pilot, lambda: app.inspection.panel is None)
        assert focused(app) == "speculative"
        await pilot.press("escape")
        assert app.focused is None
        await pilot.press("v")
        assert {pane.view for pane in app.grid.shown} == {"rounds"}


async def test_escape_in_the_prompt_leaves_it_and_nothing_else() -> None:
    async with make_app().run_test(size=SIZE) as pilot:
        app = await after_a_run(pilot)
        await pilot.press("alt+3", "i", "slash", "escape")
        assert app.focused is None and app.inspection.panel is not None
