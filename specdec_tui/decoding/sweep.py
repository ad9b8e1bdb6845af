"""What a sweep over γ measured, from the events of its runs: each against the target of the same time. No torch here.

A sweep is made of heats. In each the target's own run and the strategy at several γ are decoded anew, their rounds in
turn, as what-ifs of the run they belong to: children from its beginning on that differ in γ alone, marked as swept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.forecast import LEAST_PASSES, Basis
from specdec_tui.decoding.records import CHILD, EndReason, Event, Origin, RunStarted, Step
from specdec_tui.decoding.reliability import DOUBTS
from specdec_tui.decoding.standing import MARKS, Standing, Verdict, standing
from specdec_tui.decoding.stretch import in_common

_CHANGES = {"gamma", "schedule", "insight"}  # the latter two change no token and no figure


@dataclass(slots=True)
class Heat:
    """The target's run, and those beside it: (strategy, figures) of each."""

    target: RunFigures
    runs: list[tuple[str, RunFigures]] = field(default_factory=list)


class SweepFigures:
    """The heats that a stream of events tells of. `add` takes constant time per token of an event."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.heats: list[Heat] = []
        self._runs: dict[str, RunFigures] = {}
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Count an event; those of other runs pass."""
        if not isinstance(event, Step) or CHILD not in event.strategy:
            return
        if isinstance(event.record, RunStarted):
            self._begin(event.strategy, event.record)
        if (figures := self._runs.get(event.strategy)) is not None:
            figures.add(event.record)

    def _begin(self, name: str, record: RunStarted) -> None:
        if record.origin is None or not record.origin.swept:
            return
        if record.strategy == "target":
            self._runs[name] = RunFigures()
            self.heats.append(Heat(self._runs[name]))
        elif self.heats and self.heats[-1].target.end is None:  # else it was not decoded beside that one
            self._runs[name] = RunFigures()
            self.heats[-1].runs.append((record.strategy, self._runs[name]))

    def of(self, strategy: str) -> list[tuple[RunFigures, RunFigures]]:
        """The runs of a strategy that came to their end, each with the target's of its heat."""
        return [
            (run, heat.target)
            for heat in self.heats
            for name, run in heat.runs
            if name == strategy and _is_whole(run) and _is_whole(heat.target)
        ]


def can_be_swept(origin: Origin) -> bool:
    """Whether a what-if is the whole text again, at another γ or as it was."""
    return not origin.given and {name for name, _ in origin.changes} <= _CHANGES


def _is_whole(run: RunFigures) -> bool:
    return run.end is not None and run.end.reason not in (EndReason.CANCELLED, EndReason.ERROR)


@dataclass(frozen=True, slots=True)
class Point:
    """The measured speedup at a γ: the median of `runs`, and from the lowest to the highest of them.

    Of a single run the interval of its clock. `ratio`: None where no clock of theirs can be believed: then only the
    interval is told. `doubt`: why they are not, in two words.
    """

    gamma: int
    ratio: float | None
    low: float | None
    high: float | None
    runs: int
    doubt: str = ""
    marks: str = ""
    is_faster: bool = False
    """Whether all of them may be called faster than the target."""

    @property
    def text(self) -> str:
        """`1.43× [1.38–1.49]`."""
        interval = "" if self.low is None or self.high is None else f"{self.low:.2f}–{self.high:.2f}"
        if self.ratio is None:
            return f"{interval}×" if interval else "?"
        return f"{self.ratio:.2f}×{self.marks}" + (f" [{interval}]" if interval else "")


def points_of(pairs: Sequence[tuple[RunFigures, RunFigures | None]]) -> dict[int, Point]:
    """γ -> what runs of one strategy with so many drafts measured, each against a baseline of its time."""
    found: dict[int, list[Standing]] = {}
    for run, baseline in pairs:
        if (one := standing(run, baseline)) is not None:
            found.setdefault(run.gamma, []).append(one)
    return {gamma: _point(gamma, standings) for gamma, standings in sorted(found.items())}


def _point(gamma: int, found: Sequence[Standing]) -> Point:
    clear = [one for one in found if not one.is_disturbed]
    if len(found) == 1:
        ends = [found[0].low, found[0].high]
    else:
        ends = [end for one in found for end in one.range if not one.is_disturbed or one.low is not None]
    known = [end for end in ends if end is not None]
    words = [one.word for one in found if one.word in DOUBTS]
    doubt = next((DOUBTS[word] for word in words if 2 * words.count(word) >= len(found)), "")
    return Point(
        gamma,
        median(one.ratio for one in clear) if clear else None,
        min(known) if known else None,
        max(known) if known else None,
        len(found),
        doubt if clear else DOUBTS["disturbed"],
        "".join(mark for mark in MARKS if any(mark in one.marks for one in found)),
        all(one.verdict is Verdict.FASTER for one in found),
    )


def with_passes(basis: Basis, pairs: Sequence[tuple[RunFigures, RunFigures]]) -> Basis:
    """What passes of other widths take, as a sweep measured them against the target's plain step of the same heat."""
    ratios: dict[int, list[float]] = {}
    for run, baseline in pairs:
        for n, ratio in passes_of(run, baseline).items():
            ratios.setdefault(n, []).append(ratio)
    return replace(basis, swept={n: median(own) * basis.step for n, own in ratios.items()})


def passes_of(run: RunFigures, baseline: RunFigures) -> Mapping[int, float]:
    """Number of drafts -> the target's side of a round with so many, in plain steps; as far as often enough seen."""
    own, other = in_common(run.course, baseline.course)
    step = other.target_seconds(0) if other.rounds else None
    if not own.rounds or not step:
        return {}
    often = {n for n, count in own.draft_counts.items() if n and count >= LEAST_PASSES}
    widths = often & {run.gamma} if run.pads else often
    return {n: (own.target_seconds(n) or 0.0) / step for n in widths}
