"""Connections to one server, and the head of each answer: whether it is one, in how long, and on which connection.

Proxies: only https goes through one that the environment names, in a tunnel that it cannot look into. Plain
http, which would show it the key, and this machine itself are asked directly. `.netrc` is not read.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import httpx2
import msgspec

from specdec_tui.backends.remote import answers
from specdec_tui.backends.remote.address import Address
from specdec_tui.backends.remote.errors import CONNECT_SECONDS, ServerError, of_library, of_status, unreadable
from specdec_tui.backends.remote.key import Key
from specdec_tui.backends.remote.tries import seconds_of
from specdec_tui.doors.characters import named

_IDLE_SECONDS = 4.0  # a connection is not used after: many servers drop one after 5, and a call may meet that moment
_REFUSAL_SECONDS = 5.0  # for the message of a refusal
_MOVED = (301, 302, 303, 307, 308)


@dataclass(frozen=True, slots=True)
class Question:
    """`timeout`, in seconds, is the longest time in which nothing of the answer may come."""

    method: str
    path: str
    content: bytes | None = None
    timeout: float = CONNECT_SECONDS


@dataclass(slots=True)
class Opened:
    """An answer whose head came `first_byte` seconds after it was asked for; `new`: over a connection made for it.

    Its reader sets `whole` once it has read all: else the connection is of no use for the next call.
    """

    response: httpx2.Response
    first_byte: float
    new: bool
    whole: bool = False


class Connections:
    """Those to the server at `address`, for calls from one event loop.

    `reconnects` counts those that came in place of one that failed or was gone, if only after a pause.
    """

    def __init__(self, address: Address, key: Key) -> None:
        self._address, self._key = address, key
        self._http = _http(address, key)
        self._failed = False
        self._idle = 0  # connections that should be open when the next call comes
        self.reconnects = 0

    async def close(self) -> None:
        await self._http.aclose()

    @asynccontextmanager
    async def opened(self, question: Question) -> AsyncIterator[Opened]:
        """An answer whose head says that all is well, its body unread; whatever fails until it is left: ServerError."""
        expected, heard, made = self._idle > 0, False, False
        self._idle -= expected

        async def note(event: str, _: object) -> None:
            nonlocal made
            made = made or event == "connection.connect_tcp.complete"

        began = time.perf_counter()
        try:
            async with self._http.stream(
                question.method,
                self._address.of(question.path),
                content=question.content,
                headers={"Content-Type": "application/json"} if question.content is not None else None,
                timeout=httpx2.Timeout(question.timeout, connect=CONNECT_SECONDS),
                extensions={"trace": note},
            ) as response:
                first_byte, heard = time.perf_counter() - began, True
                self._count(expected, made)
                await self._refuse(response, question.path)
                opened = Opened(response, first_byte, made)
                yield opened
                self._idle += opened.whole and _is_kept(response)
        except ServerError as error:
            self._failed = self._failed or error.kind == "gone"
            raise
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            self._failed = True
            raise of_library(error, self._address.root, question.timeout, heard) from None

    def _count(self, expected: bool, made: bool) -> None:
        """Whether the connection on which an answer came stands in the place of another one."""
        if self._failed or (expected and made):
            self.reconnects += 1
            self._idle = 0
        self._failed = False

    async def _refuse(self, response: httpx2.Response, path: str) -> None:
        """ServerError unless the status says that the answer is one."""
        status, location = response.status_code, response.headers.get("location", "")
        if response.is_success:
            return
        if status in _MOVED and location:
            there = self._key.hidden(self._address.instead(str(response.url), location, path))
            advice = "give that address as --target-url if it is meant"
            raise ServerError(f"the server sends us to {named(there)} (HTTP {status}): {advice}", "moved", status)
        said = ""
        with suppress(httpx2.HTTPError, TimeoutError):
            async with asyncio.timeout(_REFUSAL_SECONDS):
                said = answers.said_in(await answers.beginning_of(response), self._key)
        raise of_status(status, said, self._key, seconds_of(response.headers.get("retry-after", "")))


async def texts_of(response: httpx2.Response, key: Key) -> AsyncGenerator[bytes, None]:
    """The data of each event of a stream; ServerError where the answer is none, or too long."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        answers.decoded(await answers.body_of(response), msgspec.Raw, key)
        raise unreadable(f"it is no stream of events ({key.hidden(named(kind))})")
    async for event in httpx2.EventSource(response, answers.MOST_BYTES):
        answers.too_long(response.num_bytes_downloaded)
        yield event.data.encode()


def _is_kept(response: httpx2.Response) -> bool:
    """Whether the server leaves the connection open."""
    return response.http_version != "HTTP/1.0" and "close" not in response.headers.get("connection", "").lower()


def _http(address: Address, key: Key) -> httpx2.AsyncClient:
    """ServerError where the environment names certificates or a proxy that cannot be used."""
    try:
        # Without TLS nothing has to be trusted, and reading all certificates takes a while.
        trusted = httpx2.create_ssl_context() if address.secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    except OSError as error:
        raise ServerError(
            f"the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read ({error.strerror})", "tls"
        ) from None
    try:
        return httpx2.AsyncClient(
            verify=trusted,
            trust_env=address.secure and not address.here,
            headers={"Accept-Encoding": "identity", "User-Agent": "specdec-tui"} | key.headers(),
            limits=httpx2.Limits(keepalive_expiry=_IDLE_SECONDS),
        )
    except (ImportError, ValueError, httpx2.InvalidURL):
        raise ServerError(
            "a proxy that the environment names cannot be used (HTTPS_PROXY, ALL_PROXY)", "gone"
        ) from None
