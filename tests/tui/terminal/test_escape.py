"""Escape and a key right behind it are two keys; alt and a key in one read is one, where it means something."""

from __future__ import annotations

import pytest
from textual import events

from specdec_tui.tui.terminal.escape import EscapeParser


def keys(*reads: str) -> list[str]:
    """Names of keys, without any time between the reads."""
    parser = EscapeParser()
    return [event.key for data in reads for event in parser.feed(data) if isinstance(event, events.Key)]


@pytest.mark.parametrize("reads", [("\x1b", "v"), ("\x1bv",), ("\x1b[27u", "v"), ("\x1b[27uv",)])
def test_escape_and_a_letter_behind_it_are_both_keys_at_once(reads: tuple[str, ...]) -> None:
    assert keys(*reads) == ["escape", "v"]


@pytest.mark.parametrize(
    ("typed", "key"), [("f", "f"), ("3", "3"), ("\r", "enter"), ("\x03", "ctrl+c"), ("]", "right_square_bracket")]
)
def test_what_arrives_in_a_read_of_its_own_was_typed_behind_escape(typed: str, key: str) -> None:
    assert keys("\x1b", typed) == ["escape", key]


def test_words_behind_escape_are_all_there() -> None:
    assert keys("\x1bhello", "\x1b", "\x1b", "i") == ["escape", "h", "e", "l", "l", "o", "escape", "escape", "i"]


@pytest.mark.parametrize("sent", ["\x1b3", "\x1b[51;3u"])
def test_alt_and_a_digit_is_a_key_and_no_character_however_the_terminal_sends_it(sent: str) -> None:
    (key,) = EscapeParser().feed(sent)
    assert isinstance(key, events.Key) and (key.key, key.is_printable) == ("alt+3", False)


@pytest.mark.parametrize(("sent", "key"), [("\x1bf", "ctrl+right"), ("\x1b\x7f", "ctrl+w"), ("\x1b[1;3C", "alt+right")])
def test_alt_keys_that_edit_stay_what_they_were(sent: str, key: str) -> None:
    assert keys(sent) == [key]


def test_a_sequence_cut_between_two_reads_is_one_key() -> None:
    assert keys("\x1b", "[A", "\x1b", "OP") == ["up", "f1"]


def test_a_bracket_typed_behind_escape_is_both_once_nothing_follows() -> None:
    parser = EscapeParser()
    list(parser.feed("\x1b["))
    parser._timeout_time = 0.0  # the patience of Textual's parser is over
    assert [event.key for event in parser.tick() if isinstance(event, events.Key)] == ["escape", "left_square_bracket"]


def test_what_terminals_report_without_being_asked_types_nothing() -> None:
    assert keys("\x1b[?62;4c", "\x1b[?997;1n", "\x1b[0n", "x") == ["x"]
    assert [type(e) for e in EscapeParser().feed("\x1b[<35;5;7M\x1b[I")] == [events.MouseMove, events.AppFocus]
