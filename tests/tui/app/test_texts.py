"""Copying and selecting: the generated text, and nothing that only the screen added."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from scripted_engine import ScriptedEngine, text_of
from shell import ask, make_app, ready, toasts, until
from textual import events
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection
from textual.widgets import Input
from widget_data import HostApp, run_steps

from specdec_tui.decoding.records import EndReason, RunEnded, Step
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.lines.compositor import SparingCompositor
from specdec_tui.tui.lines.line_view import LineView
from specdec_tui.tui.panes.pane import StrategyPane

PIECES = ["The ", "世界", " is  ", "wide:\r\n", "\ta\tb", " 👩\u200d👩", "\u200d👧", " e\u0301", " end. ", "\n\nbye  "]
TEXT = "".join(PIECES)


@asynccontextmanager
async def shown(pieces: list[str], size: tuple[int, int]) -> AsyncIterator[tuple[StrategyPane, Pilot[None]]]:
    """A pane with a run that emitted `pieces`."""
    pane = StrategyPane(1, "target")
    async with HostApp(pane, columns="-one").run_test(size=size) as pilot:
        pane.begin(len(pieces))
        pane.feed(run_steps("target", pieces, gamma=0))
        await pilot.pause()
        yield pane, pilot


async def drag(pilot: Pilot[None], view: LineView, start: tuple[int, int], end: tuple[int, int]) -> str:
    """Select with the mouse, both cells included; the selected text."""
    await pilot.hover(view, offset=start)
    await pilot.mouse_down(view, offset=start)
    await pilot.hover(view, offset=end)
    await pilot.mouse_up(view, offset=end)
    await pilot.pause()
    return pilot.app.screen.get_selected_text() or ""


@pytest.mark.parametrize("width", [8, 14, 30, 100])
async def test_all_of_the_text_selected_is_the_generated_text_at_every_width(width: int) -> None:
    async with shown(PIECES, (width, 24)) as (pane, _):
        assert pane.token_view.get_selection(Selection(None, None)) == (TEXT, "\n")
        view = pane.token_view
        last = view.line_count - 1
        drawn_end = len("".join(segment.text for segment in view.line_segments(last)))
        assert view.get_selection(Selection(Offset(0, 0), Offset(drawn_end, last))) == (TEXT, "\n")


async def test_the_mouse_selects_over_wrapped_lines_wide_characters_tabs_and_emoji() -> None:
    async with shown(["one two three four five", " 世界 six\n", "\tseven 👩\u200d👩 eight"], (20, 14)) as (pane, pilot):
        view = pane.token_view
        assert [view.line_text(i) for i in range(view.line_count)] == [
            "one two three",
            "four five 世界",
            "six",
            "    seven 👩\u200d👩",
            "eight",
        ]
        assert await drag(pilot, view, (4, 0), (8, 1)) == "two three four five"
        assert await drag(pilot, view, (10, 1), (2, 2)) == "世界 six"
        assert await drag(pilot, view, (0, 2), (8, 3)) == "six\n\tseven"
        assert await drag(pilot, view, (4, 3), (4, 4)) == "seven 👩\u200d👩 eight"


async def test_a_selection_tears_no_character_whichever_of_its_cells_the_mouse_is_on() -> None:
    async with shown(["a世界 ", "👩\u200d👩", " e\u0301\tb"], (40, 14)) as (pane, pilot):
        pilot.app.screen._compositor.__class__ = SparingCompositor
        pilot.app.screen._compositor._changed = []  # type: ignore[attr-defined]
        view = pane.token_view
        assert view.line_text(0) == "a世界 👩\u200d👩 e\u0301  b"
        for start, end, text in (
            ((1, 0), (1, 0), "世"),
            ((2, 0), (2, 0), "世"),
            ((2, 0), (4, 0), "世界"),
            ((4, 0), (7, 0), "界 👩\u200d👩"),
            ((7, 0), (6, 0), "👩\u200d👩"),
            ((9, 0), (9, 0), "e\u0301"),
            ((9, 0), (10, 0), "e\u0301\t"),
            ((11, 0), (12, 0), "\tb"),
        ):
            if start == end:  # a click alone selects nothing
                await pilot.hover(view, offset=start)
                x = start[0]
                widget, offset = pilot.app.screen._compositor.get_widget_and_offset_at(view.region.x + x, view.region.y)
                assert widget is view and offset is not None
                found = view.get_selection(Selection(offset, Offset(offset.x + 1, offset.y)))
                assert found is not None and found[0] == text
            else:
                assert await drag(pilot, view, start, end) == text
            assert view.render_line(0).cell_length == view.size.width


async def test_a_selection_can_be_seen() -> None:
    async with shown(["one two three"], (30, 14)) as (pane, pilot):
        assert await drag(pilot, pane.token_view, (4, 0), (6, 0)) == "two"
        ground = pilot.app.screen.get_component_rich_style("screen--selection").bgcolor
        strip = pane.token_view.render_line(0)
        assert "".join(s.text for s in strip if s.style and s.style.bgcolor == ground) == "two"


async def test_in_rounds_view_the_shown_lines_are_selected_without_blanks_at_their_ends() -> None:
    async with shown(["one", " 世界", " three"], (60, 14)) as (pane, pilot):
        pane.view = "rounds"
        view = pane.rounds_view
        await pilot.pause()
        lines = "\n".join(view.line_text(line) for line in range(view.line_count))
        assert view.get_selection(Selection(None, None)) == (lines, "\n")
        assert "›·世界" in lines
        assert await drag(pilot, view, (0, 0), (50, 2)) == lines


async def test_what_a_terminal_would_obey_is_a_symbol_in_a_copy_too() -> None:
    async with shown(["a\x1b[201~", "b\r\n\u202ec\x9b", "\ud800"], (60, 14)) as (pane, _):
        text, _ = pane.token_view.get_selection(Selection(None, None))  # type: ignore[misc]
        assert text == "a␛[201~b\r\n\u202ec␦\ufffd"


async def test_an_ended_run_is_copied_without_special_tokens() -> None:
    pane = StrategyPane(1, "target")
    steps = run_steps("target", ["Hi", " there", "<|end|>"], gamma=0, end=None)
    pane.begin(3)
    pane.feed(steps)
    assert pane.answer == "Hi there<|end|>"
    pane.feed([Step("target", RunEnded(EndReason.END_TOKEN), answer="Hi there")])
    assert pane.answer == "Hi there"
    pane.begin(3)
    assert pane.answer == ""


async def after_a_run(app: SpecdecApp, pilot: Pilot[int]) -> StrategyPane:
    await ready(pilot)
    await ask(pilot, "why blue")
    await until(pilot, lambda: not app.runs.running and app.grid.panes["lookup"].plain_text)
    await pilot.press("escape")
    pane = app.grid.panes["speculative"]
    pane.focus()
    await pilot.pause()
    return pane


async def test_y_copies_the_answer_of_the_pane_with_the_focus_and_says_so() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(60, 40)) as pilot:
        await after_a_run(app, pilot)
        await pilot.press("y")
        assert app.clipboard == text_of(24)
        assert f"Copied {len(text_of(24))} characters of speculative" in toasts(app)


async def test_y_copies_the_selection_where_there_is_one() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        pane = await after_a_run(app, pilot)
        app.screen.selections = {pane.token_view: Selection(Offset(6, 0), Offset(13, 0))}
        await pilot.press("y")
        assert app.clipboard == text_of(24)[6:13]
        assert "Copied 7 characters selected in speculative" in toasts(app)
        app.grid.panes["target"].focus()
        await pilot.press("y")
        assert app.clipboard == text_of(24)


async def test_y_before_any_run_copies_nothing() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("escape", "y")
        assert app.clipboard == ""
        assert any("no text to copy" in toast for toast in toasts(app))


async def test_what_is_pasted_into_a_box_of_one_line_is_as_it_is_shown() -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await ready(pilot)
        await pilot.press("escape", "f")
        app.post_message(events.Paste("a\u202eb\x1b[2J"))
        await until(pilot, lambda: isinstance(app.focused, Input) and app.focused.value == "a⇆b␛[2J")
