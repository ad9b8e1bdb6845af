"""A recording of what a server streamed: JSON lines, and nothing in them but what came.

Line 1 says what was asked of which server; of the others each holds an event of the stream with the second at which
it came, or the text of the server's `/metrics`, once before the stream and once behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from specdec_tui.doors.reading import MEGABYTE, read_text
from specdec_tui.traces.bounds import LONGEST_NAME, LONGEST_PROMPT, MOST_DRAFTS, MOST_TOKENS
from specdec_tui.traces.codec import bad_field
from specdec_tui.traces.header import TraceError
from specdec_tui.traces.served.changes import ANSWERS, changes_of
from specdec_tui.traces.values import shown

VERSION = 1
MARK = "specdec_tui_recording"
SERVERS = {"vllm": "vLLM", "llama.cpp": "llama.cpp"}
"""Those whose streams are understood, with what people call them."""
LARGEST = 256 * MEGABYTE
_MOST_EVENTS = 2 * MOST_TOKENS

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Length = Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]
Drafts = Annotated[int, msgspec.Meta(ge=0, le=MOST_DRAFTS)]
_Part = TypeVar("_Part")
_Name = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


class Request(msgspec.Struct):
    """What was asked: the fields of it that a trace has a place for, under the names of either server."""

    prompt: Annotated[str, msgspec.Meta(max_length=LONGEST_PROMPT)]
    temperature: Annotated[float, msgspec.Meta(ge=0, le=5)]
    max_tokens: Length | None = None
    n_predict: Length | None = None
    top_k: Count | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    seed: Count | None = None


class Asked(msgspec.Struct):
    """Line 1."""

    specdec_tui_recording: Annotated[int, msgspec.Meta(ge=1)]
    server: _Name
    created: _Name
    request: Request
    version: _Name = ""
    model: _Name = ""


class _Line(msgspec.Struct):
    seconds: Seconds | None = None
    event: dict[str, Any] | None = None
    metrics: str | None = None


@dataclass(frozen=True, slots=True)
class Arrived:
    """An event of the stream, the line of the file it stands in, and the seconds from the request to its arrival."""

    line: int
    seconds: float
    event: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """`before` and `after`: the texts of `/metrics`; empty where there was none.

    `changes`: fields of the request that change the text, beyond those of `Request`.
    """

    name: str
    asked: Asked
    arrived: tuple[Arrived, ...]
    before: str = ""
    after: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def server(self) -> str:
        """The server with its version, for a person."""
        return f"{SERVERS[self.asked.server]} {self.asked.version}".rstrip()


def read_recording(path: Path) -> Recording:
    """TraceError, in one line, says what is wrong, where, and what is allowed."""
    try:
        text = read_text(path, most=LARGEST)
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from None
    return parse_recording(text, path.name)


def parse_recording(text: str, name: str) -> Recording:
    """A recording from the text of the file `name`. TraceError."""
    lines = iter(enumerate(text.split("\n"), 1))
    first = next(lines)[1]
    asked = _asked(first, name)
    arrived: list[Arrived] = []
    metrics = ["", ""]
    for count, line in _full(lines):
        try:
            found = _LINE.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad(name, count, _words(error)) from None
        if found.metrics is not None:
            metrics[bool(arrived)] = found.metrics
        elif found.seconds is None or found.event is None:
            raise bad(name, count, 'it must have "seconds" and "event", or "metrics"')
        elif arrived and found.seconds < arrived[-1].seconds:
            raise bad(name, count, f"{found.seconds:g} seconds come behind {arrived[-1].seconds:g}")
        elif len(arrived) == _MOST_EVENTS:
            raise bad(name, count, f"more than {_MOST_EVENTS:,} events: no run has so many")
        else:
            arrived.append(Arrived(count, found.seconds, found.event))
    if not arrived:
        raise TraceError(
            f"{name}: it has no event of a stream, and totals alone tell of no round: record a streamed answer"
        )
    before, after = metrics
    return Recording(name, asked, tuple(arrived), before, after, _changes(first, name))


def bad(name: str, line: int, problem: str) -> TraceError:
    """What is wrong in a line of a recording."""
    return TraceError(f"{name}: line {line}: {problem}")


def convert(value: Any, kind: type[_Part], recording: Recording, line: int) -> _Part:
    """A part of an event as a struct. TraceError says what is wrong in it."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise bad(recording.name, line, _words(error)) from None


_HEADER: msgspec.json.Decoder[Asked] = msgspec.json.Decoder(Asked)
_LINE: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


def _asked(line: str, name: str) -> Asked:
    try:
        asked = _HEADER.decode(line)
    except msgspec.ValidationError as error:
        if MARK not in line:
            raise TraceError(_no_recording(name)) from None
        raise bad(name, 1, _words(error)) from None
    except (msgspec.DecodeError, RecursionError):
        raise TraceError(_no_recording(name)) from None
    if asked.server not in SERVERS:
        raise bad(name, 1, f"the server must be one of {', '.join(SERVERS)}, not {shown(asked.server)}")
    if asked.specdec_tui_recording > VERSION:
        told = f"recording version {asked.specdec_tui_recording}; this one reads {VERSION}"
        raise TraceError(f"{name}: made by a newer specdec-tui ({told}): update specdec-tui")
    return asked


def _changes(line: str, name: str) -> dict[str, Any]:
    try:
        request: dict[str, Any] = msgspec.json.decode(line)["request"]
    except (msgspec.DecodeError, RecursionError):  # in a field that `Request` does not have
        raise bad(name, 1, "a field of the request cannot be read") from None
    for count in ANSWERS:
        if request.get(count) not in (None, 0, 1):
            raise bad(name, 1, f"{count} is {shown(request[count])}: a run is one answer, so it must be 1")
    return changes_of(request, Request.__struct_fields__)


def _no_recording(name: str) -> str:
    return f'{name}: not a recording: the first line must be a header object with "{MARK}": {VERSION}'


def _full(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    return ((count, line) for count, line in lines if line.strip())


def _words(error: Exception) -> str:
    return str(bad_field(str(error))) if isinstance(error, msgspec.ValidationError) else "it is not JSON"
