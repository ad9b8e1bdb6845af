"""The key is in one header of a request, and nowhere else: no repr, error, chained error, notice or log has it."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Callable
from typing import Literal
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from faulty_server import Answer, FaultyServer, broken_off, dropped, instead, refusal
from remote_model import KEY, Number

from specdec_tui.backends.remote.client import Client, ServerError
from specdec_tui.backends.remote.key import Key


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Incorrect API key provided: {KEY}.", "Incorrect API key provided: [key]."),
        (f"{KEY}", "[key]"),
        (f"Bearer {KEY} and {KEY}", "Bearer [key] and [key]"),
        (f"no such key {KEY[:-3]}***", "no such key [key]***"),
        (f"no such key …{KEY[4:]}", "no such key …[key]"),
        (f"{KEY[2:-2].upper()} in capitals", "[key] in capitals"),
        (f"{KEY[:4]}…{KEY[-4:]}", f"{KEY[:4]}…{KEY[-4:]}"),
        ("nothing of it", "nothing of it"),
        ("", ""),
    ],
)
def test_a_key_that_is_echoed_whole_or_nearly_is_hidden(text: str, shown: str) -> None:
    assert Key(KEY).hidden(text) == shown


def test_short_keys_are_hidden_too_and_no_key_hides_nothing() -> None:
    assert Key("EMPTY").hidden("EMPTY is no key, nor is EMPT") == "[key] is no key, nor is [key]"
    assert Key("ab").hidden("a cab") == "a c[key]"
    assert Key("").hidden("any text") == "any text"


def test_a_key_that_a_message_has_as_addresses_do_is_hidden() -> None:
    assert Key("a+b/c=d&e").hidden("no \ud800 /x?key=a%2Bb%2fc%3Dd%26e&n=1") == "no \ud800 /x?key=[key]&n=1"


def test_letters_that_become_two_when_small_hide_nothing_less() -> None:
    assert Key(KEY).hidden(f"İİİ {KEY} İ") == "İİİ [key] İ"


def escaped(key: str) -> str:
    """As JSON may write it: every character by its number."""
    return "".join(f"\\u{ord(character):04X}" for character in key)


@pytest.mark.parametrize("key", [KEY, 'a"quote/and\\more', "12+34/56=="])
@pytest.mark.parametrize(
    "spelled", [str, str.upper, escaped, quote_plus, quote, lambda key: json.dumps(key)[1:-1].replace("/", "\\/")]
)
def test_what_a_server_answers_has_no_key_in_any_spelling(key: str, spelled: Callable[[str], str]) -> None:
    answer = json.dumps({"id": "run-HERE", "text": "a\nb 100% HERE"}).replace("HERE", spelled(key))
    assert Key(key).out_of(answer.encode()) == b'{"id": "run-[key]", "text": "a\\nb 100% [key]"}'


def test_a_key_so_short_that_it_may_be_a_word_changes_no_answer() -> None:
    answer = b'{"choices": [{"text": "EMPTY a"}], "n": 1234567}'
    for key in ("a", "EMPTY", "choices", "1234567", ""):
        assert Key(key).out_of(answer) == answer


def test_no_answer_event_or_text_that_a_client_gives_has_the_key(server: FaultyServer, client: Client) -> None:
    echo = {"id": f"by {KEY}"}
    server.model = lambda call: Answer(events=[echo, echo]) if call.method == "POST" else Answer(echo)
    assert client.get("/models", dict).body == {"id": "by [key]"}
    assert client.text("//metrics") == '{"id": "by [key]"}'
    assert [event for _, event in client.stream("/completions", {}, dict)] == [{"id": "by [key]"}] * 2


def test_no_repr_shows_a_key(server: FaultyServer) -> None:
    client = Client(server.url, KEY)
    assert KEY not in f"{client!r} {client} {vars(client)} {Key(KEY)!r} {vars(client._connections)}"
    assert repr(client) == f"Client('{server.url}')"
    client.close()


@pytest.mark.parametrize("key", ["a\nb", "a\x00b", "schlüssel", "a\x7fb", "ключ"])
def test_a_key_that_no_header_may_have_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ServerError) as refused:
        Client("http://127.0.0.1:1/v1", key)
    assert refused.value.kind == "refused" and key not in str(refused.value) and "\n" not in str(refused.value)
    assert str(refused.value).startswith("the key in SPECDEC_TUI_API_KEY cannot be sent: ")


def test_blanks_around_a_key_are_not_of_it(server: FaultyServer) -> None:
    client = Client(server.url, f" {KEY}\n")
    client.get("/models", Number)
    client.close()
    assert server.calls[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_value_that_is_none_of_those_allowed_is_told_without_the_key(server: FaultyServer, client: Client) -> None:
    class Ended(msgspec.Struct):
        reason: Literal["stop", "length"]

    server.fails(instead({"reason": KEY}))
    with pytest.raises(ServerError, match=r"Invalid enum value '\[key\]'"):
        client.get("/models", Ended)


FAULTS = {
    "echoed": refusal(400, f"what is {KEY}?"),
    "echoed in part": refusal(500, f"what is {KEY[:-4]}?"),
    "echoed in a field": instead({"n": "x", "error": f"{KEY}"}),
    "echoed in a type": instead(b'{"n": 1}', Content_Type=KEY),
    "echoed in a redirect": instead(b"", 307, Location=f"http://127.0.0.1:1/{KEY}/completions"),
    "dropped": dropped,
    "broken off": broken_off(),
    "no JSON": instead(b"{"),
}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("name", FAULTS)
def test_no_error_notice_or_log_has_the_key(
    name: str,
    streams: bool,
    server: FaultyServer,
    client: Client,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server.fails(FAULTS[name])
    said: list[str] = []
    with caplog.at_level(logging.DEBUG):
        for logger in ("httpx2", "httpcore2", "asyncio"):
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        try:
            if streams:
                list(client.stream("/completions", {"n": 1, "stream": True}, Number))
            else:
                client.post("/completions", {"n": 1}, Number)
        except ServerError as error:
            said.append("".join(traceback.TracebackException.from_exception(error, capture_locals=True).format()))
            assert error.__cause__ is None and error.__context__ is None
    assert said or name in ("echoed in a type", "broken off"), "nothing failed"
    text = "".join([*said, *client.notices, caplog.text, *capfd.readouterr()])
    assert KEY not in text and KEY[:-4] not in text
    assert server.calls[0].headers["authorization"] == f"Bearer {KEY}"
