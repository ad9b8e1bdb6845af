"""What passes over several tokens cost: knee, limits and sentences, of curves made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.passes import (
    adding_seconds,
    as_table,
    bound_by_memory,
    in_words,
    knee,
    limit_in_words,
    limit_seconds,
    reading_seconds,
    told_of,
    why_not_measured,
)
from specdec_tui.decoding.records import PassLimit, PassSeconds, PrefillDone, RunStarted, Status, Token

# 240 MB at 30 GB/s: 8 ms; 150 M multiply-adds at 100 G a second: 1.5 ms a token. They cross between 5 and 6 tokens.
LIMIT = PassLimit(240_000_000, 150_000_000, 3.0e10, 1.0e11, 2)
FLAT = ((1, 0.010), (2, 0.0105), (3, 0.0114), (4, 0.0115), (5, 0.0118), (9, 0.016))
STEEP = ((1, 0.010), (2, 0.015), (5, 0.030))


def started(**told: object) -> RunFigures:
    figures = RunFigures()
    figures.add(RunStarted("speculative", 5, 4, 99))
    figures.add(replace(PrefillDone(Token(1, Status.SAMPLED, 0), 0.1), **told))  # type: ignore[arg-type]
    return figures


@pytest.mark.parametrize(
    ("passes", "expected"),
    [
        (FLAT, 4),  # 1.15 times is not more than 1.15 times
        (STEEP, 1),
        (((1, 0.0124609), (2, 0.0143867), (3, 0.0166714)), 2),  # 1.1546 is told as 1.15
        (((1, 0.0100), (2, 0.01156)), 1),  # and this as 1.16
        (FLAT[:4], None),  # it lies beyond
        ((), None),
        (((1, 0.010), (2, 0.013), (3, 0.011)), 1),  # a pass behind the bend tells nothing
        (((2, 0.01), (3, 0.02)), None),  # nothing to hold it against
    ],
)
def test_the_knee_is_the_last_pass_that_costs_nearly_what_one_token_does(
    passes: PassSeconds, expected: int | None
) -> None:
    assert knee(passes) == expected
    assert knee(passes[::-1]) == expected


def test_a_limit_is_the_longer_of_reading_and_multiplying() -> None:
    assert reading_seconds(LIMIT) == pytest.approx(0.008)
    assert adding_seconds(LIMIT, 4) == pytest.approx(0.006)
    assert [limit_seconds(LIMIT, n) for n in (1, 5, 6, 10)] == pytest.approx([0.008, 0.008, 0.009, 0.015])
    assert bound_by_memory(LIMIT) == 5
    assert bound_by_memory(replace(LIMIT, weight_bytes=30_000_000)) == 0


@pytest.mark.parametrize(("gamma", "expected"), [(4, 5), (7, 5), (8, 9), (1, 2), (0, 5), (31, 9)])
def test_what_is_told_of_is_a_round_or_the_next_measured_pass_below(gamma: int, expected: int) -> None:
    assert told_of(FLAT, gamma) == expected


def test_a_sentence_says_which_of_the_two_binds() -> None:
    assert in_words(FLAT, LIMIT, 4)[0] == "5 tokens cost 1.18× one, 1.47× the limit: the memory binds, up to 5 tokens"
    beyond = "9 tokens cost 1.60× one, 1.19× the limit: beyond 5 tokens the multiply-adds bind, not the memory"
    assert in_words(FLAT, LIMIT, 8)[0] == beyond
    packed = replace(LIMIT, weight_bytes=30_000_000, multiply_adds=180_000_000)
    assert in_words(FLAT, packed, 4)[1] == "5 tokens cost 1.18× one: the multiply-adds bind, not the memory"
    one = replace(packed, weight_bytes=60_000_000)
    assert in_words(FLAT, one, 4)[1] == "5 tokens cost 1.18× one: beyond 1 token the multiply-adds bind, not the memory"


def test_a_sentence_does_not_blame_a_limit_that_is_far_away_or_no_limit() -> None:
    slow = tuple((tokens, 10 * seconds) for tokens, seconds in FLAT)
    assert in_words(slow, LIMIT, 4)[1] == "5 tokens cost 1.18× one: neither memory nor multiply-adds bind"
    times = ((1, 0.00704), (2, 0.00817), (5, 0.01204), (9, 0.0179))  # packed, of the demo target, on a quiet machine
    limit = PassLimit(96_400_000, 134_480_000, 14.4e9, 187e9, 2)
    assert (
        in_words(times, limit, 4)[0]
        == "5 tokens cost 1.71× one, 1.80× the limit: neither memory nor multiply-adds bind"
    )
    assert in_words(times, limit, 1)[1] == "2 tokens cost 1.16× one: the memory binds, up to 9 tokens"
    cached = tuple((tokens, seconds / 4) for tokens, seconds in FLAT)
    assert "it reads from a cache" in in_words(cached, LIMIT, 4)[1]


def test_without_a_limit_a_sentence_tells_the_knee() -> None:
    assert in_words(FLAT, None, 4)[0] == "5 tokens cost 1.18× one; up to 4 tokens cost nearly what one does"
    assert in_words(FLAT[:4], None, 4)[0] == "4 tokens cost 1.15× one; no knee up to 4 tokens"
    assert in_words(FLAT[:1], None, 4)[0] == "a token costs 10.00 ms; no knee up to 1 token"


@pytest.mark.parametrize("limit", [LIMIT, None])
def test_shorter_sentences_are_shorter(limit: PassLimit | None) -> None:
    told = [len(text) for text in in_words(FLAT, limit, 4)]
    assert len(told) > 1 and told == sorted(told, reverse=True)


def test_the_limit_can_be_summed_up_again_from_its_words() -> None:
    assert limit_in_words(LIMIT) == (
        "limit: 240.0 MB read at 30.0 GB/s, 8.00 ms, or 150.0 M float32 multiply-adds a token at 100.0 G/s, "
        "1.50 ms each (2 threads)"
    )


@pytest.mark.parametrize(
    ("integers", "told"),
    [
        (150_000_000, "150.0 M 8-bit integer multiply-adds a token"),
        (30_000_000, "150.0 M (30.0 M 8-bit integer, the others float32) multiply-adds a token"),
    ],
)
def test_words_of_a_limit_say_what_kind_of_numbers_is_multiplied(integers: int, told: str) -> None:
    assert told in limit_in_words(replace(LIMIT, integer_adds=integers))


def test_where_nothing_was_measured_the_reason_is_told() -> None:
    assert why_not_measured(started(passes=FLAT)) == ""
    reasons = {
        why_not_measured(started(**told)) for told in ({"by_calls": True}, {"recomputes": True}, {"captured": True}, {})
    }
    assert len(reasons) == 4 and "" not in reasons
    assert "γ+1" in why_not_measured(started(captured=True))


def test_json_has_the_limit_of_each_measured_pass() -> None:
    table = as_table(FLAT[:2], LIMIT)
    assert table["pass_seconds"] == [[1, 0.010], [2, 0.0105]]
    assert table["pass_limit_seconds"] == [[1, 0.008], [2, 0.008]]
    assert table["knee"] is None and table["pass_limit"]["threads"] == 2
    assert as_table(STEEP, None) == {
        "pass_seconds": [[1, 0.010], [2, 0.015], [5, 0.030]],
        "pass_limit_seconds": [],
        "knee": 1,
        "pass_limit": None,
    }
