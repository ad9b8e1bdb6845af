"""What the inspector says about a token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from specdec_tui.decoding.records import DraftsProposed, Insight, PrefillDone, RoundVerified, Status, Token
from specdec_tui.tui.inspector.text import HINT, Look, facts, inspector_lines

TOP = tuple((n, 0.4 / (n + 1)) for n in range(10))
SEEN = Insight(1.234, 0.987, TOP, tuple((n, 0.3 / (n + 1)) for n in range(3, 13)), TOP[1:3])
TEXTS = {n: f" word{n}" for n in range(12)} | {5: "[/x]\x1b[31m", 6: "世界" * 9}
TOKEN = Token(3, Status.REJECTED, 44, 0.3123, 0.7, 0.446, 0.82, SEEN)
ROUND = RoundVerified(11, (TOKEN,), Token(1, Status.RESAMPLED, 44, 0.2, insight=SEEN), 0.008, 0.0301, 0.0002)


def look(token: Token = TOKEN, **changes: object) -> Look:
    """A token that is alone in its round, or the one of `ROUND`."""
    record = ROUND if token is TOKEN else RoundVerified(11, (token,), None, 0.008, 0.0301, 0.0002)
    return replace(Look(record, token, " brown", TEXTS), **changes)  # type: ignore[arg-type]


def text_of(looked: Look, width: int = 44) -> str:
    return "\n".join("".join(text for text, _ in line) for line in inspector_lines(looked, width))


def told(token: Token, **changes: object) -> str:
    """The facts in one line."""
    return " ".join(" ".join("".join(text for text, _ in line) for line in facts(look(token, **changes), 44)).split())


@pytest.mark.parametrize("width", [44, 76, 160])
def test_everything_that_is_known_is_told(width: int) -> None:
    text = text_of(look(), width)
    for part in (
        "✗ ·brown  id 3",
        "round 12, token 45",
        "rejected:",
        "min(1, p/q) = 0.45",
        "draw 0.82 ≥ 0.45: rejected",
    ):
        assert part in text
    facts_alone = told(TOKEN)
    assert "processed p 0.312, q 0.700" in facts_alone
    assert "processed entropy: target 1.23, drafter 0.99 nats" in facts_alone
    assert "draft 8.0, verify 30.1, other 0.2 ms" in facts_alone
    assert text.count("▸✗·word3") == text.count(" ↻·word1") == 1  # each token once, p and q beside each other
    assert "max(0, p − q) scaled to sum 1" in " ".join(text.split()) or width > 44
    assert "0.400" in text and "#12" in text
    assert "\x1b" not in text and "␛" in text


def test_where_few_rows_are_in_sight_the_token_its_fate_and_the_bars_of_what_was_chosen_are_among_them() -> None:
    lines = ["".join(text for text, _ in line) for line in inspector_lines(look(), 57, rows=6)]
    first = lines[:4]
    assert "✗ ·brown  rejected  id 3" in first[0] and " p " in first[1] and " q " in first[1]
    assert first[2].startswith("▸✗·word3") and first[3].startswith(" ↻·word1") and "█" in first[2]
    assert sorted(set(text_of(look(), 57).split())) == sorted(set(" ".join(lines).split()))  # nothing is left out
    tiny = ["".join(text for text, _ in line) for line in inspector_lines(look(), 36, rows=3)]
    assert "rejected" in tiny[0] and "p 0.312, q 0.700" in tiny[1]


def test_no_line_is_wider_than_the_panel() -> None:
    for width in range(20, 200):
        for rows in (2, 6, 100):
            for line in inspector_lines(look(text="x" * 5000), width, rows):
                assert cell_len("".join(text for text, _ in line)) <= width, width


def test_the_fate_has_its_colour_and_the_text_is_no_markup() -> None:
    parts = [part for line in inspector_lines(look(text="[/x]"), 60) for part in line]
    assert ("[/x]", "$token-rejected strike") in parts
    assert any(text.startswith("rejected:") and style == "$token-rejected" for text, style in parts)


def test_under_greedy_sampling_raw_and_processed_are_told_apart() -> None:
    seen = Insight(1.55, 0.9, ((7, 0.553), (8, 0.2)), ((7, 0.412), (9, 0.3)))
    text = told(Token(7, Status.ACCEPTED, 3, 1.0, 1.0, 1.0, None, seen))
    assert "raw p 0.553 → greedy 1" in text and "raw q 0.412 → greedy 1" in text
    assert "raw entropy: target 1.55, drafter 0.90 nats" in text
    assert "greedy: the target's best token is this one" in text
    assert "processed" not in text and "1.000" not in text and "distribution" not in text


def test_what_greedy_refused_has_its_raw_chance_or_the_bound_of_it() -> None:
    top = tuple((n, 0.5 / 2**n) for n in range(10))
    text = told(Token(77, Status.REJECTED, 3, 0.0, 1.0, 0.0, None, Insight(1.0, 0.5, top, ((77, 0.9), (1, 0.1)))))
    assert "raw p below 9.8e-04 → greedy 0" in text or "raw p below 0.001 → greedy 0" in text
    assert "raw q 0.900 → greedy 1" in text
    assert "the target's best token is another one" in text


def test_a_draw_says_what_it_was_compared_with() -> None:
    text = told(Token(1, Status.ACCEPTED, 0, 0.6, 0.5, 1.0, 0.31))
    assert "accept with min(1, p/q) = 1 draw 0.31 < 1: accepted" in text


def test_the_chance_of_a_block_is_not_called_min_1_p_over_q() -> None:
    text = told(Token(1, Status.ACCEPTED, 0, 0.2, 0.5, 0.9, 0.3))
    assert "min(1, p/q)" not in text and "its block's chance = 0.90" in text


def test_a_token_that_was_never_judged_has_no_chance_to_be_accepted() -> None:
    text = told(Token(1, Status.UNVERIFIED, 3, 0.5, 0.4, 1.0, None))
    assert "never judged" in text and "with the refused draft in it" in text
    assert "1.000" not in text and "accept with" not in text and "min(" not in text


def test_under_the_block_rule_a_draft_behind_the_refused_one_was_tested() -> None:
    text = told(Token(1, Status.UNVERIFIED, 3, 0.2, 0.5, 0.3, 0.9))
    assert "never judged" not in text and "draw 0.90 ≥ 0.30: not passed" in text


def test_a_draw_and_the_chance_it_was_compared_with_never_look_equal() -> None:
    text = told(Token(1, Status.ACCEPTED, 0, 0.5, 0.64741, 0.77231, 0.77171))
    assert "draw 0.7717 < 0.7723: accepted" in text


def test_a_draft_that_a_later_one_kept_is_explained() -> None:
    assert "0.90 ≥ 0.40: kept by a later draft" in told(Token(1, Status.ACCEPTED, 0, 0.2, 0.5, 0.4, 0.9))


def test_coupled_drafts_are_kept_without_a_chance() -> None:
    text = told(Token(1, Status.ACCEPTED, 0, 0.2, 0.5))
    assert "kept when the target's own draw is the same" in text


def test_without_insight_one_line_says_how_to_get_it_and_the_rest_is_there() -> None:
    text = text_of(look(Token(1, Status.BONUS, 3, 0.5)))
    assert text.splitlines()[-1] == HINT
    assert "processed p 0.500" in text and "clock" in text
    for part in ("q ", "draw", "entropy:"):
        assert part not in text.split("clock")[0]


def test_a_drafter_without_a_distribution_is_certain() -> None:
    token = Token(1, Status.ACCEPTED, 3, 0.5, 1.0, 0.5, 0.2, Insight(1.0, None, TOP))
    assert "q = 1: a drafter without a distribution" in told(token)
    rows = [line for line in text_of(look(token)).splitlines() if "word" in line]
    assert rows[0].startswith("▸✓·word1") and " 1 " in rows[0] and rows[1].split()[-1] == "0"


def test_prefill_and_pending_drafts_have_words_of_their_own() -> None:
    first = Token(0, Status.SAMPLED, 0, 1.0)
    text = text_of(look(first, record=PrefillDone(first, 0.21)))
    assert "prefill, token 1" in text and "clock: prefill 210.0 ms" in text
    draft = Token(0, Status.PENDING, 7)
    text = text_of(look(draft, record=DraftsProposed(2, (draft,))))
    assert "round 3, token 8" in text and "pending:" in text and "clock" not in text


def test_nothing_of_a_search_is_called_drawn() -> None:
    settled, pending = (Token(3, fate, 4, 0.25) for fate in (Status.SAMPLED, Status.PENDING))
    assert "settled: every text that can still win has it" in told(settled, searches=True)
    assert "pending: in the best text so far; another may still win" in told(pending, searches=True)
    words = f"{told(settled, searches=True)} {told(pending, searches=True)}"
    assert not any(word in words for word in ("drawn", "sampled", "judged"))
    assert "sampled: drawn without drafts" in told(settled) and "has not judged it yet" in told(pending)
