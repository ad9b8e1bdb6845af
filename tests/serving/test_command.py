"""`specdec-tui serve`: what it refuses in one line, what it tells, and how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("textual_serve")

from aiohttp import ClientSession, WSMsgType

from specdec_tui import cli
from specdec_tui.serving.command import TOKEN_VARIABLE, Place, as_place, bind, told
from specdec_tui.settings import SettingError

SCRIPT = Path(__file__).with_name("scripted_serve.py")
TOKEN = "a-token-of-sixteen"


@pytest.mark.parametrize(
    ("host", "port", "token", "tabs", "words"),
    [
        ("h", "x", None, "8", "port: 'x' is not valid: give a whole number from 0 to 65535"),
        ("h", "65536", None, "8", "port: '65536' is not valid"),
        ("h", "-1", None, "8", "port: '-1' is not valid"),
        ("h", "1", None, "0", "tabs: '0' is not valid: give a whole number from 1 to 64"),
        ("h", "1", "", "8", "token: this one is not valid: give 16 or more of the letters"),
        ("h", "1", "fifteen-letters", "8", "token: this one is not valid"),
        ("h", "1", "sixteen-letters&x=1", "8", "token: this one is not valid"),
        ("h", "1", "sechzehn-zeichen-ä", "8", "token: this one is not valid"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_and_never_the_token(
    host: str, port: str, token: str | None, tabs: str, words: str
) -> None:
    with pytest.raises(SettingError, match=re.escape(words)) as raised:
        as_place(host, port, token, tabs)
    assert "\n" not in str(raised.value) and not (token and token in str(raised.value))


def test_a_token_comes_from_the_environment_unless_a_flag_gives_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    assert as_place("h", "1", None, "8") == Place("h", 1, TOKEN, 8)
    assert as_place("h", "1", "auto", "8").token == "auto"
    monkeypatch.setenv(TOKEN_VARIABLE, "short")
    with pytest.raises(SettingError):
        as_place("h", "1", None, "8")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_that_others_reach_demands_a_token(host: str) -> None:
    with pytest.raises(SettingError, match=f"demands a token: set {TOKEN_VARIABLE}, or give --token auto"):
        bind(Place(host, 0))
    listening, admission = bind(Place("0.0.0.0", 0, "auto"))
    listening.close()
    assert len(admission.token) >= 32
    line = told(Place("0.0.0.0", 0, "auto"), admission)
    assert line.startswith(f"specdec-tui is at http://{socket.gethostname().lower()}:{admission.port}/?token=")
    assert admission.token in line


def test_a_token_that_was_given_is_not_shown() -> None:
    listening, admission = bind(Place("127.0.0.1", 0, TOKEN))
    listening.close()
    assert TOKEN not in told(Place("127.0.0.1", 0, TOKEN), admission) and TOKEN not in repr(admission)


@pytest.mark.parametrize("host", ["", "no such host", "host.invalid", "x" * 300])
def test_a_host_that_there_is_not_is_refused(host: str) -> None:
    with pytest.raises(SettingError, match="is not valid: give an address or a name of this machine"):
        bind(Place(host, 0))


def test_a_port_in_use_is_told_in_one_line_before_anything_is_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert cli.main(["serve", "--port", str(port)]) == 2
    assert capsys.readouterr().err == f"specdec-tui: cannot serve at 127.0.0.1:{port}: address already in use\n"


def test_without_its_optional_part_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "textual_serve", None)
    assert cli.main(["serve"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "specdec-tui: serve needs a part that is not installed: pip install 'specdec-tui[serve]'"
    ]


def test_bad_settings_and_themes_are_refused_as_by_the_app(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", "--gamma", "x"]) == 2
    assert cli.main(["serve", "--theme", "no-such-theme"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


class Served:
    """A server in a process of its own."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, SCRIPT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = re.search(r"http://[\d.:]+", self.line)
        assert found is not None, self.process.communicate()
        self.address = found[0]

    @property
    def apps(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    async def tab(self, browser: ClientSession) -> object:
        """A page on which an app has painted."""
        page = await browser.ws_connect(f"{self.address}/ws?width=80&height=24", headers={"Origin": self.address})
        assert (await page.receive(30)).type is WSMsgType.BINARY
        return page


@pytest.fixture
def served() -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def begin(*words: str) -> Served:
        made.append(Served(*words))
        return made[-1]

    yield begin
    for one in made:
        one.process.kill()
        one.process.communicate()


def gone(processes: list[psutil.Process], seconds: float) -> bool:
    _, alive = psutil.wait_procs(processes, seconds)
    return not alive


def test_one_line_tells_the_address_and_nothing_else_is_said(served: Callable[..., Served]) -> None:
    server = served()
    server.process.send_signal(signal.SIGINT)
    out, err = server.process.communicate(timeout=30)
    assert server.line == f"specdec-tui is at {server.address}/ – ctrl+c ends it\n" and not out and not err
    assert server.process.returncode == 0


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.large) for each in (signal.SIGINT, signal.SIGHUP))],
)
async def test_told_to_end_it_ends_with_all_its_apps(served: Callable[..., Served], number: signal.Signals) -> None:
    server = served("load=60")
    async with ClientSession() as browser:
        pages = [await server.tab(browser) for _ in range(2)]
        apps = server.apps
        assert len(pages) == len(apps) == 2
        began = time.monotonic()
        server.process.send_signal(number)
        assert await asyncio.to_thread(server.process.wait, 30) == 0
    assert time.monotonic() - began < 30 and gone(apps, 0)


async def test_apps_end_with_a_server_that_is_killed(served: Callable[..., Served]) -> None:
    server = served()
    async with ClientSession() as browser:
        page = await server.tab(browser)
        apps = server.apps
        os.kill(server.process.pid, signal.SIGKILL)
        assert len(apps) == 1 and await asyncio.to_thread(gone, apps, 10) and page is not None


def test_why_there_are_no_models_is_told_and_ends_it(served: Callable[..., Served]) -> None:
    server = served("refuse=there is no such model")
    _, err = server.process.communicate(timeout=30)
    assert (server.process.returncode, err) == (1, "specdec-tui: there is no such model\n")
