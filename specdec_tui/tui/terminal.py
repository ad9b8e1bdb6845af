"""Keeps everything but the app off the screen.

Native libraries write to file descriptors 1 and 2 and would draw over the app. While the app
runs, both lead to a log file, and the app's driver writes to a duplicate of the terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

LOG_BYTES = 1 << 20


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
        for stream in streams:
            if stream is not None:
                stream.flush()
        terminal.flush()
        for fd, old in kept.items():
            os.dup2(old, fd)
            os.close(old)
        os.close(log_fd)
        # Not closed: Textual's input thread may still hold it for a moment.


def _open_log(log: Path) -> int:
    """The log, begun anew when it has grown large; nowhere when it cannot be written."""
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        large = log.exists() and log.stat().st_size > LOG_BYTES
        return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if large else 0), 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
