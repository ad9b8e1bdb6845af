"""What a browser gets: the page with the terminal, and behind each page an app of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import textual_serve
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from specdec_tui.serving.admission import Admission, Asker
from specdec_tui.serving.engine_server import EngineServer
from specdec_tui.serving.tab_process import LEAVING_SECONDS, TabProcess, as_size, command

ROOM_SECONDS = 3.0
"""For a page that was closed, or is loaded again, to make room for another."""
CLOSING_SECONDS = 5.0
"""For the apps to end once the server ends."""

CLOSE_SECONDS = 1.0
"""For a browser to answer that its page is closed."""

_HERE = Path(__file__).parent / "page"
_THEIRS = Path(textual_serve.__file__).parent / "static"
_LONGEST_MESSAGE = 16 * 1024 * 1024  # of a paste
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Pages:
    """Pages for whom `admission` lets in, at most `most` at once. `log`: where apps write errors, a descriptor."""

    def __init__(self, admission: Admission, engine: EngineServer, most: int, log: int) -> None:
        self._admission = admission
        self._engine = engine
        self._most = most
        self._log = log
        self._free = asyncio.Semaphore(most)
        self._open: set[web.WebSocketResponse] = set()
        self._patience = LEAVING_SECONDS

    def application(self) -> web.Application:
        found = web.Application(middlewares=[self._guard])
        found.on_response_prepare.append(_add_headers)
        found.on_shutdown.append(self._close)
        found.add_routes(
            [
                web.get("/", self._page),
                web.get("/ws", self._tab),
                web.static("/page", _HERE),
                web.static("/static", _THEIRS),
            ]
        )
        return found

    def _asker(self, request: web.Request) -> Asker:
        return Asker(
            host=request.headers.get("Host", ""),
            origin=request.headers.get("Origin", ""),
            token=request.query.get("token", ""),
            cookie=request.cookies.get(self._admission.cookie, ""),
        )

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        refusal = self._admission.refusal(self._asker(request), is_websocket=request.path == "/ws")
        return web.Response(status=403, text=f"{refusal}\n") if refusal else await handler(request)

    async def _page(self, request: web.Request) -> web.StreamResponse:
        page = web.FileResponse(_HERE / "page.html", headers={"Cache-Control": "no-store"})
        if self._admission.shows_token(self._asker(request)):
            page.set_cookie(self._admission.cookie, self._admission.pass_word, httponly=True, samesite="Strict")
        return page

    async def _tab(self, request: web.Request) -> web.StreamResponse:
        """An app as long as its page is open."""
        page = web.WebSocketResponse(timeout=CLOSE_SECONDS, heartbeat=20, max_msg_size=_LONGEST_MESSAGE)
        await page.prepare(request)
        try:
            await asyncio.wait_for(self._free.acquire(), ROOM_SECONDS)
        except TimeoutError:
            await _refuse(page, f"All tabs are in use ({self._most}): close one, then open this one again.")
            return page
        self._open.add(page)
        try:
            size = as_size(request.query.get("width"), request.query.get("height")) or (80, 24)
            await self._run(page, size)
        finally:
            self._open.discard(page)
            self._free.release()
        return page

    async def _run(self, page: web.WebSocketResponse, size: tuple[int, int]) -> None:
        seat, theirs = self._engine.open()
        try:
            tab = await TabProcess.begin(command(), theirs, size, self._log)
        except OSError as error:
            seat.drop()
            await _refuse(page, f"No app could be started: {error.strerror}.")
            return
        relaying = asyncio.create_task(self._relay(tab, page))
        try:
            async for message in page:
                hear(tab, message)
        finally:
            seat.stop_all()  # also where the app has stopped listening
            await tab.end(self._patience)
            await relaying
            seat.drop()

    async def _relay(self, tab: TabProcess, page: web.WebSocketResponse) -> None:
        await tab.relay(page.send_bytes, page.close)
        if not tab.has_left:
            await _close(page, WSCloseCode.INTERNAL_ERROR, "The app ended by a fault of its own: the log tells of it.")

    async def _close(self, _: web.Application) -> None:
        """The server ends."""
        self._patience = CLOSING_SECONDS
        ending = partial(_close, code=WSCloseCode.GOING_AWAY, why="The server was ended: what stands here stays.")
        await asyncio.gather(*(ending(page) for page in self._open))


def hear(tab: TabProcess, message: WSMessage) -> None:
    """Pass on what a page says; what is no message of Textual's page is left out."""
    if message.type != WSMsgType.TEXT:
        return
    with suppress(ValueError, RecursionError):
        match json.loads(message.data):
            case ["stdin", str() as text]:
                tab.type(text)
            case ["resize", {"width": width, "height": height}]:
                if (size := as_size(width, height)) is not None:
                    tab.tell("resize", width=size[0], height=size[1])
            case ["focus" | "blur" as kind]:
                tab.tell(kind)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)


async def _refuse(page: web.WebSocketResponse, why: str) -> None:
    await _close(page, WSCloseCode.TRY_AGAIN_LATER, why)


async def _close(page: web.WebSocketResponse, code: int, why: str) -> None:
    with suppress(ConnectionError):
        await page.close(code=code, message=why.encode())
