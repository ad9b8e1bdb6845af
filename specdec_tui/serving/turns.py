"""Who is next where one thing can be done at a time: first come, first served."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Condition


@dataclass(eq=False, slots=True)
class Turn:
    """`work` is done when it comes; `placed` hears how many come before it, as often as that changes.

    `gives_way`: it comes behind all others, and none of them is said to wait for it.
    """

    work: Callable[[], object]
    placed: Callable[[int], object] = lambda before: None
    gives_way: bool = False
    before: int = 0


class Turns:
    """For any thread."""

    def __init__(self) -> None:
        self._waiting: list[Turn] = []
        self._at_work: Turn | None = None
        self._closed = False
        self._changed = Condition()

    def take(self, turn: Turn) -> None:
        """Stand in line."""
        with self._changed:
            self._waiting.append(turn)
            self._waiting.sort(key=lambda one: one.gives_way)
            self._place()
            self._changed.notify()

    def withdraw(self, turn: Turn) -> bool:
        """Leave the line; False where the turn has come already."""
        with self._changed:
            with suppress(ValueError):
                self._waiting.remove(turn)
                self._place()
                return True
            return False

    @property
    def must_give_way(self) -> bool:
        """Whether somebody waits who does not give way."""
        with self._changed:
            return any(not turn.gives_way for turn in self._waiting)

    def work(self) -> None:
        """Do what is in line, one after another, until it is closed."""
        while (turn := self._next()) is not None:
            turn.work()

    def close(self) -> None:
        """Nobody's turn comes any more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify()

    def _next(self) -> Turn | None:
        with self._changed:
            self._at_work = None
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            self._at_work = self._waiting.pop(0)
            self._place()
            return self._at_work

    def _place(self) -> None:
        before = 0 if self._at_work is None or self._at_work.gives_way else 1
        for turn in self._waiting:
            if turn.before != before:
                turn.before = before
                turn.placed(before)
            before += not turn.gives_way
