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
ROUND = RoundVerified(11, (TOKEN,), Token(1, Status.RESAMPLED, 44), 0.008, 0.0301, 0.0002)


def look(token: Token = TOKEN, **changes: object) -> Look:
    return replace(Look(ROUND, token, " brown", TEXTS), **changes)  # type: ignore[arg-type]


def text_of(looked: Look, width: int = 44) -> str:
    return "\n".join("".join(text for text, _ in line) for line in inspector_lines(looked, width))


@pytest.mark.parametrize("width", [44, 76, 160])
def test_everything_that_is_known_is_told(width: int) -> None:
    text = text_of(look(), width)
    for part in (
        "✗ ·brown  id 3",
        "round 12, token 45",
        "rejected:",
        "p 0.312   q 0.700",
        "draw 0.82 ≥ 0.45: rejected",
    ):
        assert part in text
    facts_alone = " ".join("".join(text for text, _ in line) for line in facts(look(), min(width, 44)))
    assert "entropy: target 1.23, drafter 0.99 nats" in facts_alone
    assert "draft 8.0, verify 30.1, other 0.2 ms" in facts_alone
    assert text.count("▸·word3") == 2  # among the alternatives of both
    for name in ("target", "drafter", "residual"):
        assert name in text
    assert "0.400" in text and "#12" in text
    assert "\x1b" not in text and "␛" in text


def test_parts_of_a_character_are_told_apart_by_their_ids_and_bars_of_nothing_are_drawn() -> None:
    seen = Insight(target_top=((1, 0.0), (2, 0.0)))
    text = text_of(look(replace(TOKEN, insight=seen), alternatives={1: "\N{REPLACEMENT CHARACTER}", 2: ""}))
    assert "\N{REPLACEMENT CHARACTER}#1" in text and "#2" in text and "█" not in text


def test_no_line_is_wider_than_the_panel() -> None:
    for width in range(20, 200):
        for line in inspector_lines(look(text="x" * 5000), width):
            assert cell_len("".join(text for text, _ in line)) <= width, width


def test_the_fate_has_its_colour_and_the_text_is_no_markup() -> None:
    parts = [part for line in inspector_lines(look(text="[/x]"), 60) for part in line]
    assert ("[/x]", "$token-rejected strike") in parts
    assert any(text.startswith("rejected:") and style == "$token-rejected" for text, style in parts)


def test_a_draw_and_the_chance_it_was_compared_with_never_look_equal() -> None:
    text = text_of(look(Token(1, Status.ACCEPTED, 0, 0.5, 0.5, 0.77234, 0.77171)))
    assert "draw 0.7717 < 0.7723: accepted" in text or "draw 0.772 < 0.772" not in text
    assert "accepted" in text


def test_a_draft_that_a_later_one_kept_is_explained() -> None:
    assert "0.90 ≥ 0.40: kept by a later draft" in text_of(look(Token(1, Status.ACCEPTED, 0, 0.2, 0.5, 0.4, 0.9)))


def test_what_is_unknown_is_left_out_and_insight_is_named_once() -> None:
    text = text_of(look(Token(1, Status.BONUS, 3, 0.5)))
    assert " ".join(text.split()).endswith(HINT)
    for part in ("q ", "draw", "entropy:", "target\n"):
        assert part not in text.split("clock")[0].replace("acceptance", "")


def test_a_drafter_without_a_distribution_is_certain() -> None:
    token = Token(1, Status.ACCEPTED, 3, 0.5, 1.0, 0.5, 0.2, Insight(1.0, None, TOP))
    text = text_of(look(token))
    assert "q = 1: greedy, or a drafter without a" in text
    assert "drafter  " not in text and "drafter\n" not in text.replace("a drafter", "")


def test_prefill_and_pending_drafts_have_words_of_their_own() -> None:
    first = Token(0, Status.SAMPLED, 0, 1.0)
    text = text_of(look(first, record=PrefillDone(first, 0.21)))
    assert "prefill, token 1" in text and "clock: prefill 210.0 ms" in text
    draft = Token(0, Status.PENDING, 7)
    text = text_of(look(draft, record=DraftsProposed(2, (draft,))))
    assert "round 3, token 8" in text and "pending:" in text and "clock" not in text
