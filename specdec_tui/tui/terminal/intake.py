"""Between the thread that reads the terminal and the loop: messages in their order, as many as are taken in.

Textual hands each one to the loop by itself. Of twenty thousand keys of noise every one then stands between the loop
and what it has to do, and nothing that is read behind them can come first.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

from textual.message import Message

_LOOK_SECONDS = 0.01


class Intake:
    """Hands messages on while `has_room` and `take` is called in the loop; `put` and `drop` are for any thread."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        take: Callable[[Message], object],
        has_room: Callable[[], bool],
        replaces: Callable[[Message, Message], bool],
    ) -> None:
        """`replaces(message, before)`: whether a message leaves nothing to say for the one right before it."""
        self._loop, self._take, self._has_room, self._replaces = loop, take, has_room, replaces
        self._waiting: deque[Message] = deque()
        self._is_called = False
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: Message) -> None:
        with self._lock:
            if self._waiting and self._replaces(message, self._waiting[-1]):
                self._waiting.pop()
            self._waiting.append(message)
            is_called, self._is_called = self._is_called, True
        if not is_called:
            with suppress(RuntimeError):  # the loop is over
                self._loop.call_soon_threadsafe(self._hand_on)

    def drop(self, is_dropped: Callable[[Message], bool]) -> None:
        """Forget what waits and is of that kind."""
        with self._lock:
            self._waiting = deque(message for message in self._waiting if not is_dropped(message))

    def _hand_on(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_called = False
                    return
                message = self._waiting.popleft() if self._has_room() else None
            if message is None:
                self._loop.call_later(_LOOK_SECONDS, self._hand_on)
                return
            self._take(message)
