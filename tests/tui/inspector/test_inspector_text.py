"""What the inspector says about a token: why, what else could have been, and its details."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from specdec_tui.decoding.records import DraftsProposed, Insight, PrefillDone, RoundVerified, Status, Token
from specdec_tui.tui.inspector.coin import COIN
from specdec_tui.tui.inspector.look import Look, Manner
from specdec_tui.tui.inspector.text import hint, inspector_lines, title_of

TOP = tuple((n, 0.4 / (n + 1)) for n in range(10))
SEEN = Insight(1.234, 0.987, TOP, tuple((n, 0.3 / (n + 1)) for n in range(3, 13)), TOP[1:3])
TEXTS = {n: f" word{n}" for n in range(12)} | {5: "[/x]\x1b[31m", 6: "世界" * 9}
TOKEN = Token(3, Status.REJECTED, 44, 0.3123, 0.7, 0.446, 0.82, SEEN)
DRAWN = Token(1, Status.RESAMPLED, 44, 0.2, insight=SEEN)
ROUND = RoundVerified(11, (TOKEN,), DRAWN, 0.008, 0.0301, 0.0002)


def look(token: Token = TOKEN, *, rule: str = "rejection", greedy: bool = False, **changes: object) -> Look:
    """A token that is alone in its round, or the one of `ROUND`."""
    alone = (token,) if token.q is not None else ()
    record = ROUND if token is TOKEN else RoundVerified(11, alone, None if alone else token, 0.008, 0.0301, 0.0002)
    return replace(Look(record, token, " brown", TEXTS, Manner(rule, greedy, 0.8)), **changes)  # type: ignore[arg-type]


def text_of(looked: Look, width: int = 44, rows: int = 100) -> str:
    return "\n".join("".join(text for text, _ in line) for line in inspector_lines(looked, width, rows))


def told(token: Token = TOKEN, **changes: object) -> str:
    """All of it in one line."""
    return " ".join(text_of(look(token, **changes)).split())  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [34, 44, 76, 160])
def test_everything_that_is_known_is_told(width: int) -> None:
    text = " ".join(text_of(look(), width).split())
    for part in (
        "The drafter gave it 0.700, the target 0.312.",
        "accept with min(1, p/q) = 0.45 — the coin fell at 0.82: rejected",
        "so: replaced by ↻·word1, drawn from what p has more than q: norm(max(0, p − q))",
        "round 12, draft 1 of 1 · token 45 · id 3",
        "processed p 0.312, q 0.700",
        "processed entropy: target 1.23, drafter 0.99 nats",
        "draft 8.0, verify 30.1, other 0.2 ms",
        "residual: max(0, p − q) scaled to sum 1",
    ):
        assert part in text, part
    assert text.count("▸✗·word3") == 1 and text.count("↻·word1 ") == 1  # each token once, p and q beside each other
    assert "#12" in text and COIN in text
    assert "\x1b" not in text and ("␛" in text or width < 44)


def test_the_title_names_token_pane_place_and_fate_and_loses_them_from_behind() -> None:
    def title(width: int) -> str:
        return "".join(text for text, _ in title_of(look(text=" surpass"), "speculative", width))

    assert title(80) == "why ✗ ·surpass · speculative · round 12, draft 1 of 1 · rejected"
    assert title(60) == "why ✗ ·surpass · speculative · round 12, draft 1 of 1"
    assert title(32) == "why ✗ ·surpass · speculative"
    assert ("·surpass", "$token-rejected strike") in title_of(look(text=" surpass"), "x", 80)
    for width in range(1, 90):
        assert cell_len(title(width)) <= width


def test_where_few_rows_are_in_sight_the_rule_its_coin_and_the_bars_of_what_was_chosen_are_among_them() -> None:
    lines = text_of(look(), 76, rows=6).splitlines()
    assert "accept with min(1, p/q)" in lines[0] and COIN in lines[1] and "p target" in lines[2]
    assert lines[3].startswith("▸✗·word3") and lines[4].startswith(" ↻·word1") and "█" in lines[3]
    assert sorted(text_of(look(), 76).split()) == sorted(text_of(look(), 76, rows=6).split())  # nothing is left out
    lines = text_of(look(), 76, rows=8).splitlines()
    assert lines[0].startswith("The drafter gave it") and lines[7].startswith(" ↻·word1")


def test_no_line_is_wider_than_the_panel() -> None:
    for width in range(20, 200):
        for rows in (2, 6, 100):
            for rule in ("rejection", "block", "coupled"):
                for line in inspector_lines(look(text="x" * 5000, rule=rule), width, rows):
                    assert cell_len("".join(text for text, _ in line)) <= width, width
    for width in range(1, 20):
        assert inspector_lines(look(), width, 3)


def test_formulas_are_not_torn_apart() -> None:
    for width in range(44, 120):
        assert "max(0, p − q)" in text_of(look(), width).replace("scaled", "")
        assert "min(1, p/q) = 0.45" in text_of(look(), width)


def test_the_verdict_has_the_colour_of_its_fate_and_no_text_is_markup() -> None:
    parts = [part for line in inspector_lines(look(texts={3: "[/x]"}), 76) for part in line]
    assert any("[/x]" in text for text, _ in parts)
    assert any(text.startswith("accept with") and style == "$token-rejected" for text, style in parts)


def test_without_insight_one_line_says_how_to_get_it_and_sentence_rule_and_coin_stand() -> None:
    text = text_of(look(replace(TOKEN, insight=None)), 76)
    assert text.splitlines()[-1] == hint() and COIN in text
    assert "gave it 0.700" in text and "min(1, p/q) = 0.45" in text and "p target" not in text
    text = text_of(look(Token(1, Status.BONUS, 3, 0.5)))
    assert text.splitlines()[-1] == hint() and "processed p 0.500" in text and "clock" in text


def test_under_greedy_sampling_raw_and_processed_are_told_apart() -> None:
    seen = Insight(1.55, 0.9, ((7, 0.553), (8, 0.2)), ((7, 0.412), (9, 0.3)))
    text = told(Token(7, Status.ACCEPTED, 3, 1.0, 1.0, 1.0, None, seen))
    assert "raw p 0.553 → greedy 1" in text and "raw q 0.412 → greedy 1" in text
    assert "raw entropy: target 1.55, drafter 0.90 nats" in text
    assert "1.000" not in text and COIN not in text and "distribution" not in text


def test_prefill_and_pending_drafts_have_words_of_their_own() -> None:
    first = Token(0, Status.SAMPLED, 0, 1.0)
    text = text_of(look(first, record=PrefillDone(first, 0.21)))
    assert "prefill · token 1" in text and "clock: prefill 210.0 ms" in text
    asked = PrefillDone(first, 0.21, by_calls=True, wire_seconds=0.03, calls=1)
    assert "clock: prefill 210.0, of it wire 30.0 ms" in text_of(look(first, record=asked, by_calls=True))
    draft = Token(0, Status.PENDING, 7, None, 0.25)
    text = text_of(look(draft, record=DraftsProposed(2, (draft,))))
    assert "round 3, draft 1 of 1 · token 8" in text and "pending:" in text and "clock" not in text
    assert "The drafter gave it 0.250." in text


def test_the_clock_of_a_round_with_a_server_has_the_way_apart_also_where_a_stream_asked_for_nothing() -> None:
    asked = RoundVerified(11, (TOKEN,), DRAWN, 0.008, 0.025, 0.0002, wire_seconds=0.03, calls=1)
    assert "clock: draft 8.0, server 25.0, wire 30.0, other 0.2 ms" in told(record=asked, by_calls=True)
    assert "draft 8.0, server 30.1, wire 0.0, other 0.2 ms" in told(by_calls=True)
