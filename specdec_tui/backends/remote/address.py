"""Where a server is: what a user gives as its address, checked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urljoin, urlsplit

import httpx2

from specdec_tui.doors.characters import named

_ALLOWED = "give http://HOST:PORT/v1 or https://HOST/v1"


@dataclass(frozen=True, slots=True)
class Address:
    """`root` is scheme, host and port; `base` what the paths of the API follow. No slash ends either."""

    root: str
    base: str
    secure: bool
    here: bool
    """Whether the host is this machine itself."""

    def of(self, path: str) -> str:
        """The address of a path of the API, or with "//" before it of one beside the API."""
        return self.root + path[1:] if path.startswith("//") else self.base + path

    def instead(self, asked: str, location: str, path: str) -> str:
        """What to give as address where `asked` was answered by a redirect to `location`: no query, no user in it."""
        try:
            parts = urlsplit(urljoin(asked, location))
        except ValueError:
            return named(location)
        there = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return there.removesuffix(path).rstrip("/") or there


def place_of(url: str) -> str:
    """`host:port` of an address for a message, also of one that is none, without a user's name and password in it."""
    behind = url.strip().partition("//")[2].partition("/")[0] or url
    return named(behind.rpartition("@")[2])


def address_of(url: str) -> Address:
    """ValueError, in one line: what is wrong, and what is allowed."""
    url = url.strip()
    if not url.isprintable() or " " in url:
        raise ValueError(f"{named(url)!r} has characters that no address has: {_ALLOWED}")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"its host or port is none: {_ALLOWED}, with a port from 1 to 65535") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"a user name or password does not belong into an address, which is shown: {_ALLOWED}")
    if parts.scheme not in ("http", "https") or "//" not in url:
        raise ValueError(f"{named(url)!r} does not begin with http:// or https://: {_ALLOWED}")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ValueError(f"an address has no ? or # in it: {_ALLOWED}")
    if not host:
        raise ValueError(f"{named(url)!r} has no host: {_ALLOWED}")
    if port == 0:
        raise ValueError(f"{named(url)!r} has a port that is none: give one from 1 to 65535")
    root = f"{parts.scheme}://{parts.netloc.rstrip(':')}"
    base = root + parts.path.rstrip("/")
    try:
        httpx2.URL(base)
    except httpx2.InvalidURL:
        raise ValueError(f"{named(url)!r} has a host that is none: {_ALLOWED}") from None
    return Address(root, base, parts.scheme == "https", _is_here(host))


def _is_here(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
