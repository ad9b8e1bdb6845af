"""What clocks say of the cost of rounds and what follows, by hand, and that none of it is from clocks that disagree."""

from __future__ import annotations

import ast
from pathlib import Path
from random import Random

import pytest
from test_figures import BASELINE, RUN, figures_of, round_of

import specdec_tui
from specdec_tui.decoding import figures
from specdec_tui.decoding.costs import (
    NAMES,
    TIMES_VARY,
    Costs,
    costs,
    costs_by_itself,
    expected_tokens_per_round,
    measured_costs,
    predicted_speedup,
    shown_costs,
    without_disturbed,
)
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import Origin, PrefillDone, RoundVerified, RunStarted, Status, Token
from specdec_tui.decoding.stretch import in_common


def test_cost_ratio_takes_medians_so_that_one_hiccup_does_not_count() -> None:
    # Time per draft of the rounds with drafts: 0.1, 0.1, 0.3, 0.1; plain steps: 0.9, 1.1, 9.1.
    assert measured_costs(RUN, BASELINE).cost_ratio == pytest.approx(0.1 / 1.1)


def test_verify_ratio_counts_full_rounds_only() -> None:
    # The pass over two drafts, cut short by the room left, took 7 seconds and must not count.
    assert measured_costs(RUN, BASELINE).verify_ratio == pytest.approx(1.3 / 1.1)
    assert measured_costs(figures_of(round_of(0, "aa", (0, 7, 0))), BASELINE).verify_ratio is None


def test_expected_tokens_per_round_sums_the_geometric_series() -> None:
    assert expected_tokens_per_round(0.5, 2) == pytest.approx(1 + 0.5 + 0.25)
    assert expected_tokens_per_round(1.0, 4) == 5
    assert expected_tokens_per_round(0.0, 4) == 1
    assert expected_tokens_per_round(0.5, 0) == 1
    assert 1.5 < expected_tokens_per_round(0.5, 1.5) < 1.75


def test_predicted_speedup_pays_for_drafts_and_for_the_wider_pass() -> None:
    assert predicted_speedup(0.5, 2, 0.1, 1.3) == pytest.approx(1.75 / 1.5)
    assert predicted_speedup(1.0, 3, 0.0, 1.0) == 4


def test_tokens_expected_follow_each_place_of_a_round_and_the_lengths_drafted() -> None:
    # Accepted where all before were: 3/4, 2/3, 1; drafts of the rounds: 3, 3, 3, 0, 2; the last had no own token.
    kept = (3 / 4, 3 / 4 * 2 / 3, 3 / 4 * 2 / 3 * 1)
    assert measured_costs(RUN, BASELINE).tokens == pytest.approx((4 + 3 * sum(kept) + sum(kept[:2])) / 5)
    assert in_common(RUN.course, RUN.course)[0].draft_counts == {0: 1, 2: 1, 3: 3}


def test_prediction_costs_a_round_by_medians_of_rounds_with_as_many_drafts() -> None:
    cost = (3 * (0.3 + 1.3) + 0.6 + (0.2 + 7.1)) / 5
    expected = measured_costs(RUN, BASELINE).tokens
    assert expected is not None
    assert measured_costs(RUN, BASELINE).predicted_speedup == pytest.approx(expected * 1.1 / cost)


def test_prediction_holds_for_drafts_of_many_lengths_and_rounds_without_any() -> None:
    """As a look-up has them: one α and a mean number of drafts expect a quarter more than comes."""
    dice, rounds = Random(5), []
    for number in range(400):
        drafts = dice.choice((0, 0, 0, 1, 2, 8))
        accepted = 0
        while accepted < drafts and dice.random() < (0.3, 0.6, 0.9, 0.95)[min(accepted, 3)]:
            accepted += 1
        fates = "a" * accepted + "r" * (drafts > accepted)
        rounds.append(round_of(number, fates.ljust(drafts, "u"), (0.0, 1 + 0.02 * drafts, 0.01)))
    run = figures_of(*rounds, gamma=8)
    baseline = figures_of(*(round_of(i, "", (0.0, 1.0, 0.0)) for i in range(run.new_tokens)), strategy="target")
    measured, alpha, gamma = figures.speedup(baseline, run), run.acceptance_rate, run.drafted / run.rounds
    assert measured is not None and alpha is not None
    assert predicted_speedup(alpha, gamma, 0.0, 1.05) > 1.2 * measured
    assert measured_costs(run, baseline).predicted_speedup == pytest.approx(measured, rel=0.03)
    assert measured_costs(run, baseline).remainder == pytest.approx(0, abs=0.03)


