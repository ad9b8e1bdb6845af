"""Which what-ifs a sweep of a run is made of, what is read out of them, and how far it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_tui.decoding.records import (
    EndReason,
    Event,
    Origin,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.decoding.sweep import SweepFigures
from specdec_tui.gamma_sweep import CannotSweep, Pace, gammas_of, heats, shares
from specdec_tui.settings import Settings

SETTINGS = Settings(gamma=4, schedule="sequential", insight=True)


def begin(name: str, gamma: int = 4, origin: Origin | None = None) -> Step:
    started = RunStarted(name.partition("~")[0], 7, gamma, 16, origin=origin)
    return Step(name, started, prompt_text="the prompt")


def rest(name: str, end: EndReason = EndReason.LENGTH) -> list[Step]:
    round_ = RoundVerified(0, (), Token(1, Status.SAMPLED, 1), 0.0, 1.0, 0.0)
    return [Step(name, PrefillDone(Token(1, Status.SAMPLED, 0), 0.1)), Step(name, round_), Step(name, RunEnded(end))]


RUN: list[Event] = [begin("target"), begin("speculative")]


def test_each_heat_has_the_target_first_and_every_repeat_all_gammas_once() -> None:
    found = heats(RUN, SETTINGS, "speculative", range(1, 9), 3)
    assert len(found) == 6
    names = [one.name for heat in found for one in heat]
    assert len(set(names)) == len(names) == 6 * 5
    for heat in found:
        target, *others = heat
        assert target.name.startswith("target~") and target.origin.parent == "target"
        assert {one.origin.parent for one in others} == {"speculative"}
        assert all(one.settings.schedule == "interleaved" and not one.settings.insight for one in heat)
        assert {(one.prompt_text, one.prompt_tokens) for one in heat} == {("the prompt", 7)}
        assert target.origin.changes == (("schedule", "interleaved"), ("insight", "off"))
        assert [dict(one.origin.changes)["gamma"] for one in others] == [str(one.settings.gamma) for one in others]
    for first in (0, 2, 4):
        assert sorted(one.settings.gamma for heat in found[first : first + 2] for one in heat[1:]) == list(range(1, 9))
    assert shares(range(1, 9), 0) != shares(range(1, 9), 1)


def test_names_go_on_behind_those_of_a_sweep_before_and_a_full_trace_takes_none() -> None:
    before = [*RUN, begin("speculative~7", 2, Origin("speculative", 0, None, (("gamma", "2"),), True))]
    assert heats(before, SETTINGS, "speculative", (3,), 1)[0][1].name == "speculative~8"
    with pytest.raises(CannotSweep, match="as many what-ifs as it can"):
        heats(RUN, SETTINGS, "speculative", range(1, 33), 8)
    with pytest.raises(CannotSweep, match="does not tell what lookup read"):
        heats(RUN, SETTINGS, "lookup", (3,), 1)


def test_a_target_that_took_no_part_is_measured_as_a_child_of_the_strategy() -> None:
    assert heats(RUN[1:], SETTINGS, "speculative", (3,), 1)[0][0].origin.parent == "speculative"


def test_the_gammas_of_a_sweep_have_the_present_one_among_them() -> None:
    assert gammas_of(0) == gammas_of(4) == gammas_of(8) == tuple(range(1, 9))
    assert gammas_of(10) == (1, 2, 4, 6, 8, 10, 12)
    assert gammas_of(32) == (1, 2, 4, 6, 8, 12, 16, 24, 32)


def child(name: str, gamma: int | None, swept: bool = True) -> Step:
    changes = () if gamma is None else (("gamma", str(gamma)),)
    return begin(name, 4 if gamma is None else gamma, Origin(name.partition("~")[0], 0, None, changes, swept))


def test_only_runs_beside_a_target_that_came_to_their_end_are_points() -> None:
    """A single what-if at another γ was decoded at another time, and what was stopped is no measurement."""
    events = [
        *[child("target~1", None), child("speculative~1", 2), child("speculative~2", 5)],
        *[child("speculative~5", 7, swept=False), *rest("speculative~5")],  # a person's own
        *[*rest("target~1"), *rest("speculative~1"), *rest("speculative~2", EndReason.CANCELLED)],
        *[child("speculative~3", 6), *rest("speculative~3")],
        *[begin("speculative~4", 4, Origin("speculative", 3, 9)), *rest("speculative~4")],
    ]
    found = SweepFigures([*RUN, *events])
    assert [run.gamma for run, _ in found.of("speculative")] == [2]
    assert found.of("lookup") == []


def test_time_left_follows_from_the_tokens_that_are_still_to_come() -> None:
    pace = Pace(runs=4, tokens=2)
    assert pace.seconds_left is None
    for event in [begin("target"), *rest("target")]:
        pace.take(event)
    left = pace.seconds_left
    assert left is not None and left >= 0
    done = replace(pace, done=99)
    assert done.seconds_left == 0
