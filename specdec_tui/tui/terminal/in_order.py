"""A driver's messages on their way to the app: in their order, as many as it takes in, and no size that none has."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from textual import events
from textual.app import App
from textual.driver import Driver
from textual.message import Message

from specdec_tui.tui.terminal.flood import is_newer_focus, is_possible
from specdec_tui.tui.terminal.intake import Intake
from specdec_tui.tui.terminal.key_order import KeysInOrder, is_typing


class InOrder(Driver):
    """Stands before a driver of Textual's, which reads in a thread of its own."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        has_room = (lambda: app.has_room) if isinstance(app, KeysInOrder) else lambda: True
        self._intake = Intake(self._loop, app.post_message, has_room, is_newer_focus)

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.Key) and isinstance(self._app, KeysInOrder):
            if self._app._exit:
                return
            if self._app.must_act_at_once(message, len(self._intake)):
                self._intake.drop(is_typing)
                with suppress(RuntimeError):  # the loop is over
                    self._loop.call_soon_threadsafe(self._app.act_at_once, message.key)
                return
        if is_possible(message):
            super().process_message(message)

    def send_message(self, message: Message) -> None:
        self._intake.put(message)
