"""How one round is written: its numbers, then its tokens, wrapped to a width. No widget here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from specdec_tui.decoding.records import (
    DraftsProposed,
    PrefillDone,
    RoundVerified,
    Status,
    Token,
    tokens_of,
)
from specdec_tui.tui.lines.sanitize import visible
from specdec_tui.tui.tokens.run_log import Shown
from specdec_tui.tui.tokens.style import GLYPHS


class Run(NamedTuple):
    """A part of a line. `status`: whose colours it takes, None for the quiet ones of numbers.

    `token`: which token of the round it shows, if any; `strength`: 1 bolder, -1 fainter than usual.
    """

    text: str
    status: Status | None
    token: int | None = None
    strength: int = 0


_GAP = " "
_NARROW = 50
_WIDE = 76
_BLANKS = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})


def spell(text: str) -> str:
    """A token's text with its blanks made visible; an empty piece (inside a character) is `∅`."""
    return visible(text).translate(_BLANKS) or "∅"


@dataclass(slots=True)
class RoundLines:
    """A round as its lines at the width given last."""

    record: Shown
    texts: tuple[str, ...]

    def _head(self, width: int) -> str:
        narrow = width < _NARROW
        match self.record:
            case PrefillDone(seconds=seconds):
                number, kept, milliseconds = "pre", "", f"{seconds * 1e3:.0f}"
            case DraftsProposed(round=index, drafts=drafts):
                number, kept, milliseconds = str(index + 1), f"?/{len(drafts)}", "…"
            case RoundVerified(round=index, drafts=drafts):
                accepted = sum(draft.status is Status.ACCEPTED for draft in drafts)
                number, kept = str(index + 1), f"{accepted}/{len(drafts)}" if drafts else ""
                milliseconds = f"{self.record.seconds * 1e3:.1f}"
        if narrow:
            return f"{number:>4} {kept:>4} "
        return f"{number:>4} {kept:>5} {milliseconds:>6} ms  "

    def lines(self, width: int) -> list[list[Run]]:
        """At least one line; continued lines are indented under the tokens."""
        head = self._head(width)
        room = max(4, width - len(head))
        lines: list[list[Run]] = [[Run(head, None)]]
        used = 0
        tokens = tokens_of(self.record)
        for index, (token, text) in enumerate(zip(tokens, self.texts, strict=False)):
            chip = clip(spell(text), room - 1)
            cells = 1 + cell_len(chip)
            if used and used + len(_GAP) + cells > room:
                lines.append([Run(" " * len(head), None)])
                used = 0
            if used:
                lines[-1].append(Run(_GAP, None))
                used += len(_GAP)
            lines[-1] += [Run(GLYPHS[token.status], token.status, index), Run(chip, token.status, index)]
            used += cells
        lines += self._insight_lines(tokens, width)
        return lines

    def _insight_lines(self, tokens: Sequence[Token], width: int) -> list[list[Run]]:
        indent, column = (" " * 5, 12) if width < _WIDE else (" " * 9, 16)
        found: list[list[Run]] = []
        for index, (token, text) in enumerate(zip(tokens, self.texts, strict=False)):
            if token.insight is None:
                continue
            chip = set_cell_size(clip(spell(text), column), column)
            found.append(
                [
                    Run(indent, None),
                    Run(GLYPHS[token.status], token.status, index),
                    Run(chip, token.status, index),
                    Run(_numbers(token, width, width - len(indent) - 1 - column), None),
                ]
            )
        return found


def clip(text: str, cells: int) -> str:
    """The text in at most `cells` cells, with an ellipsis where it is cut."""
    if len(text) <= cells and cell_len(text) <= cells:
        return text
    if cells < 2:
        return "…"[:cells]
    return set_cell_size(text[: 4 * cells], cells - 1) + "…"


def _numbers(token: Token, width: int, room: int) -> str:
    """Probabilities under target and drafter, entropies of both in nats, chance to be accepted.

    As many as fit, whole: a number cut short would be another number.
    """
    insight = token.insight
    digits, gap = (2, " ") if width < _WIDE else (3, "  ")
    parts = [("p", token.p, digits), ("q", token.q, digits)]
    if insight is not None:
        parts += [("H", insight.target_entropy, 2), ("Hq", insight.drafter_entropy, 2)]
    parts.append(("accept", token.acceptance, digits))
    line = ""
    for name, value, places in parts:
        if value is not None:
            part = f"{gap}{name} {value:.{places}f}"
            if len(line) + len(part) > room:
                break
            line += part
    return line
