"""Whatever a server does ends in an answer or in one line that says what it did, and nothing hangs."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx2
import msgspec
import pytest
from faulty_server import (
    Answer,
    Call,
    Fault,
    FaultyServer,
    broken_off,
    dropped,
    dropped_in_its_head,
    giant,
    hung_up,
    instead,
    raw,
    refusal,
    silence,
)
from remote_model import KEY, Number

from specdec_tui.backends.remote import answers, connections, tries
from specdec_tui.backends.remote import client as client_module
from specdec_tui.backends.remote.client import Client, Reply, ServerError
from specdec_tui.backends.remote.errors import of_library

HERE = Path(__file__).parent / "certificates"


class Strict(msgspec.Struct):
    n: int
    s: str = ""


def ask(client: Client, **options: float) -> Reply[Number]:
    return client.post("/completions", {"n": 3}, Number, **options)


def refused(client: Client, **options: float) -> ServerError:
    """The error of a call, which says all in one line."""
    with pytest.raises(ServerError) as error:
        ask(client, **options)
    assert "\n" not in str(error.value) and KEY not in str(error.value)
    return error.value


# --- tried again ---

BEFORE_AN_ANSWER = {
    "dropped": dropped,
    "hung up": hung_up,
    "dropped in its head": dropped_in_its_head,
    "busy": refusal(503, "loading"),
    "failed": refusal(500, "out of luck"),
    "told to wait": refusal(429, "slow down", Retry_After="0"),
}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", BEFORE_AN_ANSWER)
def test_what_fails_before_an_answer_is_asked_again_and_told(name: str, server: FaultyServer, client: Client) -> None:
    server.fails(BEFORE_AN_ANSWER[name], 0, 1)
    reply = ask(client)
    assert reply.body.n == 3 and reply.tries == 3 and len(server.calls) == 3
    assert len({call.content for call in server.calls}) == 1
    assert len(client.notices) == 2 and all("asked again after 0" in notice for notice in client.notices)
    by_the_wire = "drop" in name or "hung" in name
    assert client.reconnects == (1 if by_the_wire else 0)
    assert all(("dropped the connection before it answered" in notice) == by_the_wire for notice in client.notices)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", BEFORE_AN_ANSWER)
def test_a_stream_that_fails_before_its_first_event_is_asked_again(
    name: str, server: FaultyServer, client: Client
) -> None:
    server.fails(BEFORE_AN_ANSWER[name], 0)
    server.fails(broken_off(0), 1)
    events = client.stream("/completions", {"n": 2, "stream": True}, Number)
    assert [event.n for _, event in events] == [0, 1]
    assert len(server.calls) == 3 and len(client.notices) == 2


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("fault", "kind", "status", "words"),
    [
        (refusal(429, "rate limit"), "busy", 429, "the server was busy (HTTP 429), at try 4 too: rate limit"),
        (refusal(500, "broken"), "busy", 500, "the server failed (HTTP 500), at try 4 too: broken"),
        (instead(b"<html>", 502), "busy", 502, "the server failed (HTTP 502), at try 4 too"),
        (dropped, "gone", None, "the server dropped the connection before it answered, at try 4 too"),
    ],
)
def test_four_tries_are_the_most(
    fault: Fault, kind: str, status: int | None, words: str, server: FaultyServer, client: Client
) -> None:
    server.fails(fault)
    error = refused(client)
    assert (error.kind, error.status, str(error)) == (kind, status, words)
    assert len(server.calls) == 4 and len(client.notices) == 3


def test_waits_double_and_differ_a_little() -> None:
    assert [tries.back_off(number, 0) for number in (1, 2, 3)] == [0.25, 0.5, 1.0]
    assert tries.back_off(1, -1) < 0.25 < tries.back_off(1, 1) < tries.back_off(2, -1)


def test_a_server_is_left_alone_for_as_long_as_it_says(server: FaultyServer, client: Client) -> None:
    server.fails(refusal(429, "", Retry_After="0.4"), 0)
    began = time.monotonic()
    assert ask(client).tries == 2
    assert 0.4 <= time.monotonic() - began < 20
    assert client.notices == ["the server was busy (HTTP 429): asked again after 0.4 s"]


def test_retry_after_is_read_in_seconds_and_as_a_date() -> None:
    in_minutes = format_datetime(datetime.now(UTC) + timedelta(seconds=500), usegmt=True)
    assert 400 < tries.seconds_of(in_minutes) <= 500
    assert tries.seconds_of("Wed, 21 Oct 2015 07:28:00 GMT") == 0 and tries.seconds_of("7") == 7
    assert [tries.seconds_of(text) for text in ("", "soon", "nan", "inf", "Wed, 99 Oct")] == [-1] * 5


@pytest.mark.parametrize(("says", "waited"), [("3600", 0.2), ("-5", 0.0)])
def test_no_server_makes_us_wait_for_longer_than_a_bound(
    says: str, waited: float, server: FaultyServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "MOST_WAIT", 0.2)
    server.fails(refusal(503, "", Retry_After=says), 0)
    began = time.monotonic()
    assert ask(client).tries == 2
    assert waited <= time.monotonic() - began < 20


def test_nothing_is_asked_again_when_the_time_is_over(
    server: FaultyServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "MOST_SECONDS", 4.0)
    server.fails(refusal(503, "", Retry_After="2.1"))
    assert refused(client).kind == "busy"
    assert len(server.calls) == 2


def test_a_server_that_restarts_is_found_again(server: FaultyServer, client: Client) -> None:
    ask(client)
    server.goes_down()
    back = threading.Timer(0.4, server.comes_up)
    back.start()
    assert ask(client).body.n == 3
    back.join()
    assert client.reconnects == 1 and client.notices
    assert all("connection refused" in n or "dropped the connection" in n for n in client.notices)


@pytest.mark.usefixtures("at_once")
def test_a_server_that_is_not_there_is_told_with_its_address(server: FaultyServer, client: Client) -> None:
    server.goes_down()
    error = refused(client)
    assert (error.kind, error.status) == ("gone", None)
    assert str(error) == f"no server answers at {server.root} (connection refused), at try 4 too"
    server.comes_up()


# --- not tried again ---


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (silence, "the server did not answer within 1 s"),
        (broken_off(end=silence), "the server stopped in the middle of its answer: nothing came for 1 s"),
        (broken_off(end=dropped), "the server dropped the connection in the middle of its answer"),
        (broken_off(end=hung_up), "the server dropped the connection in the middle of its answer"),
    ],
)
def test_a_question_that_is_not_answered_to_the_end_is_told_and_not_asked_again(
    fault: Fault, words: str, server: FaultyServer, client: Client
) -> None:
    server.fails(fault, 0)
    began = time.monotonic()
    error = refused(client, timeout=1.0)
    assert (error.kind, str(error)) == ("gone", words) and time.monotonic() - began < 20
    assert len(server.calls) == 1 and client.notices == []
    assert ask(client).body.n == 3 and client.reconnects == 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"n": 3', "input data was truncated"),
        (b"", "input data was truncated"),
        (b"<html><body>It works!</body></html>", "json is malformed"),
        (b'{"n": NaN}', "json is malformed"),
        (b'{"n": Infinity}', "json is malformed"),
        (b'{"n": 1e999}', "out of range"),
        (b'{"n": "3"}', "expected `int`, got `str` - at `$.n`"),
        (b'{"m": 3}', "missing required field `n`"),
        (b"[3]", "expected `object`, got `array`"),
        (b'{"n": 3, "s": "\xff"}', "utf-8"),
        pytest.param(b'{"x": ' + b"[" * 200_000, "nested too deeply", id="deep"),
    ],
)
def test_an_answer_that_is_none_is_told_in_few_words(
    body: bytes, words: str, server: FaultyServer, client: Client
) -> None:
    server.fails(instead(body))
    with pytest.raises(ServerError) as caught:
        client.post("/completions", {"n": 3}, Strict)
    error = caught.value
    assert error.kind == "answer" and str(error).startswith("the server's answer cannot be read: ")
    assert words in str(error).lower() and len(str(error)) < 160 and len(server.calls) == 1


def test_a_giant_answer_that_is_announced_is_not_waited_for(server: FaultyServer, client: Client) -> None:
    def announces(wire, answer) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 67108865\r\n\r\n")
        wire.pause()

    server.fails(announces, 0)
    assert str(refused(client, timeout=5)).endswith("it is longer than 64 MB")


@pytest.mark.parametrize("announced", [True, False])
def test_a_giant_answer_is_refused_before_it_fills_the_memory(
    announced: bool, server: FaultyServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fails(giant(answers.MOST_BYTES * 4, announced), 0)
    error = refused(client)
    assert error.kind == "answer" and str(error).endswith("it is longer than 64 MB")
    assert server.calls[0].left.wait(60), "it was read to its end"
    assert ask(client).body.n == 3


@pytest.mark.parametrize("words", [b"\x16\x03\x01 what", b"220 smtp.example\r\n\r\n", b"HTTP/1.1 two hundred\r\n\r\n"])
def test_words_that_are_no_http_are_told(words: bytes, server: FaultyServer, client: Client) -> None:
    server.fails(raw(words))
    error = refused(client)
    assert (error.kind, str(error)) == ("answer", "the server's answer cannot be read: it is no HTTP")
    assert len(server.calls) == 1


def test_damaged_compression_is_told(server: FaultyServer, client: Client) -> None:
    server.fails(instead(b"no gzip", Content_Encoding="gzip"))
    assert str(refused(client)) == "the server's answer cannot be read: its compression is damaged"


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_and_a_missing_one_are_told_with_what_to_set(status: int, server: FaultyServer) -> None:
    server.fails(refusal(status, "go away"))
    for key, asks in ((KEY, "refuses the key"), ("", "asks for a key")):
        client = Client(server.url, key)
        error = refused(client)
        client.close()
        assert (error.kind, error.status) == ("refused", status)
        assert str(error) == f"the server {asks} (HTTP {status}): set SPECDEC_TUI_API_KEY"
    assert len(server.calls) == 2


LONG = "max_tokens is too large. " * 40


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, {"error": {"message": "at most 50 logprobs", "type": "BadRequest"}}, ": at most 50 logprobs"),
        (404, {"detail": "Not Found"}, ": Not Found"),
        (404, {"object": "error", "message": "no such model"}, ": no such model"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, ": field required"),
        (400, {"error": "just words"}, ": just words"),
        (400, {"error": {"message": "two\nlines \x1b[31m"}}, ": two lines ␛[31m"),
        pytest.param(400, {"error": {"message": LONG}}, f": {LONG[:199]}…", id="long"),
        (418, b"<html>", ""),
        pytest.param(400, b'{"error": ' + b"[" * 100_000, "", id="deep"),
        (400, [1], ""),
    ],
)
def test_a_refusal_is_told_in_the_servers_words(
    status: int, body: object, words: str, server: FaultyServer, client: Client
) -> None:
    server.fails(instead(body, status))
    error = refused(client)
    assert (error.kind, error.status) == ("refused", status)
    assert str(error) == f"the server refuses this (HTTP {status}){words}" and len(server.calls) == 1


def test_a_refusal_whose_message_stalls_is_told_without_it(
    server: FaultyServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_REFUSAL_SECONDS", 0.2)

    def stalls(wire, answer) -> None:
        wire.send(b'HTTP/1.1 400 No\r\nContent-Length: 99\r\n\r\n{"error": ')
        wire.pause()

    server.fails(stalls)
    began = time.monotonic()
    assert str(refused(client)) == "the server refuses this (HTTP 400)" and time.monotonic() - began < 4


def test_an_error_that_comes_with_status_200_is_one(server: FaultyServer, client: Client) -> None:
    server.fails(instead({"n": 3, "error": {"message": "no room", "code": 400}}), 0)
    error = refused(client)
    assert (error.kind, error.status, str(error)) == ("refused", 400, "the server refuses this (HTTP 400): no room")
    server.fails(instead({"n": 4, "error": None}), 1)
    assert ask(client).body.n == 4
    server.fails(instead({"n": 5, "tokens": {"error": -1.5}}), 2)
    assert ask(client).body.n == 5


# --- redirects ---


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_told_and_the_other_host_gets_nothing(status: int, server: FaultyServer, client: Client) -> None:
    with FaultyServer(lambda call: Answer({"n": 1})) as other:
        there = f"{other.root}/v1/completions?key={KEY}"
        server.fails(instead(b"", status, Location=there))
        error = refused(client)
        assert (error.kind, error.status) == ("moved", status)
        advice = "give that address as --target-url if it is meant"
        assert str(error) == f"the server sends us to {other.url} (HTTP {status}): {advice}"
        with pytest.raises(ServerError, match=r"sends us to"):
            next(client.stream("/completions", {"n": 3}, Number))
        assert other.connections == 0 and other.calls == []


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("/v1/other/completions", "{root}/v1/other "),
        ("https://a:b@else.example/v1/completions", "https://else.example/v1 "),
        ("//else.example/x", "http://else.example/x "),
        (f"http://else.example/{KEY}", "http://else.example/[key] "),
        ("http://[", "http://[ "),
    ],
)
def test_the_address_of_a_redirect_is_one_to_give(
    location: str, shown: str, server: FaultyServer, client: Client
) -> None:
    server.fails(instead(b"", 307, Location=location))
    assert f"sends us to {shown.format(root=server.root)}" in str(refused(client))


def test_a_status_that_is_no_answer_is_told(server: FaultyServer, client: Client) -> None:
    server.fails(instead(b"", 304))
    assert (refused(client).kind, refused(client).status) == ("answer", 304)


# --- streams ---


def events_of(client: Client, most: int = 9) -> tuple[list[int], ServerError | None]:
    """What came, and what it ended with."""
    came: list[int] = []
    try:
        for _, event in client.stream("/completions", {"n": most, "stream": True}, Number):
            came.append(event.n)
    except ServerError as error:
        return came, error
    return came, None


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (dropped, "the server dropped the connection in the middle of its answer"),
        (hung_up, "the server dropped the connection in the middle of its answer"),
        (silence, "the server stopped in the middle of its answer: nothing came for 1 s"),
    ],
)
def test_a_stream_that_breaks_off_keeps_what_came_and_is_not_asked_again(
    end: Fault, words: str, server: FaultyServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "STREAM_SECONDS", 1.0)
    server.fails(broken_off(4, end=lambda wire, answer: (time.sleep(0.05), end(wire, answer))), 0)
    came, error = events_of(client)
    assert came == [0, 1, 2, 3] and error is not None
    assert (error.kind, str(error)) == ("gone", words)
    assert len(server.calls) == 1 and client.notices == []
    assert events_of(client) == (list(range(9)), None) and client.reconnects == 1


def test_a_stream_that_ends_without_its_end_is_gone(server: FaultyServer, client: Client) -> None:
    def ends(wire, answer) -> None:
        wire.send(answer.head())
        for piece in [*answer.pieces()[:2], b"0\r\n\r\n"]:
            wire.send(piece)

    server.fails(ends, 0)
    came, error = events_of(client)
    assert came == [0, 1] and error is not None and error.kind == "gone"
    assert str(error) == "the server ended the stream in the middle"
    assert ask(client).body.n == 3 and client.reconnects == 1, "another one may go on behind the same connection"


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        (b'{"n": NaN}', "answer", "JSON is malformed"),
        (b'{"n": 1', "answer", "truncated"),
        ({"m": 1}, "answer", "missing required field `n`"),
        ({"error": {"message": "too long", "code": 400}}, "refused", "the server refuses this (HTTP 400): too long"),
        ({"error": {"message": "engine died", "code": 500}}, "busy", "the server failed (HTTP 500): engine died"),
    ],
)
def test_an_event_that_is_none_ends_the_stream_with_what_came(
    event: object, kind: str, words: str, server: FaultyServer, client: Client
) -> None:
    server.model = lambda call: Answer(events=[{"n": 0}, {"n": 1}, event, {"n": 2}])
    came, error = events_of(client)
    assert came == [0, 1] and error is not None and error.kind == kind and words in str(error)
    assert len(server.calls) == 1


def test_an_answer_in_place_of_a_stream_is_told(server: FaultyServer, client: Client) -> None:
    server.fails(instead({"n": 3}), 0)
    _, error = events_of(client)
    assert error is not None and error.kind == "answer" and "no stream of events (application/json)" in str(error)
    server.fails(instead({"error": {"message": "no streams", "code": 400}}), 1)
    _, error = events_of(client)
    assert error is not None and error.kind == "refused" and "no streams" in str(error)


def test_a_stream_of_a_giant_size_is_refused(
    server: FaultyServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "MOST_BYTES", 1 << 20)
    server.model = lambda call: Answer(events=[{"n": 0, "text": "x" * 1000}] * 3000)
    came, error = events_of(client)
    assert 900 < len(came) < 1100 and error is not None and "longer than 1 MB" in str(error)


# --- TLS ---


@pytest.fixture
def secured() -> Iterator[Callable[[str], FaultyServer]]:
    servers: list[FaultyServer] = []

    def serve(certificate: str) -> FaultyServer:
        servers.append(FaultyServer(lambda call: Answer({"n": 3}), (HERE / certificate, HERE / "key.pem")))
        return servers[-1]

    yield serve
    for server in servers:
        server.goes_down()


@pytest.mark.parametrize(
    ("certificate", "trusted", "words"),
    [
        ("here.pem", "", "its certificate is not trusted: it is signed by itself"),
        ("here.pem", "elsewhere.pem", "its certificate is not trusted: it is signed by itself"),
        ("expired.pem", "expired.pem", "its certificate has expired"),
        ("elsewhere.pem", "elsewhere.pem", "its certificate is not for this host"),
    ],
)
def test_a_certificate_that_is_not_trusted_is_told_and_nothing_is_sent(
    certificate: str,
    trusted: str,
    words: str,
    secured: Callable[[str], FaultyServer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(HERE / trusted))
    server = secured(certificate)
    client = Client(server.url, KEY)
    error = refused(client)
    client.close()
    assert (error.kind, str(error)) == ("tls", f"no safe connection to {server.root}: {words}")
    assert server.calls == [] and client.notices == []


def test_a_certificate_that_the_user_trusts_is_good(
    secured: Callable[[str], FaultyServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(HERE / "here.pem"))
    client = Client(secured("here.pem").url, KEY)
    assert ask(client).body.n == 3
    client.close()


def test_what_breaks_in_tls_after_the_handshake_is_no_matter_of_trust() -> None:
    broken = httpx2.ReadError("")
    broken.__cause__ = ssl.SSLError(1, "[SSL: BAD_RECORD_MAC]")
    assert of_library(broken, "https://server", 1.0, heard=True).kind == "gone"
    unmade = httpx2.ConnectError("")
    unmade.__cause__ = broken.__cause__
    assert of_library(unmade, "https://server", 1.0, heard=False).kind == "tls"


def test_https_where_there_is_none_is_told(server: FaultyServer) -> None:
    client = Client(server.url.replace("http:", "https:"), KEY)
    error = refused(client)
    client.close()
    assert error.kind == "tls" and "there is no TLS there (is http:// meant?)" in str(error)


def test_a_connection_that_breaks_in_tls_is_gone_as_any_other(
    secured: Callable[[str], FaultyServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(HERE / "here.pem"))
    server = secured("here.pem")
    server.fails(broken_off(end=hung_up), 0)
    server.fails(broken_off(end=dropped), 1)
    client = Client(server.url, KEY)
    for _ in range(2):
        error = refused(client)
        assert str(error) == "the server dropped the connection in the middle of its answer" and error.kind == "gone"
    assert ask(client).body.n == 3 and client.reconnects == 2
    client.close()


@pytest.mark.usefixtures("at_once")
def test_http_where_https_is_spoken_is_told(secured: Callable[[str], FaultyServer]) -> None:
    client = Client(secured("here.pem").url.replace("https:", "http:"), KEY)
    assert refused(client).kind in ("gone", "answer")
    client.close()


def test_certificates_that_cannot_be_read_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ServerError, match=r"^the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read"):
        Client("https://127.0.0.1:1/v1")


def test_a_scripted_model_may_stand_behind_the_faults(server: FaultyServer, client: Client) -> None:
    def counts(call: Call) -> Answer:
        return Answer({"n": sum(call.body["prompt"])})

    server.model = counts
    server.fails(refusal(503, "", Retry_After="0"), 1, path="/completions")
    found = []
    for prompt in ([1, 2], [3, 4], [5, 6]):
        found.append(client.post("/completions", {"prompt": prompt}, Number).body.n)
    assert found == [3, 7, 11] and [call.body["prompt"] for call in server.calls].count([3, 4]) == 2
