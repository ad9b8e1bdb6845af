"""The process behind a page, and the packets between them."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator

import psutil
import pytest

from specdec_tui.serving.tab_process import TabProcess, as_size, environment


def packet(kind: bytes, payload: bytes) -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload


# Greets, paints, and answers what it reads by a painting of it; leaves when asked to, or not at all.
_SCRIPT = """
import os, sys, time
def put(kind, payload): os.write(1, kind + len(payload).to_bytes(4, "big") + payload)
os.write(1, b"__GANGLION__\\n")
put(b"D", b"first " * 20000)
while data := os.read(0, 65536):
    if b'"quit"' in data and "deaf" not in sys.argv:
        put(b"M", b'{"type": "exit"}')
        put(b"D", b"behind")
        break
    put(b"D", data)
    if b"fault" in data:
        sys.exit("a fault")
while "deaf" in sys.argv:
    time.sleep(1)
"""


class Page:
    def __init__(self) -> None:
        self.painted = b""
        self.left = 0

    async def paint(self, payload: bytes) -> None:
        self.painted += payload

    async def leave(self) -> None:
        self.left += 1


async def begin(*words: str) -> TabProcess:
    _, theirs = socket.socketpair()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        return await TabProcess.begin((sys.executable, "-c", _SCRIPT, *words), theirs, (80, 24), nowhere)
    finally:
        os.close(nowhere)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    yield Page()


async def until(page: Page, words: bytes) -> None:
    async with asyncio.timeout(30):
        while words not in page.painted:
            await asyncio.sleep(0.01)


async def test_what_it_paints_comes_whole_and_what_is_typed_goes_to_it(page: Page) -> None:
    tab = await begin()
    relaying = asyncio.create_task(tab.relay(page.paint, page.leave))
    tab.type("ä\udcff")
    await until(page, b"first " * 20000 + packet(b"D", "ä?".encode()))
    tab.tell("resize", width=100, height=30)
    await until(page, packet(b"M", b'{"type": "resize", "width": 100, "height": 30}'))
    await tab.end()
    await relaying
    assert page.left == 1 and tab.has_left and b"behind" not in page.painted
    assert not psutil.pid_exists(tab.pid)


async def test_one_that_does_not_leave_is_ended(page: Page) -> None:
    tab = await begin("deaf")
    relaying = asyncio.create_task(tab.relay(page.paint, page.leave))
    await until(page, b"first")
    await tab.end(0.2)
    await relaying
    assert not tab.has_left and not psutil.pid_exists(tab.pid)


async def test_one_that_ends_by_a_fault_has_not_left(page: Page) -> None:
    tab = await begin()
    relaying = asyncio.create_task(tab.relay(page.paint, page.leave))
    tab.type("fault")
    await relaying
    tab.type("nobody reads this")
    await tab.end()
    assert not tab.has_left and not page.left


async def test_a_page_that_is_closed_does_not_keep_it_from_painting_to_its_end(page: Page) -> None:
    async def refuse(payload: bytes) -> None:
        raise ConnectionResetError

    tab = await begin()
    relaying = asyncio.create_task(tab.relay(refuse, page.leave))
    await tab.end()
    await relaying
    assert tab.has_left


def test_secrets_are_not_for_tabs_and_their_page_is_a_terminal() -> None:
    own = {"SPECDEC_TUI_SERVE_TOKEN": "a", "SPECDEC_TUI_API_KEY": "b", "SPECDEC_TUI_DATA_DIR": "c", "TERM": "dumb"}
    assert environment(own, (80, 24)) == {
        "SPECDEC_TUI_DATA_DIR": "c",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "COLUMNS": "80",
        "ROWS": "24",
    }


@pytest.mark.parametrize(
    ("width", "height", "size"),
    [
        ("120", 40, (120, 40)),
        (0, 40, None),
        (-3, 40, None),
        (2001, 40, None),
        (10**30, 40, None),
        (None, 40, None),
        ("9" * 5000, 40, None),
        (80.5, [1], None),
    ],
)
def test_a_size_that_no_screen_has_is_none(width: object, height: object, size: object) -> None:
    assert as_size(width, height) == size
