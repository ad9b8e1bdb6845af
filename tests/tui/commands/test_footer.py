"""The line at the bottom: few keys, those that matter here, none of them cut."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from textual.screen import Screen

from specdec_tui.settings import Settings
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.recordings import Replay
from specdec_tui.tui.commands.footer import FOOTERS, MOST_ENTRIES, Place, entries_of, fitting
from specdec_tui.tui.commands.palette import Palette
from specdec_tui.tui.screens.earlier_prompts import EarlierPrompts
from specdec_tui.tui.screens.export import ExportScreen
from specdec_tui.tui.screens.help import HelpScreen
from specdec_tui.tui.screens.history import HistoryScreen
from specdec_tui.tui.screens.model_picker import ModelPicker


def shown(app: SpecdecApp) -> str:
    return str(app.footer.render())


WIDER: dict[str, list[str]] = {
    "panes": ["Quit"],
    "at work": ["Tour"],
    "after a run": ["γ-lab", "Tour"],
    "trace": ["γ-lab"],
}
"""What stands in wider footers only."""


@pytest.mark.parametrize("place", FOOTERS)
def test_at_80_columns_there_are_nine_entries_at_most_and_at_100_all_of_them(place: Place) -> None:
    entries = entries_of(place, 1)
    kept = fitting(entries, 80)[0]
    assert len(kept) <= MOST_ENTRIES
    assert [entry.label for entry in entries if entry not in kept] == WIDER.get(place, [])
    assert fitting(entries, 100)[0] == entries


def test_from_the_panes_the_tour_is_told_and_after_a_run_the_laboratory() -> None:
    """Neither stood in any footer."""
    assert "Tour" in [entry.label for entry in fitting(entries_of("panes", 1), 80)[0]]
    assert "? Tour" in told("after a run", 100)
    assert "g γ-lab" in told("after a run", 100) and "g γ-lab" in told("trace", 100)


@pytest.mark.parametrize("place", ["panes", "at work", "after a run", "trace", "race"])
def test_from_every_pane_one_gets_to_the_others_at_80_columns(place: Place) -> None:
    """Before a run nothing told how."""
    assert "tab alt+1 Pane" in told(place, 80)


@pytest.mark.parametrize("place", ["panes", "at work", "after a run", "trace"])
def test_models_settings_stop_and_export_are_at_hand_at_80_columns_where_they_do_something(place: Place) -> None:
    """After a run neither models nor settings were, nor models while one is at work."""
    line = told(place, 80)
    assert "m Models" in line and "s Settings" in line
    assert ("e Export" in line) == (place in ("after a run", "trace")), "a run is written when it has ended"
    assert ("^c Stop" in line) == (place == "at work")


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("place", ["inspector", "search", "side bar", "dialog"])
def test_the_way_out_is_told_however_narrow_the_terminal(place: Place, width: int) -> None:
    """At 60 columns the inspector's was the first to go."""
    assert "esc Close" in told(place, width)


def told(place: Place, width: int) -> str:
    kept, gap = fitting(FOOTERS[place], width)
    return (" " * gap).join(f"{' '.join(name for name, _ in entry.keys)} {entry.label}" for entry in kept)


@pytest.mark.parametrize("place", set(FOOTERS) - {"search", "dialog"})
def test_what_does_not_fit_is_left_out_whole_and_menu_and_help_stay(place: Place) -> None:
    for width in range(18, 80):
        kept, _ = fitting(FOOTERS[place], width)
        assert cell_len(told(place, width)) <= width
        assert [entry.label for entry in kept[-2:]] == ["Menu", "Help"]


async def test_the_footer_follows_the_focus_and_what_goes_on() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, max_new_tokens=400)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        assert "enter Run" in shown(app) and "s Settings" not in shown(app)
        await pilot.press("escape")
        assert "m Models" in shown(app) and "s Settings" in shown(app)
        await ask(pilot, "why")
        await until(pilot, lambda: "^c Stop" in shown(app), "stop is at hand")
        await pilot.press("escape")
        assert "^c Stop" in shown(app) and "v View" in shown(app)
        engine.step(10_000)
        await until(pilot, lambda: "e Export" in shown(app) and "^c Stop" not in shown(app))
        assert "?" not in str(app.prompt_box.placeholder), "the tour is told while nothing was run"
        assert "tab alt+1 Pane" in shown(app)
        await pilot.press("i")
        await until(pilot, lambda: "← → Token" in shown(app))
        assert "[ ] Round" in shown(app) and "n N Rejection" in shown(app)
        await pilot.press("f")
        await until(pilot, lambda: "enter Next" in shown(app))
        await pilot.press("escape", "escape", "escape", "R")
        await until(pilot, lambda: ", . Speed" in shown(app) and "space Pause" in shown(app))
        await pilot.press("space")
        await until(pilot, lambda: "space Play" in shown(app) and "Pause" not in shown(app))
        await pilot.press("space")
        await until(pilot, lambda: "space Pause" in shown(app))
        await pilot.press("end")
        await until(pilot, lambda: "space Play" in shown(app))
        await pilot.press("R", "s")
        await until(pilot, lambda: "esc Close" in shown(app) and "tab Next" in shown(app))


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("h", HelpScreen),
        ("H", HistoryScreen),
        ("m", ModelPicker),
        ("e", ExportScreen),
        ("ctrl+p", Palette),
        ("ctrl+r", EarlierPrompts),
    ],
)
@pytest.mark.parametrize("size", [(80, 24), pytest.param((60, 18), marks=pytest.mark.large)])
async def test_behind_a_dialog_no_keys_are_told_that_do_nothing_there(
    key: str, kind: type[Screen[object]], size: tuple[int, int]
) -> None:
    """The keys of the panes stood there."""
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await ask(pilot, "why")
        await until(pilot, lambda: app.recordings.trace is not None)
        if key != "ctrl+r":
            await pilot.press("escape")
        before = shown(app)
        await pilot.press(key)
        await until(pilot, lambda: isinstance(app.screen, kind) and shown(app) == "esc Close  ^q Quit", "the dialog's")
        await pilot.press("escape")
        await until(pilot, lambda: not app.dialog_is_open and shown(app) == before, "as before")


async def test_in_a_trace_without_models_the_footer_offers_to_load_some() -> None:
    app = make_app(prompt="why")
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.recordings.trace is not None)
        trace = app.recordings.trace
    assert trace is not None
    replayed = SpecdecApp(ScriptedEngine(), Settings(), app.choice, replay=Replay(trace))
    async with replayed.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "m Models" in shown(replayed) and "R Race" in shown(replayed))
        assert "Again" not in shown(replayed)


async def test_a_click_on_an_entry_presses_its_key() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("escape")
        await pilot.click(app.footer, offset=(shown(app).index("Menu"), 0))
        await until(pilot, lambda: isinstance(app.screen, Palette))
        await pilot.press("escape")
        await pilot.click(app.footer, offset=(shown(app).index("4 5"), 0))
        await until(pilot, lambda: "ngram" not in app.settings.strategies)
        await pilot.click(app.footer, offset=(shown(app).index("h Help"), 0))
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))


async def test_a_click_between_two_entries_or_behind_the_last_does_nothing() -> None:
    app = make_app()
    async with app.run_test(size=(120, 24)) as pilot:
        await ready(pilot)
        line = shown(app)
        assert [app.footer.key_at(column) for column in (line.index("Run") + 3, len(line), 119)] == [""] * 3
        assert app.footer.key_at(line.index("Run") + 2) == "enter" and app.footer.key_at(0) == "enter"
