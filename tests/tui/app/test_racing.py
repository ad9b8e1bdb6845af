"""A race without an app: what it asks of the stage, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_engine import ScriptedEngine

from specdec_tui.decoding.records import Event, PrefillDone, Step
from specdec_tui.decoding.standing import Standing
from specdec_tui.settings import Settings
from specdec_tui.traces.format import Trace, new_header
from specdec_tui.tui.app.racing import Racing
from specdec_tui.tui.race.race import Race

TRACE_EVENTS = tuple(ScriptedEngine().run("why", Settings(max_new_tokens=12), lambda: False))
TRACE = Trace(new_header("why", list(TRACE_EVENTS)), TRACE_EVENTS)


class Stage:
    standings: Mapping[str, Standing | None] = {}
    focused_strategy = ""
    front_strategy = "speculative"

    def __init__(self) -> None:
        self.table_is_open = True
        self.shown: list[Event] = []
        self.whole = self.again = self.rests = 0
        self.raced: tuple[Race | None, str] = (None, "")
        self.in_front = ""

    def clear_for(self, trace: Trace, *, keep_scale: bool = False) -> None:
        self.shown = []

    def begin_again(self) -> None:
        self.shown, self.again = [], self.again + 1

    def deliver(self, events: Sequence[Event]) -> None:
        self.shown += events

    def come_to_rest(self) -> None:
        self.rests += 1

    def bring_forward(self, strategy: str) -> None:
        self.in_front = strategy

    def show_race(
        self, race: Race | None, chosen: str = "", standings: Mapping[str, Standing | None] | None = None
    ) -> None:
        self.raced = race, chosen

    def show_whole(self, trace: Trace, with_table: bool | None = None) -> None:
        self.shown, self.whole = list(trace.events), self.whole + 1
        self.table_is_open = bool(with_table)

    def end(self, with_table: bool) -> None:
        self.table_is_open = with_table


class Screen:
    def __init__(self) -> None:
        self.said: list[str] = []
        self.stopped = 0
        self.calls: list[Callable[[], None]] = []

    def say(self, text: str, severity: str = "information", timeout: float = 5, holds: object = None) -> None:
        self.said.append(text)

    def every(self, seconds: float, call: Callable[[], None]) -> Any:
        self.calls.append(call)
        return SimpleNamespace(stop=lambda: setattr(self, "stopped", self.stopped + 1))

    def show_clock(self) -> None: ...

    def settle(self) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("specdec_tui.tui.app.racing.monotonic", lambda: now[0])
    return now


def test_a_race_shows_everything_once_and_stands_at_its_end_until_it_is_left(clock: list[float]) -> None:
    screen, stage = Screen(), Stage()
    racing = Racing(screen, stage)
    racing.toggle(TRACE)
    assert racing.race is not None and not stage.table_is_open
    assert not any(isinstance(event, Step) and isinstance(event.record, PrefillDone) for event in stage.shown)
    for _ in range(500):
        clock[0] += 0.02
        racing.advance()
    assert racing.race is not None and racing.race.over and stage.raced[0] is racing.race
    assert sorted(map(str, stage.shown)) == sorted(map(str, TRACE.events))
    assert not stage.table_is_open and stage.whole == 0
    racing.toggle(TRACE)
    assert racing.race is None and screen.stopped == 1 and stage.raced[0] is None
    assert stage.table_is_open and stage.whole == 1


def test_a_race_is_paused_stepped_and_goes_on_from_there(clock: list[float]) -> None:
    stage = Stage()
    racing = Racing(Screen(), stage)
    racing.toggle(TRACE)
    race = racing.race
    assert race is not None and racing.chosen == stage.in_front == "speculative"
    clock[0] = 0.5
    racing.advance()
    racing.pause()
    clock[0] = 5.0
    racing.advance()
    assert race.seconds == 0.5
    here = list(stage.shown)
    racing.step(1)
    assert race.seconds > 0.5 and len(stage.shown) > len(here) and stage.again == 0
    racing.step(-1)
    assert race.seconds < 0.5 and stage.again == 1
    racing.pause()
    clock[0] = 5.1
    before = race.seconds
    racing.advance()
    assert race.seconds == pytest.approx(before + 0.1)
    racing.to_end(1)
    assert race.over and sorted(map(str, stage.shown)) == sorted(map(str, TRACE.events))
    racing.pause()
    assert race.playing and race.seconds == 0 and len(stage.shown) < len(here)


def test_rounds_are_those_of_the_pane_one_is_in_or_of_the_lane_one_chose(clock: list[float]) -> None:
    stage = Stage()
    racing = Racing(Screen(), stage)
    racing.toggle(TRACE)
    racing.choose(1)
    assert racing.chosen == stage.in_front == "ngram"
    racing.choose(-1)
    racing.choose(-1)
    assert racing.chosen == "target"
    racing.choose(-1)
    assert racing.chosen == "lookup"
    stage.focused_strategy = "target"
    assert racing.chosen == "target"
    stage.focused_strategy = "drafter"  # it is not in this race
    assert racing.chosen == "target"


def test_while_nobody_looks_on_a_race_stands_still(clock: list[float]) -> None:
    racing = Racing(Screen(), Stage())
    racing.stand_still()
    racing.toggle(TRACE)
    racing.stand_still()
    clock[0] = 3600.0
    racing.advance()
    assert racing.race is not None and racing.race.seconds == 0 and not racing.race.playing


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


@pytest.mark.parametrize("presses", [30, 31])
def test_presses_that_come_faster_than_panes_are_filled_fill_them_once(clock: list[float], presses: int) -> None:
    screen, stage = Screen(), Stage()
    racing = Racing(screen, stage)
    for _ in range(presses):
        racing.press(TRACE)
    assert racing.race is not None and stage.whole == 0
    screen.calls[0]()
    assert (racing.race is None) is (presses % 2 == 0) and stage.whole == 1 - presses % 2
    for call in screen.calls[1:]:
        call()
    assert (racing.race is None) is (presses % 2 == 0)
