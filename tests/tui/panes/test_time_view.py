"""The time view in the app: one scale over all panes, live, raced and on a low screen."""

from __future__ import annotations

import json

import pytest
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until

from specdec_tui.decoding.shares import shares
from specdec_tui.decoding.time_verdict import time_verdict
from specdec_tui.traces.format import trace_lines
from specdec_tui.tui.figures.time_lines import seconds_text

LOW = [(40, 12), (4, 4)]


def spent(lines: list[str], strategy: str) -> tuple[float, float, float, float]:
    """Seconds of drafting, passes, rest and prefill, from the lines of a trace."""
    steps = [step for step in map(json.loads, lines[1:]) if step.get("strategy") == strategy]
    rounds = [step for step in steps if step["event"] == "round_verified"]
    names = "draft_seconds", "verify_seconds", "other_seconds"
    prefill = sum(step["seconds"] for step in steps if step["event"] == "prefill_done")
    drafting, passes, rest = (sum(step[name] for step in rounds) for name in names)
    return drafting, passes, rest, prefill


@pytest.mark.parametrize("size", [(120, 40), (80, 24), *(pytest.param(size, marks=pytest.mark.large) for size in LOW)])
async def test_view_time_tells_of_all_panes_on_the_scale_of_the_longest(size: tuple[int, int]) -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await ask(pilot, "why?")
        await until(pilot, lambda: app.recordings.trace is not None and not app.runs.running)
        await pilot.press("escape")
        app.action_cycle_view("time")
        await pilot.pause(0.1)
        panes = [pane for pane in app.grid.shown if pane.figures.rounds]
        wall = max(shares(pane.figures).total for pane in panes)
        assert len(panes) == 4 and {pane._wall for pane in panes} == {wall}
        if size[0] < 80:
            return
        front = app.grid.front
        lines = front.time_view.lines
        assert time_verdict(front.figures, app.grid.baseline[0]) in " ".join(" ".join(lines).split())
        if size == (80, 24):
            for pane in panes:
                total = seconds_text(shares(pane.figures).total)
                assert any(line.lstrip(" ▸").startswith(pane.strategy) and line.endswith(total) for line in lines)
            return
        for pane in panes:
            bar = pane.time_view.lines[0].rsplit("  ", 1)[0].rstrip()
            room = pane.time_view.size.width - 9
            assert abs(len(bar) - round(shares(pane.figures).total / wall * room)) <= 1
        for pane in panes:  # the same from the trace alone, by hand
            drafting, passes, rest, prefill = spent(list(trace_lines(app.recordings.trace)), pane.strategy)
            told = " ".join(" ".join(pane.time_view.lines).split())
            assert f"█ target {seconds_text(passes)} " in told and f"▄ prefill {seconds_text(prefill)} " in told
            assert f"with prefill {seconds_text(drafting + passes + rest + prefill)}" in told
        before = {pane.strategy: pane.time_view.lines for pane in panes}
        await pilot.press("R")
        await until(pilot, lambda: app.racing.race is not None)
        assert {pane._wall for pane in panes} == {wall}  # nothing is rescaled on the way
        await pilot.press("R")
        await until(pilot, lambda: app.racing.race is None and not app.stage.is_filling)
        await pilot.pause(0.5)
        assert {pane.strategy: pane.time_view.lines for pane in panes} == before
