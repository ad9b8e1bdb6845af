"""What recordings tell the app of, from any thread: files that were read and written, figures and baselines found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from specdec_tui.traces.baseline import Baseline
    from specdec_tui.traces.format import Trace, TraceError
    from specdec_tui.tui.app.runs import Run
    from specdec_tui.tui.screens.history import Purpose


class TraceRead(Message):
    """A trace file was read, or could not be."""

    def __init__(self, path: Path, found: Trace | TraceError, purpose: Purpose) -> None:
        super().__init__()
        self.path, self.found, self.purpose = path, found, purpose


class Exported(Message):
    """A file was written, or could not be."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__()
        self.path, self.problem = path, problem


class NotKept(Message):
    """A part of a run could not be written; the run goes on."""

    def __init__(self, problem: str) -> None:
        super().__init__()
        self.problem = problem


class SummedUp(Message):
    """The figures of a run that is over are known: `whole` is its trace with them."""

    def __init__(self, trace: Trace, whole: Trace) -> None:
        super().__init__()
        self.trace, self.whole = trace, whole


class BaselineFound(Message):
    """An earlier run of the target for a trace that has none; None where there is no comparable one.

    `measured`: the trace with figures against that run in its header.
    """

    def __init__(self, trace: Trace, baseline: Baseline | None, measured: Trace) -> None:
        super().__init__()
        self.trace, self.baseline, self.measured = trace, baseline, measured


class BaselineKnown(Message):
    """An earlier run of the target that a run at work, which has none, can be measured against."""

    def __init__(self, run: Run, baseline: Baseline) -> None:
        super().__init__()
        self.run, self.baseline = run, baseline
