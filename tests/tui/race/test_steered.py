"""A race that a person steers, in the app: what is on the screen depends on the time of the race alone."""

from __future__ import annotations

from itertools import pairwise

import pytest
from scripted_engine import ScriptedEngine
from shell import make_app, until
from textual.pilot import Pilot
from widget_data import painted

from specdec_tui.decoding.records import (
    EndReason,
    Event,
    Origin,
    PrefillDone,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.format import Trace, new_header
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.recordings import Replay


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("specdec_tui.tui.app.racing.monotonic", lambda: now[0])
    return now


def a_trace(**settings: object) -> Trace:
    given = Settings(**{"max_new_tokens": 40, **settings})  # type: ignore[arg-type]
    events: tuple[Event, ...] = tuple(ScriptedEngine().run("why", given, lambda: False))
    return Trace(new_header("why", list(events), settings=given), events)


def replaying(trace: Trace) -> SpecdecApp:
    return SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(trace))


async def raced(pilot: Pilot[int], clock: list[float]) -> SpecdecApp:
    app = pilot.app
    assert isinstance(app, SpecdecApp)
    await until(pilot, lambda: app.recordings.trace is not None and not app.stage.is_filling)
    await pilot.press("R")
    assert app.racing.race is not None and app.racing.race.seconds == 0
    return app


Frame = dict[str, object]


async def frame(pilot: Pilot[int]) -> Frame:
    """All that can be seen of a race, and the fates behind it."""
    app = pilot.app
    assert isinstance(app, SpecdecApp)
    await pilot.pause()
    seen: Frame = {"lanes": painted(app.stage.lanes), "clock": str(app.run_line.render())}
    for pane in app.grid.shown:
        tokens = [token for row in pane.run_log.rows for token in row.tokens]
        lines = (painted(view) for view in (pane._figure_line, pane.token_view, pane._status_line))
        seen[pane.strategy] = [*lines, tokens, pane.state, pane.lossless, pane.told]
    return seen


def same(one: Frame, other: Frame) -> None:
    assert one.keys() == other.keys()
    for key in one:
        assert one[key] == other[key], key


async def test_a_race_is_stepped_back_and_forth_to_the_same_frames(clock: list[float]) -> None:
    async with replaying(a_trace(max_new_tokens=24)).run_test(size=(120, 40)) as pilot:
        app = await raced(pilot, clock)
        race = app.racing.race
        assert race is not None and app.racing.chosen == "speculative"
        await pilot.press("space")
        forth = [(race.seconds, await frame(pilot))]
        while True:
            await pilot.press("right")
            if race.seconds == forth[-1][0]:
                break
            forth.append((race.seconds, await frame(pilot)))
        await pilot.press("end")
        last = await frame(pilot)
        rounds = sum(isinstance(e, Step) and e.strategy == "speculative" for e in a_trace(max_new_tokens=24).events) / 2
        assert len(forth) > rounds * 0.8 and race.over
        for earlier, later in pairwise(forth):
            assert earlier[1]["speculative"] != later[1]["speculative"], "every step shows something"
        for seconds, seen in reversed(forth):
            await pilot.press("left")
            assert race.seconds == seconds and not race.over
            same(await frame(pilot), seen)
        await pilot.press("end")
        same(await frame(pilot), last)
        await pilot.press("home")
        same(await frame(pilot), forth[0][1])


async def test_at_any_speed_the_same_time_has_the_same_frame(clock: list[float]) -> None:
    frames: list[list[Frame]] = []
    async with replaying(a_trace()).run_test(size=(120, 40)) as pilot:
        app = await raced(pilot, clock)
        for speed in ("0.5", "2", "16"):
            app.action_race(speed)
            assert app.racing.race is not None
            await pilot.press("home")
            frames.append([])
            for _ in range(3):
                for _ in range(4 if speed == "0.5" else 1):
                    clock[0] += 0.4 / float(speed) / (4 if speed == "0.5" else 1)
                    app.racing.advance()
                    await pilot.pause()
                await pilot.press("space")
                seen = await frame(pilot)
                seen["clock"] = str(seen["clock"]).partition("  ")[2]
                frames[-1].append(seen)
                await pilot.press("space")
    slow, fast, fastest = frames
    for one, two, three in zip(slow, fast, fastest, strict=True):
        same(one, two)
        same(two, three)
    assert slow[0] != slow[1] != slow[2]


