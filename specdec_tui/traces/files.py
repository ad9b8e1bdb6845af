"""Trace files on disk: written as a whole or not at all, and read with a reason where they cannot be."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from specdec_tui.doors import reading, writing
from specdec_tui.traces.format import Trace, TraceError, TraceHeader, parse_header, parse_lines, trace_lines
from specdec_tui.traces.header import CutOff

LONGEST_LINE = 64 * 2**20  # bytes; a file without line ends must not fill the memory
LARGEST = 2**30  # bytes; with what is known of every token, some hundred thousand of them


class NoTrace(TraceError):
    """There is no such file, or no longer."""


def write_trace(path: Path, trace: Trace) -> None:
    """Write `trace` to `path`, readable by its owner only; a file that is there is replaced. TraceError."""
    write_lines(path, trace_lines(trace))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Put text into a private file. TraceError, in one line, when it cannot be written."""
    try:
        writing.place(path, lines)
    except OSError as error:
        raise TraceError(f"cannot write {path}: {error.strerror or error}") from None


def read_header(path: Path) -> TraceHeader:
    """The header alone, from line 1: what a list shows. TraceError, in one line, says why there is none."""
    with _opened(path) as file, _named(path):
        for line in _lines(file):
            return parse_header(line)
        raise TraceError("the file is empty: a trace begins with a header line")


def read_trace(path: Path) -> Trace:
    """The whole trace. TraceError, in one line, says what is wrong, where, and what is allowed."""
    with _opened(path) as file, _named(path), _without_collections():
        return parse_lines(_lines(file))


def lines_that_read_back(trace: Trace) -> list[str]:
    """The lines of a trace. TraceError where they could not be read again: then they must replace no file."""
    lines = list(trace_lines(trace))
    try:
        with _without_collections():
            parse_lines(lines)
    except TraceError as error:
        raise TraceError(f"it could not be read again: {error}") from None
    return lines


@contextmanager
def _without_collections() -> Iterator[None]:
    """A long trace is hundreds of thousands of new objects, none of them garbage: looking for it takes a fifth."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with reading.opened(path) as file:
            yield file
    except FileNotFoundError:
        raise NoTrace(f"cannot read {path}: there is no such file") from None
    except PermissionError:
        raise TraceError(f"cannot read {path}: no permission") from None
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror or error}") from None


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except TraceError as error:
        raise TraceError(f"{path.name}: {error}") from None


def _lines(file: BinaryIO) -> Iterator[str]:
    """As far as the file reached when it was opened: one that grows while it is read has an end too."""
    left = os.fstat(file.fileno()).st_size
    if left > LARGEST:
        raise TraceError(f"larger than {LARGEST // 2**20:,} MB: no trace is")
    count = 0
    while left > 0 and (raw := file.readline(min(left, LONGEST_LINE + 1))):
        count, left = count + 1, left - len(raw)
        if len(raw) > LONGEST_LINE:
            raise TraceError(f"line {count}: longer than {LONGEST_LINE // 2**20} MB: no trace has such lines")
        if b"\0" in raw:
            raise TraceError(f"line {count}: binary, or not UTF-8: a trace is JSON lines in UTF-8")
        try:
            yield raw.decode("utf-8-sig" if count == 1 else "utf-8")
        except UnicodeDecodeError:
            if not raw.endswith(b"\n") and count > 1:
                raise CutOff(count) from None
            raise TraceError(f"line {count}: binary, or not UTF-8: a trace is JSON lines in UTF-8") from None
