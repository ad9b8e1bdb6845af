"""Where a run is written to, and as what."""

from __future__ import annotations

from rich.cells import cell_len
from textual.app import App
from textual.widgets import OptionList

from specdec_tui.traces.format import Trace, TraceHeader
from specdec_tui.tui.screens.export import ExportScreen


async def test_at_80_columns_what_is_told_of_a_format_is_not_cut() -> None:
    """It ended in `charts, table, env…`."""
    app = App[None]()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(ExportScreen(Trace(TraceHeader("2026-11-29T09:00:00Z", "0.2.0", "a prompt"), ())))
        await pilot.pause()
        options = app.screen.query_one(OptionList).options
        assert len(options) == 4 and all(cell_len(str(option.prompt)) <= 70 for option in options)
