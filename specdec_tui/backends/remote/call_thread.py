"""Calls that can be broken off at any moment: they are at work in a thread of their own, and their callers look on."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, TypeVar

from specdec_tui.backends.in_time import Stopped

GLANCE = 0.05
"""Seconds between two looks at whether a call is still wanted."""
_END_SECONDS = 1.0

Result = TypeVar("Result")
Cancelled = Callable[[], bool]


def never() -> bool:
    return False


class CallThread:
    """An event loop in a daemon thread, which begins with the first call. Any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def begin(self, work: Callable[[], Coroutine[Any, Any, Result]]) -> Future[Result]:
        """Its future's cancel() breaks the work off. Stopped after `close`."""
        with self._lock:
            if self._closed:
                raise Stopped("the connection to the server is closed")
            if self._loop is None:
                self._loop = _Loop()
                self._thread = threading.Thread(target=_live, args=(self._loop,), name="specdec-server", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def wait(self, work: Callable[[], Coroutine[Any, Any, Result]], cancelled: Cancelled = never) -> Result:
        """What the work returns or raises; broken off by Stopped once `cancelled`, and by whatever that raises."""
        stop_if(cancelled)
        call = self.begin(work)
        over = threading.Event()
        call.add_done_callback(lambda _: over.set())
        try:
            while not over.wait(GLANCE):
                stop_if(cancelled)
        finally:
            call.cancel()
        return result_of(call)

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Break off what is at work, do `last`, end the thread. It is waited for, but not for long."""
        with self._lock:
            self._closed, loop, thread = True, self._loop, self._thread
            self._loop = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_end(last), loop)
        if thread is not threading.current_thread():
            thread.join(_END_SECONDS)


def stop_if(cancelled: Cancelled) -> None:
    if cancelled():
        raise Stopped("stopped while the server was at work")


def result_of(call: Future[Result]) -> Result:
    """Of a call that is done; Stopped where it was broken off by the thread's end."""
    try:
        return call.result()
    except CancelledError:
        raise Stopped("the connection to the server is closed") from None


async def _end(last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    own = asyncio.current_task()
    others = [task for task in asyncio.all_tasks() if task is not own]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    with suppress(Exception):
        await last()
    asyncio.get_running_loop().stop()


def _live(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


class _Loop(asyncio.SelectorEventLoop):
    """One that looks names up in daemon threads: a program waits at its end for those of asyncio's, up to minutes."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        found: asyncio.Future[Any] = self.create_future()

        def settle(answer: Any, fault: Exception | None) -> None:
            if found.done():
                return
            if fault is None:
                found.set_result(answer)
            else:
                found.set_exception(fault)

        def look() -> None:
            answer, fault = None, None
            try:
                answer = socket.getaddrinfo(host, port, **options)
            except Exception as error:
                fault = error
            with suppress(RuntimeError):  # the loop has ended meanwhile
                self.call_soon_threadsafe(settle, answer, fault)

        threading.Thread(target=look, name="specdec-name", daemon=True).start()
        return await found