def test_a_hiccup_is_in_the_remainder_and_not_in_the_prediction() -> None:
    rounds = [round_of(i, "aaa", (0.3, 9.0 if i == 4 else 1.5, 0.0)) for i in range(5)]
    baseline = figures_of(*(round_of(i, "", (0.0, 1.0, 0.0)) for i in range(20)))
    assert measured_costs(figures_of(*rounds), baseline).predicted_speedup == pytest.approx(4 / 1.8)
    assert measured_costs(figures_of(*rounds), baseline).remainder == pytest.approx(1.8 * 5 / 16.5 - 1)


def test_prediction_meets_the_measured_speedup_where_its_assumptions_hold() -> None:
    rounds = [round_of(i, "aaa", (0.3, 1.5, 0.0)) for i in range(5)]
    baseline = figures_of(*(round_of(i, "", (0.0, 1.0, 0.0)) for i in range(5)))
    run = figures_of(*rounds)
    assert measured_costs(run, baseline).predicted_speedup == pytest.approx(figures.speedup(baseline, run))


@pytest.mark.parametrize("shaken", ["run", "target"])
def test_nothing_is_predicted_where_step_times_vary_within_a_run(shaken: str) -> None:
    def told(strategy: str, drafts: tuple[Token, ...], slow: int) -> RunFigures:
        found = RunFigures()
        found.add(RunStarted(strategy, 3, 4, 99))
        for index in range(40):
            pace = 6.0 if index < slow else 1.0
            found.add(RoundVerified(index, drafts, Token(1, Status.BONUS, 0), 0.002 * pace, 0.03 * pace, 0.0))
        return found

    kept = (Token(1, Status.ACCEPTED, 0),) * 4
    steady, target = told("speculative", kept, 0), told("target", (), 0)
    found = measured_costs(steady, target)
    assert found.predicted_speedup is not None and found.cost_ratio is not None and not found.missing
    run = told("speculative", kept, 20) if shaken == "run" else steady
    target = told("target", (), 20) if shaken == "target" else target
    assert measured_costs(run, target) == Costs(missing=TIMES_VARY), "and that is said"


def test_no_prediction_is_above_the_tokens_of_a_round() -> None:
    def told(strategy: str, seconds: float, drafts: tuple[Token, ...] = ()) -> RunFigures:
        found = RunFigures()
        found.add(RunStarted(strategy, 3, 4, 99))
        for index in range(20):
            found.add(RoundVerified(index, drafts, Token(1, Status.RESAMPLED, 0), 0.0, seconds, 0.0))
        return found

    refused = (Token(1, Status.REJECTED, 0),)
    assert measured_costs(told("ngram", 0.03, refused), told("target", 0.04)).predicted_speedup == pytest.approx(1.0)


PACKAGE = Path(specdec_tui.__file__).parent


def plain_or_drafting(strategy: str, step: float, drafts: int = 0) -> RunFigures:
    found = RunFigures()
    found.add(RunStarted(strategy, 3, drafts, 999))
    found.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    own = tuple(Token(1, Status.ACCEPTED, 0) for _ in range(drafts))
    for index in range(90 if not drafts else 40):
        found.add(RoundVerified(index, own, Token(2, Status.BONUS, 0), 0.01 * drafts, step, 0.0))
    return found


STEADY_TARGET, STEADY = plain_or_drafting("target", 0.1), plain_or_drafting("speculative", 0.1, drafts=1)


