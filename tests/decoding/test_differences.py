"""Whether two runs differ by more than chance: by hand, and over many runs that are alike."""

from __future__ import annotations

from dataclasses import replace
from math import exp, hypot, log, sqrt
from random import Random

import pytest
from test_figures import figures_of, round_of

from specdec_tui.decoding.differences import (
    ANOTHER_SCHEDULE,
    TOO_SHORT,
    Measured,
    clock_error,
    differences,
    text_error,
)
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import PrefillDone, RoundVerified, RunStarted, Status, Token


def run_of(
    seed: int,
    *,
    rate: float = 0.6,
    rounds: int = 64,
    pace: float = 1.0,
    scatter: float = 0.05,
    strategy: str = "speculative",
    alone: bool = False,
) -> RunFigures:
    """Rounds of up to four drafts; the time of each scatters about its own."""
    chance = Random(seed)
    run = RunFigures()
    run.add(RunStarted(strategy, 3, 4, 999, alone=alone))
    run.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    drafts = 0 if strategy == "target" else 4
    for index in range(rounds):
        kept = next((i for i in range(drafts) if chance.random() >= rate), drafts)
        fates = [Status.ACCEPTED] * kept + [Status.REJECTED] * (kept < drafts)
        fates += [Status.UNVERIFIED] * (drafts - len(fates))
        own = tuple(Token(1, fate, 0) for fate in fates)
        slow = pace * (1 + scatter * (chance.random() - 0.5))
        seconds = 0.008 * drafts * slow, 0.1 * slow, 0.0
        run.add(RoundVerified(index, own, Token(2, Status.SAMPLED, 0), *seconds))
    return run


def measured(seed: int, *, target_pace: float = 1.0, **made: float) -> Measured:
    run = run_of(seed, **made)  # type: ignore[arg-type]
    target = run_of(seed + 1, rounds=220, pace=target_pace * float(made.get("pace", 1.0)), strategy="target")
    return Measured(run, target, f"text {seed}")


def test_the_difference_of_two_acceptance_rates_by_hand() -> None:
    before = figures_of(*(round_of(i, "aru", (0.1, 1.0, 0.1)) for i in range(20)))  # 20 of 40
    now = figures_of(*(round_of(i, "aar", (0.1, 1.0, 0.1)) for i in range(20)))  # 40 of 60
    found = differences(Measured(before), Measured(now))["α"]
    assert (found.before, found.now) == pytest.approx((0.5, 2 / 3)) and found.change == pytest.approx(1 / 6)
    shares = (22 / 44, 42 / 64)
    assert found.noise == pytest.approx(2 * sqrt(shares[0] * (1 - shares[0]) / 44 + shares[1] * (1 - shares[1]) / 64))
    assert not found.is_beyond  # 0.167 against 0.192
    many = (
        [round_of(i, "aru", (0.1, 1.0, 0.1)) for i in range(80)],
        [round_of(i, "aar", (0.1, 1, 0)) for i in range(80)],
    )
    assert differences(Measured(figures_of(*many[0])), Measured(figures_of(*many[1])))["α"].is_beyond


def test_the_noise_of_tokens_per_second_is_the_runs_own_scatter_and_what_the_target_moved() -> None:
    before, now = measured(1), measured(2, target_pace=1.03)
    found = differences(before, now)["tok/s"]
    errors = [error for one in (before, now) for error in (clock_error(one.run), text_error(one.run))]
    rates = [one.baseline.decode_tokens_per_second for one in (before, now) if one.baseline]
    assert all(errors) and rates[0] and rates[1]
    width = 2 * hypot(*(error for error in errors if error)) + abs(log(rates[1] / rates[0]))
    assert abs(log(rates[1] / rates[0])) == pytest.approx(log(1.03), abs=0.01)
    change = exp(width) - 1 if found.change >= 0 else 1 - exp(-width)
    assert found.noise == pytest.approx(found.before * change)


def test_of_the_same_text_only_clocks_are_noise() -> None:
    before, now = measured(1), measured(2)
    other = differences(before, now)
    same = differences(replace(before, text="a"), replace(now, text="a"))
    for figure in ("tok/s", "speedup"):
        assert same[figure].noise < other[figure].noise / 2
    assert same["α"] == other["α"] and same["τ"] == other["τ"]


def test_repeats_are_beyond_the_noise_in_about_one_case_of_twenty() -> None:
    """Also where the machine is another one: the target's own pace tells."""
    beyond = dict.fromkeys(("tok/s", "speedup", "α", "τ"), 0)
    for seed in range(60):
        found = differences(measured(seed), measured(seed + 1000, pace=1 + 0.1 * (seed % 3)))
        for figure, one in found.items():
            assert not one.why
            beyond[figure] += one.is_beyond
    assert all(count <= 9 for count in beyond.values()), beyond


def test_what_is_really_another_rate_is_beyond_the_noise() -> None:
    found = [differences(measured(seed, rate=0.3), measured(seed + 1000, rate=0.9)) for seed in range(10)]
    for figure in ("tok/s", "speedup", "α", "τ"):
        assert all(one[figure].is_beyond and one[figure].change > 0 for one in found), figure


def test_without_the_targets_own_run_clocks_of_two_times_may_differ_by_a_tenth() -> None:
    before, now = Measured(run_of(1), None, "a"), Measured(run_of(2, pace=1.08), None, "a")
    found = differences(before, now)
    assert set(found) == {"tok/s", "α", "τ"}
    assert found["tok/s"].noise > 0.08 * found["tok/s"].before
    with_target = differences(replace(measured(1), text="a"), replace(measured(2), text="a"))["tok/s"]
    assert with_target.noise < found["tok/s"].noise / 2
    another = differences(replace(measured(1), text="a"), replace(measured(2), text="a"), same_target=False)["tok/s"]
    assert another.noise > 0.08 * another.before  # another model's pace tells nothing of the machine


def test_clocks_that_are_disturbed_or_of_another_schedule_are_not_compared_and_fates_are() -> None:
    disturbed = Measured(run_of(3, pace=0.3), run_of(4, rounds=220, strategy="target"), "b")
    found = differences(measured(1), disturbed)
    assert found["tok/s"].why == found["speedup"].why == "clock disturbed"
    assert not found["tok/s"].is_beyond and not found["α"].why and not found["τ"].why
    alone = replace(measured(5), run=run_of(5, alone=True))
    assert differences(measured(1), alone)["speedup"].why == ANOTHER_SCHEDULE


def test_a_few_rounds_are_too_short_to_tell() -> None:
    found = differences(measured(1), Measured(run_of(2, rounds=5), run_of(3, rounds=220, strategy="target"), "b"))
    assert found["τ"].why == TOO_SHORT and "too short" in found["tok/s"].why


def test_the_target_has_its_tokens_per_second_alone() -> None:
    before, now = run_of(1, strategy="target"), run_of(2, strategy="target", pace=1.2)
    found = differences(Measured(before, before, "a"), Measured(now, now, "a"))
    assert set(found) == {"tok/s"} and found["tok/s"].is_beyond and found["tok/s"].change < 0
