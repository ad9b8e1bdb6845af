"""Stopped, continued or ended, by whatever: the terminal is given back as it was, and painted whole again."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from pty_app import PROMPT, Pty

from specdec_tui.decoding.records import Step
from specdec_tui.traces.files import read_trace

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no job control")

Open = Callable[..., Pty]
LESS_USUAL = ("XCPU", "USR2", "ALRM", "VTALRM", "PROF", "IO", "PWR")


@pytest.fixture
def open_pty(tmp_path: Path) -> Iterator[Open]:
    opened: list[Pty] = []

    def start(*words: str, **options: object) -> Pty:
        opened.append(Pty(tmp_path, *words, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def in_shell(open_pty: Open, *words: str) -> Pty:
    pty = open_pty(*words, shell=True)
    pty.send(f"{pty.command}\n")
    pty.wait_for("ready")
    return pty


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_paints_the_whole_screen_of_its_new_size(open_pty: Open) -> None:
    pty = in_shell(open_pty)
    pty.send("half a prompt")
    pty.wait_for("half a prompt")
    pty.rest()
    app, seen = pty.app, len(pty.shown)
    pty.send("\x1a")
    pty.wait(lambda: pty.is_stopped(app), "stopped")
    pty.wait_for(PROMPT, seen)
    pty.assert_given_back()
    pty.send("echo $((6 * 7))\n")
    pty.wait_for("42", seen)
    pty.resize(70, 20)
    seen = len(pty.shown)
    pty.send("fg\n")
    pty.wait(lambda: all(word in pty.shown[seen:] for word in ("ready", "half a prompt", "1 target")), "all painted")
    pty.wait(lambda: pty.shown.rfind("\x1b[21;") < pty.shown.rfind("\x1b[20;"), "a last painting of the new height")
    pty.rest()
    seen = len(pty.shown)
    pty.send("\x11")
    pty.wait_for(PROMPT, seen)
    pty.assert_given_back()
    assert pty.counts()["1049"] == (2, 2)


def test_ctrl_z_where_no_shell_waits_does_not_lock_the_terminal(open_pty: Open) -> None:
    pty = open_pty()
    pty.wait_for("ready")
    pty.send("\x1a")
    pty.wait_for("No shell waits")
    pty.send("\x11")
    assert pty.ended() == 0


@pytest.mark.large
def test_a_stop_from_outside_and_a_continuation_by_a_signal_paint_the_whole_screen(open_pty: Open) -> None:
    pty = open_pty()
    pty.wait_for("1 target")
    pty.rest()
    for stop in (signal.SIGTSTP, signal.SIGSTOP):
        os.kill(pty.pid, stop)
        pty.wait(lambda: os.waitpid(pty.pid, os.WNOHANG | os.WUNTRACED)[0], "stopped")
        pty.rest(0.2)
        if stop == signal.SIGTSTP:
            pty.assert_given_back()
        pty.resize(60, 24 if stop == signal.SIGTSTP else 18)
        seen = len(pty.shown)
        os.kill(pty.pid, signal.SIGCONT)
        pty.wait(lambda: "1 target" in pty.shown[seen:] and "ready" in pty.shown[seen:], "painted")  # noqa: B023
    pty.rest()
    pty.send("\x11")
    assert pty.ended() == 0
    pty.assert_given_back()


@pytest.mark.large
@pytest.mark.parametrize("gap", [0.05, *(pytest.param(gap, marks=pytest.mark.large) for gap in (0.0, 0.01, 0.1))])
def test_continued_faster_than_it_can_stop_it_goes_on(open_pty: Open, gap: float) -> None:
    pty = open_pty()
    pty.wait_for("1 target")
    pty.rest()
    seen = len(pty.shown)
    os.kill(pty.pid, signal.SIGTSTP)
    time.sleep(gap)
    os.kill(pty.pid, signal.SIGCONT)
    pty.wait(lambda: "1 target" in pty.shown[seen:] and "ready" in pty.shown[seen:], "painted")
    pty.rest()
    assert not pty.is_stopped(psutil.Process(pty.pid))
    pty.send("\x11")
    assert pty.ended() == 0
    pty.assert_given_back()


@pytest.mark.large
def test_stopped_and_continued_again_and_again_it_is_in_the_end_what_the_last_signal_said(open_pty: Open) -> None:
    pty = open_pty("round=0.05")
    pty.wait_for("1 target")
    pty.send("go\r")
    pty.wait_for("Light")
    for gap in (0.02, 0.0, 0.05, 0.15, 0.3):
        for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGTSTP, signal.SIGCONT):
            os.kill(pty.pid, number)
            time.sleep(gap)
    pty.rest(0.3)
    assert not pty.is_stopped(psutil.Process(pty.pid))
    for number in (signal.SIGTSTP, signal.SIGCONT, signal.SIGTSTP):
        os.kill(pty.pid, number)
        time.sleep(0.02)
    pty.wait(lambda: pty.is_stopped(psutil.Process(pty.pid)), "stopped")
    os.kill(pty.pid, signal.SIGCONT)
    pty.rest()
    pty.send("\x11")
    assert pty.ended() == 0
    pty.assert_given_back()


def test_continued_without_a_stop_the_terminal_is_not_taken_twice(open_pty: Open) -> None:
    pty = open_pty()
    pty.wait_for("ready")
    pty.rest()
    for _ in range(3):
        seen = len(pty.shown)
        os.kill(pty.pid, signal.SIGCONT)
        pty.wait(lambda: "1 target" in pty.shown[seen:], "painted again")  # noqa: B023
    pty.send("\x11")
    assert pty.ended() == 0
    pty.assert_given_back()
    assert pty.counts()["keyboard"] == (1, 1)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGINT,
        *(pytest.param(n, marks=pytest.mark.large) for n in (signal.SIGHUP, signal.SIGQUIT)),
    ],
)
@pytest.mark.parametrize("times", [3, pytest.param(1, marks=pytest.mark.large)])
def test_told_to_end_once_or_often_the_terminal_is_as_it_was(open_pty: Open, number: int, times: int) -> None:
    pty = open_pty("round=0.1")
    pty.wait_for("ready")
    pty.send("go\r")
    pty.wait_for("Light")
    for _ in range(times):
        os.kill(pty.pid, number)
        time.sleep(0.02)
    assert pty.ended() == 128 + number
    pty.assert_given_back()
    assert "Traceback" not in pty.shown


@pytest.mark.skipif(sys.platform != "linux", reason="the signals of Linux")
@pytest.mark.parametrize("name", ["USR1", *(pytest.param(n, marks=pytest.mark.large) for n in LESS_USUAL)])
def test_whatever_signal_ends_the_app_the_terminal_is_as_it_was(open_pty: Open, name: str) -> None:
    pty, number = open_pty(), signal.Signals[f"SIG{name}"]
    pty.wait_for("ready")
    os.kill(pty.pid, number)
    assert pty.ended() == 128 + number
    pty.assert_given_back()


def test_an_error_of_the_app_is_told_on_a_terminal_that_is_as_it_was(open_pty: Open) -> None:
    pty = open_pty("fault")
    pty.wait_for("ready")
    pty.send("go\r")
    assert pty.ended() == 1
    pty.assert_given_back()
    assert "planted" in pty.shown[pty.shown.rfind("\x1b[?1049l") :]


@pytest.mark.parametrize("how", ["killed", "told to end"])
def test_what_ends_while_it_is_stopped_leaves_the_shell_its_terminal(open_pty: Open, how: str) -> None:
    pty = in_shell(open_pty)
    seen, app = len(pty.shown), pty.app
    pty.send("\x1a")
    pty.wait(lambda: pty.is_stopped(app), "stopped")
    pty.wait_for(PROMPT, seen)
    pty.send("kill -9 %1\n" if how == "killed" else "kill %1\n")
    pty.wait(lambda: not app.is_running() or app.status() == "zombie", "gone")
    pty.send("echo $((6 * 7))\n")
    pty.wait_for("42", seen)
    pty.rest()
    pty.assert_given_back()
    assert pty.counts()["1049"] == (1, 1)


def test_a_stuck_app_that_is_told_to_end_is_ended_and_gives_the_terminal_back(open_pty: Open) -> None:
    pty = open_pty("stuck")
    pty.wait_for("ready")
    pty.send("go\r")
    pty.wait_for("running")
    pty.rest()
    os.kill(pty.pid, signal.SIGTERM)
    assert pty.ended() == 143
    pty.assert_given_back()


def test_in_the_background_it_waits_for_the_terminal(open_pty: Open) -> None:
    pty = open_pty(shell=True)
    pty.send(f"{pty.command} &\n")
    pty.wait(lambda: "Stopped" in pty.shown or pty.send("\n") or time.sleep(0.2), "stopped")
    assert "\x1b[?1049h" not in pty.shown
    pty.send("fg\n")
    pty.wait_for("1 target")
    pty.send("\x11")
    pty.wait(lambda: "\x1b[?1049l" in pty.shown, "left")
    pty.rest()
    pty.assert_given_back()


def fill(pty: Pty) -> None:
    """Have the app paint more than the terminal holds, and read nothing of it."""
    for turn in range(40):
        pty.resize(100 - turn % 2, 30)
        time.sleep(0.05)


@pytest.mark.parametrize(
    "how", ["ctrl+q", *(pytest.param(how, marks=pytest.mark.large) for how in ("ctrl+c twice", "told to end"))]
)
def test_a_terminal_that_nobody_reads_does_not_hold_up_who_leaves(open_pty: Open, how: str, tmp_path: Path) -> None:
    pty = open_pty("round=0.05")
    pty.wait_for("ready")
    pty.send("go\r")
    pty.wait_for("Light")
    fill(pty)
    began = time.monotonic()
    if how == "told to end":
        os.kill(pty.pid, signal.SIGTERM)
    else:
        pty.send("\x11" if how == "ctrl+q" else "\x03\x03")
    while not (ended := os.waitpid(pty.pid, os.WNOHANG))[0] and time.monotonic() - began < 20:
        time.sleep(0.05)  # and nothing is read
    assert ended[0], "it did not leave"
    pty.status = os.waitstatus_to_exitcode(ended[1])
    assert time.monotonic() - began < 12
    assert pty.status == (143 if how == "told to end" else 0)
    assert pty.settings == pty.before
    pty.rest()
    pty.assert_given_back()
    assert len(list((tmp_path / "data" / "traces").glob("*.jsonl"))) == 1


@pytest.mark.large
def test_a_terminal_that_pauses_has_the_whole_screen_when_it_goes_on(open_pty: Open) -> None:
    pty = open_pty("round=0.02")
    pty.wait_for("ready")
    pty.send("go\r")
    pty.wait_for("Light")
    fill(pty)
    pty.send("typed meanwhile")
    time.sleep(0.5)
    pty.wait_for("typed meanwhile")
    pty.wait_for("ready", pty.shown.rfind("running"))
    pty.rest()
    whole = pty.shown[pty.shown.rfind("specdec-tui", 0, pty.shown.find("typed meanwhile")) :]
    for word in ("scripted-target", "1 target", "Light", "typed meanwhile", "length reached"):
        assert word in whole, word
    pty.send("\x11")
    assert pty.ended() == 0
    pty.assert_given_back()


def test_leaving_a_run_that_cannot_be_kept_is_one_line(open_pty: Open, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    pty = open_pty("round=0.1")
    pty.wait_for("ready")
    pty.send("go\r")
    pty.wait_for("Light")
    pty.send("\x11")
    assert pty.ended() == 0
    pty.assert_given_back()
    behind = pty.shown[pty.shown.rfind("\x1b[?1004l") + 8 :]
    assert "Traceback" not in behind and "specdec-tui: not kept: " in behind
    assert len(behind.strip().splitlines()) == 1


def test_what_was_typed_and_cannot_be_kept_is_told_in_one_line(open_pty: Open, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    pty = open_pty()
    pty.wait_for("ready")
    pty.send("half a thought")
    pty.wait_for("half a thought")
    pty.send("\x11")
    assert pty.ended() == 0
    pty.assert_given_back()
    behind = pty.shown[pty.shown.rfind("\x1b[?1004l") + 8 :].strip()
    assert behind.startswith("specdec-tui: not kept: what was typed and not sent: ") and len(behind.splitlines()) == 1


def test_a_terminal_that_is_gone_in_the_midst_of_a_run_ends_the_app(open_pty: Open, tmp_path: Path) -> None:
    pty = open_pty("round=0.05")
    pty.wait_for("ready")
    pty.send("go\r")
    pty.wait_for("Light")
    os.close(pty._fd)
    pty._fd = os.open(os.devnull, os.O_RDWR)
    assert pty.ended() == 129
    assert len(list((tmp_path / "data" / "traces").glob("*.jsonl"))) == 1


@pytest.mark.parametrize(
    ("words", "seen", "keys", "then"),
    [
        pytest.param((), "ready", "not sent", "not sent", marks=pytest.mark.large),
        (("round=0.1",), "ready", "sent\r", "Light"),
        (("load=500",), "25%", "sent early\r", "waiting"),
        pytest.param(("load=500",), "25%", "half a", "half a", marks=pytest.mark.large),
    ],
    ids=["idle", "running", "loading with a prompt", "loading with text"],
)
def test_left_from_any_state_all_text_is_on_disk(
    words: tuple[str, ...], seen: str, keys: str, then: str, open_pty: Open, tmp_path: Path
) -> None:
    pty = open_pty(*words)
    pty.wait_for(seen)
    pty.send(keys)
    pty.wait_for(then)
    pty.rest(0.1)
    pty.send("\x11")
    assert pty.ended() == 0
    kept = [json.loads(line)["prompt"] for line in (tmp_path / "data" / "prompts.jsonl").read_text().splitlines()]
    assert kept == [keys.strip()]
    traces = list((tmp_path / "data" / "traces").glob("*.jsonl"))
    assert len(traces) == (then == "Light")
    for path in traces:  # as far as it went
        steps = [event for event in read_trace(path).events if isinstance(event, Step)]
        assert "".join(text for step in steps for text in step.texts).startswith("Light")
