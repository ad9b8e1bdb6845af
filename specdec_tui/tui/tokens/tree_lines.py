"""How one round is drawn as a piece of a tree, wrapped to a width. No widget here.

Accepted drafts stand along the trunk. At a rejection it forks: the correction goes on, the refused
draft and those behind it hang below on a dashed line.

       3 ├─✓▁·the─✓▂·quick─┬─↻▅·red
         │                 └╌✗▇·brown╌○▂·fox

What has no room goes on in the next line, behind an elbow that joins it.
"""

from __future__ import annotations

from specdec_tui.decoding.records import DraftsProposed, PrefillDone, Status, Token
from specdec_tui.tui.tokens.chips import Run, cells_in, chip, fitted
from specdec_tui.tui.tokens.run_log import Row

_BARS = "▁▂▃▄▅▆▇█"
_NATS = 6.0  # a target this unsure fills the bar: as unsure as between 400 equal tokens
_LIKELY, _UNLIKELY = 0.9, 0.3
_BRANCH_ROOM = 24
_ELBOW = "╰"  # what goes on in a new line hangs from the stroke before it


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
            refused = []  # they hang from the first token that went on without them
        else:
            drawing.along(chip, "╌" if tokens[index].status is Status.PENDING else "─")
    for index in refused:  # of a round that broke off: nothing went on
        drawing.along(drawing.chip(row, index), "╌")
    return drawing.lines


def _head(row: Row) -> str:
    match row.record:
        case PrefillDone():
            return " pre "
        case DraftsProposed(round=number):
            return f"{number + 1:>4} "
    return f"{row.record.round + 1:>4} "


class _Drawing:
    def __init__(self, head: str, width: int) -> None:
        self.lines: list[list[Run]] = [[Run(head + "├", None)]]
        self._trunk = " " * len(head) + "│"
        self._width = width
        self._used = len(self._trunk)
        self._indent = self._used

    def chip(self, row: Row, index: int) -> list[Run]:
        token = row.tokens[index]
        text = row.texts[index] if index < len(row.texts) else ""
        room = max(3, self._width - self._indent - 2)
        return chip(token, text, index, room, bar=entropy_bar(token), strength=strength_of(token))

    def along(self, runs: list[Run], line: str) -> None:
        """Go on with a token, behind an elbow on a new line where this one is full."""
        if self._used > self._indent and self._used + 1 + cells_in(runs) > self._width:
            self._new_line(_ELBOW)
        self._draw(line)
        self._place(runs)

    def fork(self, goes_on: list[Run], refused: list[list[Run]]) -> None:
        branch = 2 + sum(1 + cells_in(runs) for runs in refused)
        room = self._width - self._used
        if self._used > self._indent and room < max(3 + cells_in(goes_on), min(branch + 1, _BRANCH_ROOM)):
            self._new_line(_ELBOW)
        elif self._used > self._indent + 1:
            self._draw("─")
        at = self._used - self._indent
        self._draw("┬─")
        self._place(goes_on)
        self._new_line(" " * at + "└╌")
        start = self._used
        for index, runs in enumerate(refused):
            if self._used > start and self._used + 1 + cells_in(runs) > self._width:
                self._new_line(" " * (at + 1) + _ELBOW)
            elif index:
                self._draw("╌")
            self._place(runs)

    def _new_line(self, lead: str) -> None:
        self.lines.append([Run(self._trunk + lead, None)])
        self._used = self._indent + len(lead)

    def _draw(self, line: str) -> None:
        if line:
            self.lines[-1].append(Run(line, None))
            self._used += len(line)

    def _place(self, runs: list[Run]) -> None:
        room = max(2, self._width - self._used)
        self.lines[-1] += fitted(runs, room)
        self._used += cells_in(runs)
