"""What really arrives in terminals of few colours."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tmux import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

APP = Path(__file__).with_name("scripted_app.py")
FATES = "✓✗○↻+›"
OF_SIXTEEN = re.compile(r"3[0-7]|9[0-7]")
SEQUENCE = re.compile(r"\x1b\[([0-9;:]*)m|\x1b[^m]*m|(.)", re.DOTALL)


@pytest.fixture
def open_terminal(tmp_path: Path) -> Iterator[Callable[[dict[str, str]], Terminal]]:
    """Starts the scripted app in a terminal of this environment."""
    home = {
        "HOME": str(tmp_path),
        "SPECDEC_TUI_CONFIG": str(tmp_path / "config.toml"),
        "SPECDEC_TUI_DATA_DIR": str(tmp_path / "data"),
        "SPECDEC_TUI_MAX_NEW_TOKENS": "60",
    }
    with ExitStack() as leaving:
        sockets = leaving.enter_context(
            tempfile.TemporaryDirectory(prefix="specdec")
        )  # a socket's path may not be long

        def start(environment: dict[str, str]) -> Terminal:
            terminal = Terminal(Path(sockets) / "0", [sys.executable, str(APP)], home | environment, 120, 60)
            leaving.callback(terminal.close)
            return terminal

        yield start


def colours_of(painted: str) -> dict[str, set[str]]:
    """The colours that each character stands in, as codes."""
    found: dict[str, set[str]] = {}
    colour = ""
    for codes, character in SEQUENCE.findall(painted):
        if character:
            found.setdefault(character, set()).add(colour)
            continue
        words = [word for word in re.split("[;:]", codes) if word]
        if not words:
            colour = ""
        while words:
            word = words.pop(0)
            if word in ("38", "48"):
                value, words = (words[:2], words[2:]) if words[0] == "5" else (words[:4], words[4:])
                colour = "-".join(value) if word == "38" else colour
            elif word in ("0", "39"):
                colour = ""
            elif OF_SIXTEEN.fullmatch(word):
                colour = word
    return found


@pytest.mark.parametrize(
    ("name", "theme"),
    [
        ("xterm", "specdec-dark"),
        pytest.param("xterm", "specdec-light", marks=pytest.mark.large),
        pytest.param("xterm", "specdec-colour-blind", marks=pytest.mark.large),
        pytest.param("screen", "specdec-dark", marks=pytest.mark.large),
        ("linux", "specdec-dark"),
        pytest.param("xterm-256color", "specdec-dark", marks=pytest.mark.large),
    ],
)
def test_each_fate_has_a_colour_of_its_own_where_there_are_few(
    open_terminal: Callable[[dict[str, str]], Terminal], name: str, theme: str
) -> None:
    terminal = open_terminal({"TERM": name, "COLORTERM": "", "SPECDEC_TUI_THEME": theme})
    terminal.wait_for("ready")
    terminal.type("go")
    terminal.keys("Enter")
    terminal.wait_for("ready", "60/60", "identical")
    terminal.keys("Escape")
    terminal.wait_for("v View")
    terminal.keys("v")
    # The legend follows what is in sight a moment later.
    terminal.wait(lambda screen: any(_names_all(line) for line in screen.split("\n")), "all fates")
    painted = terminal.at_rest()
    legend = next(line for line in painted.split("\n") if _names_all(line))
    colours = colours_of(legend)
    assert len(set.union(*(colours[glyph] for glyph in FATES))) == len(FATES), colours
    if "256" not in name:
        assert all(OF_SIXTEEN.fullmatch(code) for glyph in FATES for code in colours[glyph]), colours
    everywhere = colours_of(painted)
    assert not everywhere["✗"] & everywhere["↻"]


def _names_all(line: str) -> bool:
    return "accepted" in line and all(glyph in line for glyph in FATES)
