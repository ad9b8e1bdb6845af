"""What is said below the rows of the comparison table: what a reader of its figures must know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from specdec_tui.decoding.costs import TIMES_VARY, UNPREDICTED
from specdec_tui.decoding.standing import MARKS, MEANINGS, RECOMPUTES, Verdict
from specdec_tui.doors.characters import visible
from specdec_tui.tui.commands.table import key
from specdec_tui.tui.figures.words import QUIET, WARN, Part

if TYPE_CHECKING:
    from specdec_tui.tui.figures.columns import Entry

_MOST_NOTE_ROWS = 3


def notes(entries: Sequence[Entry], label: str, can_repeat: bool) -> list[list[list[Part]]]:
    """What is said below the rows, each in groups: of the baseline, and of runs whose clock was disturbed."""
    found: list[list[list[Part]]] = []
    baseline: list[list[Part]] = []
    marks = {mark for entry in entries if entry.standing is not None for mark in entry.standing.marks}
    for mark in (mark for mark in MARKS if mark in marks):
        baseline.append([(f"{mark} {MEANINGS[mark]}", WARN if mark == RECOMPUTES else QUIET)])
    if unpredicted := [visible(entry.strategy) for entry in entries if entry.costs.missing == TIMES_VARY]:
        baseline.append([(f"{UNPREDICTED} {TIMES_VARY}: no predicted, c and v of {', '.join(unpredicted)}", QUIET)])
    if label:
        is_known = any(entry.baseline is not None for entry in entries)
        baseline.append([(f"speedups vs. {visible(label)}" if is_known else visible(label), QUIET)])
    if baseline:
        found.append(baseline)
    disturbed = [entry for entry in entries if entry.standing is not None and entry.standing.is_disturbed]
    if disturbed:
        repeats = [(", ", WARN), (f"{key('run again')} repeats", "$text-accent")] if can_repeat else []
        found.append([[("clock disturbed", WARN), *repeats]])
        for entry in disturbed:
            assert entry.standing is not None
            found[-1].append([(f"{visible(entry.strategy)}: {entry.standing.reason}", QUIET)])
    if unchecked := [entry for entry in entries if entry.standing and entry.standing.verdict is Verdict.UNCHECKED]:
        names = ", ".join(visible(entry.strategy) for entry in unchecked)
        assert unchecked[0].standing is not None
        found.append(
            [[(f"{unchecked[0].standing.doubt}", WARN)], [(f"{names}: {unchecked[0].standing.reason}", QUIET)]]
        )
    return found


def note_lines(note: Sequence[Sequence[Part]], width: int) -> list[Content]:
    """A note in a few rows, wrapped between words; of too many groups the last ones are counted."""
    lines: list[Content] = []
    for count in range(len(note), 0, -1):
        left_out = len(note) - count
        groups = [*note[:count], *([[(f"+ {left_out} more, each in its pane", QUIET)]] if left_out else [])]
        parts = [part for index, group in enumerate(groups) for part in ([(" · ", QUIET)] * (index > 0) + [*group])]
        lines = Content.assemble(*parts).wrap(max(1, width - 2))
        if len(lines) <= _MOST_NOTE_ROWS:
            break
    return [Content.assemble(" ", line) for line in lines]
