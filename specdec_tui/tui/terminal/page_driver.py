"""Textual's driver for web pages: the app's standard input and output are packets that a web server relays.

Textual's own waits, and with it every key, where the page takes nothing, and stays for ever where the server is gone.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Any

from textual import events
from textual.app import App
from textual.drivers.web_driver import WebDriver

from specdec_tui.tui.terminal.in_order import InOrder
from specdec_tui.tui.terminal.terminal import GONE
from specdec_tui.tui.terminal.writer import Writer


class PageDriver(InOrder, WebDriver):
    """Paints for a page. Once nobody is at the other end of the standard input, the app is left."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._packets = Writer(self.fileno, self._caught_up)
        self._write = self._packets.write  # type: ignore[assignment]

    def write(self, data: str) -> None:
        super().write(data.encode("utf-8", errors="replace").decode())

    def takes_picture(self) -> bool:
        """Whether the page keeps up; if not, the whole screen is painted once it does."""
        return self._packets.takes_picture()

    def _caught_up(self) -> None:
        with suppress(RuntimeError):  # the loop is over
            self._loop.call_soon_threadsafe(self._paint_all)

    def _paint_all(self) -> None:
        if self._app._screen_stack:
            self._app.screen.refresh()

    def start_application_mode(self) -> None:
        self._packets.start()
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        super().start_application_mode()
        for number, handler in before.items():  # whoever tells us to leave is heard as in a terminal
            self._loop.remove_signal_handler(number)
            signal.signal(number, handler)
        # Textual's takes the focus away at the start, perhaps behind the page's word that it has it.
        self._app.call_later(self._app.post_message, events.AppFocus())

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        if packet_type == "quit":  # the page is closed
            self._leave(0)
        else:
            super().on_meta(packet_type, payload)

    def _leave(self, status: int) -> None:
        with suppress(RuntimeError):  # the loop is over
            self._loop.call_soon_threadsafe(lambda: self._app.exit(return_code=status))

    def close(self) -> None:
        self._packets.stop("")

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._leave(GONE)
