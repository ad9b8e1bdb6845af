"""Who may enter: by a token, or from this machine under the address that is served.

Without a token a page of somebody else must not reach us through the browser of who sits here: not under a name of
its own that it lets lead to this machine (so the Host header counts), and not by a websocket, which browsers open
across sites (so the Origin header counts).
"""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass, field
from hmac import compare_digest
from urllib.parse import urlsplit

LEAST_TOKEN = 16
"""Characters."""

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Asker:
    """What a request says of who asks: headers as they came (empty: none), the token of its query, and its cookie."""

    host: str
    origin: str = ""
    token: str = ""
    cookie: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """`token`: empty where none is asked for. `address` and `port` are those that are served.

    `pass_word` is what whoever has shown the token once is known by: of this server alone, and not the token.
    """

    address: str
    port: int
    token: str = field(default="", repr=False)
    pass_word: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """Its name. Cookies are shared by all ports of a machine."""
        return f"specdec-tui-{self.port}"

    def shows_token(self, asker: Asker) -> bool:
        """Whether the address that is asked for has the token in it."""
        return bool(self.token) and _same(asker.token, self.token)

    def refusal(self, asker: Asker, *, is_websocket: bool = False) -> str:
        """Why somebody may not enter, in one line; empty where they may."""
        if is_websocket and urlsplit(asker.origin).netloc.lower() != asker.host.lower():
            return "this is not a page of this server"
        if self.token:
            known = self.shows_token(asker) or _same(asker.cookie, self.pass_word)
            return "" if known else "this needs the address with ?token= and the token that the server was started with"
        if asker.host.lower() not in self._hosts:
            return f"this server is at http://{next(iter(self._hosts))}/ only"
        return ""

    @property
    def _hosts(self) -> dict[str, None]:
        """What a Host header may be, the address that is served first."""
        names = dict.fromkeys((in_address(self.address), *_LOOPBACK_NAMES))
        found = {f"{name}:{self.port}": None for name in names}
        return found | dict.fromkeys(names) if self.port == 80 else found


def _same(given: str, known: str) -> bool:
    """In a time that does not tell how much of it is right."""
    return compare_digest(given.encode("utf-8", "surrogatepass"), known.encode("utf-8", "surrogatepass"))


def is_loopback(address: str) -> bool:
    """Whether a numeric address leads to this machine alone."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def in_address(host: str) -> str:
    """A host as it stands in an address."""
    return f"[{host}]" if ":" in host else host.lower()
