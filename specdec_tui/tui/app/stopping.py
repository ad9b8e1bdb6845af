"""Stopping the run, and leaving: once pressed it stops, pressed again soon it leaves."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from specdec_tui.tui.commands.table import key

if TYPE_CHECKING:
    from specdec_tui.tui.app.runs import Runs

SECOND_PRESS_SECONDS = 3.0


class Stopping:
    """`tell` says something to a person."""

    def __init__(self, runs: Runs, tell: Callable[..., None]) -> None:
        self._runs = runs
        self._tell = tell
        self._pressed = -SECOND_PRESS_SECONDS

    def stop_or_quit(self) -> bool:
        """First press: stop the run and keep its text, take back a waiting prompt. Pressed again soon: True, leave."""
        now = monotonic()
        if now - self._pressed < SECOND_PRESS_SECONDS:
            return True
        self._pressed = now
        said = self._runs.stop()
        again = f"{key('stop or quit')} again quits"
        self._tell(f"{said}; {again}" if said else again, timeout=SECOND_PRESS_SECONDS)
        return False

    def stop(self) -> None:
        """The same as often as one likes."""
        was_running = self._runs.running
        self._tell(self._runs.stop() or "No run to stop", holds=lambda: self._runs.running == was_running)
