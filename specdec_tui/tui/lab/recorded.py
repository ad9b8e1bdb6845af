"""The γ-lab of the recording that comes with the package: a curve to look at where a run of one's own has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import Step
from specdec_tui.traces.format import TraceError
from specdec_tui.traces.recorded import recorded
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.figures.summary import summary
from specdec_tui.tui.lab.reading import Progress, Subject

_STRATEGY = "speculative"


@dataclass(frozen=True, slots=True)
class RecordedLaboratory:
    """Reads one strategy, and neither sweeps nor takes anything."""

    about: str
    read: Subject

    @property
    def strategies(self) -> Sequence[str]:
        return (self.read.strategy,)

    @property
    def notice(self) -> str:
        return "A recording of the demo pair, not your run: nothing to sweep or take."

    @property
    def progress(self) -> Progress | None:
        return None

    def subject(self, strategy: str) -> Subject:
        return self.read

    def no_sweep(self, strategy: str) -> str:
        return self.notice

    def sweep(self, strategy: str) -> None:
        """Nothing: the recording is what it is."""

    def stop_sweep(self) -> None:
        """There is none."""

    def take(self, gamma: int) -> None:
        """Nothing: it is the best of other models on another machine."""


@cache
def recorded_laboratory() -> RecordedLaboratory | None:
    """None where a damaged installation lacks the recording."""
    try:
        trace = recorded()
    except TraceError:
        return None
    runs: dict[str, RunFigures] = {}
    for event in trace.events:
        if isinstance(event, Step):
            runs.setdefault(event.strategy, RunFigures()).add(event.record)
    about = f"a recording · {summary(trace.header.run_settings())} · “{one_row(trace.header.prompt)}”"
    return RecordedLaboratory(about, Subject(_STRATEGY, runs[_STRATEGY], runs["target"]))
