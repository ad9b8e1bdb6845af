"""What a trace is, and its lines: a header, then one event a line.

Described for other readers in docs/trace-format.md. Within a version fields may be added, which older
readers ignore; what changes the meaning of a field raises the version, which they refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from math import isinf
from typing import Any

from specdec_tui.decoding.records import Event, RunStarted, Step
from specdec_tui.doors.characters import escaped
from specdec_tui.traces.encoding import encode_event
from specdec_tui.traces.header import MARK, VERSION, CutOff, TraceError, TraceHeader, new_header, read_header_table
from specdec_tui.traces.summary import summarise
from specdec_tui.traces.values import BadField, plain

__all__ = ["VERSION", "Trace", "TraceError", "TraceHeader", "new_header", "summarise"]


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything that happened on one prompt."""

    header: TraceHeader
    events: tuple[Event, ...]

    @property
    def strategies(self) -> list[str]:
        """The strategies that ran, in the order in which they began."""
        steps = (event for event in self.events if isinstance(event, Step))
        return list(dict.fromkeys(step.strategy for step in steps if isinstance(step.record, RunStarted)))

    @property
    def texts(self) -> dict[int, str]:
        """The texts of the token ids that occur as alternatives."""
        steps = (event for event in self.events if isinstance(event, Step))
        return {token: piece for step in steps for token, piece in step.alternatives}


def trace_lines(trace: Trace) -> Iterator[str]:
    """The lines of a trace file, each with its line end."""
    yield header_line(trace.header, len(trace.events))
    yield from event_lines(trace.events)


def header_line(header: TraceHeader, events: int | None) -> str:
    """The first line, with its line end. `events`: how many follow; None: nobody knows, for the run goes on."""
    table = {f.name: plain(getattr(header, f.name)) for f in fields(TraceHeader)}
    return _line({MARK: VERSION, **table} | ({} if events is None else {"events": events}))


def event_lines(events: Iterable[Event]) -> Iterator[str]:
    """The lines of some events, each with its line end."""
    for event in events:
        yield _line(encode_event(event))


def parse_header(line: str) -> TraceHeader:
    """The header of a trace from its first line. TraceError when it is none, or of a newer version."""
    return read_header_table(_parsed(line, 1))


def parse_lines(lines: Iterable[str]) -> Trace:
    """A trace from its lines. TraceError says what is wrong, where, and what is allowed.

    Where the header does not say how many events follow, a run was being written: it ends with its last whole line.
    """
    # Not at a start: what a line may hold is described to a parser that is slow to make.
    from specdec_tui.traces.agreement import check_header
    from specdec_tui.traces.codec import decode_event
    from specdec_tui.traces.order import Order

    header: TraceHeader | None = None
    expected: Any = None
    events: list[Event] = []
    order = Order({})
    try:
        for count, line in enumerate(lines, 1):
            try:
                if header is None:
                    table = _parsed(line, count)
                    header = read_header_table(table)
                    order = Order(header.settings)
                    expected = table.get("events")
                else:
                    event = decode_event(line, partial(_parsed, line, count))
                    order.check(event, count)
                    events.append(order.as_checked(event))
            except BadField as error:
                raise TraceError(f"line {count}: {error}") from None
    except CutOff:
        if header is None or expected is not None:
            raise
    if header is None:
        raise TraceError("the file is empty: a trace begins with a header line")
    if type(expected) is int and len(events) < expected:
        raise TraceError(f"the trace was cut off: it holds {len(events)} of its {expected} events")
    order.check_verdicts()
    check_header(header, events, ended=type(expected) is int)
    return Trace(header, tuple(events))


def _line(table: dict[str, Any]) -> str:
    try:
        written = _COMPACT(table)
    except ValueError:  # a number that is not finite
        written = _COMPACT(plain(table))
    try:
        written.encode()
    except UnicodeEncodeError:  # half a character (a lone surrogate), which only an escape can carry
        written = json.dumps(plain(table), separators=(",", ":"))
    if not written.isprintable():  # else a terminal obeys none of it
        written = escaped(written)
    return written + "\n"


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _finite(digits: str) -> float:
    if isinf(value := float(digits)):
        raise OverflowError(digits)
    return value


_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_PARSE = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).decode


def _parsed(line: str, count: int) -> Any:
    try:
        return _PARSE(line)
    except OverflowError:
        raise TraceError(f"line {count}: a number is out of range: all numbers of a trace are finite") from None
    except (ValueError, RecursionError):
        pass
    if not line.strip():
        raise TraceError(f"line {count}: empty: every line of a trace must be one JSON object")
    if not line.endswith("\n") and count > 1:
        raise CutOff(count)
    raise TraceError(f"line {count}: not JSON: every line of a trace must be one JSON object")
