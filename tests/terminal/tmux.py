"""A real terminal for tests: one tmux session on its own server."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

POLL_SECONDS = 0.05
PATIENCE_SECONDS = 60
REST_SECONDS, REST_CAPTURES = 0.2, 7  # more than both times of a cursor that blinks twice in a second


class Terminal:
    """Runs a command in a tmux window; when the command ends, a shell line says so with its status."""

    def __init__(self, socket: Path, command: list[str], environment: dict[str, str], width: int, height: int) -> None:
        self._socket = str(socket)
        exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
        line = f"env -u COLUMNS -u LINES {exports} {shlex.join(command)}; echo left with $?; exec sleep 600"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), "sh", "-c", line)

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-u", "-S", self._socket, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    def keys(self, *names: str) -> None:
        """Press keys by tmux's names."""
        self._tmux("send-keys", *names)

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)

    def paste(self, text: str) -> None:
        """A bracketed paste, as from a clipboard."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def painted(self) -> str:
        """The screen with its escape sequences, as tmux would send them to its own terminal."""
        return self._tmux("capture-pane", "-p", "-e")

    def wait(self, condition: Callable[[str], object], what: str) -> str:
        """Poll the screen until `condition` holds; returns that screen."""
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            screen = self.screen()
            if condition(screen):
                return screen
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"never on the screen: {what}\n{self.screen()}")

    def wait_for(self, *texts: str) -> str:
        return self.wait(lambda screen: all(text in screen for text in texts), ", ".join(texts))

    def at_rest(self) -> str:
        """The screen with its colours, once it has stopped changing but for a cursor that blinks.

        A frame may come in two pieces, so what is there is seen twice at least.
        """
        end = time.monotonic() + PATIENCE_SECONDS
        seen = [self.painted()]
        while len(seen) < REST_CAPTURES or len({*seen[-REST_CAPTURES:]}) > 2 or seen[-1] != seen[-2]:
            if time.monotonic() > end:
                raise AssertionError(f"never at rest\n{self.screen()}")
            time.sleep(REST_SECONDS)
            seen.append(self.painted())
        return seen[-1]

    def terminate(self) -> None:
        """Ask the command to end."""
        (command,) = psutil.Process(int(self._tmux("display-message", "-p", "#{pane_pid}"))).children()
        command.terminate()

    def close(self) -> None:
        """Close the terminal, whatever runs in it."""
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], capture_output=True, timeout=30, check=False)
