"""Pastes are text: nothing in them may act as a key, and nothing may be lost."""

from __future__ import annotations

import itertools

import pytest
from textual import events

from specdec_tui.tui.terminal import paste
from specdec_tui.tui.terminal.paste import HOLD_SECONDS, IDLE_SECONDS, LONGEST, PasteSafeParser

START, END = "\x1b[200~", "\x1b[201~"


class Keyboard:
    """Feeds a parser, by a clock of its own; `found` are texts of pastes and names of keys, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.found: list[str] = []
        self._parser = PasteSafeParser()
        monkeypatch.setattr(paste, "monotonic", lambda: self.now)

    def send(self, *reads: str, apart: float = 0.0) -> None:
        for data in reads:
            self.now += apart
            self._take(self._parser.feed(data))
            self._take(self._parser.tick())

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.1  # as often as Textual's driver looks
            self._take(self._parser.tick())

    def _take(self, messages: object) -> None:
        for event in messages:  # type: ignore[attr-defined]
            if isinstance(event, events.Paste):
                self.found.append(f"paste {event.text}")
            elif isinstance(event, events.Key):
                self.found.append(event.key)


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Keyboard:
    return Keyboard(monkeypatch)


def in_pieces(data: str, size: int) -> list[str]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def together(found: list[str]) -> list[str]:
    """Pastes right behind each other as one."""
    whole = []
    for is_paste, group in itertools.groupby(found, lambda entry: entry.startswith("paste ")):
        entries = list(group)
        whole += ["paste " + "".join(entry[6:] for entry in entries)] if is_paste else entries
    return whole


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_escape_sequences_in_a_paste_stay_in_it_however_the_input_is_cut(keyboard: Keyboard, size: int) -> None:
    keyboard.send(*in_pieces(f"x{START}alpha \x1b[31mred\x1b[0m tail\rbeta\x1b{END}y\x1b[A", size))
    keyboard.wait(2 * HOLD_SECONDS)
    assert keyboard.found == ["x", "paste alpha \x1b[31mred\x1b[0m tail\nbeta\x1b", "y", "up"]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_two_pastes_and_an_empty_one_lose_nothing(keyboard: Keyboard, size: int) -> None:
    keyboard.send(*in_pieces(f"{START}a{END}", size))
    keyboard.wait(1)
    keyboard.send(*in_pieces(f"{START}{END}b", size))
    keyboard.wait(1)
    assert keyboard.found == ["paste a", "paste ", "b"]


@pytest.mark.parametrize("size", [1, 7, 100, 4095, 4096, 100_000])
def test_an_end_marker_inside_the_pasted_text_does_not_let_the_rest_act_as_keys(keyboard: Keyboard, size: int) -> None:
    evil = "x" * 5000 + END + "\r" + "y" * 9000 + END + f"\r{START}\x03\rz" * 2000
    keyboard.send(*in_pieces(f"{START}{evil}{END}", size), apart=0.001)
    keyboard.wait(1)
    keyboard.send("q")
    text = evil.replace(START, "").replace(END, "").replace("\r", "\n")
    assert together(keyboard.found) == [f"paste {text}", "q"]


def test_a_paste_whose_end_is_lost_ends_by_itself_and_the_next_keys_are_keys(keyboard: Keyboard) -> None:
    keyboard.send(f"{START}half\r")
    keyboard.wait(IDLE_SECONDS + 0.3)
    keyboard.send("a", "\x03", "\x1b[A", apart=0.1)
    assert keyboard.found == ["paste half\n", "a", "ctrl+c", "up"]


def test_typing_without_a_pause_does_not_prolong_a_paste_whose_end_is_lost(keyboard: Keyboard) -> None:
    keyboard.send(START)
    for _ in range(40):
        keyboard.send("a", apart=0.04)
        keyboard.wait(0.1)
    keyboard.wait(0.2)
    assert keyboard.found[0] == "paste " + "a" * (len(keyboard.found[0]) - 6)
    assert keyboard.found[1:] and set(keyboard.found[1:]) == {"a"}


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\x03", "ctrl+c"),
        ("\x11", "ctrl+q"),
        ("\x1b[99;5u", "ctrl+c"),
        ("\x1b[113;69u", "ctrl+q"),
        ("\x03\x03", "ctrl+c"),
    ],
)
def test_ctrl_c_and_ctrl_q_act_inside_a_paste_that_does_not_end(keyboard: Keyboard, sent: str, key: str) -> None:
    keyboard.send(START, "half a paste", sent, apart=0.06)
    assert keyboard.found[:2] == ["paste half a paste", key]


def test_a_control_in_the_midst_of_a_paste_is_text_even_in_a_read_of_its_own(keyboard: Keyboard) -> None:
    keyboard.send(f"{START}rm ", "\x03", f"x{END}", apart=0.001)
    assert keyboard.found == ["paste rm \x03x"]


def test_the_rest_of_a_paste_that_was_held_up_on_its_way_is_text(keyboard: Keyboard) -> None:
    text = "".join(f"line {n}\r" for n in range(2000))
    first, *rest = in_pieces(f"{START}{text}{END}", 4096)
    keyboard.send(first)
    keyboard.wait(5)
    keyboard.send(*rest)
    keyboard.wait(1)
    assert together(keyboard.found) == ["paste " + text.replace("\r", "\n")]


def test_a_reader_that_was_held_up_takes_no_pause_for_the_end(keyboard: Keyboard) -> None:
    keyboard.send(f"{START}one\r")
    keyboard.now += 10  # no look in between
    keyboard.send(f"two\r{END}")
    assert together(keyboard.found) == ["paste one\ntwo\n"]


def test_a_paste_without_end_is_handed_on_in_pieces_that_lose_nothing(keyboard: Keyboard) -> None:
    text = "0123456789\r\n" * (LONGEST // 5)
    keyboard.send(*in_pieces(f"{START}{text}{END}", 65536))
    assert len(keyboard.found) >= 3 and max(len(piece) for piece in keyboard.found) < LONGEST + 65536 + 10
    assert "".join(piece[6:] for piece in keyboard.found) == text.replace("\r\n", "\n")


def test_moving_the_mouse_does_not_prolong_what_is_held(keyboard: Keyboard) -> None:
    keyboard.send(f"{START}a{END}y")
    for x in range(1, 100):
        keyboard.send(f"\x1b[<35;{x};7M", apart=0.01)
        keyboard.wait(0.001)
    assert keyboard.found == ["paste a", "y"]


@pytest.mark.parametrize("key", ["\x03", "\x11", "\x1b[99;5u"])
def test_ctrl_c_and_ctrl_q_act_inside_a_paste_while_the_mouse_moves(keyboard: Keyboard, key: str) -> None:
    keyboard.send(f"{START}a")
    for x in range(1, 9):
        keyboard.send(f"\x1b[<35;{x};7M", apart=0.01)
    keyboard.send(f"{key}\x1b[<35;9;7M", apart=0.01)
    assert len(keyboard.found) == 2 and keyboard.found[1] in ("ctrl+c", "ctrl+q"), keyboard.found


def test_bytes_without_a_paste_are_parsed_as_before(keyboard: Keyboard) -> None:
    keyboard.send("a\r\x1b[B\x1b[1;5A")
    assert keyboard.found == ["a", "enter", "down", "ctrl+up"]
