"""Who may enter."""

from __future__ import annotations

import pytest

from specdec_tui.serving.admission import Admission, Asker, in_address, is_loopback

HERE = Admission("127.0.0.1", 8000)
GUARDED = Admission("0.0.0.0", 8000, "a-token-of-sixteen")


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "LOCALHOST:8000", "[::1]:8000"])
def test_without_a_token_who_asks_for_the_address_that_is_served_may_enter(host: str) -> None:
    assert not HERE.refusal(Asker(host))
    assert not HERE.refusal(Asker(host, origin=f"http://{host}"), is_websocket=True)


@pytest.mark.parametrize("host", ["", "evil.example", "evil.example:8000", "127.0.0.1", "127.0.0.1:8001", "localhost"])
def test_without_a_token_another_name_that_leads_here_is_refused(host: str) -> None:
    assert HERE.refusal(Asker(host)) == "this server is at http://127.0.0.1:8000/ only"


def test_the_port_that_addresses_leave_out_may_be_left_out() -> None:
    assert not Admission("127.0.0.1", 80).refusal(Asker("localhost"))


@pytest.mark.parametrize(
    "origin", ["", "null", "http://evil.example", "http://127.0.0.1:8001", "http://localhost:8000", "http://127.0.0.1"]
)
@pytest.mark.parametrize("admission", [HERE, GUARDED], ids=["loopback", "token"])
def test_a_websocket_of_another_page_is_refused_whatever_else_it_shows(admission: Admission, origin: str) -> None:
    asker = Asker("127.0.0.1:8000", origin, admission.token, admission.pass_word)
    assert admission.refusal(asker, is_websocket=True) == "this is not a page of this server"


def test_with_a_token_every_request_needs_it_or_the_cookie_of_who_had_it() -> None:
    assert "?token=" in GUARDED.refusal(Asker("any:8000"))
    assert "?token=" in GUARDED.refusal(Asker("any:8000", token="another-of-sixteen", cookie=GUARDED.token))
    assert not GUARDED.refusal(Asker("any:8000", token=GUARDED.token))
    assert not GUARDED.refusal(Asker("any:8000", cookie=GUARDED.pass_word))
    assert not GUARDED.refusal(Asker("a:1", "https://a:1", cookie=GUARDED.pass_word), is_websocket=True)
    assert "?token=" in GUARDED.refusal(Asker("a:1", "https://a:1"), is_websocket=True)


def test_the_cookie_is_of_this_server_alone_and_tells_nothing_of_the_token() -> None:
    again = Admission("0.0.0.0", 8000, GUARDED.token)
    assert again.pass_word != GUARDED.pass_word and GUARDED.token not in GUARDED.pass_word
    assert again.refusal(Asker("any", cookie=GUARDED.pass_word))


def test_who_shows_no_token_has_shown_none_also_where_none_is_asked_for() -> None:
    assert not HERE.shows_token(Asker("localhost:8000")) and not GUARDED.shows_token(Asker("any"))
    assert GUARDED.shows_token(Asker("any", token=GUARDED.token))


@pytest.mark.parametrize("odd", ["ü", "\udcff", "\x00"])
def test_odd_characters_are_refused_as_any_wrong_token(odd: str) -> None:
    assert GUARDED.refusal(Asker("any", token=odd, cookie=odd)) and HERE.refusal(Asker(odd))


def test_loopback_and_addresses_with_colons() -> None:
    assert [is_loopback(a) for a in ("127.0.0.1", "127.8.8.8", "::1", "0.0.0.0", "::", "10.0.0.1", "fe80::1%eth0")] == [
        *(True, True, True),
        *(False, False, False, False),
    ]
    assert (in_address("::1"), in_address("LocalHost")) == ("[::1]", "localhost")
