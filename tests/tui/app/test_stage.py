"""The end of a run: table and panes take their places in one pass."""

from __future__ import annotations

import pytest
from scripted_engine import ScriptedEngine, info
from shell import ask, make_app, ready, until
from textual.screen import Screen
from widget_data import painted

from specdec_tui.settings import STRATEGIES
from specdec_tui.tui.panes.arrangement import LEAST_PANE_ROWS


@pytest.mark.parametrize("size", [(60, 18), (100, 18), (80, 16), (60, 19)])
async def test_a_table_that_would_leave_a_pane_a_line_of_text_yields_and_says_so(size: tuple[int, int]) -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await ask(pilot, "why blue")
        await until(pilot, lambda: app.recordings.trace is not None and not app.runs.running)
        await pilot.press("escape")
        before = app.grid.region
        await pilot.press("t")
        await pilot.pause()
        assert not app.table.display and app.grid.region == before
        assert "No room beside the pane: t again shows the table instead" in str(app.run_line.render())
        await pilot.press("t")
        await pilot.pause()
        rows = " ".join(painted(app.table))
        assert not app.grid.display and all(result.strategy in rows for result in app.grid.results)
        assert "No room" not in str(app.run_line.render())
        await pilot.press("t")
        await until(pilot, lambda: app.grid.display and not app.table.display, "the pane")
        await pilot.press("t")
        await pilot.resize_terminal(size[0], 24)
        await until(pilot, lambda: app.grid.display and app.table.display, "both")
        assert app.grid.region.height >= LEAST_PANE_ROWS


@pytest.mark.parametrize("size", [(60, 18), (40, 12), (120, 18)])
async def test_a_table_in_the_place_of_the_panes_leaves_the_prompt_whole_and_keys_scroll_it(
    size: tuple[int, int],
) -> None:
    """Of the prompt only the upper border was there, and rows that had no room could not be come to."""
    pair = info("org/target", *(f"org/drafter-{n}" for n in range(4)))
    app = make_app(ScriptedEngine(pair=pair), strategies=tuple(STRATEGIES[:10]))
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await ask(pilot, "why blue")
        await until(pilot, lambda: app.recordings.trace is not None and not app.runs.running)
        prompt = app.prompt_box.region
        await pilot.press("escape", "t")
        if not app.table.display:
            await pilot.press("t")
        await until(pilot, lambda: not app.grid.display, "the table alone")
        assert app.prompt_box.region == prompt and prompt.bottom <= app.footer.region.y
        assert app.table.region.bottom <= prompt.y
        seen = " ".join(painted(app.table))
        for _ in range(4):
            assert app.table.display == app.table.overflows or size == (120, 18)
            if app.table.overflows:
                await pilot.press("pagedown")
                await pilot.pause()
                seen += " ".join(painted(app.table))
        assert all(f" {result.strategy} " in seen for result in app.grid.results)
        await pilot.press("s")
        await until(pilot, lambda: app.side_bar is not None and app.side_bar.region.height > 2, "room for the bar")


@pytest.mark.parametrize("size", [(120, 40), (200, 60)])
async def test_at_no_moment_does_the_table_cover_the_lower_panes(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(ScriptedEngine())
    hidden: list[str] = []
    refresh = Screen._refresh_layout

    def watched(self: Screen[object], *arguments: object, **named: object) -> None:
        refresh(self, *arguments, **named)  # type: ignore[arg-type]
        if app.table.display:
            passes.append(app.table.region.y)
            hidden.extend(pane.strategy for pane in app.grid.shown if pane.region.bottom > app.grid.region.bottom)

    passes: list[int] = []
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        monkeypatch.setattr(Screen, "_refresh_layout", watched)
        await ask(pilot, "why blue")
        await until(pilot, lambda: app.table.display and not app.runs.running)
        await pilot.pause(0.3)
        assert passes and hidden == []
