"""Calls that go well: what is sent, what comes back, how long it took, and over which connection."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import msgspec
import pytest
from faulty_server import Answer, Call, FaultyServer, broken_off, instead, until
from remote_model import KEY, Number

from specdec_tui.backends.in_time import Stopped
from specdec_tui.backends.remote import client as client_module
from specdec_tui.backends.remote.client import Client


def test_an_answer_is_a_typed_value_with_its_times(server: FaultyServer, client: Client) -> None:
    reply = client.post("/completions", {"n": 3}, Number)
    assert reply.body == Number(3) and reply.tries == 1
    assert 0 < reply.first_byte < reply.seconds < 1
    (call,) = server.calls
    assert (call.method, call.path, call.body) == ("POST", "/v1/completions", {"n": 3})
    assert call.headers["authorization"] == f"Bearer {KEY}"
    assert call.headers["content-type"] == "application/json"
    assert call.headers["accept-encoding"] == "identity", "what is compressed can be of any size"


def test_paths_are_of_the_api_or_with_two_slashes_beside_it(server: FaultyServer) -> None:
    client = Client(f"{server.url}/")
    client.get("/models", Number)
    client.get("//health", Number)
    client.close()
    assert [call.path for call in server.calls] == ["/v1/models", "/health"]
    assert not any("authorization" in call.headers for call in server.calls), "there is no key"


def test_one_connection_serves_calls_and_streams(server: FaultyServer, client: Client) -> None:
    for n in range(5):
        assert client.post("/completions", {"n": n}, Number).body.n == n
        assert len(list(client.stream("/completions", {"n": n, "stream": True}, Number))) == n
        assert until(lambda: client._connections._idle == 1), "the rest of the stream was not read"
    assert server.connections == 1 and client.reconnects == 0 and client.notices == []


def test_the_events_of_a_stream_come_when_they_are_sent(server: FaultyServer, client: Client) -> None:
    server.model = lambda call: Answer(events=[{"n": i} for i in range(4)], gap=0.3)
    events = client.stream("/completions", {}, Number)
    came = [(at, event.n, time.perf_counter()) for at, event in events]
    assert [n for _, n, _ in came] == [0, 1, 2, 3]
    assert all(seen >= at for at, _, seen in came) and min(seen - at for at, _, seen in came) < 0.03
    assert came[3][0] - came[0][0] > 0.3, "they were held back"


def test_an_event_may_come_in_pieces_with_comments_and_over_several_lines(server: FaultyServer, client: Client) -> None:
    pieces = [b": wait\r\n\r\nda", b'ta: {"n":\r\ndata: 5}\r\n', b"\r\ndata: [DO", b"NE]\n\n"]

    def in_pieces(wire, answer) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for piece in pieces:
            wire.send(piece)
            time.sleep(0.01)
        wire.hang_up()

    server.fails(in_pieces)
    assert [event.n for _, event in client.stream("/completions", {"n": 1}, Number)] == [5]


def test_a_stream_that_is_closed_drops_its_connection_so_that_the_server_stops(
    server: FaultyServer, client: Client
) -> None:
    server.model = lambda call: Answer({"n": 1}) if call.method == "GET" else Answer(events=[{"n": 0}] * 1000, gap=0.02)
    events = client.stream("/completions", {}, Number)
    assert next(events)[1].n == 0
    events.close()
    assert server.calls[0].left.wait(10), "the server goes on"
    assert client.get("/models", Number).tries == 1 and client.reconnects == 0, "the server did not drop it"


def test_added_latency_is_waited_once_in_a_call_and_no_byte_is_sent_before_half_of_it(server: FaultyServer) -> None:
    client = Client(server.url)
    came: list[float] = []

    def model(call: Call) -> Answer:
        came.append(time.perf_counter())
        return Answer({"n": 1})

    server.model = model
    assert client.get("/models", Number).seconds < 5
    client.added_latency = 0.8
    began = time.perf_counter()
    reply = client.get("/models", Number)
    ended = time.perf_counter()
    assert 0.4 <= came[1] - began < 0.75 and 0.4 <= ended - came[1] < 0.75
    assert 0.8 <= reply.seconds < 1.4 and reply.first_byte < 0.35
    assert 0.8 <= client.ping() < 1.4
    client.close()


def test_added_latency_comes_once_in_a_stream_and_its_events_keep_their_distances(server: FaultyServer) -> None:
    client = Client(server.url, added_latency=0.6)
    server.model = lambda call: Answer(events=[{"n": i} for i in range(3)], gap=0.05)
    began = time.perf_counter()
    came = [(at - began, time.perf_counter() - began) for at, _ in client.stream("/completions", {}, Number)]
    client.close()
    assert 0.6 <= came[0][0] < 0.85 and 0.09 < came[2][0] - came[0][0] < 0.29
    assert all(seen >= at for at, seen in came), "it was told before it came"


def test_a_ping_asks_health_and_where_there_is_none_the_models(server: FaultyServer, client: Client) -> None:
    assert 0 < client.ping() < 20
    assert {call.path for call in server.calls} == {"/health"}
    server.fails(instead({"detail": "Not Found"}, 404), path="/health")
    server.calls.clear()
    assert 0 < client.ping() < 20
    assert 0 < client.ping() < 20
    assert [call.path for call in server.calls] == ["/health", "/v1/models", "/v1/models"]


def test_a_ping_does_not_count_the_making_of_a_connection(server: FaultyServer, client: Client) -> None:
    client.ping()
    assert len(server.calls) == 2, "the first of the two made the connection"
    client.ping()
    assert len(server.calls) == 3


def test_several_threads_ask_at_once(server: FaultyServer, client: Client) -> None:
    server.model = lambda call: (time.sleep(0.5), Answer({"n": call.body["n"]}))[1]
    found: dict[int, int] = {}

    def ask(n: int) -> None:
        found[n] = client.post("/completions", {"n": n}, Number).body.n

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: n for n in range(6)} and time.perf_counter() - began < 2.5
    assert client.reconnects == 0


def test_closing_ends_the_thread_and_what_is_at_work(server: FaultyServer) -> None:
    client = Client(server.url)
    client.get("/models", Number)
    server.fails(broken_off(end=lambda wire, _: wire.pause()))
    ends: list[BaseException] = []

    def ask() -> None:
        try:
            client.get("/models", Number)
        except BaseException as end:
            ends.append(end)

    asking = threading.Thread(target=ask)
    asking.start()
    assert until(lambda: len(server.calls) == 2)
    began = time.perf_counter()
    client.close()
    asking.join(60)
    assert time.perf_counter() - began < 20 and [type(end) for end in ends] == [Stopped]
    assert not any(thread.name == "specdec-server" for thread in threading.enumerate())
    with pytest.raises(Stopped):
        client.get("/models", Number)
    client.close()


def test_no_thread_begins_before_the_first_call() -> None:
    Client("http://127.0.0.1:9/v1").close()
    assert not any(thread.name == "specdec-server" for thread in threading.enumerate())


def test_the_libraries_write_nothing_to_the_screen(
    server: FaultyServer, client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    logging.basicConfig(level=logging.DEBUG, force=True)
    try:
        client.get("/models", Number)
        list(client.stream("/completions", {"n": 2, "stream": True}, Number))
    finally:
        logging.basicConfig(level=logging.WARNING, force=True, handlers=[])
        logging.getLogger().handlers.clear()
    assert capfd.readouterr() == ("", "")


def test_a_connection_in_place_of_one_that_is_gone_is_counted(server: FaultyServer, client: Client) -> None:
    client.get("/models", Number)
    server.goes_down()
    server.comes_up()
    assert client.get("/models", Number).body.n == 7
    assert client.reconnects == 1, "another server may be behind it"
    client.get("/models", Number)
    assert client.reconnects == 1


def test_of_several_connections_that_were_gone_only_one_is_counted(server: FaultyServer, client: Client) -> None:
    def both() -> None:
        arrived = threading.Barrier(2)
        server.model = lambda call: (arrived.wait(60), Answer({"n": 1}))[1]
        threads = [threading.Thread(target=client.get, args=("/models", Number)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.model = lambda call: Answer({"n": 1})

    both()
    server.goes_down()
    server.comes_up()
    client.get("/models", Number)
    assert server.connections == 3 and client.reconnects == 1
    both()
    assert server.connections == 4 and client.reconnects == 1, "the second one is new, and stands in no other's place"


def test_a_stream_whose_rest_does_not_come_is_over_with_its_end(
    server: FaultyServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_REST_SECONDS", 0.5)

    def rests(wire, answer) -> None:
        wire.send(answer.head())
        for piece in answer.pieces()[:-1]:
            wire.send(piece)
        wire.pause()

    server.fails(rests, 0)
    began = time.monotonic()
    assert len(list(client.stream("/completions", {"n": 3, "stream": True}, Number))) == 3
    assert time.monotonic() - began < 20 and server.calls[0].left.wait(60)
    assert client.get("/models", Number).body.n == 7 and client.reconnects == 0, "we gave it up ourselves"


def test_a_server_that_closes_each_connection_by_its_word_is_no_new_one(server: FaultyServer, client: Client) -> None:
    server.fails(lambda wire, _: (wire.answer(Answer({"n": 1}, headers={"Connection": "close"})), wire.hang_up()))
    for _ in range(3):
        client.get("/models", Number)
    assert server.connections == 3 and client.reconnects == 0


def test_netrc_adds_no_credentials_and_loopback_is_asked_without_a_proxy(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1\nlogin someone\npassword theirs\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    with FaultyServer(lambda call: Answer({"n": 1})) as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.root)
        client = Client(server.url)
        assert client.get("/models", Number).body.n == 7
        client.close()
        assert not proxy.calls
    assert "authorization" not in server.calls[0].headers


def test_a_proxy_of_the_environment_sees_no_key_and_no_question_of_plain_http(monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultyServer(lambda call: Answer({"n": 1})) as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.root)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        tunnelled = Client("https://server.invalid/v1", KEY)
        with pytest.raises(Exception, match=r"server\.invalid"):
            tunnelled.get("/models", Number)
        tunnelled.close()
        assert [call.method for call in proxy.calls][:1] == ["CONNECT"]
        assert not any("authorization" in call.headers for call in proxy.calls)
        proxy.calls.clear()
        plain = Client("http://server.invalid/v1", KEY)
        with pytest.raises(Exception, match=r"server\.invalid"):
            plain.get("/models", Number)
        plain.close()
        assert not proxy.calls


def test_what_is_sent_is_json(server: FaultyServer, client: Client) -> None:
    body = {"prompt": [1, 2, 3], "n": 1, "logit_bias": {"5": -100}, "text": "é\n"}
    client.post("/completions", body, Number)
    assert server.calls[0].body == body
    assert msgspec.json.decode(server.calls[0].content) == body
