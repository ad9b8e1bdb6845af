"""How one round is drawn as a piece of a tree, wrapped to a width. No widget here.

Accepted drafts stand along the trunk. At a rejection it forks: the correction goes on, the refused
draft and those behind it hang below on a dashed line.

       3 ├─✓▁·the─✓▂·quick─┬─↻▅·red
         │                 └╌✗▇·brown╌○▂·fox
"""

from __future__ import annotations

from rich.cells import cell_len

from specdec_tui.decoding.records import DraftsProposed, PrefillDone, Status, Token
from specdec_tui.tui.tokens.round_lines import Run, clip, spell
from specdec_tui.tui.tokens.run_log import Row
from specdec_tui.tui.tokens.style import GLYPHS

_BARS = "▁▂▃▄▅▆▇█"
_NATS = 6.0  # a target this unsure fills the bar: as unsure as between 400 equal tokens
_LIKELY, _UNLIKELY = 0.9, 0.3
_BRANCH_ROOM = 24


def entropy_bar(token: Token) -> str:
    """How unsure the target was at a token's place, three quarters of a nat a step; empty where it is unknown."""
    entropy = None if token.insight is None else token.insight.target_entropy
    return "" if entropy is None else _BARS[min(7, max(0, int(entropy / _NATS * 8)))]


def strength_of(token: Token) -> int:
    """1 for a draft that was likely to be accepted, -1 for an unlikely one, else 0 (also where nobody knows)."""
    if token.acceptance is None or token.status in (Status.UNVERIFIED, Status.PENDING):
        return 0
    return 1 if token.acceptance >= _LIKELY else -1 if token.acceptance < _UNLIKELY else 0


def tree_lines(row: Row, width: int) -> list[list[Run]]:
    """At least one line."""
    drawing = _Drawing(_head(row), width)
    tokens = row.tokens
    off_trunk = (Status.REJECTED, Status.UNVERIFIED)
    refused = [index for index, token in enumerate(tokens) if token.status in off_trunk]
    for index in (i for i, token in enumerate(tokens) if token.status not in off_trunk):
        chip = drawing.chip(row, index)
        if refused and index > refused[0]:
            drawing.fork(chip, [drawing.chip(row, i) for i in refused])
        else:
            drawing.along(chip, "╌" if tokens[index].status is Status.PENDING else "─")
    return drawing.lines


def _head(row: Row) -> str:
    match row.record:
        case PrefillDone():
            return " pre "
        case DraftsProposed(round=number):
            return f"{number + 1:>4} "
    return f"{row.record.round + 1:>4} "


Chip = tuple[Run, int]
"""A token as it is drawn, and its width in cells."""


class _Drawing:
    def __init__(self, head: str, width: int) -> None:
        self.lines: list[list[Run]] = [[Run(head + "├", None)]]
        self._trunk = " " * len(head) + "│"
        self._width = width
        self._used = len(self._trunk)
        self._indent = self._used

    def chip(self, row: Row, index: int) -> Chip:
        token = row.tokens[index]
        text = row.texts[index] if index < len(row.texts) else ""
        lead = GLYPHS[token.status] + entropy_bar(token)
        drawn = lead + clip(spell(text), max(1, self._width - self._indent - 2 - len(lead)))
        return Run(drawn, token.status, index, strength_of(token)), cell_len(drawn)

    def along(self, chip: Chip, line: str) -> None:
        """Go on with a token, on a new line where this one is full."""
        run, cells = chip
        if self._used > self._indent and self._used + 1 + cells > self._width:
            self._new_line(" " * 2)
            line = ""
        self._draw(line)
        self._place(run, cells)

    def fork(self, goes_on: Chip, refused: list[Chip]) -> None:
        run, cells = goes_on
        branch = 2 + sum(1 + width for _, width in refused)
        room = self._width - self._used
        if self._used > self._indent and room < max(3 + cells, min(branch + 1, _BRANCH_ROOM)):
            self._new_line(" ")
        if self._used > self._indent + 1:
            self._draw("─")
        at = self._used - self._indent
        self._draw("┬─")
        self._place(run, cells)
        self._new_line(" " * at + "└╌")
        start = self._used
        for index, (refused_run, width) in enumerate(refused):
            if self._used > start and self._used + 1 + width > self._width:
                self._new_line(" " * (at + 1) + "╌")
            elif index:
                self._draw("╌")
            self._place(refused_run, width)

    def _new_line(self, lead: str) -> None:
        self.lines.append([Run(self._trunk + lead, None)])
        self._used = self._indent + len(lead)

    def _draw(self, line: str) -> None:
        if line:
            self.lines[-1].append(Run(line, None))
            self._used += len(line)

    def _place(self, run: Run, cells: int) -> None:
        room = max(2, self._width - self._used)
        self.lines[-1].append(run if cells <= room else run._replace(text=clip(run.text, room)))
        self._used += cells
