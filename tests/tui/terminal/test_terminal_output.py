from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from specdec_tui.doors.writing import LOG_BYTES
from specdec_tui.tui.terminal.terminal import screen_to_ourselves

PROGRAM = """
import os, shutil, sys
from pathlib import Path
from specdec_tui.tui.terminal.terminal import screen_to_ourselves
print("before")
with screen_to_ourselves(Path(sys.argv[1])):
    os.write(1, b"noise-out"); os.write(2, b"noise-err")
    print("size", *shutil.get_terminal_size(), file=sys.__stderr__, flush=True)
    if sys.argv[2] == "crash":
        raise RuntimeError("crashed")
print("after")
"""


def in_a_terminal(log: Path, mode: str = "") -> str:
    """What the program above writes to its terminal."""
    master, slave = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[3])
    command = [sys.executable, "-c", PROGRAM, str(log), mode]
    subprocess.run(command, stdin=slave, stdout=slave, stderr=slave, env=environment, timeout=60, check=False)
    os.close(slave)
    written = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:
            break
        if not piece:
            break
        written += piece
    os.close(master)
    return written.decode()


def test_native_output_goes_to_the_log_and_the_terminal_comes_back(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "output.log"
    shown = in_a_terminal(log)
    assert "before" in shown and "size" in shown and "after" in shown
    assert "noise" not in shown
    assert log.read_text() == "noise-outnoise-err"


def test_the_terminal_comes_back_after_a_crash_too(tmp_path: Path) -> None:
    shown = in_a_terminal(tmp_path / "output.log", "crash")
    assert "RuntimeError: crashed" in shown
    assert "noise" not in shown


def test_a_log_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    shown = in_a_terminal(tmp_path / "file" / "output.log")
    assert "after" in shown and "noise" not in shown


def test_a_large_log_is_begun_anew(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(b"x" * (LOG_BYTES + 1))
    in_a_terminal(log)
    assert log.read_text() == "noise-outnoise-err"


def test_without_a_terminal_nothing_is_redirected(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with screen_to_ourselves(tmp_path / "output.log"):
        os.write(1, b"plain")
    assert capfd.readouterr().out == "plain"
    assert not (tmp_path / "output.log").exists()
