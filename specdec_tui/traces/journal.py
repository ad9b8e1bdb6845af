"""A run in the folder of traces while it goes on: a process that is killed loses only what was at work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from specdec_tui.decoding.records import Checked, Event, RunEnded, Step
from specdec_tui.doors import writing
from specdec_tui.traces.format import Trace, TraceError, TraceHeader, event_lines
from specdec_tui.traces.store import TraceStore


class Journal:
    """Takes the events of a run in the order in which they happen, and writes each strategy's part as it ends.

    `header` without figures: what it says until the run is whole is that no strategy has ended.
    `fails` hears, in one line, that a part could not be written: the run is not to suffer from it.
    """

    def __init__(
        self, store: TraceStore, header: TraceHeader, strategies: Iterable[str], fails: Callable[[str], object]
    ) -> None:
        self._store = store
        self._header = replace(header, strategies={name: {"finish_reason": None} for name in strategies})
        self._fails = fails
        self._parts: dict[str, list[Event]] = {}
        self._written: set[str] = set()  # strategies whose part is in the file: of no other it can say what became
        self._path: Path | None = None
        self._open = True
        self._lock = threading.Lock()  # the app may be left while a part is written

    def take(self, event: Event) -> None:
        """Called between two rounds, when no clock runs."""
        if isinstance(event, Step):
            part = self._parts.setdefault(event.strategy, [])
            part.append(event)
            if isinstance(event.record, RunEnded) and self._write(self._parts.pop(event.strategy)):
                self._written.add(event.strategy)
        elif isinstance(event, Checked) and event.strategy in self._written:
            self._write([event])

    @property
    def path(self) -> Path | None:
        """Of the file, once there is one."""
        return self._path

    def settle(self, trace: Trace) -> None:
        """The whole run in the place of its parts; only the first call counts. TraceError where it cannot be kept."""
        with self._lock:
            if self._open:
                self._open = False
                self._path = self._store.save(trace, over=self._path)

    def replace(self, trace: Trace) -> None:
        """More of a whole run in the place of its file, or in a new one where that is gone. TraceError."""
        with self._lock:
            self._path = self._store.save(trace, over=self._path)

    def _write(self, part: Iterable[Event]) -> bool:
        """False where it could not be written, which is told."""
        with self._lock:
            if not self._open:
                return True
            try:
                if self._path is None:
                    self._path = self._store.begin(self._header, part)
                elif os.path.exists(self._path):  # else it was deleted meanwhile
                    writing.append(self._path, "".join(event_lines(part)).encode())
            except (OSError, TraceError) as error:
                problem = error if isinstance(error, TraceError) else self._store.problem_of(error)
                self._fails(str(problem))
                return False
            return True
