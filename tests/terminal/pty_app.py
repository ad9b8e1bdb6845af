"""The scripted app in a terminal of its own, seen from the other end: every byte, and the terminal's settings.

With a shell: an interactive one with job control, whose terminal it is. Without: the app alone.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import psutil

APP = Path(__file__).with_name("scripted_app.py")
PATIENCE_SECONDS = 60
PROMPT = "READY> "
BASH = ["bash", "--norc", "--noprofile", "-i"]


class Pty:
    """`shown` is all that was written so far."""

    def __init__(self, home: Path, *words: str, shell: bool = False, program: Path = APP, **more: str) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "SPECDEC_TUI_CONFIG": str(home / "config.toml"),
            "SPECDEC_TUI_DATA_DIR": str(home / "data"),
            "SPECDEC_TUI_MAX_NEW_TOKENS": "60",
            "PS1": PROMPT,
            "INPUTRC": str(home / "inputrc"),
            "TERM": "xterm-256color",
            **more,
        }
        (home / "inputrc").write_text("set enable-bracketed-paste off\n")  # else the shell switches it, too
        app = [sys.executable, str(program), *words]
        self.command = " ".join(app)
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            command = BASH if shell else app
            os.execvpe(command[0], command, environment)
        os.set_blocking(self._fd, False)
        self.resize(100, 30)
        self.shown = ""
        self.status: int | None = None
        if shell:
            self.wait_for(PROMPT)
        self.before = self.settings

    @property
    def settings(self) -> list[object]:
        """What termios says of the terminal."""
        return termios.tcgetattr(self._fd)

    @property
    def app(self) -> psutil.Process:
        """The app's process, below a shell."""
        return psutil.Process(self.pid).children()[0]

    def send(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds: float = 0.05) -> str:
        """What arrives within so long, or at once."""
        if select.select([self._fd], [], [], seconds)[0]:
            try:
                piece = os.read(self._fd, 1 << 16).decode(errors="replace")
            except OSError:  # nobody has it open at the other end
                time.sleep(seconds)
                return ""
            self.shown += piece
            return piece
        return ""

    def rest(self, seconds: float = 0.5) -> None:
        """Read until nothing has come for so long."""
        while self.read(seconds):
            pass

    def wait(self, condition: Callable[[], object], what: str) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            self.read()
            if time.monotonic() > end:
                raise AssertionError(f"never: {what}\n{self.shown[-3000:]!r}")

    def wait_for(self, text: str, since: int = 0) -> None:
        self.wait(lambda: text in self.shown[since:], text)

    def ended(self) -> int:
        """The status of the app (or shell), once it is gone: that of a signal is negative."""

        def gone() -> bool:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            return bool(pid)

        if self.status is None:
            self.wait(gone, "the end")
        assert self.status is not None
        self.rest(0.1)
        return self.status

    def is_stopped(self, process: psutil.Process) -> bool:
        return process.status() == psutil.STATUS_STOPPED

    def counts(self) -> dict[str, tuple[int, int]]:
        """How often each mode was switched on and off."""
        modes = ("1049", "1000", "1003", "1006", "1015", "1016", "2004", "1004", "2048")
        found = {mode: tuple(self.shown.count(f"\x1b[?{mode}{end}") for end in "hl") for mode in modes}
        found["keyboard"] = (len(re.findall(r"\x1b\[>\d*u", self.shown)), self.shown.count("\x1b[<u"))
        return found  # type: ignore[return-value]

    def assert_given_back(self) -> None:
        """The terminal is as it was found."""
        assert self.settings == self.before
        counts = self.counts()
        for what in ("1049", "keyboard"):
            on, off = counts[what]
            assert on == off > 0, counts
        for on, off in (("\x1b[?25l", "\x1b[?25h"), ("\x1b[?7l", "\x1b[?7h")):
            assert self.shown.rfind(off) > self.shown.rfind(on), off
        for mode in ("1000", "1003", "1006", "1015", "1016", "2004", "1004", "2048", "2026"):
            assert self.shown.rfind(f"\x1b[?{mode}l") >= self.shown.rfind(f"\x1b[?{mode}h"), mode

    def close(self) -> None:
        if self.status is None:
            main = psutil.Process(self.pid)
            for process in (*main.children(recursive=True), main):
                process.kill()
            os.waitpid(self.pid, 0)
        os.close(self._fd)
