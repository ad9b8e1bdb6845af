"""Where a run is written to, and as what."""

from __future__ import annotations

from rich.cells import cell_len
from textual.app import App
from textual.widgets import Input, OptionList

from specdec_tui.traces.format import Trace, TraceHeader
from specdec_tui.tui.screens.export import ExportScreen


def dialog() -> ExportScreen:
    return ExportScreen(Trace(TraceHeader("2026-11-29T09:00:00Z", "0.2.0", "a prompt"), ()))


async def test_after_another_format_was_chosen_ctrl_u_clears_the_whole_name() -> None:
    """`json` became `html` with the cursor before the `l`, which stayed and was put behind what was typed next."""
    app = App[None]()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(dialog())
        await pilot.press("up", "up", "up", "up", "ctrl+u")
        assert app.screen.query_one(Input).value == ""


async def test_the_end_of_a_typed_name_chooses_the_format() -> None:
    app = App[None]()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(dialog())
        for kind in ("csv", "json", "svg", "html", "csv"):
            await pilot.press("ctrl+u", *"run.", *kind)
            await pilot.pause()
            highlighted = app.screen.query_one(OptionList).highlighted_option
            assert app.screen.query_one(Input).value == f"run.{kind}"
            assert highlighted is not None and str(highlighted.prompt).startswith(kind)


async def test_at_80_columns_what_is_told_of_a_format_is_not_cut() -> None:
    """It ended in `charts, table, env…`."""
    app = App[None]()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(dialog())
        await pilot.pause()
        options = app.screen.query_one(OptionList).options
        assert len(options) == 4 and all(cell_len(str(option.prompt)) <= 70 for option in options)
