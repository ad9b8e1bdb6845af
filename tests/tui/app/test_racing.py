"""A race without an app: what it asks of the stage, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_engine import ScriptedEngine

from specdec_tui.decoding.records import Event, Step
from specdec_tui.settings import Settings
from specdec_tui.traces.format import Trace, new_header
from specdec_tui.tui.app.racing import Racing

TRACE_EVENTS = tuple(ScriptedEngine().run("why", Settings(max_new_tokens=12), lambda: False))
TRACE = Trace(new_header("why", list(TRACE_EVENTS)), TRACE_EVENTS)


class Stage:
    disturbed: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.table_is_open = True
        self.shown: list[Event] = []
        self.whole = 0

    def clear_for(self, trace: Trace, *, keep_scale: bool = False) -> None:
        self.shown = []

    def deliver(self, events: Sequence[Event]) -> None:
        self.shown += events

    def show_whole(self, trace: Trace, with_table: bool | None = None) -> None:
        self.shown, self.whole = list(trace.events), self.whole + 1
        self.table_is_open = bool(with_table)

    def end(self, with_table: bool) -> None:
        self.table_is_open = with_table


class Screen:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.stopped = 0

    def say(self, text: str, severity: str = "information", timeout: float = 5, holds: object = None) -> None:
        self.said.append(text)

    def every(self, seconds: float, call: Callable[[], None]) -> Any:
        return SimpleNamespace(stop=lambda: setattr(self, "stopped", self.stopped + 1))

    def show_clock(self) -> None: ...

    def settle(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("specdec_tui.tui.app.racing.monotonic", lambda: now[0])
    return now


def test_a_race_shows_everything_once_and_leaves_the_table_as_it_was(clock: list[float]) -> None:
    screen, stage = Screen(), Stage()
    racing = Racing(screen, stage)
    racing.toggle(TRACE)
    assert racing.race is not None and stage.shown == [] and not stage.table_is_open
    for _ in range(500):
        clock[0] += 0.02
        racing.advance()
    assert racing.race is None and screen.stopped == 1
    assert sorted(map(str, stage.shown)) == sorted(map(str, TRACE.events))
    assert stage.table_is_open and stage.whole == 0


def test_a_race_given_up_shows_the_whole_run_at_once(clock: list[float]) -> None:
    stage = Stage()
    racing = Racing(Screen(), stage)
    racing.toggle(TRACE)
    clock[0] += 0.3
    racing.advance()
    assert 0 < len(stage.shown) < len([event for event in TRACE.events if isinstance(event, Step)])
    racing.toggle(TRACE)
    assert racing.race is None and stage.whole == 1 and stage.table_is_open


def test_a_speed_is_for_the_race_that_is_on_and_a_bad_one_is_refused(clock: list[float]) -> None:
    screen = Screen()
    racing = Racing(screen, Stage())
    racing.toggle(TRACE, "2")
    assert racing.race is not None and racing.race.speed == 2
    racing.toggle(TRACE, "0.5")
    racing.change_speed(-1)
    assert racing.race.speed == 0.25
    racing.toggle(TRACE, "fast")
    assert "give a speed" in screen.said[-1] and racing.race is not None


def test_without_a_run_there_is_nothing_to_race() -> None:
    screen = Screen()
    racing = Racing(screen, Stage())
    racing.toggle(None)
    racing.change_speed(1)
    assert racing.race is None and "Nothing has run yet" in screen.said[0] and "No race is on" in screen.said[1]
