"""Figures of record streams made by hand."""

from __future__ import annotations

from random import Random

import pytest

from specdec_tui.decoding import figures
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import (
    DraftsProposed,
    EndReason,
    Notice,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Token,
)


def round_of(number: int, fates: str, seconds: tuple[float, float, float], emitted: bool = True) -> RoundVerified:
    """`fates`: one letter a draft, a(ccepted), r(ejected), u(nverified)."""
    status = {"a": Status.ACCEPTED, "r": Status.REJECTED, "u": Status.UNVERIFIED}
    drafts = tuple(Token(5, status[letter], i) for i, letter in enumerate(fates))
    return RoundVerified(number, drafts, Token(6, Status.BONUS, 9) if emitted else None, *seconds)


def figures_of(*records: Record, gamma: int = 3, strategy: str = "speculative") -> RunFigures:
    found = RunFigures()
    for record in (RunStarted(strategy, 7, gamma, 64), PrefillDone(Token(1, Status.SAMPLED, 0), 0.5), *records):
        found.add(record)
    return found


RUN = figures_of(
    DraftsProposed(0, (Token(5, Status.PENDING, 1),)),
    round_of(0, "aaa", (0.3, 1.0, 0.1)),
    round_of(1, "aru", (0.3, 1.2, 0.1)),
    Notice("something"),
    round_of(2, "ruu", (0.9, 1.4, 0.1)),
    round_of(3, "", (0.0, 0.5, 0.1)),
    round_of(4, "aa", (0.2, 7.0, 0.1), emitted=False),
    RunEnded(EndReason.END_TOKEN),
)
BASELINE = figures_of(*(round_of(i, "", (0.0, t, 0.1)) for i, t in enumerate((0.8, 1.0, 9.0))), strategy="target")


def test_counts_add_up() -> None:
    assert (RUN.strategy, RUN.prompt_tokens, RUN.gamma, RUN.max_new_tokens) == ("speculative", 7, 3, 64)
    assert (RUN.rounds, RUN.target_calls) == (5, 6)
    assert (RUN.drafted, RUN.judged, RUN.accepted, RUN.rejected, RUN.unverified) == (11, 8, 6, 2, 3)
    assert RUN.new_tokens == 1 + 4 + 2 + 1 + 1 + 2
    assert RUN.tokens_per_round == [4, 2, 1, 1, 2]
    assert RUN.end == RunEnded(EndReason.END_TOKEN)


def test_rates_follow_their_definitions() -> None:
    assert RUN.acceptance_rate == pytest.approx(6 / 8)
    assert RUN.wasted_rate == pytest.approx(5 / 11)
    assert RUN.tokens_per_target_call == pytest.approx(11 / 6)
    assert RUN.accepted_lengths == [1, 1, 1, 1]
    assert RUN.conditional_acceptance == pytest.approx([3 / 4, 2 / 3, 1.0])
    assert RUN.drafts_per_round == pytest.approx(11 / 5)


def test_prefill_is_in_neither_time_nor_tokens_of_the_speed() -> None:
    assert (RUN.prefill_seconds, RUN.prefill_tokens) == (0.5, 1)
    assert RUN.decode_seconds == pytest.approx(1.7 + 11.1 + 0.5)
    assert (RUN.draft_seconds, RUN.verify_seconds, RUN.other_seconds) == pytest.approx((1.7, 11.1, 0.5))
    assert RUN.decode_tokens_per_second == pytest.approx(10 / 13.3)


def test_an_index_never_judged_has_no_conditional_acceptance() -> None:
    assert figures_of(round_of(0, "ru", (0, 1, 0))).conditional_acceptance == [0.0, None]


def test_block_rounds_count_a_kept_prefix_as_judged() -> None:
    found = figures_of(round_of(0, "aaru", (0, 1, 0)))
    assert (found.accepted, found.rejected, found.unverified) == (2, 1, 1)


def test_nothing_measured_means_none_and_not_zero() -> None:
    empty = RunFigures()
    assert empty.decode_tokens_per_second is None and empty.acceptance_rate is None
    assert empty.wasted_rate is None and empty.tokens_per_target_call is None
    assert empty.end is None and empty.conditional_acceptance == []
    assert figures.speedup(BASELINE, empty) is None and figures.speedup(empty, RUN) is None
    assert figures.cost_ratio(empty, BASELINE) is None and figures.verify_ratio(empty, BASELINE) is None
    assert figures.prediction(empty, BASELINE) is None and figures.prediction(RUN, empty) is None


def test_a_prompt_without_room_is_no_target_call() -> None:
    found = RunFigures()
    for record in (RunStarted("target", 9, 4, 5), PrefillDone(None, 0.0), RunEnded(EndReason.CONTEXT)):
        found.add(record)
    assert (found.new_tokens, found.target_calls, found.prefill_tokens) == (0, 0, 0)


def test_speedup_is_time_per_token_against_time_per_token() -> None:
    assert figures.speedup(BASELINE, RUN) == pytest.approx((11.1 / 3) / (13.3 / 10))
    assert figures.speedup(BASELINE, BASELINE) == pytest.approx(1)


def test_cost_ratio_takes_medians_so_that_one_hiccup_does_not_count() -> None:
    # Time per draft of the rounds with drafts: 0.1, 0.1, 0.3, 0.1; plain steps: 0.9, 1.1, 9.1.
    assert figures.cost_ratio(RUN, BASELINE) == pytest.approx(0.1 / 1.1)


def test_verify_ratio_counts_full_rounds_only() -> None:
    # The pass over two drafts, cut short by the room left, took 7 seconds and must not count.
    assert figures.verify_ratio(RUN, BASELINE) == pytest.approx(1.3 / 1.1)
    assert figures.verify_ratio(figures_of(round_of(0, "aa", (0, 7, 0))), BASELINE) is None


