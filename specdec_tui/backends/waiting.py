"""Wait for a network in a way that ends: told while it lasts, given up after a while, left at once when asked to.

A library that waits for an answer cannot be interrupted, so it waits in a thread of its own. That
thread ends with its next report, or with the library's patience, and the process does not wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TypeVar

from specdec_tui.backends.pair import LoadAbandoned, Progress, ReportProgress

QUIET_SECONDS = 3.0
"""After so long without news it is said what is waited for."""
PATIENCE_SECONDS = 30.0
"""After so long without news it is given up."""
_LOOK = 0.1

Result = TypeVar("Result")


class NoAnswer(Exception):
    """Nothing has come for `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no answer for {seconds:.0f} s")
        self.seconds = seconds


class Silence:
    """How long nothing has come, and what to say of it."""

    def __init__(self, waiting_for: str, progress: ReportProgress) -> None:
        self._waiting_for, self._progress = waiting_for, progress
        self._last = time.monotonic()

    def broken(self) -> None:
        """Something came."""
        self._last = time.monotonic()

    def look(self) -> bool:
        """Say what is waited for where it is quiet; False where it is not. NoAnswer when it has been so for long."""
        seconds = time.monotonic() - self._last
        if seconds > PATIENCE_SECONDS:
            raise NoAnswer(seconds)
        if seconds > QUIET_SECONDS:
            self._progress(Progress(f"{self._waiting_for}, {seconds:.0f} s (ends after {PATIENCE_SECONDS:.0f} s)"))
        return seconds > QUIET_SECONDS


def awaited(
    work: Callable[[ReportProgress], Result], first: Progress, waiting_for: str, progress: ReportProgress
) -> Result:
    """What `work(report)` returns or raises, in a thread of its own; what it reports is news, and is passed on.

    `first` is reported until there is news, `waiting_for` in its place when there is none for some seconds.
    NoAnswer when there is no news for too long. What `progress` raises ends the waiting, and `work`
    with its next report.
    """
    news: SimpleQueue[Progress] = SimpleQueue()
    results: list[Result] = []
    faults: list[BaseException] = []
    left, over = threading.Event(), threading.Event()

    def report(step: Progress) -> None:
        if left.is_set():
            raise LoadAbandoned
        news.put(step)

    def do() -> None:
        try:
            results.append(work(report))
        except BaseException as fault:
            faults.append(fault)
        over.set()

    threading.Thread(target=do, name="specdec-download", daemon=True).start()
    silence, last = Silence(waiting_for, progress), first
    try:
        progress(first)
        while not over.wait(_LOOK) or not news.empty():
            try:
                while True:
                    last = news.get_nowait()
                    silence.broken()
            except Empty:
                pass
            if not silence.look():
                progress(last)
    finally:
        left.set()
    if faults:
        raise faults[0]
    return results[0]
