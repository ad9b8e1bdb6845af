"""During a race everything on the screen comes from what had happened by then."""

from __future__ import annotations

from itertools import pairwise

import pytest
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from textual.pilot import Pilot
from widget_data import painted, run_steps

from specdec_tui.decoding.course import RunCourse
from specdec_tui.decoding.records import PrefillDone, RoundVerified, Step
from specdec_tui.decoding.standing import standing
from specdec_tui.tui.app.app import SpecdecApp


async def a_race(pilot: Pilot[int], app: SpecdecApp, clock: list[float]) -> None:
    await ready(pilot)
    await ask(pilot, "why blue")
    await until(pilot, lambda: app.recordings.trace is not None and not app.runs.running)
    await pilot.press("escape")
    app.action_cycle_view("charts")
    await pilot.press("R")
    assert app.racing.race is not None and clock == [0.0]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("specdec_tui.tui.app.racing.monotonic", lambda: now[0])
    return now


def until_then(steps: list[Step], strategy: str, time: float) -> tuple[list[tuple[float, int]], float]:
    """By hand, of the rounds that ended by `time`: (decode seconds, tokens) behind each, and the prefill's seconds."""
    places, prefill, now = [(0.0, 0)], 0.0, 0.0
    for step in steps:
        if step.strategy != strategy:
            continue
        if isinstance(step.record, PrefillDone):
            prefill = now = step.record.seconds
        elif isinstance(step.record, RoundVerified):
            now += step.record.seconds
            if now > time:
                break
            places.append((now - prefill, places[-1][1] + len(step.record.new_tokens)))
    return places, prefill


def seconds_for(places: list[tuple[float, int]], tokens: int) -> float:
    for (begin, first), (end, last) in pairwise(places):
        if tokens <= last:
            return begin + (end - begin) * (tokens - first) / (last - first)
    raise AssertionError(tokens)


async def test_ratios_and_plots_know_nothing_of_what_is_still_to_come(clock: list[float]) -> None:
    settings = {"max_new_tokens": 60, "schedule": "sequential"}
    app = make_app(ScriptedEngine(), **settings)
    async with app.run_test(size=(120, 40)) as pilot:
        await a_race(pilot, app, clock)
        trace, scale = app.recordings.trace, app.grid.scale
        assert trace is not None
        steps = [event for event in trace.events if isinstance(event, Step)]
        compared = 0
        for time in (0.31, 0.5, 0.9, 1.4, 2.0, 2.6):
            clock[0] = time
            app.racing.advance()
            await pilot.pause(0.05)
            assert app.racing.race is not None and app.racing.race.seconds == pytest.approx(time)
            theirs, _ = until_then(steps, "target", time)
            for pane in app.grid.shown:
                own, _ = until_then(steps, pane.strategy, time)
                assert pane.figures.rounds == len(own) - 1
                view = pane.charts_view
                for course in (view._figures.course, (view._baseline or view._figures).course):
                    assert isinstance(course, RunCourse) and course.seconds <= time
                assert app.grid.scale == scale
                found = standing(pane.figures, pane._baseline)
                if pane.strategy == "target" or found is None:
                    continue
                tokens = max(tokens for _, tokens in own if tokens <= theirs[-1][1])  # behind a whole round
                if 2 * tokens >= own[-1][1]:
                    by_hand = seconds_for(theirs, tokens) / seconds_for(own, tokens)
                else:
                    by_hand = own[-1][1] / own[-1][0] * theirs[-1][0] / theirs[-1][1]
                assert found.ratio == pytest.approx(by_hand)
                compared += 1
        assert compared >= 12


async def test_the_ratio_agrees_with_who_is_ahead(clock: list[float]) -> None:
    """24 tokens beside the target's 20 at the same time once were `0.99× slower than target`."""
    app = make_app(ScriptedEngine(), max_new_tokens=60)
    async with app.run_test(size=(120, 40)) as pilot:
        await a_race(pilot, app, clock)
        for time in (0.6, 1.1, 1.9):
            clock[0] = time
            app.racing.advance()
            target = app.grid.panes["target"].figures
            for pane in app.grid.shown:
                found = standing(pane.figures, pane._baseline)
                ahead = pane.figures.new_tokens - target.new_tokens
                if abs(ahead) > 2 and found is not None:
                    assert (found.ratio > 1) == (ahead > 0)


async def test_in_every_frame_of_a_race_panes_count_as_many_tokens_as_lanes(clock: list[float]) -> None:
    """Lanes of 55 and 79 tokens stood above panes of 44 and 57."""
    app = make_app(ScriptedEngine(), max_new_tokens=40)
    async with app.run_test(size=(120, 40)) as pilot:
        await a_race(pilot, app, clock)
        race = app.racing.race
        assert race is not None
        seen = set()
        for time in range(1, 16):
            clock[0] = race.length * time / 16
            app.racing.advance()
            for moment in race.moments:
                if moment.tokens:
                    seen.add(moment.tokens)
                    status = str(app.grid.panes[moment.strategy]._status_line.render())
                    assert status.startswith(f"{moment.tokens}/40 "), (moment, status)
        assert len(seen) > 10
        await pilot.press("R")
        assert not any(pane.counts_at_once for pane in app.grid.shown)


async def test_the_end_of_a_race_ranks_and_stays_until_another_run_begins(clock: list[float]) -> None:
    app = make_app(ScriptedEngine(), max_new_tokens=40)
    async with app.run_test(size=(120, 40)) as pilot:
        await a_race(pilot, app, clock)
        clock[0] = 1000.0
        app.racing.advance()
        await pilot.pause()
        assert str(app.run_line.render()).startswith("race over")
        assert "4 ngram" in (first := painted(app.stage.lanes)[0]) and "1st " in first
        await ask(pilot, "next")
        await until(pilot, lambda: "next" in str(app.run_line.render()))


async def test_speedups_are_live_while_runs_go_on_side_by_side() -> None:
    pieces = ["x"] * 40
    own, theirs = run_steps("lookup", pieces, alpha=0.5), run_steps("target", pieces, gamma=0)
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        app.grid.begin(("target", "lookup"), len(pieces))
        app.grid.deliver([step for pair in zip(theirs[:20], own[:20], strict=True) for step in pair])
        pane, target = app.grid.panes["lookup"], app.grid.panes["target"]
        assert target.figures.end is None and pane.figures.end is None
        found = standing(pane.figures, target.figures)
        assert found is not None
        await until(pilot, lambda: f"{found.ratio:.2f}×" in str(pane._figure_line.render()))
