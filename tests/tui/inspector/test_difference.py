"""Where two texts part: the place, both top fives and the gap between both first choices."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
from rich.cells import cell_len

from specdec_tui.decoding.records import Insight, RoundVerified, Status, Token
from specdec_tui.tui.inspector.difference import Parting, Side, difference_lines, parting
from specdec_tui.tui.inspector.look import Look, Manner
from specdec_tui.tui.inspector.text import hint
from specdec_tui.tui.tokens.run_log import RunLog

TEXTS = {n: f" word{n}" for n in range(20)}
OURS = tuple((n, 0.35 - 0.03 * n) for n in range(10))  # 0: 0.35, 1: 0.32, …
THEIRS = ((1, 0.36), (0, 0.34), *((n, 0.1 / n) for n in range(11, 19)))


def side(name: str, id: int, top: tuple[tuple[int, float], ...], greedy: bool = True) -> Side:
    insight = Insight(1.0, None, top) if top else None
    token = Token(id, Status.BONUS, 11, 1.0 if greedy else dict(top).get(id), insight=insight)
    manner = Manner("coupled", greedy, 0.8)
    return Side(name, Look(RoundVerified(3, (), token, 0.1, 0.1, 0.1), token, "", TEXTS, manner))


def text_of(ours: Side, theirs: Side, width: int = 76, rows: int = 100) -> str:
    return "\n".join("".join(text for text, _ in line) for line in difference_lines(ours, theirs, width, rows))


def test_both_tokens_both_top_fives_and_the_gap_of_logits_are_told() -> None:
    text = text_of(side("speculative", 0, OURS), side("target", 1, THEIRS))
    assert "first difference: token 12" in text
    assert "speculative wrote +·word0 · target wrote +·word1" in text
    flat = " ".join(text.split())
    assert f"speculative: p(·word0) 0.350 − p(·word1) 0.320 = +0.030, in logits {log(0.35 / 0.32):+.2f}" in flat
    assert f"target: p(·word0) 0.340 − p(·word1) 0.360 = −0.020, in logits −{log(0.36 / 0.34):.2f}" in flat
    rows = [line for line in text.splitlines() if line[2:7] == "·word"]
    assert [row.split()[0] for row in rows[:2]] == ["▸+·word0", "◂+·word1"]
    assert [row.split()[0] for row in rows[2:]] == ["·word2", "·word3", "·word4", "·word11", "·word12", "·word13"]
    assert rows[0].split()[-1] == "specula…" and rows[1].split()[-1] == "target"


def test_where_both_put_the_same_first_it_is_the_draws_that_part() -> None:
    ours, theirs = side("lookup", 2, OURS, greedy=False), side("target", 3, OURS, greedy=False)
    flat = " ".join(text_of(ours, theirs).split())
    assert "both put ·word0 first (0.350 and 0.350): not the models part here but the draws" in flat
    # At T 0.8 a logit is 1.25 of what the logarithms of drawn probabilities differ by.
    assert f"p(·word2) 0.290 − p(·word3) 0.260 = +0.030, in logits {0.8 * log(0.29 / 0.26):+.2f}" in flat


def test_what_is_not_listed_has_a_bound_and_no_gap() -> None:
    flat = " ".join(text_of(side("lookup", 0, OURS), side("target", 19, ((19, 0.9), *OURS[1:]))).split())
    assert "lookup: p(·word0) 0.350 − p(·word19) below 0.080" in flat
    assert "target: p(·word0) below 0.080 − p(·word19) 0.900" in flat


def test_a_token_is_spelt_in_both_panes_where_either_of_them_knows_its_text() -> None:
    ours, theirs = side("lookup", 0, OURS), side("target", 19, ((19, 0.9), *OURS[1:]))
    knows_less = replace(theirs, look=replace(theirs.look, texts={19: " word19"}))
    flat = " ".join(text_of(ours, knows_less).split())
    assert "target: p(·word0) below 0.080 − p(·word19) 0.900" in flat
    assert "#0" not in flat


def test_without_alternatives_the_hint_says_how_to_get_them() -> None:
    text = text_of(side("lookup", 0, OURS), side("target", 1, ()))
    assert text.splitlines()[-1] == hint() and "target wrote" in text


def test_no_line_is_wider_than_the_panel() -> None:
    for width in range(20, 200):
        for rows in (3, 100):
            for line in text_of(side("speculative", 0, OURS), side("target", 1, THEIRS), width, rows).splitlines():
                assert cell_len(line) <= width


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ([1, 2, 3], Parting(None, 3)),
        ([1, 2], Parting(None, 2, longer=True)),
        ([1, 5, 3], Parting(1, 1)),
        ([], Parting(None, 0, longer=True)),
    ],
)
def test_texts_part_at_the_first_id_that_differs(other: list[int], found: Parting) -> None:
    assert parting(log_of([1, 2, 3]), log_of(other)) == found


def test_a_text_that_begins_behind_given_tokens_is_compared_from_there_on() -> None:
    assert parting(log_of([1, 2, 3, 4]), log_of([3, 9], first=2)) == Parting(3, 1)


def log_of(ids: list[int], first: int = 0) -> RunLog:
    found = RunLog()
    for index, id in enumerate(ids):
        token = Token(id, Status.SAMPLED, first + index)
        found.add(RoundVerified(index, (), token, 0.1, 0.1, 0.1), ("x",))
    return found
