"""The process behind a page: its packets go to the page, what is typed there goes to it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from specdec_tui.tui.terminal.flood import LARGEST
from specdec_tui.variables import PREFIX, SECRETS

LEAVING_SECONDS = 15.0
"""For an app to keep what is to be kept, once its page is closed."""
_MOST_UNREAD = 32 * 1024 * 1024  # bytes that were typed, or pasted, and that the app does not read
_SECRETS = [f"{PREFIX}{name}" for name in SECRETS]


class TabProcess:
    """An app that speaks the packets of Textual's web driver: a letter, four bytes of length, and so many bytes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.has_left = False
        """Whether the app has said that it is over."""

    @classmethod
    async def begin(
        cls, command: tuple[str, ...], models: socket.socket, size: tuple[int, int], log: int
    ) -> TabProcess:
        """Start it with its end of the connection to the models, which is closed here; `log` takes its errors."""
        with models:
            process = await asyncio.create_subprocess_exec(
                *command,
                str(models.fileno()),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(os.environ, size),
                pass_fds=(models.fileno(),),
                start_new_session=True,  # ctrl+c in the server's terminal is for the server
            )
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def relay(self, paint: Callable[[bytes], Awaitable[None]], leave: Callable[[], Awaitable[object]]) -> None:
        """Pass on what the app paints, until it has ended; `leave` is called as soon as it says that it is over."""
        output = self._process.stdout
        assert output is not None
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await output.readline()  # Textual's greeting
            while True:
                head = await output.readexactly(5)
                payload = await output.readexactly(int.from_bytes(head[1:], "big"))
                if head[:1] == b"D" and not self.has_left:
                    with suppress(ConnectionError):  # the page is closed
                        await paint(payload)
                elif head[:1] == b"M" and json.loads(payload).get("type") == "exit":
                    self.has_left = True
                    await leave()

    def type(self, text: str) -> None:
        """Keys, pastes and the mouse, as a terminal sends them."""
        self._put(b"D", text.encode("utf-8", errors="replace"))

    def tell(self, kind: str, **facts: int) -> None:
        """Something else of the page: `resize`, `focus`, `blur`, `quit`."""
        self._put(b"M", json.dumps({"type": kind, **facts}).encode())

    def _put(self, kind: bytes, payload: bytes) -> None:
        entry = self._process.stdin
        assert entry is not None
        if entry.transport.get_write_buffer_size() > _MOST_UNREAD:
            self.kill()
        if not entry.is_closing():
            entry.write(kind + len(payload).to_bytes(4, "big") + payload)

    async def end(self, seconds: float = LEAVING_SECONDS) -> None:
        """Have it leave, and see to it that it has."""
        if self._process.returncode is None:
            self.tell("quit")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), seconds)
            self.kill()
        await self._process.wait()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()


def command() -> tuple[str, ...]:
    """How an app is started."""
    return (sys.executable, "-m", "specdec_tui.serving.tab")


def environment(own: Mapping[str, str], size: tuple[int, int]) -> dict[str, str]:
    """What an app in a page finds in its environment: ours without secrets, and its page as a terminal of this size."""
    columns, rows = size
    page = {
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "COLUMNS": str(columns),
        "ROWS": str(rows),
    }
    return {name: value for name, value in own.items() if name not in _SECRETS} | page


def as_size(width: object, height: object) -> tuple[int, int] | None:
    """Columns and rows as a page tells them; None where no screen is of such a size."""
    try:
        size = int(str(width)), int(str(height))
    except ValueError:
        return None
    return size if all(0 < side <= most for side, most in zip(size, LARGEST, strict=True)) else None
