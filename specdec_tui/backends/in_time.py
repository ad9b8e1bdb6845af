"""Work inside a library that nothing can break off, waited for in a thread of its own: for so long, and no longer.

A tokenizer is made of its model's files, regular expressions among them, and some take minutes over a
short text. Given up, the work is left to itself: its thread ends with it, and the process does not wait.
This needs a library that lets go of the interpreter while it works, else nobody is left to look at the clock.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

SECONDS = 20
_GLANCE = 0.05  # seconds between two looks at whether it was cancelled
_LOW = 10  # the priority, as by nice, of what nobody waits for

Result = TypeVar("Result")
_left: list[threading.Thread] = []


class Stopped(Exception):
    """The work was cancelled; says what was at work."""


class TooLong(Exception):
    """The work did not end in time."""


def in_time(
    work: Callable[[], Result], cancelled: Callable[[], bool] = lambda: False, seconds: float | None = None
) -> Result:
    """What `work()` returns or raises. Left behind by Stopped once `cancelled`, by TooLong after `seconds`."""
    results: list[Result] = []
    faults: list[BaseException] = []
    over = threading.Event()

    def do() -> None:
        try:
            results.append(work())
        except BaseException as fault:  # a panic of a library is no Exception
            faults.append(fault)
        over.set()

    thread = threading.Thread(target=do, name="specdec-tokenizer", daemon=True)
    deadline = time.monotonic() + (SECONDS if seconds is None else seconds)
    thread.start()
    try:
        while not over.wait(_GLANCE):
            if cancelled():
                raise Stopped
            if time.monotonic() > deadline:
                raise TooLong
    finally:
        if not over.is_set():
            _leave(thread)
    if faults:
        raise faults[0]
    return results[0]


def _leave(thread: threading.Thread) -> None:
    """Let it give way to what is wanted. Not to everything: at its end it holds the interpreter for a moment."""
    _left.append(thread)
    if sys.platform == "linux" and thread.native_id is not None:  # elsewhere there is one priority for a process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread.native_id, _LOW)


def still_at_work() -> int:
    """How many pieces of work that were left behind have not ended: each takes from whatever is timed."""
    _left[:] = [thread for thread in _left if thread.is_alive()]
    return len(_left)
