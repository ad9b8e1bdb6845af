"""Textual's driver for terminals, with another idea of stopping, going on and leaving.

Textual answers a SIGCONT by taking the terminal once more, whether it was given back or not: the raw
mode is then what it restores at the end. It does its work in the signal's handler, between any two
instructions of the loop; and behind a stop it paints nothing. Here the terminal is taken once and
given back once, from the loop, however the process is stopped, continued or ended.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from textual import constants, events
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size

from specdec_tui.tui.terminal.flood import LARGEST
from specdec_tui.tui.terminal.in_order import InOrder
from specdec_tui.tui.terminal.writer import Writer

_GIVEN_BACK = (
    "\x1b[?2026l\x1b[?2004l\x1b[?7h\x1b[?2048l\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"
    "\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l"
)
_KEYBOARD_AS_WANTED = "\x1b[=25;1u"  # what Textual pushes, set and not pushed
_LOOK_SECONDS = 0.1
_ROUND_SECONDS = 0.001  # until the loop has read which signals have come
_SWAPPED_SECONDS = 0.05  # within which two signals that came at once may be read in the wrong order


class TerminalDriver(InOrder, LinuxDriver):
    """Stops as a job of the shell does, paints all when it goes on, and gives back what it was given."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert sys.__stderr__ is not None
        self._output = sys.__stderr__.fileno()
        self._writer: Writer | None = None
        self._taken = False
        self._raw: list[Any] | None = None
        self._pointer_changed = False
        self._stop_asked = False
        self._suspending: asyncio.Task[bool] | None = None
        self._continuations = 0
        self._unanswered = False  # told to stop, and not to go on since
        self._continued_early = -math.inf
        # The loop hears of signals in the order they came, but late; a handler at once, but in that of their numbers.
        self._loop.add_signal_handler(signal.SIGTSTP, self._stop_came)
        self._loop.add_signal_handler(signal.SIGCONT, self._continued)
        signal.signal(signal.SIGCONT, self._count_continuation)
        signal.siginterrupt(signal.SIGCONT, False)  # as the loop has it

    def write(self, data: str) -> None:
        self._pointer_changed |= data.startswith("\x1b]22;")
        if self._taken and self._writer is not None:
            self._writer.write(data)

    def takes_picture(self) -> bool:
        """Whether the terminal keeps up; if not, the whole screen is painted once it does."""
        return self._writer is None or self._writer.takes_picture()

    def _caught_up(self) -> None:
        with suppress(RuntimeError):  # the loop is over
            self._loop.call_soon_threadsafe(self._paint_all)

    def _get_terminal_size(self) -> tuple[int, int]:
        width, height = super()._get_terminal_size()
        return min(width, LARGEST[0]), min(height, LARGEST[1])

    def start_application_mode(self) -> None:
        if self._taken:
            return
        self._wait_for_the_shell()  # started in its background
        if self._app._exit:
            return
        self._taken = True
        self._writer = Writer(self._output, self._caught_up)
        self._writer.start()
        super().start_application_mode()
        super().close()  # Textual's own writer has nothing to do
        self._writer_thread = None
        with suppress(termios.error):
            self._raw = termios.tcgetattr(self.fileno)

    def stop_application_mode(self) -> None:
        if not self._taken:
            return
        if self._pointer_changed:
            self.write("\x1b]22;\x07")
        with _not_stopped_by_output():
            super().stop_application_mode()
        self._taken = False

    def disable_input(self) -> None:
        if self._taken:  # from the background, throwing away what was typed would stop the process
            super().disable_input()

    def close(self) -> None:
        if self._writer is not None:
            with _not_stopped_by_output():
                self._writer.stop(_GIVEN_BACK)
            self._writer = None

    def _disable_mouse_support(self) -> None:
        super()._disable_mouse_support()
        if self._mouse_pixels:
            self.write("\x1b[?1016l")

    def give_back(self) -> None:
        """From any thread, when the loop does not come to it: leave the terminal as it was found."""
        if not self._taken:
            return
        self._taken = False
        with suppress(termios.error):
            if self.attrs_before is not None:
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        writer = self._writer
        if writer is not None:
            writer.write(_GIVEN_BACK)
            writer.stop(_GIVEN_BACK)

    # Stopping and going on

    async def suspend(self) -> bool:
        """Stop, as by a key, until the shell continues the process; False where no shell would."""
        return await self._told_to_stop(key=True)

    def _stop_came(self) -> None:
        """Stop, unless its answer came before it: of two signals at once each can be taken by a thread of its own."""
        if time.monotonic() > self._continued_early + _SWAPPED_SECONDS:
            self._unanswered = True
            self._told_to_stop()

    def _told_to_stop(self, key: bool = False) -> asyncio.Task[bool]:
        self._stop_asked = True
        if self._suspending is None or self._suspending.done():
            self._suspending = self._loop.create_task(self._suspend(key))
        return self._suspending

    async def _suspend(self, key: bool) -> bool:
        """Give the terminal back, stop, and take it again; whoever was faster to continue us finds us at work."""
        taken = self._taken
        if taken:
            self.suspend_application_mode()
        stopped = False
        while self._stop_asked and not stopped and not self._app._exit:
            seen = self._continuations
            await asyncio.sleep(_ROUND_SECONDS)
            if self._stop_asked and seen == self._continuations:
                stopped = self._stop(signal.SIGTSTP, seen, whole_job=key)
                if not stopped and key:
                    break
                if not stopped:  # the kernel spares who has no shell; whoever sent this can continue us, too
                    stopped = self._stop(signal.SIGSTOP, seen)
        self._stop_asked = False
        self._wait_for_the_shell()  # continued in its background
        if taken and not self._app._exit:
            self.start_application_mode()
            self._paint_all()
        return stopped

    def _wait_for_the_shell(self) -> None:
        """Stop, as every program does that needs the terminal while it is another's, unless told to end."""
        seen = self._continuations
        while self._in_background:
            time.sleep(_LOOK_SECONDS)  # who told so may be a moment behind
            if self._app._exit:
                return
            self._stop(signal.SIGTTOU, seen)
            seen = self._continuations

    def _stop(self, number: signal.Signals, seen: int, whole_job: bool = False) -> bool:
        """Let a signal stop the process, or a shell's whole job, unless continued since `seen`.

        Returns behind the stop whether there was one, or would have been.
        """
        kept = None if number == signal.SIGSTOP else signal.signal(number, signal.SIG_DFL)
        try:
            if seen == self._continuations:
                if whole_job and self._is_foreground_job:
                    os.killpg(os.getpgrp(), number)
                else:
                    os.kill(os.getpid(), number)
            time.sleep(0 if seen != self._continuations else _LOOK_SECONDS)  # it may be a moment behind
        finally:
            if kept is not None:
                signal.signal(number, kept)
        return seen != self._continuations

    def _count_continuation(self, *_: object) -> None:
        self._continuations += 1

    def _continued(self) -> None:
        """Continued, and not behind a stop of ours: others may have had the terminal meanwhile."""
        if not self._unanswered:
            self._continued_early = time.monotonic()
        self._stop_asked = self._unanswered = False
        if not self._taken:
            return
        if self._in_background:
            self._told_to_stop()
            return
        if self._raw is not None:
            with suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self._raw)
        self._enable_mouse_support()
        self._enable_bracketed_paste()
        self._disable_line_wrap()
        self.write("\x1b[?25l\x1b[?1004h")
        if self._in_band_window_resize:
            self._enable_in_band_window_resize()
        if self._mouse_pixels:
            self._enable_mouse_pixels()
        if not constants.DISABLE_KITTY_KEY:
            self.write(_KEYBOARD_AS_WANTED)
        self._paint_all()

    def _paint_all(self) -> None:
        size = Size(*self._get_terminal_size())
        self._app.post_message(events.Resize(size, size))
        if self._app._screen_stack and size == self._app.size:  # else all is painted because of the size
            self._app.screen.refresh()

    @property
    def _is_foreground_job(self) -> bool:
        try:
            return os.tcgetpgrp(self.fileno) == os.getpgrp()
        except OSError:  # not the terminal that this process belongs to, or gone
            return False

    @property
    def _in_background(self) -> bool:
        try:
            return os.tcgetpgrp(self.fileno) != os.getpgrp()
        except OSError:
            return False


@contextmanager
def _not_stopped_by_output() -> Iterator[None]:
    """Settings of the terminal are allowed from the background, where they would stop the process."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTTOU, before)
