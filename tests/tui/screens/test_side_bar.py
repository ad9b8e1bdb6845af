from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from shell import make_app, toasts, until
from textual.pilot import Pilot
from textual.widgets import Input, Select
from widget_data import painted

from specdec_tui.setting_sources import read_config
from specdec_tui.settings import Settings
from specdec_tui.tui.screens.side_bar import GROUPS, SideBar, Tick


def test_every_setting_is_in_exactly_one_group() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(f.name for f in fields(Settings))


async def open_side_bar(pilot: Pilot[Any]) -> None:
    """With the first strategy's tick in use: the next key is its own."""
    await pilot.press("escape", "s")
    await until(pilot, lambda: isinstance(pilot.app.focused, Tick), "the side bar is open")


async def test_values_are_edited_and_saved_and_only_those(config_file: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 60)) as pilot:
        await open_side_bar(pilot)
        bar = app.query_one(SideBar)
        gamma = bar.query_one("#gamma", Input)
        gamma.focus()
        gamma.value = "9"
        await pilot.press("enter")
        await until(pilot, lambda: app.settings.gamma == 9)
        bar.query_one("#cache", Tick).value = False
        bar.query_one("#rule", Select).value = "coupled"
        bar.query_one("#strategy-drafter", Tick).value = True
        await until(pilot, lambda: "drafter" in app.settings.strategies and app.settings.rule == "coupled")
        assert app.settings.cache is False
    saved = read_config(config_file)
    assert set(saved) == {"gamma", "cache", "rule", "strategies"}
    assert saved["gamma"] == "9"


async def test_a_bad_value_gives_a_toast_and_the_old_one_stays(config_file: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 60)) as pilot:
        await open_side_bar(pilot)
        box = app.query_one(SideBar).query_one("#gamma", Input)
        box.focus()
        box.value = "many"
        await pilot.press("enter")
        await until(pilot, lambda: any("whole number" in toast for toast in toasts(app)))
        assert app.settings.gamma == 4
        assert box.value == "4"
    assert not config_file.exists()


async def test_a_value_typed_and_left_with_tab_counts() -> None:
    app = make_app()
    async with app.run_test(size=(120, 60)) as pilot:
        await open_side_bar(pilot)
        box = app.query_one(SideBar).query_one("#seed", Input)
        box.focus()
        box.value = "7"
        await pilot.press("tab")
        await until(pilot, lambda: app.settings.seed == 7)


async def test_the_last_strategy_cannot_be_unticked() -> None:
    app = make_app(strategies=("target",))
    async with app.run_test(size=(120, 60)) as pilot:
        await open_side_bar(pilot)
        await pilot.press("space")
        await until(pilot, lambda: any("at least one" in toast for toast in toasts(app)))
        assert app.settings.strategies == ("target",)
        assert app.query_one("#strategy-target", Tick).value


async def test_changes_from_elsewhere_show_in_the_open_side_bar() -> None:
    app = make_app()
    async with app.run_test(size=(120, 60)) as pilot:
        await open_side_bar(pilot)
        app.preferences.change({"gamma": 11, "rule": "block", "insight": True, "strategies": ("lookup",)})
        await pilot.pause()
        bar = app.query_one(SideBar)
        assert bar.query_one("#gamma", Input).value == "11"
        assert bar.query_one("#rule", Select).value == "block"
        assert [t.value for t in bar.query(Tick)][:5] == [False, False, False, False, True]


async def test_a_config_file_that_cannot_be_saved_is_told_and_survived(config_file: Path) -> None:
    config_file.parent.mkdir(parents=True)
    config_file.write_text("gamma = = 1")
    app = make_app()
    async with app.run_test() as pilot:
        await pilot.press("escape", "plus")
        assert app.settings.gamma == 5
        assert any("not saved" in toast for toast in toasts(app))
    assert config_file.read_text() == "gamma = = 1"


async def test_escape_closes_the_side_bar_and_the_keys_are_the_panes_again() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await open_side_bar(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: not app.query(SideBar))
        assert app.focused is None


async def test_closing_gives_the_focus_back_to_where_it_was() -> None:
    app = make_app()
    async with app.run_test(size=(120, 60)) as pilot:
        await pilot.press("escape", "tab")
        pane = app.focused
        assert pane in app.grid.shown
        await pilot.press("s")
        app.query_one(SideBar).query_one("#gamma", Input).focus()
        await pilot.press("escape")
        await until(pilot, lambda: app.side_bar is None)
        assert app.focused is pane


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_what_the_focused_setting_means_stands_at_the_bottom(size: tuple[int, int]) -> None:
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await open_side_bar(pilot)
        await pilot.pause()
        bar = app.query_one(SideBar)
        for id, words in (("#gamma", "draft tokens per round"), ("#rule", "skip-adjustment"), ("#seed", "from 0 up")):
            bar.query_one(id).focus()
            await until(pilot, lambda words=words: words in " ".join(painted(bar.query_one("#side-bar-told"))), words)
            assert bar.query_one("#side-bar-told").region.bottom <= bar.region.bottom
        bar.query_one("#strategy-lookup").focus()
        await until(pilot, lambda: "earlier in the text" in " ".join(painted(bar.query_one("#side-bar-told"))))
