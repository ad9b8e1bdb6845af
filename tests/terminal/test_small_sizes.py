"""A terminal of one to six columns and rows: the app lives, its keys act, and grown again it is painted as before."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tmux import PATIENCE_SECONDS, Terminal

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed"),
    pytest.mark.large,  # a minute or two, nearly all of it waiting
]

APP = Path(__file__).with_name("scripted_app.py")
FULL = (120, 40)
SMALL = [(columns, rows) for columns in range(1, 7) for rows in range(1, 7)]
STEP = 18
"""One in so many small sizes is seen in each state of the app: tmux takes a quarter second for one."""


class Sized:
    """The scripted app, and the sizes it has laid its screen out for."""

    def __init__(self, home: Path, socket: Path, step: int) -> None:
        self._step, self._walks = step, 0
        self._sizes = home / "sizes"
        self._sizes.touch()
        environment = {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "SPECDEC_TUI_CONFIG": str(home / "config.toml"),
            "SPECDEC_TUI_DATA_DIR": str(home / "data"),
            "SPECDEC_TUI_MAX_NEW_TOKENS": "60",
        }
        command = [sys.executable, str(APP), "round=0.04", f"sizes={self._sizes}"]
        self.terminal = Terminal(socket, command, environment, *FULL)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size, and wait until the app has laid out for it."""
        known = self._sizes.stat().st_size
        self.terminal.resize(columns, rows)
        end = time.monotonic() + PATIENCE_SECONDS
        while f"{columns} {rows}\n" not in self._sizes.read_text()[known:]:
            if time.monotonic() > end:
                raise AssertionError(f"never laid out for {columns}x{rows}\n{self.terminal.screen()}")
            time.sleep(0.005)

    def down_and_up(self, at_each: Callable[[], object] = lambda: None) -> int:
        """Through small sizes, ever others, and back; returns how many."""
        some = SMALL[self._walks % self._step :: self._step]
        sizes = dict.fromkeys([(30, 12), *reversed(some), (1, 1), (20, 8)])
        self._walks += 1
        for size in sizes:
            self.resize(*size)
            at_each()
        self.resize(*FULL)
        return len(sizes)

    def check(self) -> None:
        """It is painted as before."""
        before = self.terminal.at_rest()
        self.down_and_up()
        self.terminal.wait(lambda _: self.terminal.painted() == before, f"as before:\n{before}")


@pytest.fixture(params=[STEP, pytest.param(1, marks=pytest.mark.large)])
def sized(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Sized]:
    sockets = Path(tempfile.mkdtemp(prefix="specdec"))  # a socket's path may not be long
    made = Sized(tmp_path, sockets / "s", request.param)
    yield made
    made.terminal.close()
    shutil.rmtree(sockets, ignore_errors=True)


def test_through_the_smallest_sizes_and_back_the_whole_screen_is_as_before_and_keys_act(sized: Sized) -> None:
    terminal = sized.terminal
    terminal.wait_for("ready", "1 target", "5 lookup")
    sized.check()  # the box is empty

    terminal.type("half a")
    terminal.wait_for("half a")
    sized.check()
    count = sized.down_and_up(lambda: terminal.type("x"))  # a key at every size
    terminal.wait_for("half a" + "x" * count)
    terminal.keys("C-u")
    terminal.wait_for("Ask something")

    for keys, words in (
        (["F1"], "What this is about"),
        (["C-p"], "a command, or a setting"),
        (["Escape", "m"], "ctrl+l loads"),
    ):
        terminal.keys(*keys)
        terminal.wait_for(words)
        sized.check()
        terminal.keys("Escape")
        terminal.wait(lambda screen: words not in screen, "closed")  # noqa: B023

    terminal.keys("/")
    terminal.type("go")
    sized.resize(3, 2)
    terminal.keys("Enter")  # a run begins in a small terminal
    sized.resize(*FULL)
    terminal.wait_for("Light")
    sized.down_and_up()
    terminal.wait_for("1 target", "Light")  # it went on, to its end perhaps, and all is painted
    terminal.wait_for("ready", "speedup")
    terminal.wait(lambda screen: screen.count("60/60") == 4, "four complete panes")
    terminal.wait(lambda screen: "Stop" not in screen, "the footer of an app at rest")
    sized.check()

    terminal.keys("Escape", "i")
    terminal.wait_for("why + ")
    sized.check()
    terminal.keys("Escape", "H")
    terminal.wait_for("1 kept")
    sized.check()
    terminal.keys("Escape")
    sized.resize(1, 1)
    terminal.keys("C-q")
    sized.terminal.resize(*FULL)
    terminal.wait_for("left with 0")
