"""An address is checked before anything is sent to it, and what is wrong is told with what is allowed."""

from __future__ import annotations

import pytest

from specdec_tui.backends.remote.address import address_of, place_of
from specdec_tui.backends.remote.client import Client, ServerError


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        (" http://localhost:8000/v1/ ", "http://localhost:8000/v1"),
        ("https://server.example/api/v1//", "https://server.example/api/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://server.example", "http://server.example"),
        ("HTTP://server.example/v1", "http://server.example/v1"),
    ],
)
def test_an_address_with_or_without_a_slash_at_its_end(url: str, base: str) -> None:
    address = address_of(url)
    assert address.base == base
    assert address.of("/completions") == f"{base}/completions"
    assert address.of("//health") == "/".join(base.split("/")[:3]) + "/health"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:8000/v1", "does not begin with http:// or https://"),
        ("server", "does not begin with http:// or https://"),
        ("", "does not begin with http:// or https://"),
        ("ftp://server/v1", "does not begin with http:// or https://"),
        ("http:/server/v1", "does not begin with http:// or https://"),
        ("http:///v1", "has no host"),
        ("http://:8000/v1", "has no host"),
        ("http://server:none/v1", "its host or port is none"),
        ("http://server:99999/v1", "its host or port is none"),
        ("http://server:-1/v1", "its host or port is none"),
        ("http://server:0/v1", "a port that is none"),
        ("http://[::1/v1", "its host or port is none"),
        ("http://server/v1?key=1", "has no ? or # in it"),
        ("http://server/v1?", "has no ? or # in it"),
        ("http://server/v1#x", "has no ? or # in it"),
        ("http://ser ver/v1", "characters that no address has"),
        ("http://ser\nver/v1", "characters that no address has"),
        ("http://\x1b[31m/v1", "characters that no address has"),
        ("http://xn--\xff.example/v1", "a host that is none"),
    ],
)
def test_an_address_that_is_none_is_refused_with_what_is_allowed(url: str, words: str) -> None:
    with pytest.raises(ServerError) as refused:
        Client(url)
    said = str(refused.value)
    assert refused.value.kind == "refused" and "\n" not in said and "\x1b" not in said
    assert said.startswith("the server's address is not valid: ") and words in said
    assert "give http://HOST:PORT/v1" in said or "give one from 1 to 65535" in said


@pytest.mark.parametrize("url", ["http://someone:secret@server/v1", "http://secret@server/v1", "http://:secret@s/v1"])
def test_a_password_in_an_address_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ServerError, match="does not belong into an address") as refused:
        Client(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("[::1]", True),
        ("a.localhost", True),
        ("10.0.0.1", False),
        ("localhost.example", False),
    ],
)
def test_this_machine_is_known(host: str, here: bool) -> None:
    assert address_of(f"http://{host}:8000/v1").here is here


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://127.0.0.1:8000/v1", "127.0.0.1:8000"),
        ("https://[::1]:8000/v1", "[::1]:8000"),
        ("http://someone:secret@server/v1", "server"),
        ("http://some@one:secret@server", "server"),
        ("someone:secret@server", "server"),
        ("http://[", "["),
        ("localhost:8000/v1", "localhost:8000/v1"),
        ("", ""),
        ("http://\x1b[31m/v1", "␛[31m"),
    ],
)
def test_a_message_names_the_place_of_any_address_and_no_password(url: str, place: str) -> None:
    assert place_of(url) == place
