"""The door for strings that others wrote."""

from __future__ import annotations

import unicodedata

import pytest

from specdec_tui.tui.lines.sanitize import visible


def test_nothing_a_terminal_obeys_is_left() -> None:
    everything = "".join(map(chr, range(0x110000)))
    shown = visible(everything)
    left = {c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")}
    assert left == {"\n", "\t"}
    bidirectional = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert not {c for c in shown if unicodedata.bidirectional(c) in bidirectional}


def test_every_character_stays_one_character_so_offsets_stay_valid() -> None:
    assert len(visible("".join(map(chr, range(0x110000))))) == 0x110000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("a\x1b[31mred", "a␛[31mred"),
        ("\x1b]52;c;aGk=\x07", "␛]52;c;aGk=␇"),
        ("\x9b2J", "␦2J"),
        ("\x7f", "␡"),
        ("safe\u202etxt.exe", "safe⇆txt.exe"),
        ("a\u2028b", "a␤b"),
        ("\ud83d", "\ufffd"),
        ("line\n\tindented", "line\n\tindented"),
        ("👩\u200d👩\u200d👧 ❤\ufe0f", "👩\u200d👩\u200d👧 ❤\ufe0f"),
    ],
)
def test_controls_become_symbols_and_emoji_sequences_stay(text: str, shown: str) -> None:
    assert visible(text) == shown
