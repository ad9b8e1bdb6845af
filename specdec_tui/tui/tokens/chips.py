"""How a token is written: the sign of its fate, and its text with blanks made visible. No widget here."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len, set_cell_size

from specdec_tui.doors.characters import visible
from specdec_tui.tui.tokens.style import GLYPHS

if TYPE_CHECKING:
    from specdec_tui.decoding.records import Status, Token


class Kind(Enum):
    """What a run says of its token."""

    TEXT = auto()
    SIGN = auto()  # the glyph and bar before it: never struck out, or they could not be read
    BLANK = auto()  # marks of the blanks it begins with, quieter than its letters


class Run(NamedTuple):
    """A part of a line. `status`: whose colours it takes, None for the quiet ones of numbers.

    `token`: which token of the round it shows, if any; `strength`: 1 bolder, -1 fainter than usual.
    """

    text: str
    status: Status | None
    token: int | None = None
    strength: int = 0
    kind: Kind = Kind.TEXT


_BLANKS = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})


def spell(text: str) -> str:
    """A token's text with its blanks made visible; an empty piece (inside a character) is `∅`."""
    return visible(text).translate(_BLANKS) or "∅"


def clip(text: str, cells: int) -> str:
    """The text in at most `cells` cells, with an ellipsis where it is cut."""
    if len(text) <= cells and cell_len(text) <= cells:
        return text
    if cells < 2:
        return "…"[:cells]
    return set_cell_size(text[: 4 * cells], cells - 1) + "…"


def chip(token: Token, text: str, index: int, cells: int, *, bar: str = "", strength: int = 0) -> list[Run]:
    """The token at `index` of its round in at most `cells` cells, two at least. `bar` follows its glyph."""
    sign = GLYPHS[token.status] + bar
    name = clip(spell(text[: 4 * cells]), max(1, cells - len(sign)))  # a token may be longer than a screen
    blanks = len(text) - len(text.lstrip(" \n\t"))
    runs = [Run(sign, token.status, index, strength, Kind.SIGN)]
    if 0 < blanks < len(text) and blanks < len(name):  # blanks alone are all there is to read: as loud as letters
        runs.append(Run(name[:blanks], token.status, index, strength, Kind.BLANK))
        name = name[blanks:]
    return [*runs, Run(name, token.status, index, strength)]


def cells_in(runs: Sequence[Run]) -> int:
    """How wide runs are, side by side."""
    return sum(cell_len(run.text) for run in runs)


def fitted(runs: Sequence[Run], cells: int) -> list[Run]:
    """The runs in at most `cells` cells, with an ellipsis where they are cut."""
    left = cells
    kept: list[Run] = []
    for run in runs:
        text = clip(run.text, left)
        if text:
            kept.append(run._replace(text=text))
            left -= cell_len(text)
        if text != run.text:
            break
    return kept
