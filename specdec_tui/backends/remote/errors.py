"""What went wrong with a server, as one line for a person: what a library raises, and what an answer's status says."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from specdec_tui.backends.remote.key import Key
from specdec_tui.doors.characters import one_line
from specdec_tui.variables import API_KEY, PREFIX

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 5.0
"""How long a connection may take to be made, TLS included."""

Kind = Literal["refused", "busy", "gone", "answer", "moved", "tls"]

_VARIABLE = PREFIX + API_KEY
_BUSY = (429, 503, 529)  # the last is no standard's, but in use
_CERTIFICATE = {
    9: "is not valid yet",
    10: "has expired",
    18: "is not trusted: it is signed by itself",
    19: "is not trusted: its chain ends in one that is signed by itself",
    20: "is not trusted: who signed it is not known here",
    21: "is not trusted: who signed it is not known here",
    23: "has been revoked",
    62: "is not for this host",
    64: "is not for this host",
}
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")


class ServerError(Exception):
    """A call that failed, in one line for a person, in which nothing obeys and no key stands.

    `kind` says what may be done: "refused", asking again is no use; "busy", the server was, at every try; "gone",
    no connection, or none any more; "answer", it cannot be read; "moved", to another address; "tls", no trust.
    `status` is that of HTTP, where there was an answer. `brief` is the line without the server's own words.
    `again` says whether the same question may be asked once more at once, and `after` how many seconds the server
    wants to be left alone before.
    """

    def __init__(
        self,
        brief: str,
        kind: Kind,
        status: int | None = None,
        *,
        said: str = "",
        again: bool = False,
        after: float = -1,
    ) -> None:
        self.brief, self.kind, self.status, self.again, self.after = one_line(brief), kind, status, again, after
        self._said = said
        super().__init__(one_line(f"{brief}: {said}" if said else brief))

    def at_try(self, number: int) -> ServerError:
        """The same, where it was not the first try."""
        said = f": {self._said}" if self._said else ""
        self.args = (one_line(f"{self.brief}, at try {number} too{said}"),) if number > 1 else self.args
        return self

    def alone(self) -> ServerError:
        """The same without what led to it: requests that libraries keep in their exceptions have the key in them."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


class OtherModel(ServerError):
    """The server answers, but not as the model that was connected to."""


def unreadable(what: str, status: int | None = None) -> ServerError:
    return ServerError(f"the server's answer cannot be read: {what}", "answer", status)


def of_status(status: int, said: str, key: Key, after: float = -1) -> ServerError:
    """Of an answer that is none: `said` is the server's own message, `after` what it says in Retry-After."""
    if status in (401, 403):
        asks = "refuses the key" if key else "asks for a key"
        return ServerError(f"the server {asks} (HTTP {status}): set {_VARIABLE}", "refused", status)
    if status == 429 or status >= 500:
        how = "was busy" if status in _BUSY else "failed"
        return ServerError(f"the server {how} (HTTP {status})", "busy", status, said=said, again=True, after=after)
    if status >= 400:
        return ServerError(f"the server refuses this (HTTP {status})", "refused", status, said=said)
    return unreadable(f"HTTP {status} is no answer to this", status)


def of_library(error: Exception, server: str, timeout: float, heard: bool) -> ServerError:
    """Of an exception of the client's library. `server` is its address, `heard` whether an answer had begun."""
    import httpx2  # not before there is a server

    untrusted = next((e for e in _chain(error) if isinstance(e, ssl.SSLError)), None)
    if untrusted is not None and isinstance(error, httpx2.ConnectError):
        return ServerError(f"no safe connection to {server}: {_of_tls(untrusted)}", "tls")
    if isinstance(error, httpx2.ConnectTimeout):
        return ServerError(f"no server answers at {server} within {CONNECT_SECONDS:g} s", "gone", again=True)
    if isinstance(error, httpx2.ConnectError):
        return ServerError(f"no server answers at {server} ({_reason(error)})", "gone", again=True)
    if isinstance(error, httpx2.TimeoutException):
        where = "stopped in the middle of its answer: nothing came for" if heard else "did not answer within"
        return ServerError(f"the server {where} {timeout:g} s", "gone")
    if isinstance(error, httpx2.ProxyError):
        return ServerError(f"the proxy of the environment does not lead to {server}", "gone", again=True)
    if isinstance(error, httpx2.DecodingError):
        return unreadable("its compression is damaged")
    if isinstance(error, httpx2.RemoteProtocolError) and not _is_a_drop(error):
        return unreadable("it is no HTTP")
    where = "in the middle of its answer" if heard else "before it answered"
    return ServerError(f"the server dropped the connection {where}", "gone", again=not heard)


def _is_a_drop(error: httpx2.RemoteProtocolError) -> bool:
    """Whether a connection ended too early; the same exception tells of words that are no HTTP."""
    return str(error).startswith(("Server disconnected", "peer closed connection"))


def _of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate {_CERTIFICATE.get(error.verify_code, f'is not valid ({error.verify_message})')}"
    reason = getattr(error, "reason", None) or "BROKEN_OFF"  # only OpenSSL's own errors have one
    if reason in _NO_TLS:
        return "there is no TLS there (is http:// meant?)"
    return f"TLS failed ({reason.replace('_', ' ').lower()})"


def _reason(error: BaseException) -> str:
    reasons = [
        os.strerror(e.errno) if e.errno > 0 else e.strerror  # asyncio's words name the address again
        for e in _chain(error)
        if isinstance(e, OSError) and e.errno and e.strerror
    ]
    return reasons[-1].lower() if reasons else "it cannot be reached"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, and what led to it: where several addresses were tried, at the first."""
    here: BaseException | None = error
    while here is not None:
        yield here
        here = here.exceptions[0] if isinstance(here, BaseExceptionGroup) else here.__cause__ or here.__context__
