"""What could have stood in a token's place: p, q and the residual side by side, one token a row. No widget here."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from specdec_tui.tui.figures.words import QUIET, Part
from specdec_tui.tui.inspector.look import Column, Look, name_of
from specdec_tui.tui.tokens.chips import clip
from specdec_tui.tui.tokens.style import GLYPHS

Line = list[Part]

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_NUMBER, _SHORT_NUMBER = 6, 4  # cells of a figure of three or of two digits, and the blank before it
_LEAST_BAR = 3
_STEPS = (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
_SCALE = len("full bar 0.9")
_WORDS = 9  # cells of `drafted`, `drawn` or `arg-max` behind a row
_LEAST_WITH_WORDS = 72
_NONE = {"residual": "–"}
_HEADS = {
    "p": ("p target", "p", "p"),
    "q": ("q drafter", "q", "q"),
    "raw p": ("raw p target", "raw p", "p"),
    "raw q": ("raw q drafter", "raw q", "q"),
    "residual": ("p−q → residual", "residual", "p−q"),
}
_WAYS = 3
_COLOURS = {"residual": "$token-resampled", "q": QUIET, "raw q": QUIET}


@dataclass(frozen=True, slots=True)
class RowMark:
    """How a row of the list is told from the others: two cells before its name, a style, and a word behind it."""

    sign: str = "  "
    style: str = ""
    word: str = ""


def rows(look: Look) -> list[int]:
    """The ids that the list shows, in its order."""
    return look.rows


def alternatives(look: Look, width: int) -> list[Line]:
    """The list with its scale and what its columns mean; no line is wider than `width` cells."""
    columns = look.columns
    if not columns:
        return []
    told = textwrap.wrap(_told(look, columns), max(8, width))
    return [*bars(columns, rows(look), _marks(look), look.texts, width), [], *([(line, QUIET)] for line in told)]


def _marks(look: Look) -> dict[int, RowMark]:
    """Of what was drafted and what stands in this place: drawn, or under greedy the arg-max, where nothing is."""
    found: dict[int, RowMark] = {}
    own_word = "arg-max" if look.greedy else "drawn"
    for token in [*look.here, look.token]:
        own = token.id == look.token.id
        word = "drafted" if token in look.drafts else "" if look.searches else own_word
        if token.id in found and found[token.id].word not in ("", word):
            word = "both"
        style = f"$token-{token.status.value}" + " bold" * own
        found[token.id] = RowMark(f"{'▸' if own else ' '}{GLYPHS[token.status]}", style, word)
    return found


def bars(
    columns: Sequence[Column], ids: Sequence[int], marks: Mapping[int, RowMark], texts: Mapping[int, str], width: int
) -> list[Line]:
    """A head and a row for each id: in each column a figure and its bar, in all columns on the same scale."""
    words = _WORDS if width >= _LEAST_WITH_WORDS and any(mark.word for mark in marks.values()) else 0
    width -= words
    columns = columns[: max(1, (width - 6) // _SHORT_NUMBER)]
    top = full_bar(max(column.value(token)[0] for column in columns for token in ids))
    longest = max(max(cell_len(name_of(token, texts)) for token in ids), _SCALE)
    label = max(4, min(18, width // 4, longest))
    each = max(_SHORT_NUMBER, (width - 2 - label) // len(columns))
    number = _NUMBER if each >= _NUMBER + 1 + _LEAST_BAR else _SHORT_NUMBER
    room = each - number - 1
    room = 0 if room < _LEAST_BAR else room - (room > _LEAST_BAR)
    label = max(4, width - 2 - each * len(columns))
    heads = "".join(f" {head:<{each - 1}}" for head in _heads([column.name for column in columns], each - 1))
    scale = _scale(top, label) if room else ""
    lines: list[Line] = [[("  " + scale.ljust(label), QUIET), (heads.rstrip(), "bold")]]
    for token in ids:
        mark = marks.get(token, RowMark())
        text = clip(name_of(token, texts), label)
        line: Line = [(mark.sign, mark.style), (text + " " * (label - cell_len(text)), mark.style)]
        for column in columns:
            line += _cell(column, token, top, each, number, room, mark.style)
        if words and mark.word:
            line.append((f" {mark.word}", mark.style))
        lines.append(line)
    return lines


def _heads(names: Sequence[str], cells: int) -> Sequence[str]:
    """What columns are called, alike in length: all of them in so many cells each."""
    ways = list(zip(*(_HEADS.get(name, (clip(name, cells),) * _WAYS) for name in names), strict=True))
    return next((way for way in ways if max(map(cell_len, way)) <= cells), [clip(name, cells) for name in ways[-1]])


def full_bar(highest: float) -> float:
    """What a full bar stands for: the next figure of one or two digits that is not below the highest value."""
    if not highest > 0:
        return 1.0
    power = 1.0
    while power >= highest:
        power /= 10
    return next(step * power for step in (*_STEPS, 10) if step * power >= highest * (1 - 1e-9))


def _scale(top: float, room: int) -> str:
    """What a full bar is, never cut: a cut figure is another one."""
    return next((told for told in (f"full bar {top:g}", f"bar ≤{top:g}") if len(told) <= room), f"{top:g}")


def _told(look: Look, columns: Sequence[Column]) -> str:
    """What the columns are."""
    names = {column.name.removeprefix("raw ") for column in columns}
    whose = f"p {look.model}" + ", q drafter" * ("q" in names)
    what = "plain softmax, before greedy took the best" if look.greedy else "processed, as drawn from"
    told = f"{whose}: {what}"
    if "residual" in names:
        weight = "w·" * (look.manner.rule == "block")
        told += f"; residual: max(0, {weight}p − q) scaled to sum 1, what ↻ was drawn from"
    return told


def _cell(column: Column, token: int, top: float, each: int, number: int, room: int, style: str) -> Iterator[Part]:
    value, exact = column.value(token)
    digits = 3 if number == _NUMBER else 2
    nothing = _NONE.get(column.name, ".")
    told = _at_most(value, digits) if not exact else _figure(value, digits) if value else nothing
    yield (f" {told:>{number - 1}}", style)
    if each > number:
        filled = bar(value / top, room) if exact and room else ""
        yield (" " + filled.ljust(each - number - 1), style or _COLOURS.get(column.name, ""))


def _figure(value: float, digits: int) -> str:
    """So many decimals, never rounded to 0 or 1: these are for what is exactly that."""
    least = 0.1**digits
    if value == 1.0:
        return "1"
    if value < least / 2:
        return "≈0" if digits < 3 else "<.001"
    if 1 - least / 2 <= value < 1:
        return "≈1" if digits < 3 else ">.999"
    told = f"{value:.{digits}f}"
    return told if digits == 3 else told.removeprefix("0")


def _at_most(value: float, digits: int) -> str:
    """So many digits that are not below the value, one less where there is room for but two."""
    steps = 10 ** (digits if digits > 2 else 1)
    least = max(1, -int(-value * steps // 1))
    return f"<{least / steps:.{digits if digits > 2 else 1}f}".replace("<0", "<") if least < steps else "<1"


def bar(share: float, cells: int) -> str:
    """A bar of so much of `cells` cells, to an eighth of one."""
    whole, rest = divmod(round(share * cells * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
