"""Whatever a call waits for, it ends soon after nobody wants it any more, and its connection with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise

import pytest
from faulty_server import Answer, FaultyServer, broken_off, refusal, silence, until
from remote_model import Number, cancelled_after

from specdec_tui.backends.in_time import Stopped
from specdec_tui.backends.remote import connections, errors, tries
from specdec_tui.backends.remote.client import Client, ServerError

BEFORE = 0.15  # seconds until it is cancelled
SOON = 6.0  # seconds after, on a busy machine: a question comes every twentieth of one

Ask = Callable[[Client, Callable[[], bool]], object]


def post(client: Client, cancelled: Callable[[], bool]) -> object:
    return client.post("/completions", {"n": 3}, Number, cancelled)


def stream(client: Client, cancelled: Callable[[], bool]) -> object:
    return list(client.stream("/completions", {"n": 3, "stream": True}, Number, cancelled))


def ping(client: Client, cancelled: Callable[[], bool]) -> object:
    return client.ping(cancelled)


def stopped_in_time(ask: Ask, client: Client) -> None:
    began = time.monotonic()
    with pytest.raises(Stopped, match=r"^stopped while the server was at work$"):
        ask(client, cancelled_after(BEFORE))
    assert BEFORE <= time.monotonic() - began < BEFORE + SOON


@pytest.mark.parametrize("ask", [post, stream, ping])
def test_a_call_that_is_not_answered(ask: Ask, server: FaultyServer, client: Client) -> None:
    server.fails(silence, 0)
    stopped_in_time(ask, client)
    assert server.calls[0].left.wait(10), "the connection is still open"
    assert ask(client, lambda: False) and client.reconnects == 0


@pytest.mark.parametrize("ask", [post, stream])
def test_an_answer_that_stalls_in_the_middle(ask: Ask, server: FaultyServer, client: Client) -> None:
    server.fails(broken_off(end=silence))
    stopped_in_time(ask, client)
    assert server.calls[0].left.wait(10), "the connection is still open"


@pytest.mark.parametrize("ask", [post, stream])
def test_a_wait_between_tries(ask: Ask, server: FaultyServer, client: Client) -> None:
    server.fails(refusal(429, "", Retry_After="9"))
    stopped_in_time(ask, client)
    assert len(server.calls) == 1 and len(client.notices) == 1


@pytest.mark.parametrize("ask", [post, stream, ping])
def test_added_latency(ask: Ask, server: FaultyServer) -> None:
    client = Client(server.url, added_latency=20)
    stopped_in_time(ask, client)
    client.close()


def test_added_latency_after_the_answer(server: FaultyServer) -> None:
    client = Client(server.url, added_latency=4)
    began = time.monotonic()
    with pytest.raises(Stopped):
        stream(client, cancelled_after(2.2))
    assert len(server.calls) == 1 and 2.2 <= time.monotonic() - began < 3.9
    client.close()


def test_the_wait_for_the_next_event_of_a_stream(server: FaultyServer, client: Client) -> None:
    server.fails(broken_off(2, 0, silence))
    came: list[int] = []

    def follow(client: Client, cancelled: Callable[[], bool]) -> None:
        for _, event in client.stream("/completions", {"n": 3, "stream": True}, Number, cancelled):
            came.append(event.n)

    stopped_in_time(follow, client)
    assert came == [0, 1] and server.calls[0].left.wait(10)


def test_a_stream_that_never_pauses(server: FaultyServer, client: Client) -> None:
    server.model = lambda call: Answer(events=[{"n": 1}] * 20000, gap=0.001)
    stopped_in_time(stream, client)
    assert server.calls[0].left.wait(10)


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address where connections are neither made nor refused: the queue of a listener that accepts none is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting = []
        for _ in range(3):
            caller = socket.socket()
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(address)
            waiting.append(caller)
        yield f"http://127.0.0.1:{address[1]}/v1"
        for caller in waiting:
            caller.close()


@pytest.mark.parametrize("ask", [post, stream, ping])
def test_a_connection_that_is_not_made(ask: Ask, deaf: str) -> None:
    client = Client(deaf)
    stopped_in_time(ask, client)
    client.close()


def test_a_connection_that_is_not_made_is_given_up_in_bounded_time(deaf: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert connections.CONNECT_SECONDS == errors.CONNECT_SECONDS == 5
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr(tries, "_FIRST_WAIT", 0.01)
    client = Client(deaf)
    with pytest.raises(
        ServerError, match=r"^no server answers at http://127\.0\.0\.1:\d+ within 5 s, at try 4 too$"
    ) as gone:
        post(client, cancelled_after(20))
    assert gone.value.kind == "gone" and len(client.notices) == 3
    client.close()


def test_a_tls_handshake_that_is_not_answered(deaf: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = Client(f"https://127.0.0.1:{listener.getsockname()[1]}/v1")
        stopped_in_time(post, client)
        client.close()


def test_a_name_that_is_looked_up_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), []

    def look_up(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        over.wait(20)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    client = Client("http://somewhere.invalid/v1")
    stopped_in_time(post, client)
    assert set(asked) <= {"somewhere.invalid", b"somewhere.invalid"} and asked
    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("specdec"))
    over.set()
    client.close()


SLOW_NAME = """
import socket, time
from specdec_tui.backends.remote import connections, errors, tries
from specdec_tui.backends.remote.client import Client
from specdec_tui.backends.in_time import Stopped
socket.getaddrinfo = lambda *_, **__: time.sleep(30)
end = time.monotonic() + 0.1
try:
    Client("http://somewhere.invalid/v1").get("/models", dict, lambda: time.monotonic() > end)
except Stopped:
    print(time.time(), flush=True)
"""


def test_the_program_ends_at_once_while_a_name_is_still_looked_up() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLOW_NAME], capture_output=True, text=True, timeout=60, env=dict(os.environ)
    )
    assert time.time() - float(done.stdout) < 20 and done.stderr == ""


def test_a_call_that_nobody_wants_is_not_begun(server: FaultyServer, client: Client) -> None:
    for ask in (post, stream, ping):
        with pytest.raises(Stopped):
            ask(client, lambda: True)
    assert server.calls == [] and server.connections == 0


def test_whatever_the_question_raises_breaks_the_call_off(server: FaultyServer, client: Client) -> None:
    def interrupts() -> bool:
        if server.calls:
            raise KeyboardInterrupt
        return False

    for number, ask in enumerate((post, stream)):
        server.calls.clear()
        server.fails(silence)
        with pytest.raises(KeyboardInterrupt):
            ask(client, interrupts)
        assert server.calls[0].left.wait(10), number


def test_an_unwanted_call_takes_no_other_with_it(server: FaultyServer, client: Client) -> None:
    server.model = lambda call: (time.sleep(0.4), Answer({"n": 8}))[1]
    found: list[int] = []
    other = threading.Thread(target=lambda: found.append(client.post("/completions", {"n": 8}, Number).body.n))
    other.start()
    assert until(lambda: server.calls)
    with pytest.raises(Stopped):
        post(client, cancelled_after(0.1))
    other.join()
    assert found == [8]


def test_the_question_is_asked_at_least_twenty_times_a_second(server: FaultyServer, client: Client) -> None:
    server.fails(silence)
    asked: list[float] = []

    def note() -> bool:
        asked.append(time.monotonic())
        return False

    with pytest.raises(ServerError):
        client.post("/completions", {"n": 3}, Number, note, timeout=0.5)
    assert min(after - before for before, after in pairwise(asked)) < 0.07
