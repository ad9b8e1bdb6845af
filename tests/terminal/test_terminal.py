"""From launch to result and out again, in a real terminal."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tmux import PATIENCE_SECONDS, Terminal

from specdec_tui.decoding.records import Step
from specdec_tui.traces.files import read_trace

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")

APP = Path(__file__).with_name("scripted_app.py")
Launch = Callable[..., Terminal]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts the scripted app with a home of its own; the terminal is closed afterwards."""
    terminals: list[Terminal] = []
    sockets = Path(tempfile.mkdtemp(prefix="specdec"))  # a socket's path may not be long

    def start(*words: str, width: int = 120, height: int = 40) -> Terminal:
        home = {
            "HOME": str(tmp_path),
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "SPECDEC_TUI_CONFIG": str(tmp_path / "config.toml"),
            "SPECDEC_TUI_DATA_DIR": str(tmp_path / "data"),
            "SPECDEC_TUI_MAX_NEW_TOKENS": "60",
        }
        socket = sockets / str(len(terminals))
        terminals.append(Terminal(socket, [sys.executable, str(APP), *words], home, width, height))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()
    shutil.rmtree(sockets, ignore_errors=True)


def test_from_launch_to_the_result_and_out(launch: Launch) -> None:
    terminal = launch()
    terminal.wait_for("ready", "1 target", "3 speculative", "4 ngram", "5 lookup")
    terminal.type("why is the sky blue")
    terminal.wait_for("why is the sky blue")
    terminal.keys("Enter")
    terminal.wait_for("Light travels")
    terminal.wait_for("ready", "identical", "speedup")
    terminal.wait(lambda screen: screen.count("60/60") == 4, "four complete panes")
    terminal.keys("C-q")
    terminal.wait_for("left with 0")
    assert "1 target" not in terminal.screen()


def test_ctrl_c_stops_and_keeps_the_text_and_pressed_again_leaves(launch: Launch) -> None:
    terminal = launch("round=0.2")
    terminal.wait_for("ready")
    terminal.type("go")
    terminal.keys("Enter")
    terminal.wait_for("running", "Light travels in")
    terminal.keys("C-c")
    terminal.wait(lambda screen: "ready" in screen and "Light travels in" in screen, "stopped with its text")
    terminal.keys("C-c", "C-c")
    terminal.wait_for("left with 0")


@pytest.mark.parametrize("how", ["the terminal is closed", "terminated"])
def test_a_run_at_work_is_kept_when_the_app_must_go(launch: Launch, tmp_path: Path, how: str) -> None:
    terminal = launch("round=0.2")
    terminal.wait_for("ready")
    terminal.type("go")
    terminal.keys("Enter")
    terminal.wait_for("running", "Light travels in")
    if how == "terminated":
        terminal.terminate()
        terminal.wait_for("left with 143")
    else:
        terminal.close()
    end = time.monotonic() + 30
    while not (kept := list((tmp_path / "data" / "traces").glob("*.jsonl"))) and time.monotonic() < end:
        time.sleep(0.05)
    assert len(kept) == 1
    events = read_trace(kept[0]).events
    assert "".join(text for event in events if isinstance(event, Step) for text in event.texts).startswith("Light")


def test_a_terminal_that_is_gone_without_a_word_ends_the_app(tmp_path: Path) -> None:
    master, slave = pty.openpty()  # not the controlling terminal of the app: no signal tells of its end
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "SPECDEC_TUI_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, str(APP)]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=os.environ | home) as app:
        os.close(slave)
        shown = b""
        while b"ready" not in shown:
            shown += os.read(master, 1 << 16)
        os.close(master)
        assert app.wait(timeout=PATIENCE_SECONDS) == 129


@pytest.mark.large
def test_resizing_while_running_keeps_the_app_alive_and_complete(launch: Launch) -> None:
    terminal = launch("round=0.05")
    terminal.wait_for("ready")
    terminal.type("go")
    terminal.keys("Enter")
    terminal.wait_for("running")
    for width, height in ((80, 24), (30, 10), (200, 60), (1, 1), (100, 30), (120, 40)):
        terminal.resize(width, height)
    terminal.wait_for("ready", "speedup")
    terminal.wait(lambda screen: screen.count("60/60") == 4, "four complete panes")


@pytest.mark.large
def test_what_libraries_write_to_the_descriptors_goes_to_the_log_and_not_on_the_screen(
    launch: Launch, tmp_path: Path
) -> None:
    terminal = launch("noise")
    terminal.wait_for("ready")
    terminal.type("go")
    terminal.keys("Enter")
    screen = terminal.wait_for("60/60", "speedup")
    assert "NATIVE" not in screen
    terminal.keys("C-q")
    terminal.wait_for("left with 0")
    logs = list(tmp_path.rglob("output.log"))
    assert len(logs) == 1
    assert logs[0].read_text().count("NATIVE NOISE") == 10


def test_leaving_while_the_models_load_does_not_wait_for_them(launch: Launch) -> None:
    terminal = launch("load=500")
    terminal.wait_for("loading", "25%")
    terminal.type("early")
    terminal.keys("Enter")
    terminal.wait_for("waiting", "early")
    terminal.keys("C-q")
    terminal.wait_for("left with 0")


def test_a_paste_of_several_lines_stays_in_the_box_until_enter(launch: Launch) -> None:
    terminal = launch()
    terminal.wait_for("ready")
    terminal.paste("first line\nsecond line")
    screen = terminal.wait_for("first line", "second line")
    assert "running" not in screen
    terminal.keys("Enter")
    terminal.wait_for("60/60")


def test_the_palette_sets_a_value_typed_in_one_go(launch: Launch) -> None:
    terminal = launch()
    terminal.wait_for("ready")
    terminal.keys("C-p")
    terminal.wait_for("a command, or a setting")
    terminal.type("gamma 8\r")
    terminal.wait_for("γ 8 ·")


def test_escape_sequences_in_a_paste_are_text_and_start_no_run(launch: Launch) -> None:
    terminal = launch()
    terminal.wait_for("ready")
    terminal.paste("alpha \x1b[31mred\x1b[0m tail\nbeta")
    screen = terminal.wait_for("alpha ␛[31mred␛[0m tail", "beta")
    assert "running" not in screen and "60/60" not in screen


def test_ctrl_c_typed_right_behind_enter_stops_the_run(launch: Launch) -> None:
    terminal = launch("round=0.2")
    terminal.wait_for("ready")
    terminal.type("Tell me about the sea")
    terminal.keys("Enter")
    terminal.keys("C-c")
    terminal.wait_for("› Tell me about the sea", "stopped", "ready")


def test_alt_and_a_digit_go_to_a_pane_and_write_nothing_into_the_prompt(launch: Launch) -> None:
    terminal = launch()
    terminal.wait_for("ready")
    terminal.type("half a")
    terminal.keys("M-3")
    assert "£" not in terminal.wait_for("━ 3 speculative", "half a")  # a frame may be seen half painted
