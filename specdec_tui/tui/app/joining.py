"""Where what-ifs belong: the trace that they were begun in, and its file, whatever the panes show when they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_tui.traces.children import with_children
from specdec_tui.traces.files import lines_that_read_back, write_lines
from specdec_tui.traces.format import Trace, TraceError

if TYPE_CHECKING:
    from specdec_tui.decoding.records import Event
    from specdec_tui.traces.journal import Journal


@dataclass(eq=False, slots=True)
class Home:
    """`trace` grows with each what-if. `file`: of an opened one; `journal`: of a run made here that is recorded.

    `is_own`: it is the last run that was made here, or a copy of that one from its file.
    """

    trace: Trace
    opened: bool
    file: Path | None = None
    journal: Journal | None = None
    is_own: bool = False

    def join(self, events: Sequence[Event]) -> Trace:
        """The trace with what has been played, which is then the one here."""
        self.trace = with_children(self.trace, events)
        return self.trace

    def keep(self, trace: Trace) -> None:
        """Put it in the place of its file, anew where that is gone. TraceError; then the file is as it was."""
        if self.file is not None:
            write_lines(self.file, lines_that_read_back(trace))
        elif self.journal is not None:
            lines_that_read_back(trace)
            self.journal.replace(trace)
        elif self.opened:
            raise TraceError("the trace was not opened from a file")


def is_same_run(one: Trace | None, other: Trace | None) -> bool:
    """Whether two are of the same run in this process, however much is known of it or was added to it."""
    return one is not None and other is not None and one.events[:1] != () and one.events[0] is other.events[0]
