"""How one round is drawn as a piece of a tree, wrapped to a width. No widget here.

Accepted drafts stand along the trunk. At a rejection it forks: the correction goes on, the refused
draft and those behind it hang below on a dashed line.

       3 ├─✓▁·the─✓▂·quick─┬─↻▅·red
         │                 └╌✗▇·brown╌○▂·fox

Texts that a search has behind the settled one hang below, the best first, each with its score and its last tokens.

      12 ├─›·the
         ├╌ -0.41 ·quick·fox
         └╌ -0.52 +3 ·jumps·over. ended

What has no room goes on in the next line, behind an elbow that joins it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from specdec_tui.decoding.records import Beam, DraftsProposed, PrefillDone, Status, Token, beams_of
from specdec_tui.tui.tokens.chips import Run, cells_in, chip, fitted, spell

if TYPE_CHECKING:
    from specdec_tui.tui.tokens.run_log import Row

_BARS = "▁▂▃▄▅▆▇█"
_NATS = 6.0  # a target this unsure fills the bar: as unsure as between 400 equal tokens
_LIKELY, _UNLIKELY = 0.9, 0.3
_BRANCH_ROOM = 24
_MOST_BEAMS = 8
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


def tree_lines(row: Row, width: int, names: Mapping[int, str] | None = None) -> list[list[Run]]:
    """At least one line. `names`: texts of the ids that beams hold."""
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
    drawing.hang(beams_of(row.record), names or {})
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

    def hang(self, beams: Sequence[Beam], names: Mapping[int, str]) -> None:
        """A line each, but for the last of very many."""
        shown = beams[:_MOST_BEAMS]
        for index, beam in enumerate(shown):
            stroke = "└" if index == len(beams) - 1 else "├"
            if self._used > self._indent or index:
                self.lines.append([Run(self._trunk[:-1] + stroke, None)])
            self.lines[-1].append(Run("╌ ", None))
            self._used = self._indent + 2
            words = [Run(f"{beam.score:.2f} ", None)]
            end = [Run(" ended", None)] if beam.ended else []
            room = self._width - self._used - cells_in([*words, *end])
            texts = [spell(names.get(token, f"#{token}")) for token in beam.ids]
            cut = beam.before
            while len(texts) > 1 and sum(map(cell_len, texts)) + len(f"+{cut} ") * bool(cut) > room:
                del texts[0]
                cut += 1
            words += [Run(f"+{cut} ", None)] if cut else []
            words += [Run("".join(texts), Status.PENDING)] if texts else []
            self._place([*words, *end])
        if len(beams) > len(shown):
            self.lines.append([Run(self._trunk[:-1] + f"└╌ and {len(beams) - len(shown)} more", None)])

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
