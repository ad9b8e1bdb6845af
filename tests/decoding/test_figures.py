"""Figures of record streams made by hand."""

from __future__ import annotations

import pytest

from specdec_tui.decoding import figures
from specdec_tui.decoding.costs import Costs, costs
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
    assert costs(empty, BASELINE) == costs(RUN, empty) == costs(RUN, None) == Costs()


def test_a_prompt_without_room_is_no_target_call() -> None:
    found = RunFigures()
    for record in (RunStarted("target", 9, 4, 5), PrefillDone(None, 0.0), RunEnded(EndReason.CONTEXT)):
        found.add(record)
    assert (found.new_tokens, found.target_calls, found.prefill_tokens) == (0, 0, 0)


def test_speedup_is_time_per_token_against_time_per_token() -> None:
    assert figures.speedup(BASELINE, RUN) == pytest.approx((11.1 / 3) / (13.3 / 10))
    assert figures.speedup(BASELINE, BASELINE) == pytest.approx(1)


def test_speedup_compares_the_text_that_both_have() -> None:
    """Passes that grow with the text: a run that is still short is not held against the target's long end."""
    baseline = figures_of(*(round_of(i, "", (0.0, 1.0 + i, 0.0)) for i in range(40)))
    early = figures_of(*(round_of(i, "", (0.0, 1.0 + i, 0.0)) for i in range(10)))
    assert figures.speedup(baseline, early) == pytest.approx(1)
    # Its last round reaches one token beyond: it is left out.
    reaching = figures_of(round_of(0, "a", (0, 2.0, 0)), round_of(1, "a", (0, 3.0, 0)))
    three = figures_of(*(round_of(i, "", (0.0, 1.0, 0.0)) for i in range(3)))
    assert figures.speedup(three, reaching) == pytest.approx(2 / 2)
