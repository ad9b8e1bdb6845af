"""The door for strings that others wrote."""

from __future__ import annotations

import json
import unicodedata

import pytest

from specdec_tui.doors.characters import LONGEST_MESSAGE, escaped, fit, json_text, likeness, named, one_line, visible

OBEYED = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, 0x2028, 0x2029)]
OBEYED += [chr(code) for code in (*range(0x202A, 0x202F), *range(0x2066, 0x2070))]


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


@pytest.mark.parametrize("character", OBEYED, ids=lambda c: f"{ord(c):04x}")
def test_json_spells_what_a_terminal_obeys_and_reads_back_to_the_same_text(character: str) -> None:
    text = f"a{character}b"
    written = json_text({"text": text, text: 1}, indent=None)
    assert character not in written
    assert json.loads(written) == {"text": text, text: 1}


def test_json_leaves_all_other_text_as_it_is() -> None:
    assert json_text("雲 é 👩\u200d👩 \\u202e", indent=None) == '"雲 é 👩\u200d👩 \\\\u202e"'
    assert json.loads(escaped('"\ud83d"')) == "\ufffd"


def test_a_message_is_one_line_of_bounded_length() -> None:
    assert one_line("a\r\nb\u2028c\x85d\x1b]52;c;aGk=\x07\n") == "a b c d␛]52;c;aGk=␇"
    assert len(one_line("x\n" * 10**6)) == LONGEST_MESSAGE + 2


def test_what_an_encoding_lacks_has_a_likeness_in_it() -> None:
    assert likeness("✓ 1.5× γ α τ 3–4 … ≥ é 雲") == "yes 1.5x gamma alpha tau 3-4 ... >= e ?"
    assert fit("1.5× γ 3–4", "cp1252") == "1.5× gamma 3–4"
    assert fit("1.5× γ 3–4", "latin-1") == "1.5× gamma 3-4"
    assert fit("1.5× γ 雲", "utf-8") == "1.5× γ 雲"


@pytest.mark.parametrize(
    "encoding",
    [
        *("ascii", "cp1252", "shift_jis", "utf-8"),
        *(pytest.param(name, marks=pytest.mark.large) for name in ("latin-1", "cp437", "gb2312", "koi8-r")),
    ],
)
def test_every_character_can_be_shown_in_every_encoding(encoding: str) -> None:
    everything = "".join(map(chr, range(0x110000)))
    assert len(fit(visible(everything), encoding)) >= 0x100000


@pytest.mark.parametrize(
    ("text", "shown"),
    [("<tool>", "<tool>"), ("a\x1b[2J\nb", "a␛[2J b"), ("x" * 5000, "x" * 100 + "…"), ("\n" * 5000, "…")],
)
def test_a_name_that_a_file_gives_is_of_one_line_and_cut(text: str, shown: str) -> None:
    assert named(text) == shown