async def test_keys_steer_a_race_and_are_those_of_the_panes_again_behind_it(clock: list[float]) -> None:
    async with replaying(a_trace(max_new_tokens=200)).run_test(size=(80, 24)) as pilot:
        app = await raced(pilot, clock)
        race = app.racing.race
        assert race is not None and app.stage.lanes.display and not app.grid.strip.size.height
        for _ in range(12):
            await pilot.press("full_stop")
        assert race.speed == 16
        await pilot.press("]", "]")
        assert race.seconds == pytest.approx(race.length / 5)
        await pilot.press("[", "down")
        assert race.seconds == pytest.approx(race.length / 10)
        assert app.racing.chosen == "ngram" == app.grid.front.strategy
        assert "ngram, round" in "".join(painted(app.stage.lanes))
        await pilot.press("tab")
        assert app.racing.chosen == app.grid.focused.strategy if app.grid.focused else False
        await pilot.press("escape", "t")
        assert not app.stage.lanes.display and app.grid.strip.size.height
        await pilot.press("t", "end")
        assert app.stage.lanes.display and race.over
        assert painted(app.stage.lanes)[0].split()[-1] == "steady"
        clock[0] += 100
        app.racing.advance()
        assert app.racing.race is race, "the end stays until it is left"
        await pilot.press("escape")
        assert app.racing.race is None and not app.stage.lanes.display
        await until(pilot, lambda: not app.stage.is_filling)
        await pilot.press("home")
        assert app.grid.current.token_view.scroll_offset.y == 0


@pytest.mark.parametrize(
    "size", [(40, 12), *(pytest.param(size, marks=pytest.mark.large) for size in ((60, 18), (4, 4)))]
)
async def test_on_a_low_screen_the_lanes_stand_alone_and_give_way_to_a_pane_that_is_wanted(
    size: tuple[int, int], clock: list[float]
) -> None:
    async with replaying(a_trace()).run_test(size=size) as pilot:
        app = await raced(pilot, clock)
        clock[0] = 1.0
        app.racing.advance()
        await pilot.pause()
        assert not app.grid.display
        if size[0] >= 40:
            assert "/40" in painted(app.stage.lanes)[1] and "keep" in "".join(painted(app.stage.lanes))
        for wide in (120, 4, 80, 1, size[0]):
            await pilot.resize_terminal(wide, size[1])
            await pilot.pause()
        await pilot.press("v")
        assert app.grid.display and not app.stage.lanes.display
        await pilot.press("t")
        await until(pilot, lambda: not app.grid.display)
        await pilot.press("R")
        assert app.grid.display and app.racing.race is None


async def test_a_race_of_a_run_with_a_strategy_that_was_stopped_ends_with_those_that_finished(
    clock: list[float],
) -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, schedule="sequential", max_new_tokens=24, strategies=("target", "speculative", "ngram"))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.header.state == "ready")
        app.prompt_box.insert("why")
        await pilot.press("enter")
        engine.step(26)
        await until(pilot, lambda: app.grid.panes["target"].figures.end is not None)
        await pilot.press("ctrl+c")
        engine.step(500)
        await until(pilot, lambda: app.recordings.trace is not None and not app.runs.running)
        await pilot.press("escape", "R", "end")
        told = painted(app.stage.lanes)
        assert "1st" in told[0] and "target" in told[0]
        assert not any("2nd" in line for line in told)
        await pilot.press("left", "left", "R")
        assert app.racing.race is None


def with_a_what_if(trace: Trace) -> Trace:
    origin = Origin("speculative", 3, None, (("gamma", "2"),))
    child: list[Event] = [
        Step("speculative~1", RunStarted("speculative~1", 15, 2, 37, origin=origin)),
        Step("speculative~1", PrefillDone(Token(5, Status.SAMPLED, 3), 0.2), (" otherwise",)),
        Step("speculative~1", RunEnded(EndReason.CANCELLED), answer=" otherwise"),
    ]
    return Trace(trace.header, (*trace.events[:-1], *child, trace.events[-1]))


async def test_what_ifs_leave_the_screen_for_a_race_and_come_back_behind_it(clock: list[float]) -> None:
    async with replaying(with_a_what_if(a_trace(max_new_tokens=12))).run_test(size=(120, 50)) as pilot:
        app = pilot.app
        assert isinstance(app, SpecdecApp)
        await until(pilot, lambda: "speculative~1" in app.grid.panes)
        await raced(pilot, clock)
        assert [pane.strategy for pane in app.grid.shown] == ["target", "speculative", "ngram", "lookup"]
        for keys in ("right", "end", "left", "home", "end"):
            await pilot.press(keys)
            assert "~" not in "".join(painted(app.stage.lanes)) and "speculative~1" not in app.grid.panes
        await pilot.press("R")
        await until(pilot, lambda: "speculative~1" in app.grid.panes)
        assert app.grid.panes["speculative~1"].display
