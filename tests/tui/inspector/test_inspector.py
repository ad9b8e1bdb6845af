"""Inspecting tokens in the whole app on a scripted engine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_engine import ScriptedEngine, text_of
from shell import ask, make_app, ready, toasts, until
from textual.pilot import Pilot
from widget_data import painted

from specdec_tui.decoding.records import (
    Beam,
    DraftsProposed,
    PrefillDone,
    RoundVerified,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.panes.pane import StrategyPane
from specdec_tui.tui.tokens.run_log import Place


async def after_a_run(pilot: Pilot[int], app: SpecdecApp) -> StrategyPane:
    """The speculative pane with the focus, its run over."""
    await ready(pilot)
    await ask(pilot, "why")
    await until(pilot, lambda: app.table.row_count == 4 and not app.runs.running, "run finished")
    pane = app.grid.panes["speculative"]
    pane.focus(scroll_visible=False)
    await pilot.pause()
    return pane


def told(app: SpecdecApp) -> str:
    assert app.inspection.panel is not None
    return f"{app.inspection.panel.border_title}\n{app.inspection.panel._body.render()}"


def marked(pane: StrategyPane) -> list[str]:
    view = pane.cursor_view
    assert view is not None
    strips = [view.render_line(y) for y in range(view.size.height)]
    return ["".join(s.text for s in strip if s.style and s.style.reverse) for strip in strips]


async def test_i_opens_the_inspector_at_the_last_token_and_i_or_escape_closes_it() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await after_a_run(pilot, app)
        for close in ("i", "escape"):
            await pilot.press("i")
            await until(pilot, lambda: app.inspection.panel is not None and "token 24" in told(app), "opened")
            assert "".join(marked(pane)).strip() == text_of(24).split()[-1]
            await pilot.press(close)
            await until(pilot, lambda: app.inspection.panel is None, "closed")
            assert not "".join(marked(pane))
        assert app.focused is pane


async def test_the_cursor_walks_over_emitted_tokens_in_the_text_and_over_all_in_rounds_and_tree() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await after_a_run(pilot, app)
        await pilot.press("i", "home")
        fates = []
        for _ in range(7):
            assert pane.cursor is not None
            fates.append(pane.run_log.token(pane.cursor).status.value[0])
            await pilot.press("right")
        assert "".join(fates) == "saaraaa"  # sampled, accepted twice, resampled, accepted…
        for _ in ("rounds", "tree"):
            await pilot.press("home", "v")
            fates = []
            for _ in range(7):
                fates.append(pane.run_log.token(pane.cursor).status.value[:3])
                await pilot.press("right")
            assert fates == ["sam", "acc", "acc", "rej", "unv", "res", "acc"]
            assert sum(bool(text) for text in marked(pane)) == 1
        await pilot.press("home", "left")
        assert pane.cursor == Place(0, 0)
        await pilot.press("right_square_bracket", "down")
        assert pane.cursor == Place(2, 0)
        await pilot.press("ctrl+left", "up", "up")
        assert pane.cursor == Place(0, 0)
        await pilot.press("end")
        assert pane.cursor == pane.run_log.last()


async def test_another_view_keeps_the_token_or_the_nearest_that_was_emitted() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await after_a_run(pilot, app)
        await pilot.press("v", "i", "home", "right", "right", "right", "right")
        assert pane.run_log.token(pane.cursor).status is Status.UNVERIFIED
        assert "unverified" in told(app)
        await pilot.press("v")
        assert pane.cursor == Place(1, 3)
        pane.view = "text"
        await pilot.pause()
        assert pane.run_log.token(pane.cursor).status is Status.RESAMPLED
        assert "".join(marked(pane)).strip() == text_of(4).split()[-1]


@pytest.mark.parametrize("view", ["text", "rounds", "tree"])
async def test_a_click_on_a_token_selects_it_and_opens_the_inspector(view: str) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await after_a_run(pilot, app)
        pane.view = view
        await pilot.pause()
        shown = pane.cursor_view
        assert shown is not None
        shown.scroll_home(animate=False)
        await until(pilot, lambda: shown.scroll_offset.y == 0)
        row, column = next((y, line.index("until")) for y, line in enumerate(painted(shown)) if "until" in line)
        await pilot.click(shown, offset=(column + 1, row))
        await until(pilot, lambda: app.inspection.panel is not None and "until" in told(app), "selected")
        assert "".join(marked(pane)).strip(" ·✓+↻›") == "until"
        await pilot.click(shown, offset=(shown.size.width - 2, shown.size.height - 1))
        assert pane.inspecting


async def test_up_and_down_go_by_lines_in_the_text() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await after_a_run(pilot, app)
        await pilot.press("i", "home")
        seen = [0]
        for _ in range(2):
            await pilot.press("down")
            seen.append(pane.token_view.lines_of(pane.cursor)[0])
        await pilot.press("up")
        seen.append(pane.token_view.lines_of(pane.cursor)[0])
        assert seen == [0, 1, 2, 1]


def token_at(pane: StrategyPane) -> tuple[int, int]:
    """Where on the screen the word `until` stands."""
    shown = pane.cursor_view
    assert shown is not None
    row, column = next((y, line.index("until")) for y, line in enumerate(painted(shown)) if "until" in line)
    return shown.region.x + column + 1, shown.region.y + row


def tells_beside_the_token(app: SpecdecApp, pane: StrategyPane) -> bool:
    assert app.inspection.panel is not None
    box = app.inspection.panel.region
    return not box.y <= pane.cursor_row < box.bottom or not box.overlaps(pane.region.intersection(app.grid.region))


SIZES = [
    (40, 12),
    (80, 24),
    (120, 40),
    *(pytest.param(size, marks=pytest.mark.large) for size in ((60, 18), (100, 30), (200, 60))),
]


@pytest.mark.parametrize("size", SIZES)
async def test_the_token_and_what_is_told_of_it_are_both_in_sight_at_every_size(size: tuple[int, int]) -> None:
    app = make_app()
    async with app.run_test(size=size) as pilot:
        pane = await after_a_run(pilot, app)
        await pilot.press("i")
        for key in ("home", "right", "down", "end"):
            await pilot.press(key)
            await until(pilot, lambda: app.inspection.panel.size.width > 0, "laid out")
            await until(pilot, lambda: tells_beside_the_token(app, pane), "the token is in sight")
            box = app.inspection.panel.region
            least = 5 if size[1] > 12 else 3
            assert app.screen.region.contains_region(box) and box.height >= least and box.width >= 36
            assert size[1] > 12 or not box.overlaps(app.prompt_box.region)
            assert pane.region.intersection(app.grid.region).width >= 36
        await pilot.press("home")
        assert "prompt alone" in told(app) or "prefill" in told(app)
        if app.inspection.panel.max_scroll_y:
            await pilot.press("pagedown")
            await until(pilot, lambda: app.inspection.panel.scroll_offset.y > 0, "the rest of it")


@pytest.mark.each_value
@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("view", ["text", "rounds"])
async def test_a_clicked_token_stays_under_the_mouse_and_no_pane_moves(size: tuple[int, int], view: str) -> None:
    app = make_app()
    async with app.run_test(size=size) as pilot:
        pane = await after_a_run(pilot, app)
        pane.view = view
        app.grid.scroll_to_widget(pane, animate=False)
        await pilot.pause()
        pane.cursor_view.scroll_home(animate=False)
        await until(pilot, lambda: pane.cursor_view.scroll_offset.y == 0)
        x, y = token_at(pane)
        before = [shown.region for shown in app.grid.shown], app.table.region
        await pilot.click(offset=(x, y))
        await until(pilot, lambda: app.inspection.panel is not None and "until" in told(app), "selected")
        await until(pilot, lambda: app.inspection.panel.region.height > 1, "laid out")
        assert token_at(pane) == (x, y)
        assert ([shown.region for shown in app.grid.shown], app.table.region) == before
        widget, _ = app.screen.get_widget_at(x, y)
        assert widget is pane.cursor_view


async def test_in_the_charts_the_rounds_come_first_and_charts_end_it() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await after_a_run(pilot, app)
        pane.view = "charts"
        await pilot.press("i")
        assert pane.view == "rounds" and "".join(marked(pane))
        pane.view = "charts"
        await until(pilot, lambda: app.inspection.panel is None and not pane.inspecting, "closed")


async def test_inspecting_keeps_the_pane_maximised() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        pane = await after_a_run(pilot, app)
        await pilot.press("z", "i")
        await until(pilot, lambda: app.inspection.panel is not None and app.inspection.panel.region.height > 4, "open")
        assert app.screen.maximized is pane
        box = app.inspection.panel.region
        assert pane.region.contains_region(box) and not box.y <= pane.cursor_row < box.bottom
        await pilot.press("escape")
        await until(pilot, lambda: app.inspection.panel is None, "closed")
        assert app.screen.maximized is pane and app.focused is pane


async def test_closing_gives_the_focus_back_to_where_it_was() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await after_a_run(pilot, app)
        for close in ("i", "escape"):
            app.screen.set_focus(None)
            await pilot.press("i")
            await until(pilot, lambda: app.grid.focused is not None and app.grid.focused.inspecting, "open")
            await pilot.press(close)
            await until(pilot, lambda: app.inspection.panel is None, "closed")
            assert app.focused is None


async def test_the_prompt_is_not_covered_while_it_is_written() -> None:
    app = make_app()
    async with app.run_test(size=(60, 18)) as pilot:
        await after_a_run(pilot, app)
        await pilot.press("i", "home", "slash")
        await until(pilot, lambda: app.focused is app.prompt_box, "in the prompt")
        await until(pilot, lambda: not app.inspection.panel.region.overlaps(app.prompt_box.region), "out of its way")


async def test_the_cursor_stays_with_its_token_while_the_run_goes_on() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, max_new_tokens=400, strategies=("speculative",))
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await ask(pilot, "why")
        pane = app.grid.panes["speculative"]
        await until(pilot, lambda: pane.run_log.rows, "first token")
        engine.step(3)
        await until(pilot, lambda: pane.figures.rounds == 3, "rounds")
        await pilot.press("escape", "v", "i", "home")
        assert pane.cursor == Place(0, 0)
        engine.step(60)
        await until(pilot, lambda: pane.figures.rounds == 63, "more rounds")
        assert pane.cursor == Place(0, 0)
        assert pane.rounds_view.scroll_offset.y == 0
        await pilot.press("end")
        await until(pilot, lambda: pane.rounds_view.scroll_offset.y > 0, "scrolled")
        last = pane.cursor
        engine.step(1)
        await until(pilot, lambda: pane.figures.rounds == 64, "its verdict")
        assert pane.cursor == last and "pending" not in told(app)
        await pilot.press("i")
        engine.step(200)
        await until(pilot, lambda: not app.runs.running, "ended")
        await until(pilot, lambda: pane.rounds_view.scroll_offset.y == pane.rounds_view.max_scroll_y, "tail followed")


async def test_a_new_run_under_an_open_inspector_is_inspected_when_it_has_tokens() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await after_a_run(pilot, app)
        await pilot.press("i", "r")
        await until(pilot, lambda: len(app.runs.engine._engine.runs) == 2 and not app.runs.running, "again")
        assert pane.inspecting and pane.cursor is not None
        await until(pilot, lambda: "round" in told(app) or "prefill" in told(app), "told")


async def test_a_pane_that_is_switched_off_takes_its_inspector_along() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await after_a_run(pilot, app)
        await pilot.press("i")
        await until(pilot, lambda: app.inspection.panel is not None, "opened")
        app.action_toggle_strategy("speculative")
        await until(pilot, lambda: app.inspection.panel is None and not pane.inspecting, "closed")


async def test_only_one_pane_is_inspected_at_a_time() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await after_a_run(pilot, app)
        await pilot.press("i")
        other = app.grid.panes["lookup"]
        other.focus()
        await pilot.press("i")
        await until(pilot, lambda: other.inspecting and not pane.inspecting, "moved over")
        assert app.inspection.panel is not None and "lookup" in str(app.inspection.panel.border_title)


async def test_a_run_with_default_settings_keeps_the_alternatives_that_i_shows() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await after_a_run(pilot, app)
        assert app.runs.engine._engine.runs[0][1].insight


async def test_without_a_run_there_is_nothing_to_inspect() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("escape", "i")
        assert app.inspection.panel is None
        assert any("Nothing to inspect" in text for text in toasts(app))


async def test_while_other_strategies_run_a_pane_that_waits_says_that_it_has_not_begun() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "why")
        await until(pilot, lambda: app.grid.panes["target"].run_log.rows, "first token")
        app.grid.panes["lookup"].focus()
        await pilot.press("i")
        assert app.inspection.panel is None
        await until(pilot, lambda: any("lookup has not begun" in text for text in toasts(app)), "said")
        engine.step(200)
        await until(pilot, lambda: not app.runs.running, "ended")


async def test_of_three_panes_the_one_that_spans_both_columns_is_not_cut_by_the_panel() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await after_a_run(pilot, app)
        app.action_toggle_strategy("ngram")
        await until(pilot, lambda: app.grid.panes["lookup"].region.width == 120, "three panes")
        for name in ("target", "speculative", "lookup"):
            app.grid.panes[name].focus()
            before = [shown.region for shown in app.grid.shown]
            await pilot.press("i")
            await until(pilot, lambda: app.inspection.panel is not None and app.inspection.panel.size.height, "open")
            box = app.inspection.panel.region
            assert box.height >= 12 and [shown.region for shown in app.grid.shown] == before
            assert not any(box.overlaps(region) and not box.contains_region(region) for region in before), name
            assert not box.overlaps(app.grid.panes[name].region)
            await pilot.press("i")
            await until(pilot, lambda: app.inspection.panel is None, "closed")


async def test_a_token_of_a_search_is_called_settled_and_what_is_open_stands_behind_it() -> None:
    beams = (Beam((1,), -1.0),)
    records = (
        (RunStarted("beam", 3, 0, 9, beams=2), ()),
        (PrefillDone(None, 0.1, beams=beams), ()),
        (RoundVerified(0, (), None, 0.0, 0.1, 0.0, (Token(1, Status.SAMPLED, 0, 0.5),), beams), (" sky",)),
        (DraftsProposed(1, (Token(2, Status.PENDING, 1),)), (" is",)),
    )
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        app.grid.begin(("target", "beam"), 9)
        app.grid.deliver([Step("beam", record, texts) for record, texts in records])
        pane = app.grid.panes["beam"]
        pane.focus(scroll_visible=False)
        await pilot.pause()
        await until(pilot, lambda: painted(pane.token_view)[0].rstrip() == " sky is")
        await until(pilot, lambda: "1/9 tokens settled" in painted(pane._status_line)[0])
        app.front.settle()
        await pilot.press("i", "home")
        await until(pilot, lambda: app.inspection.panel is not None and "token 1" in told(app), "opened")
        assert "settled: every text that can still win has it" in told(app) and "drawn" not in told(app)
        await until(pilot, lambda: "› sampled/settled" in painted(app.legend)[0])


async def test_n_goes_to_rejections_and_d_to_the_first_difference_in_the_whole_app() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, strategies=("target", "speculative"))
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "why")
        await until(pilot, lambda: app.table.row_count == 2 and not app.runs.running, "run finished")
        pane = app.grid.panes["speculative"]
        pane.focus(scroll_visible=False)
        await pilot.press("i", "home", "n")
        assert pane.run_log.token(pane.cursor).status is Status.RESAMPLED  # in the text, in its place
        await until(pilot, lambda: "In the place of the draft ✗" in told(app), "told of the refused draft")
        first = pane.cursor
        await pilot.press("n")
        assert pane.cursor > first
        await pilot.press("N")
        assert pane.cursor == first
        await pilot.press("N")
        assert pane.cursor == first and any("No earlier rejection" in text for text in toasts(app))
        await pilot.press("v", "n", "end", "n")
        assert any("No further rejection" in text for text in toasts(app))
        await pilot.press("N")
        assert pane.run_log.token(pane.cursor).status is Status.REJECTED
        await pilot.press("d")
        assert any("speculative and target are equal: the same 24 tokens" in text for text in toasts(app))
        other = app.grid.panes["target"].run_log
        row = other.rows[6]
        other.rows[6] = replace(row, record=replace(row.record, emitted=replace(row.record.emitted, id=7)))
        await pilot.press("d")
        await until(pilot, lambda: "first difference: token 7" in told(app), "told")
        assert "where speculative and target part" in str(app.inspection.panel.border_title)
        assert pane.run_log.token(pane.cursor).position == 6
        await pilot.press("right")
        await until(pilot, lambda: "first difference" not in told(app), "a token as others")
        await pilot.press("escape")
        assert not app.runs.engine._engine.chats  # n is a new chat only outside


@pytest.mark.parametrize("size", [(4, 6), (20, 8), (40, 20)])
async def test_very_small_screens_show_what_they_can_and_do_not_crash(size: tuple[int, int]) -> None:
    app = make_app(strategies=("speculative",))
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await ask(pilot, "why")
        await until(pilot, lambda: app.grid.panes["speculative"].figures.end is not None, "run finished")
        app.action_inspect()
        await until(pilot, lambda: app.inspection.panel is not None, "opened")
        await pilot.press("n", "N", "d", "home", "right", "pagedown")
        if size[0] == 40:
            assert "accept with" in told(app) or "arg-max" in told(app) or "sampled" in told(app)
