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
from threading import Event, Lock, Thread
from types import FrameType
from typing import Any

from textual.app import App

from specdec_tui.doors.writing import log_or_nowhere

# All that end a process and can be caught, but for those of a crash and those that Python ignores.
_NAMES = (
    *("SIGHUP", "SIGTERM", "SIGINT", "SIGQUIT"),
    *("SIGUSR1", "SIGUSR2", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGXCPU", "SIGPOLL", "SIGPWR", "SIGSTKFLT"),
)
CALLS_TO_LEAVE = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
WATCH_SECONDS = 1.0
LEAVING_SECONDS = 15.0
GONE = 129  # the status of what ends by a hang-up


@contextmanager
def screen_to_ourselves(log: Path, page: int | None = None) -> Iterator[None]:
    """Send file descriptors 1 and 2 to `log`; the terminal stays reachable through `sys.__stderr__`.

    The descriptor of a `page` is as a terminal. Without either nothing changes.
    """
    terminal_fd = next((fd for fd in (2, 1) if os.isatty(fd)), None) if page is None else page
    if terminal_fd is None:
        yield
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    kept = {fd: os.dup(fd) for fd in (1, 2)}
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    terminal = os.fdopen(os.dup(terminal_fd), "w", encoding="utf-8", errors="replace")
    log_fd = log_or_nowhere(log)
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
def leaving_when_told(leave: Callable[[int], None], give_back: Callable[[], None]) -> Iterator[None]:
    """When the terminal is closed, or the process is asked to end, `leave(status)` is called in a thread of its own.

    Without it the process would be gone at once, and what it has not written yet with it; or, where
    it is not told that its terminal is gone, would ask for keys for ever. It is called once, however often
    the process is told; what has not left after `LEAVING_SECONDS` ends there, behind `give_back` of the terminal.
    """

    def told(number: int, _frame: FrameType | None) -> None:
        # A thread: what is asked from the interrupted one would not wake a loop that waits for input.
        Thread(target=go, args=(128 + number,), daemon=True).start()

    def go(status: int) -> None:
        if not going.acquire(blocking=False):
            return
        with suppress(Exception):  # the app may be leaving by itself
            leave(status)
        if not over.wait(LEAVING_SECONDS):
            waiting = Thread(target=give_back, daemon=True)  # a terminal that takes nothing holds up who writes to it
            waiting.start()
            waiting.join(WATCH_SECONDS)
            os._exit(status)

    def watch() -> None:
        while not over.wait(WATCH_SECONDS):
            if not os.isatty(0):
                go(GONE)
                return

    over, going = Event(), Lock()
    if os.isatty(0):
        Thread(target=watch, daemon=True).start()
    before = {number: signal.signal(number, told) for number in CALLS_TO_LEAVE}
    try:
        yield
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)


def use_our_driver(app: App[Any]) -> None:
    """Have the app drive its terminal by `TerminalDriver`, where Textual would by its own."""
    if sys.platform != "win32":
        from textual.drivers.linux_driver import LinuxDriver

        from specdec_tui.tui.terminal.driver import TerminalDriver

        if app.driver_class is LinuxDriver:
            app.driver_class = TerminalDriver


def use_page_driver(app: App[Any]) -> None:
    """Have the app painted in a web page, whose server is at the other end of standard input and output."""
    from specdec_tui.tui.terminal.page_driver import PageDriver

    app.driver_class = PageDriver


def give_back(app: App[Any]) -> None:
    """Leave the terminal as it was found, if that has not happened; from any thread."""
    give = getattr(app._driver, "give_back", None)
    if give is not None:
        give()


def takes_picture(app: App[Any]) -> bool:
    """Whether the terminal keeps up with what is painted; if not, the whole screen follows once it does."""
    takes = getattr(app._driver, "takes_picture", None)
    return takes is None or bool(takes())


async def suspend(app: App[Any]) -> bool:
    """Hand the terminal to the shell until it continues the app; False where there is none to do so."""
    stop = getattr(app._driver, "suspend", None)
    return stop is not None and bool(await stop())
