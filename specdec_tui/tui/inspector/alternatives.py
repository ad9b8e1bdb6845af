"""What could have stood in a token's place: p, q and the residual side by side, one token a row. No widget here."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from specdec_tui.decoding.chances import Top, known
from specdec_tui.decoding.records import Token
from specdec_tui.tui.figures.words import QUIET, Part
from specdec_tui.tui.tokens.chips import clip, spell
from specdec_tui.tui.tokens.style import GLYPHS

Line = list[Part]

LEAST_WIDTH = 42
_PART_OF_CHARACTER = "\N{REPLACEMENT CHARACTER}"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_NUMBER = 6  # cells of a figure and the blank before it
_LEAST_BAR = 3
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Column:
    """A distribution: its name, what it is, its alternatives, and what the record itself knows of it."""

    name: str
    top: Top
    own: Mapping[int, float]

    def value(self, token: int) -> tuple[float, bool]:
        """A probability; False: it is at most that."""
        return (self.own[token], True) if token in self.own else known(self.top, token)


@dataclass(frozen=True, slots=True)
class Place:
    """A token and what was drafted or drawn in its place (itself among them), of a round that was greedy or not.

    `weight` is the name of what p weighs in the residual, empty where it weighs 1.
    """

    token: Token
    here: Sequence[Token]
    greedy: bool
    weight: str = ""

    @property
    def columns(self) -> list[Column]:
        seen = self.token.insight
        if seen is None:
            return []
        raw = "raw " if self.greedy else ""
        p = {t.id: t.p for t in self.here if t.p is not None and not self.greedy}
        q = {t.id: t.q for t in self.here if t.q is not None and not self.greedy}
        certain = not seen.drafter_top and not self.greedy and 1.0 in q.values()
        target = Column(f"{raw}p", seen.target_top, p)
        drafter = Column(f"{raw}q", tuple(q.items()) if certain else seen.drafter_top, q)
        nothing = {} if self.greedy or not drafter.top else self._nothing_left(target, drafter)
        columns = [target, drafter, Column("residual", seen.residual_top, nothing)]
        return [column for column in columns if column.top]

    def _nothing_left(self, target: Column, drafter: Column) -> dict[int, float]:
        """Of ids that the residual does not list: those whose share of it is exactly 0, for p is below q.

        What p weighs is never more than 1. Alternatives are rounded alike, so the order of two is that of the
        probabilities; of equal ones it is not known.
        """
        seen = self.token.insight
        listed = dict(seen.residual_top if seen is not None else ())
        ids = {*self.chosen, *(token for column in (target, drafter) for token, _ in column.top)} - set(listed)
        found = {}
        for token in ids:
            (p, _), (q, is_q) = target.value(token), drafter.value(token)  # p or more than p
            if p == 0 or (is_q and p < q):
                found[token] = 0.0
        return found

    @property
    def chosen(self) -> list[int]:
        """Ids: the token itself, and what else was drafted or drawn here."""
        return list(dict.fromkeys([self.token.id, *(token.id for token in self.here)]))

    @property
    def rows(self) -> list[int]:
        """Ids: what was chosen here, then the others, the most probable first."""
        first = self.chosen
        best: dict[int, float] = {}
        for column in self.columns:
            for token, value in column.top:
                best[token] = max(value, best.get(token, 0.0))
        return [*first, *(token for token in sorted(best, key=lambda t: (-best[t], t)) if token not in first)]


def full_bar(highest: float) -> float:
    """What a full bar stands for: the next 1, 2 or 5 of any power of ten that is not below the highest value."""
    if not highest > 0:
        return 1.0
    power = 1.0
    while power >= highest:
        power /= 10
    return next(step * power for step in (*_STEPS, 10) if step * power >= highest * (1 - 1e-9))


def alternatives(place: Place, texts: Mapping[int, str], width: int) -> list[Line]:
    """The list with its scale and what its columns mean; no line is wider than `width` cells."""
    columns, rows = place.columns[: max(1, (width - 6) // _NUMBER)], place.rows
    if not columns:
        return []
    top = full_bar(max(column.value(token)[0] for column in columns for token in rows))
    label = max(4, min(18, width // 4))
    each = max(_NUMBER, (width - 2 - label) // len(columns))
    room = each - _NUMBER - 1
    room = 0 if room < _LEAST_BAR else room - (room > _LEAST_BAR)
    label = max(4, width - 2 - each * len(columns))
    names = [column.name if len(column.name) < each else "p−q" for column in columns]
    heads = "".join(f" {name:<{each - 1}}" for name in names)
    scale = _scale(top, label) if room else ""
    lines: list[Line] = [[("  " + scale.ljust(label), QUIET), (heads.rstrip(), "bold")]]
    fates = {token.id: token.status for token in place.here}
    for token in rows:
        own, fate = token == place.token.id, fates.get(token)
        style = "" if fate is None else f"$token-{fate.value}" + " bold" * own
        line: Line = [("▸" if own else " ", style), (" " if fate is None else GLYPHS[fate], style)]
        text = clip(_name(token, texts), label)
        line.append((text + " " * (label - cell_len(text)), style))
        for column in columns:
            line += _cell(*column.value(token), top, each, room, style)
        lines.append(line)
    told = textwrap.wrap(_told(place, columns), max(8, width))
    return [*lines, [], *([(line, QUIET)] for line in told)]


def _scale(top: float, room: int) -> str:
    """What a full bar is, never cut: a cut figure is another one."""
    return next((told for told in (f"full bar {top:g}", f"full {top:g}") if len(told) <= room), f"{top:g}")


def _told(place: Place, columns: Sequence[Column]) -> str:
    """What the columns are."""
    names = {column.name.removeprefix("raw ") for column in columns}
    whose = "p target" + ", q drafter" * ("q" in names)
    what = "plain softmax, before greedy took the best" if place.greedy else "processed, as drawn from"
    told = f"{whose}: {what}"
    if "residual" in names:
        told += f"; residual: max(0, {place.weight}p − q) scaled to sum 1, what ↻ was drawn from"
    return told


def _cell(value: float, exact: bool, top: float, each: int, room: int, style: str) -> Iterator[Part]:
    number = _figure(value) if exact else _at_most(value)
    yield (f" {number:>{_NUMBER - 1}}", style)
    filled = bar(value / top, room) if exact and room else ""
    yield (" " + filled.ljust(each - _NUMBER - 1) if each > _NUMBER else "", style or QUIET)


def _figure(value: float) -> str:
    """Three decimals, never rounded to 0 or 1: these are for what is exactly that."""
    if value in (0.0, 1.0):
        return f"{value:g}"
    return "<.001" if value < 0.0005 else ">.999" if 0.9995 <= value < 1 else f"{value:.3f}"


def _at_most(value: float) -> str:
    """Three digits that are not below the value."""
    thousandths = max(1, -int(-value * 1000 // 1))
    return f"<{thousandths / 1000:.3f}".replace("<0", "<") if thousandths < 1000 else "<1"


def bar(share: float, cells: int) -> str:
    """A bar of so much of `cells` cells, to an eighth of one."""
    whole, rest = divmod(round(share * cells * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _name(token: int, texts: Mapping[int, str]) -> str:
    text = texts.get(token, "")
    # Parts of a character all look the same: they are told apart by their ids.
    return spell(text) if text.strip(_PART_OF_CHARACTER) else f"{text}#{token}"
