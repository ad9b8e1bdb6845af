"""The app in a process of its own, on scripted models here, as its page sees it."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from scripted_server import PATIENCE_SECONDS, ScriptedServer

from specdec_tui.serving.tab_process import TabProcess, command
from specdec_tui.tui.terminal.terminal import GONE

_CONTROLS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][0-9A-B]|[=>78c])")


class Page:
    """A page that shows an app, and what was painted on it in a row."""

    def __init__(self, server: ScriptedServer, tab: TabProcess) -> None:
        self.server, self.tab = server, tab
        self._painted = b""
        self.takes = asyncio.Event()
        self.takes.set()
        self.relaying = asyncio.create_task(tab.relay(self._paint, self._leave))

    async def _paint(self, payload: bytes) -> None:
        await self.takes.wait()
        self._painted += payload

    async def _leave(self) -> None: ...

    @property
    def words(self) -> str:
        return _CONTROLS.sub(b"", self._painted).decode()

    def forget(self) -> None:
        self._painted = b""

    async def shows(self, words: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while words not in self.words:
                await asyncio.sleep(0.01)

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.relaying
            return await self.tab._process.wait()


@pytest.fixture
async def black_page() -> AsyncIterator[Page]:
    """One whose app has not painted yet."""
    server = ScriptedServer(gated=True)
    server.start()
    seat, theirs = server.open()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    page = Page(server, await TabProcess.begin(command(), theirs, (100, 30), nowhere))
    yield page
    page.tab.kill()
    await page.tab.end()
    await page.relaying
    seat.drop()
    server.close()
    os.close(nowhere)


@pytest.fixture
async def page(black_page: Page) -> Page:
    await black_page.shows("ready")
    return black_page


async def run(page: Page) -> None:
    """One word of a run, which then waits."""
    page.tab.type("why blue\r")
    await page.shows("› why blue")
    await page.shows("Light")


def kept(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "data" / "traces").glob("*.jsonl"))


async def test_a_run_is_painted_stopped_and_kept_when_the_page_is_closed(page: Page, tmp_path: Path) -> None:
    await run(page)
    page.forget()
    page.server.engines[-1].step(3)
    await page.shows("travels")
    began = time.monotonic()
    await page.tab.end()
    assert time.monotonic() - began < 12 and page.tab.has_left and await page.ends() == 0
    assert len(kept(tmp_path)) == 1


async def test_what_is_typed_before_the_app_paints_is_in_its_prompt_from_the_first_key_on(black_page: Page) -> None:
    black_page.tab.tell("focus")
    for key in "why blue":
        black_page.tab.type(key)
    await black_page.shows("ready")
    black_page.tab.type("\r")
    await black_page.shows("› why blue")


async def test_keys_pastes_and_sizes_act_as_in_a_terminal(page: Page) -> None:
    page.tab.type("\x1b[200~two\x1b[201~\rlines of it\x1b[201~")  # with an end in it that somebody put there
    await page.shows("of it")
    await asyncio.sleep(0.3)
    assert "› two" not in page.words  # the line break of a paste is no enter
    page.forget()
    page.tab.tell("resize", width=60, height=20)
    await page.shows("of it")
    page.tab.type("\x11")  # ctrl+q
    assert await page.ends() == 0


async def test_ctrl_c_stops_a_run_and_pressed_again_leaves(page: Page) -> None:
    await run(page)
    page.forget()
    page.tab.type("\x03")
    await page.shows("Stopping; ctrl+c again quits")
    page.tab.type("\x03")
    assert await page.ends() == 0


async def test_an_app_whose_web_server_is_gone_ends_and_keeps_its_run(page: Page, tmp_path: Path) -> None:
    await run(page)
    entry = page.tab._process.stdin
    assert entry is not None
    entry.close()
    assert await page.ends() == GONE
    assert len(kept(tmp_path)) == 1


async def test_models_that_are_gone_are_told_in_a_line_and_the_text_stays(page: Page) -> None:
    await run(page)
    page.forget()
    page.server.close()
    await page.shows("The run failed: the server has gone")
    page.forget()
    page.tab.tell("resize", width=101, height=30)
    await page.shows("Light")
    assert psutil.pid_exists(page.tab.pid)


async def test_a_page_that_takes_nothing_does_not_keep_the_app_from_leaving(page: Page) -> None:
    page.takes.clear()
    for width in range(60, 100):
        page.tab.tell("resize", width=width * 4, height=200)
        await asyncio.sleep(0.02)
    page.tab.tell("quit")
    async with asyncio.timeout(60):
        while psutil.pid_exists(page.tab.pid):
            await asyncio.sleep(0.01)
    page.takes.set()
    assert await page.ends() == 0


async def test_the_connection_to_the_models_is_for_nobody_else(page: Page) -> None:
    process = psutil.Process(page.tab.pid)
    assert not process.net_connections(kind="tcp")
    assert all(not connection.laddr for connection in process.net_connections(kind="unix"))
    assert not [name for name in process.environ() if "KEY" in name.upper() or "TOKEN" in name.upper()]
