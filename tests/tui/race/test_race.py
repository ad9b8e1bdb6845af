"""The times of a race: every strategy by its own clock."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
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
from specdec_tui.tui.race.course import Phase, timed
from specdec_tui.tui.race.race import SPEEDS, Due, Race


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
        race.advance(0.05)
        given += race.due().steps
    assert len(given) == sum(isinstance(event, Step) for event in events)
    assert race.seconds == race.length == timed(events)[-1][0]
    assert not any(isinstance(step, Checked) for step in given)
    race.advance(1.0)
    assert race.due() == Due(False, [], False) and not race.playing


def test_half_the_speed_takes_twice_the_time() -> None:
    fast, slow = Race(a_run(), 2.0), Race(a_run(), 0.5)
    fast.advance(0.2)
    slow.advance(0.8)
    assert fast.seconds == slow.seconds and fast.due() == slow.due() and fast.moments == slow.moments


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
    assert seen[0][0] == "speculative" and race.places["speculative"] == 1


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


def test_those_that_took_the_same_share_a_place() -> None:
    events = [event for name in ("a", "b", "c") for event in a_short_run(name, 0.5 if name == "c" else 0.25)]
    race = Race(events)
    race.seek(race.length)
    assert race.places == {"a": 1, "b": 1, "c": 3}


def a_short_run(name: str, seconds: float) -> list[Event]:
    records = (
        RunStarted(name, 3, 0, 9),
        PrefillDone(Token(1, Status.SAMPLED, 0), 0.5),
        RoundVerified(0, (), Token(2, Status.SAMPLED, 1), 0.0, seconds, 0.0),
        RunEnded(EndReason.LENGTH),
    )
    return [Step(name, record) for record in records]


def test_a_step_leads_to_the_end_of_a_round_of_one_strategy_and_back() -> None:
    race = Race(a_run())
    own = [
        time for time, step in timed(a_run()) if step.strategy == "lookup" and isinstance(step.record, RoundVerified)
    ]
    race.seek(own[3] + 1e-6)
    seen = []
    for by in (1, 1, -1, -1, -1):
        assert race.step("lookup", by) and not race.playing
        seen.append(race.seconds)
    assert seen == [own[4], own[5], own[4], own[3], own[2]]
    race.seek(0)
    assert not race.step("lookup", -1) and race.seconds == 0
    assert race.step("lookup", 1) and race.moment("lookup").shown is not None
    race.seek(race.length)
    assert race.over and not race.step("lookup", 1)


def test_one_cannot_seek_out_of_a_race() -> None:
    race = Race(a_run())
    race.seek(-3)
    assert race.seconds == 0
    for _ in range(12):
        race.jump(1)
    assert race.seconds == race.length and not race.playing
    race.jump(-1)
    assert race.seconds < race.length


def test_backwards_everything_is_due_again_up_to_that_time_and_forwards_only_what_is_new() -> None:
    race = Race(a_run())
    race.seek(0.9)
    first = race.due()
    race.seek(1.2)
    assert not race.due().again
    race.seek(0.9)
    back = race.due()
    assert back.again and back.steps == first.steps and race.due() == Due(False, [], False)


def test_a_moment_has_the_figures_of_all_records_up_to_then() -> None:
    race = Race(a_run())
    for name in race.strategies:
        figures = RunFigures()
        for time, step in timed(a_run()):
            if step.strategy != name:
                continue
            figures.add(step.record)
            if isinstance(step.record, RoundVerified | RunEnded):
                race.seek(time)
                moment = race.moment(name)
                assert moment.tokens == figures.new_tokens or moment.end is not None
                assert moment.rate == pytest.approx(figures.decode_tokens_per_second)
        race.seek(race.length)
        assert race.moment(name).tokens == figures.new_tokens


def test_a_strategy_drafts_and_then_the_target_verifies() -> None:
    race = Race(a_run())
    name = "speculative"
    assert race.moment(name).phase is Phase.PREFILL
    own = [(time, step.record) for time, step in timed(a_run()) if step.strategy == name]
    for (time, record), (later, _) in pairwise(own):
        race.seek((time + later) / 2)
        if later == time or race.moment(name).end is not None:
            continue
        expected = {PrefillDone: Phase.DRAFT, DraftsProposed: Phase.VERIFY, RunStarted: Phase.PREFILL}
        assert race.moment(name).phase is expected.get(type(record), Phase.DRAFT)
    race.seek(race.length)
    assert race.moment(name).phase is Phase.ENDED


def test_of_a_run_that_breaks_off_no_end_is_told() -> None:
    events = [e for e in a_run() if not (isinstance(e, Step) and e.strategy == "lookup" and ends(e))]
    race = Race(events)
    race.seek(race.length)
    assert race.moment("lookup").phase is Phase.BROKEN_OFF and "lookup" not in race.places


def ends(step: Step) -> bool:
    return isinstance(step.record, RunEnded)


def test_what_ifs_do_not_race() -> None:
    parent = a_run()
    child = [replace(e, strategy="lookup~1") for e in parent if isinstance(e, Step) and e.strategy == "lookup"]
    race = Race([*parent, *child])
    assert race.strategies == Race(parent).strategies and race.length == Race(parent).length


def test_a_search_is_told_of_by_its_passes_and_what_they_settle() -> None:
    records = (RunStarted("beam", 3, 0, 9, beams=2), PrefillDone(None, 0.5, beams=(Beam((1,), -1.0),)), step(0))
    settled = replace(step(1), settled=(Token(1, Status.SAMPLED, 0), Token(2, Status.SAMPLED, 1)))
    race = Race([Step("beam", record) for record in (*records, settled, RunEnded(EndReason.LENGTH))])
    figures = RunFigures()
    for record in (*records, settled):
        figures.add(record)
    race.seek(0.8)
    assert race.moment("beam").phase is Phase.VERIFY and race.moment("beam").tokens == 0
    race.seek(1.0)
    figures.add(RunEnded(EndReason.LENGTH))
    assert race.moment("beam").tokens == figures.new_tokens == 2
    assert race.moment("beam").rate == pytest.approx(figures.decode_tokens_per_second)
