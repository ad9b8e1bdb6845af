"""The times of a race: every strategy by its own clock."""

from __future__ import annotations

from dataclasses import replace

from scripted_engine import ScriptedEngine

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import (
    Beam,
    Checked,
    DraftsProposed,
    EndReason,
    Event,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.settings import Settings
from specdec_tui.tui.app.race import SPEEDS, Race, finish_words, timed


def a_run(schedule: str = "") -> list[Event]:
    settings = Settings(strategies=("target", "speculative", "lookup"), max_new_tokens=24)
    return list(ScriptedEngine().run("why", settings, lambda: False))


def test_every_step_stands_at_its_strategys_own_time() -> None:
    events = a_run()
    times = timed(events)
    assert [time for time, _ in times] == sorted(time for time, _ in times)
    assert len(times) == sum(isinstance(event, Step) for event in events)
    for name in ("target", "speculative", "lookup"):
        figures = RunFigures()
        for time, step in times:
            if step.strategy != name:
                continue
            figures.add(step.record)
            if isinstance(step.record, RoundVerified | RunEnded):
                assert abs(time - figures.prefill_seconds - figures.decode_seconds) < 1e-9
        own = [step for _, step in times if step.strategy == name]
        assert own == [event for event in events if isinstance(event, Step) and event.strategy == name]


def test_drafts_appear_after_their_drafting_time() -> None:
    times = [(time, step.record) for time, step in timed(a_run()) if step.strategy == "speculative"]
    for (earlier, _), (time, record), (later, verdict) in zip(times, times[1:], times[2:], strict=False):
        if isinstance(record, DraftsProposed) and isinstance(verdict, RoundVerified):
            assert abs(time - earlier - verdict.draft_seconds) < 1e-9
            assert abs(later - earlier - verdict.seconds) < 1e-9


def test_what_a_search_has_open_appears_with_the_step_that_found_it() -> None:
    open_text = DraftsProposed(1, (Token(1, Status.PENDING, 0),))
    records = (RunStarted("beam", 3, 0, 9, beams=2), PrefillDone(None, 0.5), *(step(n) for n in (0, 1)))
    events = [Step("beam", record) for record in (*records[:3], open_text, *records[3:])]
    assert [time for time, _ in timed(events)] == [0.0, 0.5, 0.75, 0.75, 1.0]


def step(number: int) -> RoundVerified:
    return RoundVerified(number, (), None, 0.0, 0.25, 0.0, (), (Beam((1,), -1.0),))


def test_the_order_on_the_device_does_not_matter() -> None:
    events = a_run()
    by_name = sorted((e for e in events if isinstance(e, Step)), key=lambda e: e.strategy)
    assert sorted(timed(events), key=str) == sorted(timed(by_name), key=str)


def test_a_race_gives_every_step_once_and_ends_with_the_slowest() -> None:
    events = a_run()
    race = Race(events)
    given: list[Step] = []
    while not race.over:
        given += race.advance(0.05)
    assert len(given) == sum(isinstance(event, Step) for event in events)
    assert race.seconds == race.length == timed(events)[-1][0]
    assert not any(isinstance(step, Checked) for step in given)
    assert race.advance(1.0) == []


def test_half_the_speed_takes_twice_the_time() -> None:
    fast, slow = Race(a_run(), 2.0), Race(a_run(), 0.5)
    assert [s.record for s in fast.advance(0.2)] == [s.record for s in slow.advance(0.8)]


def test_speeds_go_in_steps_and_stop_at_both_ends() -> None:
    race = Race(a_run())
    for _ in range(20):
        race.change_speed(1)
    assert race.speed == SPEEDS[-1]
    race.speed = 0.3
    race.change_speed(-1)
    assert race.speed == 0.25
    for _ in range(20):
        race.change_speed(-1)
    assert race.speed == SPEEDS[0]


def test_a_race_of_nothing_is_over() -> None:
    assert Race([]).over and Race([]).length == 0


def test_who_has_finished_is_known_in_the_order_of_time_and_no_sooner() -> None:
    race = Race(a_run())
    ends = {step.strategy: time for time, step in timed(a_run()) if isinstance(step.record, RunEnded)}
    seen: list[tuple[str, float]] = []
    while not race.over:
        race.advance(0.05)
        assert all(seconds <= race.seconds for _, seconds in race.finished)
        seen = race.finished
    assert dict(seen) == ends and [seconds for _, seconds in seen] == sorted(ends.values())
    assert seen[0][0] == "speculative" and finish_words(seen).startswith("1 speculative ")


def test_a_run_that_was_stopped_has_not_finished() -> None:
    events = [
        replace(event, record=RunEnded(EndReason.CANCELLED))
        if isinstance(event, Step) and event.strategy == "lookup" and isinstance(event.record, RunEnded)
        else event
        for event in a_run()
    ]
    race = Race(events)
    race.advance(1e9)
    assert {name for name, _ in race.finished} == {"target", "speculative"}


def test_places_are_shared_and_a_disturbed_clock_is_said() -> None:
    words = finish_words([("a", 1.0), ("b", 1.0), ("c", 2.25)], {"c"})
    assert words == "1 a 1.00 s · 1 b 1.00 s · 3 c 2.25 s✗  ✗ clock disturbed"
