"""What browsers get, by requests and websockets as they make them."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import psutil
import pytest

pytest.importorskip("aiohttp")
pytest.importorskip("textual_serve")

from aiohttp import ClientSession, ClientWebSocketResponse, CookieJar, WSMsgType, WSServerHandshakeError, web
from scripted_server import ScriptedServer
from test_tab_process import _SCRIPT, packet

from specdec_tui.serving import pages
from specdec_tui.serving.admission import Admission
from specdec_tui.serving.pages import Pages

TOKEN = "a-token-of-sixteen"


class Site:
    """Pages at a free port, and a browser."""

    def __init__(self, token: str, most: int) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.admission = Admission("127.0.0.1", self.listening.getsockname()[1], token)
        self.engine = ScriptedServer()
        self.nowhere = os.open(os.devnull, os.O_WRONLY)
        self.pages = Pages(self.admission, self.engine, most, self.nowhere)
        self.address = f"http://127.0.0.1:{self.admission.port}"

    async def open(self) -> None:
        self.engine.start()
        self.browser = ClientSession(self.address, cookie_jar=CookieJar(unsafe=True))
        self.runner = web.AppRunner(self.pages.application(), access_log=None)
        await self.runner.setup()
        await web.SockSite(self.runner, self.listening).start()

    async def close(self) -> None:
        await self.browser.close()
        await self.runner.cleanup()
        self.engine.close()
        os.close(self.nowhere)

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.browser.get(path, headers=headers) as answer:
            return answer.status, await answer.text(errors="replace")

    async def tab(self, query: str = "width=90&height=30", **headers: str) -> ClientWebSocketResponse:
        return await self.browser.ws_connect(f"/ws?{query}", headers={"Origin": self.address, **headers})


Open = Callable[..., Awaitable[Site]]


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    monkeypatch.setattr(pages, "command", lambda: (sys.executable, "-c", _SCRIPT))
    monkeypatch.setattr(pages, "ROOM_SECONDS", 0.3)
    made: list[Site] = []

    async def begin(token: str = "", most: int = 2) -> Site:
        made.append(Site(token, most))
        await made[-1].open()
        return made[-1]

    yield begin
    for one in made:
        await one.close()


async def painted(tab: ClientWebSocketResponse, words: bytes) -> None:
    seen = b""
    async with asyncio.timeout(30):
        while words not in seen:
            message = await tab.receive()
            assert message.type is WSMsgType.BINARY, message
            seen += message.data


def children() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # it has just ended
            if _SCRIPT in child.cmdline():
                found.append(child)
    return found


async def none_left() -> None:
    async with asyncio.timeout(30):
        while children():
            await asyncio.sleep(0.01)


async def test_the_page_and_all_that_it_names_come_from_here(site: Open) -> None:
    here = await site()
    status, page = await here.get("/")
    named = [name for name in re.findall(r'(?:src|href)="([^"]+)"', page) if not name.startswith("data:")]
    assert status == 200 and len(named) == 5 and all(name.startswith("/") for name in named)
    for name in named:
        assert (await here.get(name))[0] == 200
    style = (await here.get("/page/page.css"))[1]
    for name in re.findall(r'url\("([^"]+)"\)', style):
        assert (await here.get(name))[0] == 200


@pytest.mark.parametrize("path", ["/static/", "/static/js", "/page/", "/page/../pages.py", "/static/../server.py"])
async def test_no_folder_is_listed_and_nothing_else_is_served(site: Open, path: str) -> None:
    assert (await (await site()).get(path))[0] in (403, 404)


async def test_every_answer_forbids_what_the_page_does_not_need(site: Open) -> None:
    here = await site(TOKEN)
    for path in ("/", f"/?token={TOKEN}", "/static/js/textual.js"):
        async with here.browser.get(path) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Referrer-Policy"] == "no-referrer" and answer.headers["X-Frame-Options"] == "DENY"


async def test_a_name_of_somebody_else_and_a_page_of_somebody_else_are_refused(site: Open) -> None:
    here = await site()
    assert await here.get("/", Host="evil.example") == (403, f"this server is at {here.address}/ only\n")
    for origin in ("http://evil.example", "null", ""):
        with pytest.raises(WSServerHandshakeError):
            await here.tab(Origin=origin)
    assert not children()


async def test_the_token_is_shown_once_and_nothing_comes_without_it(site: Open) -> None:
    here = await site(TOKEN)
    for path in ("/", "/static/js/textual.js", "/page/page.js", "/?token=another-of-sixteen"):
        status, text = await here.get(path)
        assert status == 403 and "?token=" in text and TOKEN not in text
    with pytest.raises(WSServerHandshakeError):
        await here.tab()
    async with here.browser.get(f"/?token={TOKEN}") as answer:
        assert answer.status == 200
        cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and TOKEN not in cookie
    assert (await here.get("/page/page.js"))[0] == 200
    tab = await here.tab()
    await painted(tab, b"first")
    with pytest.raises(WSServerHandshakeError):
        await here.tab(Origin="http://evil.example")


async def test_what_a_page_says_goes_to_its_app_and_what_is_no_message_does_not(site: Open) -> None:
    tab = await (await site()).tab()
    for odd in ("", "{", "[]", "7", '["stdin", 7]', '["resize", {"width": 0, "height": "x"}]', '["quit"]', "[" * 9000):
        await tab.send_str(odd)
    await tab.send_bytes(b'["stdin", "no"]')
    await tab.send_json(["stdin", "key"])
    await tab.send_json(["resize", {"width": 50, "height": 20}])
    await tab.send_json(["blur"])
    expected = (b"key", b'{"type": "resize", "width": 50, "height": 20}', b'{"type": "blur"}')
    await painted(tab, b"first " + b"".join(packet(b"D" if word == b"key" else b"M", word) for word in expected))


async def test_an_app_ends_with_its_page_and_a_page_with_its_app(site: Open) -> None:
    here = await site()
    tab = await here.tab()
    await painted(tab, b"first")
    assert len(children()) == 1
    await tab.close()
    await none_left()
    tab = await here.tab()
    await tab.send_json(["stdin", '"quit"'])
    async with asyncio.timeout(30):
        while (await tab.receive()).type is WSMsgType.BINARY:
            pass
    assert tab.close_code == 1000
    await none_left()


async def test_a_page_hears_that_its_app_ended_by_a_fault(site: Open) -> None:
    tab = await (await site()).tab()
    await tab.send_json(["stdin", "fault"])
    async with asyncio.timeout(30):
        while (message := await tab.receive()).type is WSMsgType.BINARY:
            pass
    assert (message.data, message.extra) == (1011, "The app ended by a fault of its own: the log tells of it.")


async def test_one_page_too_many_is_told_so_and_there_is_room_again(site: Open) -> None:
    here = await site(most=2)
    tabs = [await here.tab() for _ in range(2)]
    for tab in tabs:
        await painted(tab, b"first")
    message = await (await here.tab()).receive(30)
    assert message.type is WSMsgType.CLOSE
    assert (message.data, message.extra) == (1013, "All tabs are in use (2): close one, then open this one again.")
    await tabs[0].close()
    await painted(await here.tab(), b"first")


async def test_all_apps_end_with_the_server_and_their_pages_are_told(site: Open) -> None:
    here = await site()
    tabs = [await here.tab() for _ in range(2)]
    for tab in tabs:
        await painted(tab, b"first")
    closing = asyncio.create_task(here.runner.cleanup())
    for tab in tabs:
        message = await tab.receive(30)
        assert (message.data, message.extra) == (1001, "The server was ended: what stands here stays.")
    await closing
    assert not children()
