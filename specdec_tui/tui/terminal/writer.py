"""What is written to the terminal or page, by a thread of its own: nobody waits for a terminal that takes nothing.

Textual's writer has room for thirty texts, and then the loop waits for the terminal, and with it every
key. Here the loop never waits: while too much stands in line, no pictures are made, and one of the
whole screen is when the line is empty. Nothing else is dropped, until the terminal is given back.
"""

from __future__ import annotations

import os
import select
import termios
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread

MOST_WAITING = 30  # texts, as Textual has it
PATIENCE_SECONDS = 1.0  # when the terminal is given back
_LOOK_SECONDS = 0.1


class Writer(Thread):
    """Writes to the terminal or page `fd` until it is told to stop; errors of one that is gone are its end, not ours.

    `caught_up`: called by this thread when all is written after pictures were left out.
    """

    def __init__(self, fd: int, caught_up: Callable[[], object]) -> None:
        super().__init__(daemon=True, name="terminal-output")
        self._given = fd
        self._fd = _opened_anew(fd)
        self._caught_up = caught_up
        self._waiting: deque[str | bytes] = deque()
        self._changed = Condition()
        self._left_out = False
        self._stopping = False
        self._given_up = False
        self._last_words = b""

    def write(self, text: str | bytes) -> None:
        with self._changed:
            self._waiting.append(text)
            self._changed.notify()

    def takes_picture(self) -> bool:
        """Whether a picture of what has changed shall be made now; else the whole screen is wanted later."""
        with self._changed:
            takes = len(self._waiting) <= MOST_WAITING
            self._left_out |= not takes
            return takes

    def run(self) -> None:
        while (text := self._next()) is not None:
            self._put(text)
        if self._given_up:
            with suppress(OSError, termios.error):
                termios.tcflush(self._fd, termios.TCOFLUSH)
                termios.tcflow(self._fd, termios.TCOON)  # as ctrl+q does, where ctrl+s had stopped it
                os.write(self._fd, self._last_words)  # there is room now
        if self._fd != self._given:
            os.close(self._fd)

    def _next(self) -> str | bytes | None:
        with self._changed:
            while not self._waiting:
                if self._stopping:
                    return None
                if self._left_out:
                    self._left_out = False
                    self._caught_up()
                self._changed.wait()
            return self._waiting.popleft()

    def _put(self, text: str | bytes) -> None:
        left = memoryview(text if isinstance(text, bytes) else text.encode("utf-8", errors="replace"))
        while left and not self._given_up:
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:
                select.select([], [self._fd], [], _LOOK_SECONDS)
            except OSError:  # gone
                return

    def stop(self, last_words: str) -> None:
        """Write what waits, for a second at most; of what the terminal has not taken by then only the last words."""
        with self._changed:
            self._last_words = last_words.encode()
            self._stopping = True
            self._changed.notify()
        self.join(PATIENCE_SECONDS)
        if self.is_alive():
            self._given_up = True
            with self._changed:
                self._waiting.clear()
            self.join(3 * _LOOK_SECONDS)  # who hangs in a terminal that cannot be opened anew is left behind


def _opened_anew(fd: int) -> int:
    """The same terminal, which never lets us wait; as a setting of `fd` that would hold for the shell, too."""
    try:
        return os.open(os.ttyname(fd), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return fd
