"""Panes of charts as they look, at three sizes, in three themes and without colours."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from panes_app import PIECES, PanesApp
from shell import until
from test_charts_view import braille, plotted
from textual.pilot import Pilot
from widget_data import PASS_LIMIT, PASSES, run_steps

from specdec_tui.decoding.records import DraftsProposed, EndReason, Lossless, LosslessStatus, RunEnded
from specdec_tui.tui.figures.scale import common_scale
from specdec_tui.tui.panes.pane import StrategyPane


def filled(app: PanesApp) -> Callable[[Pilot[None]], Awaitable[None]]:
    """Four panes: the target's, a fast run, one in the middle, one stopped early."""

    async def run_before(pilot: Pilot[None]) -> None:
        target, speculative, ngram, lookup = app.panes
        for pane in app.panes:
            pane.begin(len(PIECES))
            pane.view = "charts"
        target.feed(run_steps("target", PIECES, gamma=0, passes=PASSES, pass_limit=PASS_LIMIT))
        for pane in app.panes:
            pane.set_baseline(target.figures)
        speculative.feed(run_steps("speculative", PIECES, passes=PASSES, pass_limit=PASS_LIMIT))
        slow = run_steps("ngram", PIECES, alpha=0.2, seed=3, passes=PASSES)
        proposed = [i for i, step in enumerate(slow) if isinstance(step.record, DraftsProposed)]
        ngram.feed(slow[: proposed[-9] + 1])
        ended = RunEnded(EndReason.CANCELLED)
        lookup.feed(run_steps("lookup", PIECES[:20], alpha=0.6, seed=5, end=ended, max_new_tokens=len(PIECES)))
        scale = common_scale([pane.figures for pane in app.panes], target.figures)
        for pane in app.panes:
            pane.set_scale(scale)
        speculative.checked(Lossless(LosslessStatus.IDENTICAL))
        await until(pilot, lambda: all(map(drawn, app.panes)))
        before = None
        while (now := [plotted(pane.charts_view) for pane in app.panes]) != before:
            before = now
            await pilot.pause(0.1)

    return run_before


def drawn(pane: StrategyPane) -> bool:
    """Whether the pane's text and its run's line are there; the target's dots may lie below it."""
    view = pane.charts_view
    has_plot = view.plot is not None and view.plot.display
    return bool(view.lines) and (not has_plot or braille(plotted(view)) > 0)


@pytest.mark.parametrize(
    ("size", "theme", "columns"),
    [
        ((80, 30), "specdec-dark", "-one"),
        ((120, 40), "specdec-light", ""),
        ((200, 60), "specdec-colour-blind", ""),
    ],
    ids=["80x30", "120x40-light", "200x60-colour-blind"],
)
def test_charts_look_as_recorded(snap_compare: Any, size: tuple[int, int], theme: str, columns: str) -> None:
    app = PanesApp(theme, columns, "charts")
    assert snap_compare(app, terminal_size=size, run_before=filled(app))


def test_charts_without_colours_look_as_recorded(snap_compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = PanesApp("specdec-dark", "", "charts")
    app.ansi_color = True
    assert snap_compare(app, terminal_size=(120, 40), run_before=filled(app))
