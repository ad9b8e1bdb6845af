"""What the app asks of its terminal: the screen for itself, and time to leave when it is closed.

Native libraries write to file descriptors 1 and 2 and would draw over the app. While the app
runs, both lead to a log file, and the app's driver writes to a duplicate of the terminal.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from types import FrameType

import platformdirs

from specdec_tui.doors.writing import log_descriptor

LOG_BYTES = 1 << 20
CALLS_TO_LEAVE = tuple(getattr(signal, name) for name in ("SIGHUP", "SIGTERM") if hasattr(signal, name))
WATCH_SECONDS = 1.0
GONE = 129  # the status of what ends by a hang-up


def log_file() -> Path:
    """Where the output of libraries goes."""
    return platformdirs.user_log_path("specdec-tui") / "output.log"


@contextmanager
def screen_to_ourselves(log: Path) -> Iterator[None]:
    """Send file descriptors 1 and 2 to `log`; the terminal stays reachable through `sys.__stderr__`.

    Without a terminal on either descriptor nothing changes.
    """
    terminal_fd = next((fd for fd in (2, 1) if os.isatty(fd)), None)
    if terminal_fd is None:
        yield
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept = {fd: os.dup(fd) for fd in (1, 2)}
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    terminal = os.fdopen(os.dup(terminal_fd), "w", encoding="utf-8", errors="replace")
    log_fd = _open_log(log)
    try:
        for fd in kept:
            os.dup2(log_fd, fd)
        # The driver writes to __stderr__ and the terminal's size is asked of __stdout__; a crash
        # report printed while the app closes goes to stderr and must reach the user.
        sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = terminal  # type: ignore[misc]
        yield
    finally:
        sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__ = streams  # type: ignore[misc]
        for stream in (*streams, terminal):
            with suppress(OSError):  # the terminal may be gone
                if stream is not None:
                    stream.flush()
        for fd, old in kept.items():
            os.dup2(old, fd)
            os.close(old)
        os.close(log_fd)
        # Not closed: Textual's input thread may still hold it for a moment.


@contextmanager
def leaving_when_told(leave: Callable[[int], None]) -> Iterator[None]:
    """When the terminal is closed, or the process is asked to end, `leave(status)` is called in a thread of its own.

    Without it the process would be gone at once, and what it has not written yet with it; or, where
    it is not told that its terminal is gone, would ask for keys for ever.
    """

    def told(number: int, _frame: FrameType | None) -> None:
        # A thread: what is asked from the interrupted one would not wake a loop that waits for input.
        Thread(target=leave, args=(128 + number,), daemon=True).start()

    def watch() -> None:
        while not over.wait(WATCH_SECONDS):
            if not os.isatty(0):
                leave(GONE)
                return

    over = Event()
    if os.isatty(0):
        Thread(target=watch, daemon=True).start()
    before = {number: signal.signal(number, told) for number in CALLS_TO_LEAVE}
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def _open_log(log: Path) -> int:
    """The log, begun anew when it has grown large; nowhere when it cannot be written."""
    try:
        return log_descriptor(log, most=LOG_BYTES)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
