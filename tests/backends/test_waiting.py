"""What does not answer is told while it is waited for, given up after a while, and left at once when asked to."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants

from specdec_tui.backends import hub, waiting
from specdec_tui.backends.pair import LoadAbandoned, LoadError, Progress


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A hub that accepts every connection and never answers, and an empty cache."""
    server = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                held.append(server.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", constants.ENDPOINT)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield
    server.close()
    for connection in held:
        connection.close()


def test_a_hub_that_never_answers_is_told_and_given_up(deaf: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 1.0)
    said: list[str] = []
    start = time.monotonic()
    with pytest.raises(LoadError, match=r"someone/model: 127\.0\.0\.1 has not answered for 1 s"):
        hub.locate("someone/model", lambda progress: said.append(progress.stage))
    assert time.monotonic() - start < 20
    assert any("waiting for 127.0.0.1, 0 s (ends after 1 s)" in stage for stage in said)


def test_a_hub_that_never_answers_is_left_at_once(deaf: None) -> None:
    left = time.monotonic() + 0.5

    def leave(progress: Progress) -> None:
        if time.monotonic() > left:
            raise LoadAbandoned

    start = time.monotonic()
    with pytest.raises(LoadAbandoned):
        hub.locate("someone/model", leave)
    assert time.monotonic() - start < 20


def test_the_patience_is_well_below_a_minute() -> None:
    assert waiting.QUIET_SECONDS < waiting.PATIENCE_SECONDS <= 60


def test_what_was_left_ends_with_its_next_report() -> None:
    gate, ended = threading.Event(), threading.Event()

    def work(report: object) -> None:
        gate.wait(60)
        try:
            report(Progress("more"))  # type: ignore[operator]
        except LoadAbandoned:
            ended.set()

    def leave(progress: Progress) -> None:
        raise LoadAbandoned

    with pytest.raises(LoadAbandoned):
        waiting.awaited(work, Progress("begun"), "waiting", leave)
    gate.set()
    assert ended.wait(60)


def test_news_break_the_silence_and_results_and_errors_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 2.5)
    said: list[Progress] = []

    def work(report: object) -> str:
        for step in range(8):
            time.sleep(0.5)
            report(Progress("step", step / 8))  # type: ignore[operator]
        return "done"

    assert waiting.awaited(work, Progress("begun"), "waiting", said.append) == "done"
    assert Progress("step", 6 / 8) in said

    def fail(report: object) -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        waiting.awaited(fail, Progress("begun"), "waiting", said.append)


class EndlessHub(BaseHTTPRequestHandler):
    """A hub with a config of 100 bytes, which does not end."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *said: object) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        self._begin({"ETag": '"a"', "X-Repo-Commit": "c" * 40, "Content-Length": "100"})

    def do_GET(self) -> None:
        if "/api/" in self.path:
            found: object = {"id": "a/b", "sha": "c" * 40, "siblings": [{"rfilename": "config.json"}]}
            if "/tree/" in self.path:
                found = [{"type": "file", "path": "config.json", "size": 100, "oid": "a" * 40}]
            written = json.dumps(found).encode()
            self._begin({"Content-Type": "application/json", "Content-Length": str(len(written))})
            self.wfile.write(written)
            return
        self._begin({"Transfer-Encoding": "chunked", "ETag": '"a"'})
        with suppress(OSError):
            for _ in range(200):
                self.wfile.write(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")

    def _begin(self, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


@pytest.mark.timeout(30)
def test_a_hub_that_never_ends_is_left_at_the_known_size(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), EndlessHub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("huggingface_hub.hf_api.api.endpoint", constants.ENDPOINT)
    url = constants.ENDPOINT + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(LoadError, match=r"a/b: 127\.0\.0\.1 sends more than the 100 bytes of its files"):
        hub.locate("a/b", lambda progress: None)
    server.shutdown()
    server.server_close()
