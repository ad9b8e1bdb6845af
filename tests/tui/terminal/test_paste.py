"""Pastes are text: nothing in them may act as a key, and nothing may be lost."""

from __future__ import annotations

import pytest
from textual import events

from specdec_tui.tui.terminal.paste import PasteSafeParser

START, END = "\x1b[200~", "\x1b[201~"


def parsed(data: str, size: int) -> list[str]:
    """Texts of pastes and names of keys, in order, when the input arrives in pieces of `size`."""
    parser = PasteSafeParser()
    found = []
    for at in range(0, len(data), size):
        for event in parser.feed(data[at : at + size]):
            if isinstance(event, events.Paste):
                found.append(f"paste {event.text}")
            elif isinstance(event, events.Key):
                found.append(event.key)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_escape_sequences_in_a_paste_stay_in_it_however_the_input_is_cut(size: int) -> None:
    data = f"x{START}alpha \x1b[31mred\x1b[0m tail\rbeta\x1b{END}y\x1b[A"
    assert parsed(data, size) == ["x", "paste alpha ␛[31mred␛[0m tail\nbeta␛", "y", "up"]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_two_pastes_and_an_empty_one_lose_nothing(size: int) -> None:
    found = parsed(f"{START}a{END}", size) + parsed(f"{START}{END}b", size)
    assert found == ["paste a", "paste ", "b"]


def test_an_end_marker_inside_the_pasted_text_does_not_let_the_rest_act_as_keys() -> None:
    assert parsed(f"{START}a{END}\rb{END}", 1000) == ["paste a\nb"]


def test_bytes_without_a_paste_are_parsed_as_before() -> None:
    assert parsed("a\r\x1b[B\x1b[1;5A", 1000) == ["a", "enter", "down", "ctrl+up"]


@pytest.mark.parametrize("sent", ["\x1b3", "\x1b[51;3u"])
def test_alt_and_a_digit_is_a_key_and_no_character_however_the_terminal_sends_it(sent: str) -> None:
    (key,) = PasteSafeParser().feed(sent)
    assert isinstance(key, events.Key) and (key.key, key.is_printable) == ("alt+3", False)