def test_expected_tokens_per_round_sums_the_geometric_series() -> None:
    assert figures.expected_tokens_per_round(0.5, 2) == pytest.approx(1 + 0.5 + 0.25)
    assert figures.expected_tokens_per_round(1.0, 4) == 5
    assert figures.expected_tokens_per_round(0.0, 4) == 1
    assert figures.expected_tokens_per_round(0.5, 0) == 1
    assert 1.5 < figures.expected_tokens_per_round(0.5, 1.5) < 1.75


def test_predicted_speedup_pays_for_drafts_and_for_the_wider_pass() -> None:
    assert figures.predicted_speedup(0.5, 2, 0.1, 1.3) == pytest.approx(1.75 / 1.5)
    assert figures.predicted_speedup(1.0, 3, 0.0, 1.0) == 4


def test_tokens_expected_follow_each_place_of_a_round_and_the_lengths_drafted() -> None:
    # Accepted where all before were: 3/4, 2/3, 1; drafts of the rounds: 3, 3, 3, 0, 2; the last had no own token.
    kept = (3 / 4, 3 / 4 * 2 / 3, 3 / 4 * 2 / 3 * 1)
    assert figures.tokens_expected(RUN) == pytest.approx((4 + 3 * sum(kept) + sum(kept[:2])) / 5)
    assert RUN.draft_counts == {0: 1, 2: 1, 3: 3}


def test_prediction_costs_a_round_by_medians_of_rounds_with_as_many_drafts() -> None:
    cost = (3 * (0.3 + 1.3) + 0.6 + (0.2 + 7.1)) / 5
    expected = figures.tokens_expected(RUN)
    assert expected is not None
    assert figures.prediction(RUN, BASELINE) == pytest.approx(expected * 1.1 / cost)


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
    assert figures.predicted_speedup(alpha, gamma, 0.0, 1.05) > 1.2 * measured
    assert figures.prediction(run, baseline) == pytest.approx(measured, rel=0.03)
    assert figures.remainder(run, baseline) == pytest.approx(0, abs=0.03)


def test_a_hiccup_is_in_the_remainder_and_not_in_the_prediction() -> None:
    rounds = [round_of(i, "aaa", (0.3, 9.0 if i == 4 else 1.5, 0.0)) for i in range(5)]
    baseline = figures_of(*(round_of(i, "", (0.0, 1.0, 0.0)) for i in range(20)))
    assert figures.prediction(figures_of(*rounds), baseline) == pytest.approx(4 / 1.8)
    assert figures.remainder(figures_of(*rounds), baseline) == pytest.approx(1.8 * 5 / 16.5 - 1)


def test_speedup_compares_the_text_that_both_have() -> None:
    """Passes that grow with the text: a run that is still short is not held against the target's long end."""
    baseline = figures_of(*(round_of(i, "", (0.0, 1.0 + i, 0.0)) for i in range(40)))
    early = figures_of(*(round_of(i, "", (0.0, 1.0 + i, 0.0)) for i in range(10)))
    assert figures.speedup(baseline, early) == pytest.approx(1)
    # Its last round reaches one token beyond: half of that token's round counts.
    reaching = figures_of(round_of(0, "a", (0, 2.0, 0)), round_of(1, "a", (0, 3.0, 0)))
    three = figures_of(*(round_of(i, "", (0.0, 1.0, 0.0)) for i in range(3)))
    assert figures.speedup(three, reaching) == pytest.approx(3 / (2 + 1.5))


def test_prediction_meets_the_measured_speedup_where_its_assumptions_hold() -> None:
    rounds = [round_of(i, "aaa", (0.3, 1.5, 0.0)) for i in range(5)]
    baseline = figures_of(*(round_of(i, "", (0.0, 1.0, 0.0)) for i in range(5)))
    run = figures_of(*rounds)
    assert figures.prediction(run, baseline) == pytest.approx(figures.speedup(baseline, run))


@pytest.mark.parametrize("shaken", ["run", "target"])
def test_nothing_is_predicted_where_the_pace_changed_within_a_run(shaken: str) -> None:
    def told(strategy: str, drafts: tuple[Token, ...], slow: int) -> RunFigures:
        found = RunFigures()
        found.add(RunStarted(strategy, 3, 4, 99))
        for index in range(40):
            pace = 6.0 if index < slow else 1.0
            found.add(RoundVerified(index, drafts, Token(1, Status.BONUS, 0), 0.002 * pace, 0.03 * pace, 0.0))
        return found

    kept = (Token(1, Status.ACCEPTED, 0),) * 4
    steady, target = told("speculative", kept, 0), told("target", (), 0)
    assert figures.prediction(steady, target) is not None and figures.cost_ratio(steady, target) is not None
    run = told("speculative", kept, 20) if shaken == "run" else steady
    target = told("target", (), 20) if shaken == "target" else target
    assert figures.prediction(run, target) is None
    assert figures.cost_ratio(run, target) is None and figures.verify_ratio(run, target) is None


def test_no_prediction_is_above_the_tokens_of_a_round() -> None:
    def told(strategy: str, seconds: float, drafts: tuple[Token, ...] = ()) -> RunFigures:
        found = RunFigures()
        found.add(RunStarted(strategy, 3, 4, 99))
        for index in range(20):
            found.add(RoundVerified(index, drafts, Token(1, Status.RESAMPLED, 0), 0.0, seconds, 0.0))
        return found

    refused = (Token(1, Status.REJECTED, 0),)
    assert figures.prediction(told("ngram", 0.03, refused), told("target", 0.04)) == pytest.approx(1.0)
