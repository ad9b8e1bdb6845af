"""The folder of past runs: saved under their time, listed newest first, the oldest deleted when it grows too big.

Several programs may use one folder, so a file that was there a moment ago may be gone: nothing minds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import time

from specdec_tui.data_folder import data_folder
from specdec_tui.decoding.records import Event
from specdec_tui.doors import writing
from specdec_tui.traces.files import NoTrace, read_header
from specdec_tui.traces.format import Trace, TraceError, TraceHeader, event_lines, header_line, trace_lines

SUFFIX = ".jsonl"
MEGABYTE = 2**20
_SECOND = len("2026-11-28T12-00-00")
_RESERVED_SECONDS = 10.0  # an empty file older than this is no name that is just being taken
_SLUG = 40  # characters of the prompt in a file name


@dataclass(frozen=True, slots=True)
class Entry:
    """A trace file in the folder: `header`, or in one line the `problem` why it cannot be read. Size in bytes."""

    path: Path
    size: int
    header: TraceHeader | None
    problem: str = ""


def default_folder() -> Path:
    """Where traces are kept, in the user's data folder."""
    return data_folder() / "traces"


class TraceStore:
    """Traces in one folder, at most `most_files` of them and `most_bytes` together (the newest always stays)."""

    def __init__(self, folder: Path | None = None, *, most_files: int = 200, most_bytes: int = 256 * MEGABYTE) -> None:
        self.folder = default_folder() if folder is None else folder
        self._most_files = most_files
        self._most_bytes = most_bytes

    def save(self, trace: Trace, over: Path | None = None) -> Path:
        """Keep `trace` in the place of what `begin` made, else under a new name. TraceError.

        Then the oldest beyond the bounds are deleted.
        """
        if over is None or not os.path.exists(over):
            return self._add(trace.header, trace_lines(trace))
        try:
            writing.place(over, trace_lines(trace))
        except OSError as error:
            raise self.problem_of(error) from None
        self._keep_within_bounds(over)
        return over

    def begin(self, header: TraceHeader, events: Iterable[Event]) -> Path:
        """A new file for a run that goes on: it ends with its last whole line. TraceError."""
        return self._add(header, chain((header_line(header, None),), event_lines(events)))

    def problem_of(self, error: OSError) -> TraceError:
        """Why nothing can be kept, in one line."""
        return TraceError(f"cannot keep the trace in {self.folder}: {error.strerror or error}")

    @property
    def problem(self) -> str:
        """Why no run can be kept in the folder, or listed out of it; empty where nothing speaks against it."""
        place = Path(os.path.realpath(self.folder))
        where = str(self.folder)
        while not os.path.exists(place) and place != place.parent:
            place = place.parent  # what is missing will be made
            where = f"{self.folder}: {place}"
        if not os.path.isdir(place):
            return f"{where} is no folder"
        if not os.access(place, os.R_OK | os.X_OK):
            return f"{where} may not be read"
        if not os.access(place, os.W_OK):
            return f"{where} may not be written into"
        with suppress(OSError, AttributeError):
            if not os.statvfs(place).f_bavail:
                return f"{where} is on a disk that is full"
        return ""

    def _add(self, header: TraceHeader, lines: Iterable[str]) -> Path:
        # Written under a name that no list shows, then named: what is listed is always whole.
        unnamed = writing.unnamed_in(self.folder)
        try:
            writing.place(unnamed, lines)
            path = _name(unnamed, self.folder / _stem(header))
        except OSError as error:
            raise self.problem_of(error) from None
        finally:
            with suppress(OSError):
                unnamed.unlink()
        self._keep_within_bounds(path)
        return path

    def entries(self) -> list[Entry]:
        """Every trace of the folder, newest first; those that cannot be read say why."""
        found: list[Entry] = []
        for _, size, path in sorted(self._files(), reverse=True):
            try:
                found.append(Entry(path, size, read_header(path)))
            except NoTrace:  # deleted by another program, which may have given its name to another since
                continue
            except TraceError as error:
                if _is_settled(path):  # not just reserved
                    found.append(Entry(path, size, None, str(error)))
        return found

    def delete(self, path: Path) -> None:
        """Delete a trace of this folder; one that is gone already is fine. TraceError for any other file."""
        if path.suffix != SUFFIX or path.parent.resolve() != self.folder.resolve():
            raise TraceError(f"not deleted: {path} is no trace of {self.folder}")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise TraceError(f"cannot delete {path}: {error.strerror or error}") from None

    def _files(self) -> list[tuple[tuple[str, int], int, Path]]:
        """(time, size in bytes, path) of every trace file; names tell seconds, file times what came first in one."""
        found: list[tuple[tuple[str, int], int, Path]] = []
        with suppress(OSError), os.scandir(self.folder) as scan:
            for item in scan:
                if item.name.endswith(SUFFIX) and not item.name.startswith("."):
                    with suppress(OSError):
                        if item.is_file():
                            status = item.stat()
                            moment = item.name[:_SECOND], status.st_mtime_ns
                            found.append((moment, status.st_size, self.folder / item.name))
        return found

    def _keep_within_bounds(self, newest: Path) -> None:
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        excess = len(files) - self._most_files
        for _, size, path in files:
            if excess <= 0 and total <= self._most_bytes:
                return
            if path != newest:
                with suppress(OSError):
                    path.unlink()
                    excess, total = excess - 1, total - size


def _name(unnamed: Path, stem: Path) -> Path:
    """Give a file a name that is still free, beginning with `stem`: no other program can take the same one."""
    for count in range(1, 10_000):
        path = stem.with_name(stem.name + (f"-{count}" if count > 1 else "") + SUFFIX)
        try:
            os.link(unnamed, path)
        except FileExistsError:
            continue
        except OSError:  # a file system without links: reserve the name by an empty file
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            except FileExistsError:
                continue
            os.replace(unnamed, path)
        return path
    raise FileExistsError(0, "too many traces of the same second")


def _is_settled(path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_size > 0 or time() - status.st_mtime > _RESERVED_SECONDS


def _stem(header: TraceHeader) -> str:
    """`2026-11-28T12-00-00-why-is-the-sky-blue`: sorts by time and says what was asked."""
    moment = re.sub(r"[^0-9TZ-]", "-", header.created[:_SECOND])
    words = re.sub(r"[^a-z0-9]+", "-", header.prompt[:200].lower()).strip("-")
    if len(words) > _SLUG:
        words = words[:_SLUG].rpartition("-")[0] or words[:_SLUG]
    return f"{moment}-{words}" if words else moment
