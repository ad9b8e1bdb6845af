"""Writing to a terminal that reads, pauses, is slow, reads nothing any more, or is gone."""

from __future__ import annotations

import os
import pty
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from specdec_tui.tui.terminal import writer
from specdec_tui.tui.terminal.writer import MOST_WAITING, Writer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals")

PICTURE = "x" * 4000


class Terminal:
    """The reading end of a pair of ends; `caught_up` is set by the writer."""

    def __init__(self) -> None:
        self.end, self._written_to = pty.openpty()
        tty.setraw(self._written_to)
        self.caught_up = Event()
        self.writer = Writer(self._written_to, self.caught_up.set)
        self.writer.start()

    def read(self) -> bytes:
        return os.read(self.end, 3000) if select.select([self.end], [], [], 0.2)[0] else b""

    def read_all(self, end: str) -> str:
        """Read up to a text that ends so, behind which nothing comes."""
        read, patience = b"", time.monotonic() + 60
        while (piece := self.read()) or (not read.endswith(end.encode()) and time.monotonic() < patience):
            read += piece
        return read.decode()

    def fill(self) -> None:
        """Write pictures until they are refused."""
        while self.writer.takes_picture():
            self.writer.write(PICTURE)
            time.sleep(0.001)

    def close(self) -> None:
        for end in (self.end, self._written_to):
            os.close(end)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal()
    yield terminal
    terminal.close()


def test_a_slow_terminal_gets_all_that_is_written_in_its_order(terminal: Terminal) -> None:
    texts = [f"{number:05}\u2588" * 100 for number in range(400)]
    for text in texts:
        terminal.writer.write(text)
    assert terminal.read_all(texts[-1]) == "".join(texts)
    terminal.writer.stop("not needed")
    assert not terminal.writer.is_alive() and not terminal.read()


def test_writing_to_a_terminal_that_pauses_returns_at_once_and_asks_for_the_whole_picture_once_it_goes_on(
    terminal: Terminal,
) -> None:
    began = time.monotonic()
    terminal.fill()
    terminal.writer.write("a word that is no picture")
    assert time.monotonic() - began < 20
    assert not terminal.caught_up.wait(0.2)
    read = terminal.read_all("a word that is no picture")
    assert read.endswith("a word that is no picture") and read.count("x") % len(PICTURE) == 0
    assert read.count("x") > MOST_WAITING * len(PICTURE)
    assert terminal.caught_up.wait(60)
    terminal.caught_up.clear()
    assert terminal.writer.takes_picture()
    terminal.writer.write("on")
    assert terminal.read_all("on") == "on" and not terminal.caught_up.is_set()
    terminal.writer.stop("not needed")


def test_a_terminal_that_nobody_reads_costs_a_second_and_has_the_last_words_when_it_is_read(terminal: Terminal) -> None:
    terminal.fill()
    began = time.monotonic()
    terminal.writer.stop("LAST WORDS")
    assert time.monotonic() - began < 20
    assert not terminal.writer.is_alive()
    assert terminal.read_all("LAST WORDS").endswith("xLAST WORDS")


def test_a_terminal_whose_output_was_stopped_has_the_last_words(terminal: Terminal) -> None:
    termios.tcflow(terminal._written_to, termios.TCOOFF)
    terminal.writer.write(PICTURE)
    terminal.writer.stop("LAST WORDS")
    assert terminal.read_all("LAST WORDS") == "LAST WORDS" and not terminal.writer.is_alive()


def test_stopping_waits_for_a_terminal_that_still_reads(terminal: Terminal) -> None:
    terminal.writer.write(PICTURE * 50)
    terminal.writer.write("given back")
    stopping = Thread(target=terminal.writer.stop, args=("LAST WORDS",))
    stopping.start()
    assert terminal.read_all("xgiven back").endswith("xgiven back")
    stopping.join(60)


def test_a_terminal_that_is_gone_takes_everything(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PATIENCE_SECONDS", 60)
    os.close(terminal.end)
    terminal.end = os.open(os.devnull, os.O_RDWR)
    for _ in range(100):
        terminal.writer.write(PICTURE)
    began = time.monotonic()
    terminal.writer.stop("LAST WORDS")
    assert time.monotonic() - began < 20 and not terminal.writer.is_alive()
