"""The end of a run: table and panes take their places in one pass."""

from __future__ import annotations

import pytest
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from textual.screen import Screen


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
