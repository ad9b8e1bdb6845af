"""Panes, legend and table as they look, at three sizes and in three themes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from panes_app import PIECES, PanesApp
from shell import until
from textual.pilot import Pilot
from widget_data import painted, run_steps

from specdec_tui.decoding.records import DraftsProposed, EndReason, Lossless, LosslessStatus, RunEnded
from specdec_tui.tui.panes.pane import StrategyPane


def filled(app: PanesApp) -> Callable[[Pilot[None]], Awaitable[None]]:
    async def run_before(pilot: Pilot[None]) -> None:
        target, speculative, ngram, lookup = app.panes
        for pane in app.panes:
            pane.begin(len(PIECES))
            pane.view = app.first_view
        target.feed(run_steps("target", PIECES, gamma=0))
        for pane in app.panes:
            pane.set_baseline(target.figures)
        speculative.feed(run_steps("speculative", PIECES, insight=app.first_view == "rounds"))
        slow = run_steps("ngram", PIECES, alpha=0.2, seed=3)
        proposed = [i for i, step in enumerate(slow) if isinstance(step.record, DraftsProposed)]
        ngram.feed(slow[: proposed[-9] + 1])
        ended = RunEnded(EndReason.ERROR, "out of memory: [/x] 2 GiB wanted")
        lookup.feed(run_steps("lookup", PIECES[:60], alpha=0.4, seed=5, end=ended, max_new_tokens=len(PIECES)))
        target.checked(Lossless(LosslessStatus.IDENTICAL))
        speculative.checked(Lossless(LosslessStatus.IDENTICAL))
        lookup.checked(Lossless(LosslessStatus.NEAR_TIES, 2, gap=0.31))
        app.table.show([(pane.strategy, pane.figures, pane.lossless) for pane in app.panes])
        speculative.focus()
        told = ngram.query_one(".figures")
        await until(pilot, lambda: "slower" in "".join(painted(told)[:1]))
        await until(pilot, lambda: all(map(thumb_has_arrived, app.panes)))

    return run_before


def thumb_has_arrived(pane: StrategyPane) -> bool:
    view = pane.token_view if pane.view == "text" else pane.rounds_view
    bar = view.vertical_scrollbar
    return bar.window_virtual_size == view.virtual_size.height and bar.position == view.scroll_y


@pytest.mark.parametrize(
    ("size", "theme", "columns", "view"),
    [
        ((80, 24), "specdec-dark", "-one", "text"),
        ((120, 40), "specdec-dark", "", "text"),
        ((200, 60), "specdec-dark", "-three", "rounds"),
        ((120, 40), "specdec-light", "", "rounds"),
        ((200, 60), "specdec-colour-blind", "-three", "text"),
    ],
    ids=["80x24", "120x40", "200x60-rounds", "120x40-light-rounds", "200x60-colour-blind"],
)
def test_panes_look_as_recorded(snap_compare: Any, size: tuple[int, int], theme: str, columns: str, view: str) -> None:
    app = PanesApp(theme, columns, view)
    assert snap_compare(app, terminal_size=size, run_before=filled(app))


def test_panes_without_colours_look_as_recorded(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = PanesApp("specdec-dark", "", "text")
    app.ansi_color = True
    assert snap_compare(app, terminal_size=(120, 40), run_before=filled(app))
