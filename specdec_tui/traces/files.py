"""Trace files on disk: written as a whole or not at all, and read with a reason where they cannot be."""

from __future__ import annotations

import gc
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from specdec_tui.traces.format import Trace, TraceError, TraceHeader, parse_header, parse_lines, trace_lines

LONGEST_LINE = 64 * 2**20  # bytes; a file without line ends must not fill the memory


class NoTrace(TraceError):
    """There is no such file, or no longer."""


def write_trace(path: Path, trace: Trace) -> None:
    """Write `trace` to `path`, readable by its owner only; a file that is there is replaced. TraceError."""
    write_lines(path, trace_lines(trace))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Put text into a private file. TraceError, in one line, when it cannot be written."""
    try:
        place_lines(path, lines)
    except OSError as error:
        raise TraceError(f"cannot write {path}: {error.strerror or error}") from None


def place_lines(path: Path, lines: Iterable[str]) -> None:
    """Put text into a file that has its name only once it is whole. OSError when it cannot be written.

    Half characters (lone surrogates), which no file can hold, become question marks.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Hidden, and no ".jsonl" at its end: a list of traces never shows it.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(descriptor, "wb") as file:
            for line in lines:
                file.write(line.encode("utf-8", "replace"))
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


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
        kind = path.stat().st_mode  # asked before opening: a pipe would wait for its writer for ever
        if stat.S_ISDIR(kind):
            raise TraceError(f"cannot read {path}: it is a folder, not a trace file")
        if not stat.S_ISREG(kind):
            raise TraceError(f"cannot read {path}: it is not a regular file")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise NoTrace(f"cannot read {path}: there is no such file") from None
    except PermissionError:
        raise TraceError(f"cannot read {path}: no permission") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except TraceError as error:
        raise type(error)(f"{path.name}: {error}") from None


def _lines(file: BinaryIO) -> Iterator[str]:
    count = 0
    while raw := file.readline(LONGEST_LINE + 1):
        count += 1
        if len(raw) > LONGEST_LINE:
            raise TraceError(f"line {count}: longer than {LONGEST_LINE // 2**20} MB: no trace has such lines")
        if b"\0" in raw:
            raise TraceError(f"line {count}: binary, or not UTF-8: a trace is JSON lines in UTF-8")
        try:
            yield raw.decode("utf-8-sig" if count == 1 else "utf-8")
        except UnicodeDecodeError:
            if not raw.endswith(b"\n") and count > 1:
                raise TraceError(
                    f"line {count}: the last line is cut off: the trace was not written to its end"
                ) from None
            raise TraceError(f"line {count}: binary, or not UTF-8: a trace is JSON lines in UTF-8") from None
