"""What stands in a text beside what became text: refused drafts, signs before them, seams between rounds.

All pure, no widget. A sign is never struck out, so that drafts can be told from text where a terminal shows neither
colours nor strokes; nothing of this is part of the text that is copied, and signs and seams are not searched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from specdec_tui.decoding.records import Status
from specdec_tui.tui.tokens.style import GLYPHS

_MOST_OFF_TEXT = 3
SEAM = "▏"


class Around(StrEnum):
    """What stands around the answers of a conversation, and in the place of drafts that are not spelled out."""

    PROMPT = "prompt"
    RULE = "rule"
    MORE = "more"
    KEPT = "kept"  # of another run's text, which the answer goes on with


class Mark(StrEnum):
    """What stands before a token: the seam where a round begins, and signs around drafts that were thrown away."""

    SEAM = "seam"
    REJECTED = "sign of rejected"
    UNVERIFIED = "sign of unverified"
    RESAMPLED = "sign of resampled"


Look = Status | Around | Mark
"""How a piece of the text is painted."""
Piece = tuple[Look, str]

SIGNS: dict[Look, Mark] = {
    Status.REJECTED: Mark.REJECTED,
    Status.UNVERIFIED: Mark.UNVERIFIED,
    Status.RESAMPLED: Mark.RESAMPLED,
}
"""The last one ends what was thrown away."""
MARKS: frozenset[Look] = frozenset(Mark)
THROWN_AWAY: frozenset[Look] = frozenset({Status.REJECTED, Status.UNVERIFIED, Around.MORE})
OFF_TEXT: frozenset[Look] = THROWN_AWAY | MARKS
"""Looks of what did not become text."""
_REJECTED, _UNVERIFIED, _RESAMPLED = Status.REJECTED, Status.UNVERIFIED, Status.RESAMPLED
_SPELLED = [
    [(SIGNS[status], f"{' ' * apart}{GLYPHS[status]}") for apart in (False, True)]
    for status in (_REJECTED, _UNVERIFIED, _RESAMPLED)
]
_ENDS = frozenset({Status.RESAMPLED, Status.BONUS, Status.SAMPLED})


def shortened(tokens: Sequence[tuple[Status, str]]) -> list[tuple[int, Look, str]]:
    """Tokens with their indices; of many refused drafts in a row the first few, then how many more there are.

    A drafter that copies long texts would else bury the text under what was refused.
    """
    found: list[tuple[int, Look, str]] = []
    begin = -1  # of the refused ones in a row, as far as it has come
    for index, (status, text) in enumerate(tokens):  # nothing is called for each, nor an enum hashed: they are many
        if status is not _REJECTED and status is not _UNVERIFIED:
            begin = -1
        elif begin < 0:
            begin = index
        elif index == begin + _MOST_OFF_TEXT + 1:
            found[-1] = (index - 1, Around.MORE, " (+2)")
            continue
        elif index > begin + _MOST_OFF_TEXT + 1:
            found[-1] = (begin + _MOST_OFF_TEXT, Around.MORE, f" (+{index + 1 - begin - _MOST_OFF_TEXT})")
            continue
        found.append((index, status, text))
    return found


def marked(tokens: Sequence[tuple[Status, str]], seam: bool) -> list[tuple[int, Look, str]]:
    """The tokens of a round as in `shortened`, with marks before some: each has the index of the token behind it.

    `seam`: a round stands before this one.
    """
    found: list[tuple[int, Look, str]] = [(0, Mark.SEAM, SEAM)] if seam and tokens else []
    before: Look | None = None
    for index, look, text in shortened(tokens):
        if look is not before:
            behind_drafts = before is _REJECTED or before is _UNVERIFIED or before is Around.MORE
            row = 0 if look is _REJECTED else 1 if look is _UNVERIFIED else 2
            if row < 2 or (look is _RESAMPLED and behind_drafts):
                # Where words end the sign stands apart: at the end of one it would look like a part of it.
                found.append((index, *_SPELLED[row][text[:1] == " "]))
        found.append((index, look, text))
        before = look
    return found


def rounds_of(tokens: Iterable[tuple[Status, str]]) -> Iterator[list[tuple[Status, str]]]:
    """The tokens of a run, round by round: what is no draft ends one."""
    row: list[tuple[Status, str]] = []
    for token in tokens:
        row.append(token)
        if token[0] in _ENDS:
            yield row
            row = []
    if row:
        yield row
