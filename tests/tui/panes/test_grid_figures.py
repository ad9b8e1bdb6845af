"""What the panes of a grid share: the scale of their pictures, and what they are measured against."""

from __future__ import annotations

import pytest
from scripted_engine import ScriptedEngine
from shell import make_app, ready
from widget_data import run_steps

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.tui.figures.scale import Scale, common_scale

PIECES = ["x"] * 60
THREE = ("target", "speculative", "lookup")
RUNS = {
    "target": run_steps("target", PIECES, gamma=0),
    "speculative": run_steps("speculative", PIECES, alpha=0.9),
    "lookup": run_steps("lookup", PIECES, alpha=0.3),
}


async def test_all_panes_are_drawn_on_the_scale_of_the_largest_of_them() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        app.action_cycle_view("charts")
        app.grid.begin(THREE, len(PIECES))
        assert app.grid.scale == Scale()
        app.grid.deliver([step for run in RUNS.values() for step in run])
        await pilot.pause()
        panes = [app.grid.panes[name] for name in THREE]
        scale = common_scale([pane.figures for pane in panes], panes[0].figures)
        assert app.grid.scale == scale and {pane.charts_view._scale for pane in panes} == {scale}
        heads = {
            line[:12] for pane in panes for line in pane.charts_view.lines[:3] if line.startswith(("tok/s", "spe"))
        }
        assert heads == {f"tok/s 0–{scale.top:g}".ljust(12), f"speedup 0–{scale.speedup:g}×".ljust(12)}


MORE_SIZES = [(100, 47), (120, 51), (120, 52), (200, 60), (240, 41)]


@pytest.mark.parametrize("size", [(120, 40), *(pytest.param(size, marks=pytest.mark.large) for size in MORE_SIZES)])
async def test_plots_of_all_panes_have_the_same_height_and_place(size: tuple[int, int]) -> None:
    """The target's was twice as high, and those of a row with one line to spare higher than the others."""
    app = make_app(ScriptedEngine())
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        app.action_cycle_view("charts")
        app.grid.begin(THREE, len(PIECES))
        app.grid.deliver([step for run in RUNS.values() for step in run])
        await pilot.pause()
        for height in (size[1], size[1] + 1, size[1]):
            await pilot.resize_terminal(size[0], height)
            await pilot.pause(0.2)
            assert app.size.height == height
            views = [app.grid.panes[name].charts_view for name in THREE]
            plots = {view.plot.size.height if view.plot is not None and view.plot.display else None for view in views}
            places = {view.plot.region.y - view.region.y for view in views if view.plot is not None}
            assert len(plots) == 1 and len(places) <= 1, (height, plots, places)


async def test_a_baseline_of_another_time_is_named_in_pane_and_table_and_stays_in_a_race() -> None:
    app = make_app(ScriptedEngine())
    earlier = RunFigures()
    for step in RUNS["target"]:
        earlier.add(step.record)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        app.grid.begin(("speculative",), len(PIECES))
        app.grid.measure_against(earlier, "target of 17:31")
        app.grid.deliver(RUNS["speculative"])
        await pilot.pause()
        line = app.grid.panes["speculative"]._figure_line
        assert "×, clock unchecked vs. target of 17:31" in str(line.render())
        app.stage.toggle_table()
        await pilot.pause()
        told = str(app.table.render())
        assert "speedups vs. target of 17:31" in told and "clock unchecked" in told and "ran at another time" in told
        app.grid.begin(("speculative",), len(PIECES), keep_scale=True)
        assert app.grid.baseline == (earlier, "target of 17:31")
        app.grid.begin(("speculative",), len(PIECES))
        assert app.grid.baseline == (None, "")


async def test_the_table_yields_to_charts_that_have_no_room_beside_it_and_comes_back() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(100, 36)) as pilot:
        await ready(pilot)
        app.stage.begin(app.settings)
        app.grid.deliver([step for run in RUNS.values() for step in run])
        app.stage.end(with_table=True)
        await pilot.pause()
        assert app.table.display
        app.action_cycle_view("charts")
        assert not app.table.display
        await pilot.pause()
        assert any(pane.charts_view.plot is not None for pane in app.grid.shown if pane.strategy != "target")
        app.action_cycle_view("text")
        assert app.table.display
        await pilot.pause()
        app.action_cycle_view("charts")
        assert app.stage.toggle_table() and app.table.display  # whoever asks for it has it
