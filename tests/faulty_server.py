"""A server on loopback that answers as it is told, and fails where it is told: one fault at one call.

What it answers is a function of the call (a scripted model may stand there), what goes wrong another: faults get
the answer that would have been right, so each can be put before any model.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PATIENCE = 30.0  # seconds for which a stalled answer waits for its client to leave


@dataclass(frozen=True, slots=True)
class Call:
    """A request that came. `left` is set when its client hung up before the answer's end."""

    method: str
    path: str
    headers: Mapping[str, str]
    content: bytes
    left: threading.Event = field(default_factory=threading.Event)

    @property
    def body(self) -> Any:
        return json.loads(self.content) if self.content else None


@dataclass(frozen=True, slots=True)
class Answer:
    """A body of JSON, or `events` with `gap` seconds between them and [DONE] at their end. Bytes go out as they are."""

    body: Any = None
    status: int = 200
    events: Sequence[Any] | None = None
    gap: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> bytes:
        kind = "application/json" if self.events is None else "text/event-stream; charset=utf-8"
        size = {"Content-Length": str(sum(map(len, self.pieces())))} if self.events is None else {}
        more = {"Transfer-Encoding": "chunked"} if self.events is not None else {}
        lines = [f"{name}: {value}" for name, value in ({"Content-Type": kind} | size | more | self.headers).items()]
        return "\r\n".join([f"HTTP/1.1 {self.status} Said", *lines, "", ""]).encode()

    def pieces(self) -> list[bytes]:
        """What follows the head: the body, or a piece for each event and one for the end."""
        if self.events is None:
            return [_raw(self.body)]
        events = [b"data: " + _raw(event) + b"\n\n" for event in [*self.events, b"[DONE]"]]
        return [*(f"{len(event):x}\r\n".encode() + event + b"\r\n" for event in events), b"0\r\n\r\n"]


Model = Callable[[Call], Answer]
Fault = Callable[["Wire", Answer], None]


class ClientLeft(Exception):
    """Hung up before the answer's end."""


class Wire:
    """The way back to one client."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError:
            raise ClientLeft from None

    def answer(self, answer: Answer) -> None:
        self.send(answer.head())
        for number, piece in enumerate(answer.pieces()):
            if number:
                self.pause(answer.gap)
            self.send(piece)

    def pause(self, seconds: float = _PATIENCE) -> None:
        """ClientLeft as soon as it does."""
        if seconds and select.select([self._connection], [], [], seconds)[0]:
            raise ClientLeft

    def drop(self) -> None:
        """Without a good-bye: the client sees a connection that is reset."""
        with suppress(OSError):
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.hang_up()

    def hang_up(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def right(wire: Wire, answer: Answer) -> None:
    wire.answer(answer)


def silence(wire: Wire, answer: Answer) -> None:
    """Nothing is ever answered."""
    wire.pause()


def dropped(wire: Wire, answer: Answer) -> None:
    """Before a byte of the answer."""
    wire.drop()


def hung_up(wire: Wire, answer: Answer) -> None:
    """The same, with a good-bye."""
    wire.hang_up()


def dropped_in_its_head(wire: Wire, answer: Answer) -> None:
    wire.send(answer.head()[:20])
    wire.hang_up()


def broken_off(pieces: int = 0, share: float = 0.5, end: Fault = hung_up) -> Fault:
    """After so many pieces and a share of the next one the connection ends as `end` does; by `silence`, it stalls."""

    def fault(wire: Wire, answer: Answer) -> None:
        wire.send(answer.head())
        whole = answer.pieces()
        for piece in whole[:pieces]:
            wire.send(piece)
        wire.send(whole[pieces][: int(len(whole[pieces]) * share)])
        end(wire, answer)

    return fault


def instead(body: Any = None, status: int = 200, **headers: str) -> Fault:
    """Another answer; an underscore in a header's name stands for a hyphen."""
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda wire, _: wire.answer(Answer(body, status, headers=own))


def refusal(status: int, message: str = "", **headers: str) -> Fault:
    return instead({"error": {"message": message}}, status, **headers)


def raw(data: bytes) -> Fault:
    """Whatever is sent, and the connection ends."""

    def fault(wire: Wire, answer: Answer) -> None:
        wire.send(data)
        wire.hang_up()

    return fault


def giant(size: int, announced: bool) -> Fault:
    """A body of `size` bytes, whose head says so or not."""

    def fault(wire: Wire, answer: Answer) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\n" + (b"Content-Length: %d\r\n" % size if announced else b"") + b"\r\n")
        part = b" " * (1 << 20)
        for _ in range(size >> 20):
            wire.send(part)
        wire.hang_up()

    return fault


class FaultyServer:
    """A context manager. `calls` are all requests in the order in which they came."""

    def __init__(self, model: Model, certificate: tuple[Path, Path] | None = None) -> None:
        """`certificate` and its key are files; with them the server speaks TLS."""
        self.model = model
        self.calls: list[Call] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._faults: list[tuple[str, int | None, Fault]] = []
        self._open: set[socket.socket] = set()
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*certificate)
        self.port = 0
        self._listen()

    @property
    def root(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    def fails(self, fault: Fault, *calls: int, path: str = "") -> None:
        """At these calls, counted from 0 among those whose path ends in `path`; at all of them where none is named."""
        self._faults += [(path, number, fault) for number in calls or (None,)]

    def goes_down(self) -> None:
        """Its port is closed, and every connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            Wire(connection).drop()

    def comes_up(self) -> None:
        """On the same port."""
        self._listen()

    def __enter__(self) -> FaultyServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.goes_down()

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self.port = self._listener.getsockname()[1]
        self._acceptor = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._acceptor.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(connection)
                self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        accepted = connection
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection.makefile("rb") as requests:
                while (call := _read(requests)) is not None:
                    fault = self._note(call)
                    try:
                        fault(Wire(connection), self.model(call))
                    except ClientLeft:
                        call.left.set()
                        return
        except UnicodeDecodeError:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        except (OSError, ValueError):  # a client that left, or does not trust us; a connection that a fault closed
            return
        finally:
            with self._lock:
                self._open.discard(accepted)
            connection.close()

    def _note(self, call: Call) -> Fault:
        with self._lock:
            self.calls.append(call)
            for path, number, fault in self._faults:
                if call.path.endswith(path):
                    before = sum(other.path.endswith(path) for other in self.calls) - 1
                    if number is None or number == before:
                        return fault
        return right


def _read(requests: Any) -> Call | None:
    """The next request of a connection; None when there is none any more."""
    line = requests.readline().decode()
    if not line.strip():
        return None
    method, path, _ = line.split(" ", 2)
    headers = {}
    while (line := requests.readline().decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Call(method, path, headers, requests.read(int(headers.get("content-length", 0))))


def _raw(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def until(condition: Callable[[], object], seconds: float = 5.0) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
