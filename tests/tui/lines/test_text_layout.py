"""Word wrap, checked on hand-made text and on random text of fixed seeds."""

from __future__ import annotations

import random

import pytest
from rich.cells import cell_len

from specdec_tui.tui.lines.layout import TextLayout, _line_end_of_any_text, cluster_end, expand_tabs, line_end

FAMILY = "👨\u200d👩\u200d👧\u200d👦"
ALPHABET = [
    *"abcdefgh" * 3,
    *" " * 12,
    "\n",
    "\t",
    "long-word-without-a-break",
    "世界",
    "、",
    "é",
    "e\u0301",
    "🙂",
    "❤\ufe0f",
    "❤",
    "\ufe0f",
    "\u200d",
    FAMILY,
    "γ",
    "ก็",
]


def random_pieces(seed: int, count: int = 120) -> list[str]:
    chance = random.Random(seed)
    text = "".join(chance.choice(ALPHABET) for _ in range(count))
    pieces, at = [], 0
    while at < len(text):
        size = chance.randint(0, 6)
        pieces.append(text[at : at + size])
        at += size
    return pieces


def wrapped(text: str, width: int) -> list[str]:
    layout = TextLayout(width)
    layout.append([text])
    return layout.lines


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("the quick brown fox", 10, ["the quick ", "brown fox"]),
        ("12345 789", 5, ["12345 ", "789"]),
        ("12345 \nx", 5, ["12345 \n", "x"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("ab abcdefgh", 4, ["ab ", "abcd", "efgh"]),
        ("a\n\nb", 9, ["a\n", "\n", "b"]),
        ("世界世界", 5, ["世界", "世界"]),
        ("ab世界", 3, ["ab", "世", "界"]),
        ("世界。", 4, ["世", "界。"]),
        ("世", 1, ["世"]),
        ("ab" + FAMILY + "c", 4, ["ab" + FAMILY, "c"]),
        ("a\tb", 5, ["a\tb"]),
        ("a\tbc", 5, ["a\t", "bc"]),
    ],
)
def test_lines_break_at_blanks_and_between_wide_characters(text: str, width: int, lines: list[str]) -> None:
    assert wrapped(text, width) == lines


@pytest.mark.parametrize("seed", range(60))
def test_text_fed_in_pieces_is_laid_out_like_the_whole_and_nothing_is_lost(seed: int) -> None:
    pieces = random_pieces(seed)
    width = random.Random(seed + 1000).randint(1, 40)
    layout = TextLayout(width)
    for piece in pieces:
        layout.append([piece])
    assert layout.text == "".join(pieces)
    assert layout.lines == wrapped("".join(pieces), width)


@pytest.mark.parametrize("seed", range(60))
def test_no_line_is_wider_than_the_view_but_for_one_hanging_blank(seed: int) -> None:
    width = random.Random(seed + 2000).randint(2, 40)
    for line in wrapped("".join(random_pieces(seed, 300)), width):
        assert cell_len(expand_tabs(line).removesuffix(" ").rstrip(" ")) <= width


@pytest.mark.parametrize("seed", range(30))
def test_a_tail_leaves_no_trace_and_a_resize_keeps_it(seed: int) -> None:
    chance = random.Random(seed)
    pieces, tail = random_pieces(seed), random_pieces(seed + 500, 20)
    layout, plain = TextLayout(20), TextLayout(20)
    for piece in pieces:
        layout.set_tail(tail)
        if chance.random() < 0.3:
            width = chance.randint(1, 50)
            layout.resize(width)
            plain.resize(width)
            assert layout.text == plain.text + "".join(tail)
        layout.append([piece])
        plain.append([piece])
        assert layout.lines == plain.lines
        assert layout._pieces == plain._pieces


@pytest.mark.parametrize("seed", range(20))
def test_the_first_changed_line_is_reported(seed: int) -> None:
    layout = TextLayout(17)
    before: list[str] = []
    for piece in random_pieces(seed):
        changed = layout.append([piece])
        assert layout.lines[:changed] == before[:changed]
        before = list(layout.lines)


@pytest.mark.parametrize("seed", range(20))
def test_the_pieces_of_all_lines_are_the_pieces_fed(seed: int) -> None:
    pieces = random_pieces(seed)
    layout = TextLayout(11)
    layout.append(pieces[:40])
    layout.append(pieces[40:])
    rebuilt = [""] * len(pieces)
    for number, line in enumerate(layout.lines):
        for piece, start, end in layout.pieces_of(number):
            rebuilt[piece] += line[start:end]
    assert rebuilt == pieces


def test_a_cell_leads_back_to_its_piece() -> None:
    layout = TextLayout(10)
    layout.append(["世", "界", " a", "\tb", "\n", "new line"])
    assert [layout.piece_at(0, column) for column in range(10)] == [0, 0, 1, 1, 2, 2, 3, 3, 3, None]
    assert layout.piece_at(1, 0) == 5
    assert layout.piece_at(1, 8) is None
    assert layout.piece_at(9, 0) is None


def test_a_family_of_joined_emoji_is_never_torn() -> None:
    assert cluster_end(FAMILY + "x", 0) == len(FAMILY)
    for width in range(2, 6):
        assert all(line.startswith("👨") for line in wrapped(FAMILY * 5, width))


def test_zero_width_characters_cannot_make_an_endless_line() -> None:
    lines = wrapped("a" + "\u0301" * 50_000, 10)
    assert max(map(len, lines)) < 300
    assert "".join(lines) == "a" + "\u0301" * 50_000


@pytest.mark.parametrize("unit", ["x", " ", "世", "\u0301", "\t"])
def test_a_long_line_is_wrapped_only_at_its_end(unit: str) -> None:
    """Counts the characters looked at: a line of 50 KB in 4-character tokens, none looked at more than once a line."""
    layout = TextLayout(60)
    seen = 0
    original = layout._wrap

    def counting(text: str, offset: int) -> None:
        nonlocal seen
        seen += len(text)
        original(text, offset)

    layout._wrap = counting  # type: ignore[method-assign]
    tokens = 50_000 // 4
    for _ in range(tokens):
        layout.append([unit * 4])
    assert seen / tokens < 700
    assert len(layout.text) == 50_000


def test_signs_among_plain_letters_wrap_as_the_slow_way_does() -> None:
    dice = random.Random(1)
    for _ in range(300):
        text = "".join(dice.choice("ab  \n▏✗○↻↵⇥") for _ in range(40))
        for width in (1, 4, 9, 30):
            start = dice.randrange(20)
            assert line_end(text, start, width) == _line_end_of_any_text(text, start, width), (text[start:], width)
