"""Asking a server over HTTP: answers as typed values, every fault as one line, every call broken off when unwanted.

The library is httpx2, asynchronous and in a thread of its own: a synchronous call cannot be broken off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

import httpx2
import msgspec

from specdec_tui.backends.quiet import hush
from specdec_tui.backends.remote import answers
from specdec_tui.backends.remote.address import address_of
from specdec_tui.backends.remote.call_thread import GLANCE, CallThread, Cancelled, never, result_of, stop_if
from specdec_tui.backends.remote.connections import Connections, Question, texts_of
from specdec_tui.backends.remote.errors import CONNECT_SECONDS, ServerError
from specdec_tui.backends.remote.key import Key
from specdec_tui.backends.remote.tries import tried
from specdec_tui.variables import API_KEY, PREFIX

STREAM_SECONDS = 60.0
"""The longest time in which nothing may come of a stream."""
_REST_SECONDS = 1.0  # for what comes after a stream's last event: then the next call has its connection
_DONE = b"[DONE]"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """An answer. `seconds` is the wall time of the whole call, with its tries, waits and added latency.

    `first_byte` is that of the last try, from its start to the answer's head: the way and the server's work, without
    latency that was added. `tries` is 1 when it went well at once.
    """

    body: T
    seconds: float
    first_byte: float
    tries: int


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    body: T
    first_byte: float
    new: bool
    """Whether a connection was made for it."""


@dataclass(frozen=True, slots=True)
class _End:
    """Of a stream: at its last event, or by a fault."""

    fault: ServerError | None = None


class Client:
    """Connections to one server. Any thread may call, several at once; `close` ends what is at work.

    `added_latency`, in seconds, is waited once in each call, half before it is sent and half when its answer is
    there; may be set at any time. `notices` has a line for each try that failed, for its reader to take out.
    `reconnects` counts the connections that came in place of one that failed or was gone: behind them may be
    another server, with another model. A pause of more than 4 seconds between calls counts too.
    """

    def __init__(self, url: str, key: str = "", *, added_latency: float = 0.0) -> None:
        """ServerError for an address or a key that is none; nothing is sent yet."""
        problem = ""
        try:
            self._key = Key(key)
        except ValueError as error:
            problem = f"the key in {PREFIX}{API_KEY} cannot be sent: {error}"
        key = ""  # where a traceback shows what a frame holds it does not show this
        try:
            self._address = address_of(url)
        except ValueError as error:
            problem = f"the server's address is not valid: {error}"
        if problem:
            raise ServerError(problem, "refused")
        self.added_latency = added_latency
        self.notices: list[str] = []
        self._cheap = "//health"
        self._thread = CallThread()
        self._connections = Connections(self._address, self._key)
        hush()

    @property
    def reconnects(self) -> int:
        return self._connections.reconnects

    def __repr__(self) -> str:
        return f"Client({self._address.base!r})"

    def get(self, path: str, into: type[T], cancelled: Cancelled = never, *, timeout: float = 10.0) -> Reply[T]:
        """What the server says at `path`, as an `into`; `timeout` is the longest time in which nothing comes.

        ServerError, and Stopped once `cancelled`, which is asked every 50 ms. The same holds for all that follow.
        """
        return self._call(Question("GET", path, timeout=timeout), partial(self._decoded, into), cancelled)

    def post(
        self, path: str, body: dict[str, Any], into: type[T], cancelled: Cancelled = never, *, timeout: float = 60.0
    ) -> Reply[T]:
        question = Question("POST", path, msgspec.json.encode(body), timeout)
        return self._call(question, partial(self._decoded, into), cancelled)

    def text(self, path: str, cancelled: Cancelled = never, *, timeout: float = 10.0) -> str:
        """What the server says at `path`, as it is: of what is no JSON."""
        question = Question("GET", path, timeout=timeout)
        return self._call(question, lambda body: self._key.out_of(body).decode("utf-8", "replace"), cancelled).body

    def ping(self, cancelled: Cancelled = never) -> float:
        """Seconds for the way there and back over a connection that is open, latency that was added included."""
        try:
            return self._there_and_back(self._cheap, cancelled)
        except ServerError as error:
            if error.status is None or self._cheap == "/models":
                raise
            lacking = error.status in (404, 405)
        seconds = self._there_and_back("/models", cancelled)
        if lacking:
            self._cheap = "/models"
        return seconds

    def stream(
        self, path: str, body: dict[str, Any], into: type[T], cancelled: Cancelled = never
    ) -> Generator[tuple[float, T], None, None]:
        """Events as they come, each with the `time.perf_counter()` at which it did; sent with the first one asked for.

        Closing the generator drops the connection. What breaks before the first event is tried again; after
        it a ServerError says that it did.
        """
        question = Question("POST", path, msgspec.json.encode(body), STREAM_SECONDS)
        arrived: SimpleQueue[tuple[float, T | _End]] = SimpleQueue()
        half = self.added_latency / 2
        stop_if(cancelled)
        call = self._thread.begin(lambda: self._events(question, partial(self._decoded, into), arrived.put, half))
        ended = False
        try:
            while True:
                stop_if(cancelled)
                try:
                    at, event = arrived.get(timeout=GLANCE)
                except Empty:
                    if call.done() and arrived.empty():
                        result_of(call)
                    continue
                _wait_until(at + half, cancelled)
                if isinstance(event, _End):
                    ended = True
                    break
                yield at + half, event
        finally:
            if not ended:
                call.cancel()
        if event.fault is not None:
            raise event.fault.alone()

    def close(self) -> None:
        """End what is at work, with Stopped for who waits for it, and all connections."""
        self._thread.close(self._connections.close)

    def _call(self, question: Question, decode: Callable[[bytes], T], cancelled: Cancelled) -> Reply[T]:
        began, half = time.perf_counter(), self.added_latency / 2

        async def work() -> tuple[_Answer[T], int]:
            await asyncio.sleep(half)
            answer, tries = await tried(lambda: self._once(question, decode), self.notices.append)
            await asyncio.sleep(half)
            return answer, tries

        answer, tries = self._waited(work, cancelled)
        return Reply(answer.body, time.perf_counter() - began, answer.first_byte, tries)

    def _there_and_back(self, path: str, cancelled: Cancelled) -> float:
        """Of a call over a connection that was open: what made one took longer, and is asked twice."""
        question = Question("GET", path, timeout=CONNECT_SECONDS)

        async def work() -> tuple[float, bool]:
            began = time.perf_counter()
            answer = await self._once(question, lambda _: None)
            return time.perf_counter() - began, answer.new

        seconds, new = self._waited(work, cancelled)
        if new:
            seconds, _ = self._waited(work, cancelled)
        _wait_until(time.perf_counter() + self.added_latency, cancelled)
        return seconds + self.added_latency

    def _waited(self, work: Callable[[], Coroutine[Any, Any, T]], cancelled: Cancelled) -> T:
        try:
            return self._thread.wait(work, cancelled)
        except ServerError as error:
            fault = error
        raise fault.alone()

    async def _once(self, question: Question, decode: Callable[[bytes], T]) -> _Answer[T]:
        async with self._connections.opened(question) as opened:
            body = await answers.body_of(opened.response)
            opened.whole = True
        return _Answer(decode(body), opened.first_byte, opened.new)

    async def _events(
        self,
        question: Question,
        decode: Callable[[bytes], T],
        put: Callable[[tuple[float, T | _End]], None],
        half: float,
    ) -> None:
        """Put all events and an end, each with its time."""
        begun = False

        async def once() -> None:
            nonlocal begun
            async with (
                self._connections.opened(question) as opened,
                aclosing(texts_of(opened.response, self._key)) as texts,
            ):
                async for text in texts:
                    if text == _DONE:
                        put((time.perf_counter(), _End()))
                        with suppress(httpx2.HTTPError, TimeoutError, ServerError):
                            async with asyncio.timeout(_REST_SECONDS):
                                opened.whole = await anext(texts, None) is None
                        return
                    put((time.perf_counter(), decode(text)))
                    begun = True
                raise ServerError("the server ended the stream in the middle", "gone")

        async def from_its_beginning() -> None:
            try:
                await once()
            except ServerError as error:
                error.again = not begun and (error.again or error.kind == "gone")
                raise

        await asyncio.sleep(half)
        try:
            await tried(from_its_beginning, self.notices.append)
        except ServerError as error:
            put((time.perf_counter(), _End(error)))

    def _decoded(self, into: type[T], body: bytes) -> T:
        return answers.decoded(self._key.out_of(body), into, self._key)


def _wait_until(due: float, cancelled: Cancelled) -> None:
    while (early := due - time.perf_counter()) > 0:
        stop_if(cancelled)
        time.sleep(min(early, GLANCE))
