"""What stands in an answer: a body of bounded size, read strictly into a type, or the server's own message."""

from __future__ import annotations

from typing import Any, TypeVar

import httpx2
import msgspec

from specdec_tui.backends.remote.errors import ServerError, of_status, unreadable
from specdec_tui.backends.remote.key import Key
from specdec_tui.doors.characters import named, one_line

MOST_BYTES = 64 << 20
_MOST_SAID = 200  # characters of a server's own message
_MOST_OF_A_REFUSAL = 64 << 10  # bytes that are read to find it

Body = TypeVar("Body")


async def body_of(response: httpx2.Response, most: int = MOST_BYTES) -> bytes:
    """The whole body; ServerError where it is longer than `most` bytes, before they are read if that is announced."""
    announced = response.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > most:
        raise _too_long(most)
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > most:
            raise _too_long(most)
        parts.append(part)
    return b"".join(parts)


async def beginning_of(response: httpx2.Response) -> bytes:
    """As much of a refusal's body as its message needs."""
    body = b""
    async for part in response.aiter_bytes():
        body += part
        if len(body) > _MOST_OF_A_REFUSAL:
            break
    return body[:_MOST_OF_A_REFUSAL]


def decoded(body: bytes, into: type[Body], key: Key) -> Body:
    """ServerError where it is no JSON, not of this type, or an error's message in place of an answer."""
    if b'"error"' in body and (fault := _fault_in(body, key)) is not None:
        raise fault
    try:
        return msgspec.json.decode(body, type=into)
    except RecursionError:
        raise unreadable("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise unreadable("it is no UTF-8") from None
    except (msgspec.MsgspecError, ValueError) as error:
        raise unreadable(key.hidden(named(str(error)))) from None


def said_in(body: bytes, key: Key) -> str:
    """The message of a refusal, as OpenAI's API (`error.message`) or FastAPI (`detail`) writes it; "" for none."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    return _message(found, key)


def too_long(read: int) -> None:
    """ServerError where so many bytes of a stream are too many."""
    if read > MOST_BYTES:
        raise _too_long(MOST_BYTES)


def _too_long(most: int) -> ServerError:
    return unreadable(f"it is longer than {most >> 20} MB")


def _fault_in(body: bytes, key: Key) -> ServerError | None:
    """An error that comes with status 200: in a stream, whose status was sent before it went wrong, or of a proxy."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not found.get("error"):
        return None
    error = found["error"]
    code = error.get("code") if isinstance(error, dict) else None
    return of_status(code if isinstance(code, int) and 400 <= code < 600 else 500, _message(found, key), key)


def _message(found: Any, key: Key) -> str:
    """Of the places where servers put it the first with something in it."""
    if not isinstance(found, dict):
        return ""
    error = found.get("error")
    places = (error.get("message") if isinstance(error, dict) else error, found.get("message"), found.get("detail"))
    for place in places:
        if isinstance(place, list) and place and isinstance(place[0], dict):  # FastAPI's of a field
            place = place[0].get("msg")
        if isinstance(place, str) and place.strip():
            text = one_line(key.hidden(place))
            return text if len(text) <= _MOST_SAID else text[: _MOST_SAID - 1] + "…"
    return ""
