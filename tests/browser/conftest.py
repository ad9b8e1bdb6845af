"""A headless Chromium. `CHROMIUM` names its program; pictures of what was seen lie in build/browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "serving" / "scripted_serve.py"
PICTURES = ROOT / "build" / "browser"
PATIENCE_SECONDS = 30
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
_CONTROLS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][0-9A-B]|[=>78c])")


def until(page: Any, condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"never seen: {what}"
        page.wait_for_timeout(20)


class Tab:
    """A page with an app: what was painted on it since `forget`, and a keyboard."""

    def __init__(self, page: Any, address: str) -> None:
        self.page = page
        self._painted: list[bytes] = []
        self.errors: list[str] = []
        self.asked: list[str] = []
        page.on("websocket", lambda socket: socket.on("framereceived", self._take))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda told: self.errors.append(told.text) if told.type == "error" else None)
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(address)

    def _take(self, payload: str | bytes) -> None:
        if isinstance(payload, bytes):
            self._painted.append(payload)

    @property
    def words(self) -> str:
        return _CONTROLS.sub(b"", b"".join(self._painted)).decode()

    def forget(self) -> None:
        self._painted.clear()

    def shows(self, words: str) -> None:
        until(self.page, lambda: words in self.words, words)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def run(self, prompt: str) -> None:
        self.type(prompt)
        self.shows(prompt)
        self.press("Enter")

    def picture(self, name: str) -> None:
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")

    @property
    def ended(self) -> str:
        """Why there is no app any more, as the page tells it; empty while there is one."""
        return str(self.page.inner_text("#ended span"))


class Served:
    """A server with scripted engines."""

    def __init__(self, tmp_path: Path, *words: str) -> None:
        environment = os.environ | {
            "SPECDEC_TUI_CONFIG": str(tmp_path / "config.toml"),
            "SPECDEC_TUI_DATA_DIR": str(tmp_path / "data"),
            "XDG_STATE_HOME": str(tmp_path / "state"),
        }
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, *words], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        found = re.search(r"http://[\d.:]+/", self.process.stdout.readline())
        assert found is not None
        self.address = found[0]

    @property
    def apps(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        pytest.skip("there is no Chromium: install one, or name it by CHROMIUM")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def begin(*words: str) -> Served:
        made.append(Served(tmp_path, *words))
        return made[-1]

    yield begin
    for server in made:
        server.kill()


@pytest.fixture
def open_tab(chromium: Any) -> Iterator[Callable[..., Tab]]:
    context = chromium.new_context(viewport={"width": 1200, "height": 760})

    def begin(server: Served, address: str = "") -> Tab:
        return Tab(context.new_page(), address or server.address)

    yield begin
    context.close()
