"""On a low screen one pane stands in front of the others, under a strip that names them all."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from textual.geometry import Size
from textual.pilot import Pilot
from widget_data import painted

from specdec_tui.tui.panes.arrangement import arrange, one_at_a_time
from specdec_tui.tui.panes.strip import Tab, strip_line

TABS = [
    Tab(1, "target", "54/s", ""),
    Tab(3, "speculative", "1.83×", ""),
    Tab(4, "ngram", "0.9–2.0×", ""),
    Tab(5, "lookup", "…", ""),
]
LOW = (80, 24)


@pytest.mark.parametrize("width", [4, 20, 40, 60, 80, 120])
def test_the_strip_fits_and_every_cell_of_a_tab_belongs_to_it(width: int) -> None:
    line, spans = strip_line(TABS, "ngram", width)
    assert cell_len(line.plain) <= max(width, 3 * len(TABS))
    for tab, (begin, end, strategy) in zip(TABS, spans, strict=True):
        assert strategy == tab.strategy
        assert line.plain[begin:end].strip(" ▸").startswith(str(tab.number))
        assert tab.word in line.plain[begin:end] or width < 40
    assert "▸4 ngram 0.9–2.0×" in line.plain or width < 40


def test_four_panes_on_a_large_screen_are_two_by_two_and_five_leave_no_wide_one() -> None:
    assert len({r.x for r in arrange(4, Size(200, 60), 200, 50)}) == 2
    widths = [region.width for region in arrange(5, Size(200, 60), 200, 50)]
    assert max(widths) <= 1.6 * min(widths)
    assert len({r.y for r in arrange(4, Size(200, 24), 200, 15)}) == 1
    assert (
        not one_at_a_time(4, Size(200, 24)) and one_at_a_time(4, Size(120, 29)) and not one_at_a_time(4, Size(120, 30))
    )


def in_sight(pilot: Pilot[int]) -> str:
    grid = pilot.app.grid
    (pane,) = [pane for pane in grid.shown if pane in pilot.app.screen._compositor.visible_widgets]
    assert pane.region == grid.region
    return pane.strategy


async def run(pilot: Pilot[int]) -> None:
    await ready(pilot)
    await ask(pilot, "hello")
    await until(pilot, lambda: pilot.app.recordings.trace is not None, "the run's end")


async def test_after_a_run_no_colourless_target_is_all_there_is_to_see() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=LOW) as pilot:
        await run(pilot)
        assert in_sight(pilot) not in ("target", "drafter")
        assert app.grid.strip.display and not app.table.display
        strip = painted(app.grid.strip)[0]
        assert all(f"{pane.number} {pane.strategy}" in strip for pane in app.grid.shown)


async def test_keys_and_clicks_bring_a_pane_to_the_front_and_it_stays_there() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=LOW) as pilot:
        await run(pilot)
        await pilot.press("escape", "alt+4")
        assert in_sight(pilot) == "ngram"
        await pilot.press("tab")
        assert in_sight(pilot) == "lookup"
        line = painted(app.grid.strip)[0]
        for name, following in (("target", "speculative"), ("speculative", "ngram")):
            last = line.index(f"{app.grid.panes[following].number} {following}") - 2  # of the tab before
            await pilot.click(app.grid.strip, offset=(last, 0))
            await pilot.pause()
            assert in_sight(pilot) == name
        for wanted in ("ngram", "target"):
            app.grid.go_to(wanted)
            await ask(pilot, f"again {wanted}")
            await until(
                pilot,
                lambda wanted=wanted: (
                    (trace := app.recordings.trace) is not None and trace.header.prompt == f"again {wanted}"
                ),
            )
            # The pane a person was in stays, but a run never ends with the colourless target alone.
            assert (in_sight(pilot) == wanted) is (wanted != "target")


async def test_a_strategy_switched_off_leaves_the_front_to_another() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=LOW) as pilot:
        await run(pilot)
        await pilot.press("escape", "alt+4", "escape", "4")
        await pilot.pause()
        assert in_sight(pilot) in app.settings.strategies and "ngram" not in app.settings.strategies


MORE_SIZES = [(4, 4), (20, 6), (40, 12), (80, 24), (300, 20)]


@pytest.mark.parametrize(
    "size", [(1, 1), (60, 18), *(pytest.param(size, marks=pytest.mark.large) for size in MORE_SIZES)]
)
async def test_the_prompt_is_never_scrolled_away(size: tuple[int, int]) -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await run(pilot)
        await pilot.resize_terminal(*size)
        await pilot.pause()
        for keys in ((), ("escape", "t")):
            await pilot.press(*keys)
            await pilot.pause()
            assert app.screen.scroll_y == 0 and not app.screen.allow_vertical_scroll
            if size[1] >= 6:
                assert app.prompt_box.region.bottom <= size[1] and app.prompt_box.region.height >= 3
            if size[1] >= 12:
                assert app.table.region.height >= 5 if not app.grid.display else app.grid.region.height >= 3


async def test_the_table_comes_only_when_asked_for_on_a_low_screen() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await run(pilot)
        assert not app.table.display
        await pilot.press("escape", "t")
        assert app.table.display
        await pilot.press("t")
        assert not app.table.display


async def test_views_that_are_out_of_step_go_on_together() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await run(pilot)
        await pilot.press("escape", "alt+3", "v", "escape", "v")
        assert {pane.view for pane in app.grid.shown} == {"rounds"}
        await pilot.press("v")
        assert {pane.view for pane in app.grid.shown} == {"tree"}


async def test_page_keys_scroll_the_current_pane_where_none_has_the_focus() -> None:
    app = make_app(ScriptedEngine(), max_new_tokens=400)
    async with app.run_test(size=(24, 18)) as pilot:
        await run(pilot)
        await pilot.press("escape", "home")
        view = app.grid.current.token_view
        await until(pilot, lambda: view.scroll_y == 0 and view.max_scroll_y > 0, "the start")
        await pilot.press("pagedown")
        await until(pilot, lambda: view.scroll_y > 0, "a page on")


async def test_empty_panes_say_what_they_are_for_and_what_is_off() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        text = " ".join(
            " ".join(line for pane in app.grid.shown for line in painted(pane.query_one(".welcome"))).split()
        )
        assert "guesses γ tokens" in text and "f4 c Tell me a short story" in text and "2 drafter" in text
        await pilot.press("escape", "2", "6", "7")
        told = app.grid.front.query_one(".welcome")
        await until(pilot, lambda: "Off now" not in " ".join(painted(told)) and "Or press" in " ".join(painted(told)))


async def test_the_table_follows_the_room() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 50)) as pilot:
        await run(pilot)
        assert app.table.display
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: not app.table.display, "no table")
        await pilot.resize_terminal(120, 50)
        await until(pilot, lambda: app.table.display and app.grid.display, "the table")


async def test_on_a_very_low_screen_the_table_stands_in_the_place_of_the_panes() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(40, 12)) as pilot:
        await run(pilot)
        await pilot.press("escape", "alt+3", "t")
        await pilot.pause()
        rows = " ".join(painted(app.table))
        assert all(pane.strategy in rows for pane in app.grid.shown) and not app.grid.display
        await pilot.press("t")
        await until(pilot, lambda: app.grid.display and not app.table.display, "the panes")
        await pilot.press("t", "alt+5")
        await until(pilot, lambda: app.grid.display and in_sight(pilot) == "lookup", "a pane")


@pytest.mark.parametrize(
    "key", ["i", *(pytest.param(key, marks=pytest.mark.large) for key in ("v", "x", "f", "pageup", "home"))]
)
async def test_a_key_that_is_for_a_pane_brings_the_panes_back_from_behind_the_table(key: str) -> None:
    app = make_app(ScriptedEngine(), max_new_tokens=90)
    async with app.run_test(size=(40, 12)) as pilot:
        await run(pilot)
        await pilot.press("escape", "t")
        await until(pilot, lambda: app.table.display and not app.grid.display, "the table alone")
        await pilot.press(key)
        await until(pilot, lambda: app.grid.display and not app.table.display, "the panes")
        in_sight(pilot)
        if key == "i":
            inspected = app.inspection.panel
            assert inspected is not None
            await until(pilot, lambda: inspected.region.width == 40, "a panel in the panes' room")


async def test_charts_keep_the_table_where_both_have_room_in_front() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(80, 28)) as pilot:
        await run(pilot)
        await pilot.press("escape")
        app.action_cycle_view("charts")
        await pilot.pause()
        assert app.table.display


async def test_a_pane_that_is_read_in_another_view_stays_in_front_when_the_run_ends() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=LOW) as pilot:
        await ready(pilot)
        await ask(pilot, "hello")
        engine.step(20)
        await until(pilot, lambda: app.runs.running)
        await pilot.press("escape", "v")
        read = in_sight(pilot)
        engine.gated = False
        engine.step(1000)
        await until(pilot, lambda: app.recordings.trace is not None, "the run's end")
        assert in_sight(pilot) == read


@pytest.mark.parametrize(
    "dialog", ["H", *(pytest.param(key, marks=pytest.mark.large) for key in ("e", "h", "m", "ctrl+p"))]
)
async def test_keys_act_on_the_pane_in_sight_after_a_dialog_was_closed_too(dialog: str) -> None:
    """They went to the target, which nobody saw: closing a dialog had given it the focus."""
    app = make_app(ScriptedEngine())
    async with app.run_test(size=LOW) as pilot:
        await run(pilot)
        await pilot.press("escape")
        front = in_sight(pilot)
        assert front != "target" and app.focused is None
        await pilot.press(dialog)
        await until(pilot, lambda: len(app.screen_stack) == 2, "the dialog")
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1, "the panes")
        assert app.focused is None
        before = app.grid.panes[front].view
        await pilot.press("v")
        assert app.grid.panes[front].view != before
        assert in_sight(pilot) == front
