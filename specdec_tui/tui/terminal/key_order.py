"""Keys act in the order they were typed, however fast they come.

Textual hands a key to the widget that has the focus at that moment and goes on to the next one,
while what the first one leads to (a submitted prompt, a closed dialog, another focus) is still
under way as messages. So enter followed at once by ctrl+c would stop a run that has not begun, and
what is typed behind a command would become part of it. Here a key waits until the one before it
has had its consequences.

What a terminal sends without a pause, of noise or a program, can be more than is taken in for minutes. The keys
that stop and leave do not wait behind it: what does is dropped, as a shell drops at ctrl+c what was typed ahead.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from time import monotonic

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.message import Message
from textual.message_pump import MessagePump
from textual.widgets import Input, TextArea

from specdec_tui.doors.characters import visible

# Of no more consequence than printable keys, which the box with the focus takes as they come; but these are bindings of
# it, which act only once the key has climbed up to the app.
_BOUND = frozenset(("up", "down", "left", "right", "pageup", "pagedown", "home", "end", "backspace", "delete"))

# The longest chain of messages a key starts: a value picked in the side bar, on its way to the settings.
_LAPS = 5
_LAPS_OF_BOUND = 1

# What a person may have typed ahead; more is noise.
_MOST_AHEAD = 200
_OF_TYPING = (events.Key, events.Paste, TextArea.Changed, TextArea.SelectionChanged, Input.Changed)

# A widget that never answers must not cost the keyboard.
_PATIENCE_SECONDS = 1.0


def is_typing(message: Message) -> bool:
    """Whether it is a key, a paste, or what follows from one in a box of text."""
    return isinstance(message, _OF_TYPING)


def _nothing() -> None:
    """What a message is for that stands where others stood."""


class KeysInOrder(App[int]):
    """An app that takes keys and pastes one behind the other."""

    def __init__(self, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self.at_once: dict[str, str] = {}
        """Keys for which what came before them is dropped, and their actions."""
        self._held: deque[events.Key | events.Paste] = deque()
        self._turn = 0
        self._unsettled_since: float | None = math.inf  # what is typed before there is a focus waits for it
        self._acting: asyncio.Future[None] | None = None

    @property
    def ahead(self) -> int:
        """Messages that wait before a key that comes now. From any thread."""
        return len(self._held) + sum(pump.message_queue_size for pump in self._takers())

    @property
    def has_room(self) -> bool:
        """Whether no more waits than a person may have typed ahead."""
        return self.ahead <= _MOST_AHEAD

    def on_mount(self) -> None:
        self._unsettled_since = monotonic()
        self._lap(self._turn, _LAPS)  # behind the first focus, which is on its way as a message

    def must_act_at_once(self, message: Message, read: int = 0) -> bool:
        """Whether it is a key for which what came before it is dropped. From any thread.

        `read`: messages that wait behind those here.
        """
        return isinstance(message, events.Key) and message.key in self.at_once and self.ahead + read > _MOST_AHEAD

    def act_at_once(self, key: str) -> None:
        """Drop all keys that wait, and do what this one is for."""
        self._held.clear()
        for pump in self._takers():
            values: deque[Message | None] = pump._message_queue.values
            kept = [message for message in values if message is None or not is_typing(message)]
            if values and not kept:  # who waits for one may have been told that there is one
                kept.append(events.Callback(callback=_nothing))
            values.clear()
            values.extend(kept)
        self._acting = asyncio.ensure_future(self._act(self.at_once[key]))

    async def _act(self, action: str) -> None:
        with self._context():  # called from the reader of the terminal
            await self.run_action(action)

    def _takers(self) -> Sequence[MessagePump]:
        """Whom keys wait for."""
        if not self._screen_stack:
            return [self]
        screen = self._screen_stack[-1]
        return list((screen.focused or screen).ancestors_with_self)

    async def on_event(self, event: events.Event) -> None:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
            return
        self._held.append(event)
        since = self._unsettled_since
        if since is None or monotonic() - since > _PATIENCE_SECONDS:
            await self._release()

    async def _release(self) -> None:
        """Deliver what is held, up to the first key with consequences."""
        self._unsettled_since = None
        while self._held and self._unsettled_since is None:
            event = self._held.popleft()
            if isinstance(event, events.Paste) and not isinstance(self.focused, TextArea):
                event.text = visible(event.text)  # a box of one line shows what it has, as it is
            if laps := self._laps_of(event):
                self._turn += 1
                self._unsettled_since = monotonic()
            await super().on_event(event)
            await asyncio.sleep(0)  # the loop has its turn between two keys, however many there are
            if self._unsettled_since is not None:
                self._lap(self._turn, laps)

    def _laps_of(self, event: events.Key | events.Paste) -> int:
        """From the focus up to the app, until it has had its consequences; 0 where the focus keeps the order itself."""
        if isinstance(event, events.Paste):
            return 0
        if event.key in _BOUND:
            return _LAPS_OF_BOUND
        focused = self.focused
        return 0 if focused is not None and focused.check_consume_key(event.key, event.character) else _LAPS

    def _lap(self, turn: int, left: int) -> None:
        """Travel from the focus up to the app, behind every message that is on its way there."""
        self._climb(self.focused or self.screen, turn, left)

    def _climb(self, node: DOMNode | None, turn: int, left: int) -> None:
        while node is not None and node is not self:
            if node.call_later(self._climb, node.parent, turn, left):
                return
            node = node.parent
        self.call_later(self._lap_ended, turn, left)

    async def _lap_ended(self, turn: int, left: int) -> None:
        if turn != self._turn:
            return
        if left > 1:
            self._lap(turn, left - 1)
        else:
            await self._release()
