"""Work that is wanted more often than it is worth doing."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from textual.widget import Widget


class Pace:
    """Does it when wanted, but where that may wait not sooner than `seconds` after the last time."""

    def __init__(self, owner: Widget, seconds: float, work: Callable[[], None]) -> None:
        self._owner, self._seconds, self._work = owner, seconds, work
        self._done = 0.0
        self._due = False

    @property
    def is_time(self) -> bool:
        return monotonic() - self._done >= self._seconds

    def now(self) -> None:
        """Do it."""
        self._done = monotonic()
        self._work()

    def soon(self) -> None:
        """Do it in a while, unless it is done meanwhile: the last change before a pause is not lost."""
        if not self._due:
            self._due = True
            self._owner.set_timer(2 * self._seconds, self._late)

    def _late(self) -> None:
        self._due = False
        if self.is_time:
            self.now()
        else:
            self.soon()