def test_costs_are_the_figures_of_steady_clocks() -> None:
    found = costs(STEADY, STEADY_TARGET)
    assert found.named() == {
        "cost_ratio": pytest.approx(0.1),
        "verify_ratio": pytest.approx(1.0),
        "predicted_speedup": pytest.approx(2 / 1.1),
        "remainder": pytest.approx(0),
        "no_prediction": "",
    }
    assert costs(STEADY, None) == Costs()


def test_costs_of_a_disturbed_clock_are_withheld_and_it_is_said_why() -> None:
    """The machine was three times as slow while the target ran: c would be 0.03 and v 0.33."""
    slow = plain_or_drafting("target", 0.3)
    hidden = measured_costs(STEADY, slow)
    assert hidden.cost_ratio and hidden.verify_ratio and hidden.predicted_speedup
    assert costs(STEADY, slow) == Costs(missing="clock disturbed")
    assert costs(STEADY, slow).named() == dict.fromkeys(NAMES) | {"no_prediction": "clock disturbed"}


def test_costs_that_another_version_kept_of_a_disturbed_clock_are_withheld_too() -> None:
    kept = dict.fromkeys(NAMES, 1.5) | {"speedup": 2.0, "reliability": {"word": "steady"}}
    assert without_disturbed(kept) == kept
    kept["reliability"] = {"word": "disturbed"}
    assert without_disturbed(kept) == kept | dict.fromkeys(NAMES) | {"no_prediction": "clock disturbed"}


def test_nobody_else_computes_costs() -> None:
    """Else c and v of a disturbed run stand somewhere as if they were good."""
    for path in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        named = {node.id for node in nodes if isinstance(node, ast.Name)}
        named |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        named |= {a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
        assert path.name == "costs.py" or "measured_costs" not in named, f"{path.name} takes what may be disturbed"


def test_a_run_by_itself_is_held_against_the_passes_of_its_own_model_alone() -> None:
    passes = ((1, 0.010), (2, 0.011), (4, 0.015))
    rounds = [round_of(n, "aru", (0.012, 0.018, 0.0)) for n in range(9)]  # a machine slower by a fifth than beforehand
    run = figures_of(*rounds)
    assert costs_by_itself(run) == Costs(), "no such passes were measured"
    run.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.5, passes=passes))
    found = costs_by_itself(run)
    assert found.verify_ratio == pytest.approx(1.5) and found.cost_ratio == pytest.approx(0.004 / 0.012)
    # A round makes 2 tokens in 30 ms, a plain step of that time takes 12.
    assert found.predicted_speedup == pytest.approx(2 * 0.012 / 0.030) and found.remainder is None
    assert found.steps == pytest.approx(2.5)
    short = figures_of(*(round_of(n, "ar", (0.008, 0.018, 0.0)) for n in range(9)))
    short.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.5, passes=passes))
    assert costs_by_itself(short) == Costs(), "no round was full"
    varying = figures_of(*(round_of(n, "aru", (0.012, 0.018 * (1 + n % 2), 0.0)) for n in range(16)))
    varying.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.5, passes=passes))
    assert costs_by_itself(varying) == Costs(missing=TIMES_VARY)


def test_only_of_a_what_if_the_costs_by_itself_are_shown() -> None:
    passes = PrefillDone(Token(1, Status.SAMPLED, 0), 0.5, passes=((1, 0.010), (4, 0.015)))
    rounds = [round_of(n, "aru", (0.012, 0.018, 0.0)) for n in range(9)]
    run, what_if = figures_of(*rounds), figures_of(*rounds)
    for one in (run, what_if):
        one.add(passes)
    what_if.add(RunStarted("speculative", 7, 3, 64, origin=Origin("speculative", 0, None, (("weights", "expanded"),))))
    assert shown_costs(run, None) == Costs()
    assert shown_costs(what_if, None) == costs_by_itself(what_if) != Costs()
    assert shown_costs(run, BASELINE) == costs(run, BASELINE)
