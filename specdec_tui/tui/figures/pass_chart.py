"""The cost of a pass over n tokens, drawn: measured and at least, in ms and against one token, with its knee."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from specdec_tui.decoding.forecast import along
from specdec_tui.decoding.passes import in_words, knee, limit_seconds, why_not_measured
from specdec_tui.tui.figures.chart_lines import Ink, Line, cells, padded
from specdec_tui.tui.figures.scale import round_number

if TYPE_CHECKING:
    from specdec_tui.decoding.figures import RunFigures

_AXIS = 6  # cells of the numbers on either side
_LEAST_PLOT = 16  # columns, below which the numbers on the right give way
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # of a braille character, by column and row
_LEAST_TOLD, _ROOMY = 5, 8  # rows from which on there is room for a line of a sentence, and for two
_POINT, _LIMIT, _KNEE = "◆", "•", "┃"


def full_passes(figures: RunFigures, width: int, height: int) -> list[Line]:
    """A heading that is the legend, the curves over their axis, and a sentence; at most `height` lines of `width`."""
    if why := why_not_measured(figures):
        lines: list[Line] = [[("pass over n tokens", Ink.LABEL)], *wrapped(f"not measured: {why}", width)]
        return lines[: max(0, height)]
    most = 2 if height >= _ROOMY else 1 if height >= _LEAST_TOLD else 0
    sentences = (
        wrapped(text, width, Ink.VALUE) for text in in_words(figures.passes, figures.pass_limit, figures.gamma)
    )
    told = next((lines for lines in sentences if len(lines) <= most), [])
    rows = height - 2 - len(told)
    plot = _plot(figures, width, rows) if rows > 0 else []
    return [_heading(figures, width), *plot, *told][: max(0, height)]


def compact_passes(figures: RunFigures, label: str, width: int) -> Line:
    """In one row: the knee, milliseconds of one token, then v; what does not fit is left out and its place marked."""
    line: Line = [(label, Ink.LABEL)]
    if why := why_not_measured(figures):
        return [*line, (f"not measured: {why}", Ink.LABEL)]
    plain = dict(figures.passes)[1]
    if (bend := knee(figures.passes)) is not None:
        line.append((f"{_KNEE} knee {bend}  ", Ink.VALUE))
    for place, (tokens, seconds) in enumerate(figures.passes):
        told = f"{seconds * 1e3:.3g} ms" if tokens == 1 else f"{seconds / plain:.2f}×"
        entry: Line = [(f"{tokens}: ", Ink.LABEL), (told, Ink.VALUE), ("  ", Ink.LABEL)]
        more = place < len(figures.passes) - 1
        if cells(line) + cells(entry) + (1 if more else -2) > width:
            return [*line, ("…", Ink.LABEL)]
        line += entry
    return line


def wrapped(text: str, width: int, ink: Ink = Ink.LABEL) -> list[Line]:
    """A text in lines of at most `width` cells, parted between words."""
    rows = [""]
    for word in text.split():
        if rows[-1] and len(rows[-1]) + 1 + len(word) > width:
            rows.append(word)
        else:
            rows[-1] = f"{rows[-1]} {word}".strip()
    return [[(row, ink)] for row in rows]


def _heading(figures: RunFigures, width: int) -> Line:
    """The longest that fits: what is drawn, and of each sign what it stands for."""
    bend = knee(figures.passes)
    entries: list[Line] = [[(f"  {_POINT} measured", Ink.RUN)]]
    if figures.pass_limit is not None:
        entries.append([(f"  {_LIMIT} limit", Ink.BASELINE)])
    if bend is not None:
        entries.append([(f"  {_KNEE} knee {bend}", Ink.VALUE)])
    signs: Line = [part for entry in entries for part in entry]
    titles = "cost of a pass over n tokens: ms, and × one token", "pass over n tokens: ms, × one", "pass of n tokens"
    lines: list[Line] = [[(title, Ink.LABEL), *signs] for title in (*titles, "pass")]
    short: Line = [(f" {text.strip()}".replace(" measured", ""), ink) for text, ink in signs]
    lines += [[("pass ms", Ink.LABEL), *short], [("pass", Ink.LABEL), *short[-1:]]]
    return next((line for line in lines if cells(line) <= width), [("pass", Ink.LABEL)])


def _plot(figures: RunFigures, width: int, rows: int) -> list[Line]:
    """`rows` of curves between their axes, and one of numbers of tokens below."""
    passes, limit = dict(figures.passes), figures.pass_limit
    plain, last = passes[1], max(passes)
    right = _AXIS if width - 2 * _AXIS >= _LEAST_PLOT else 0
    room = max(1, width - _AXIS - right)
    least = {tokens: limit_seconds(limit, tokens) for tokens in range(1, last + 1)} if limit is not None else {}
    top = round_number(max([*passes.values(), *least.values()])) or 1.0

    def column(tokens: float) -> int:
        """Of a braille dot, two a cell; the outermost stand in the middle of their cells."""
        return round((tokens - 1) / max(1, last - 1) * (2 * room - 2))

    def level(seconds: float) -> int:
        """Of a braille dot from the top, four a cell."""
        return min(4 * rows - 1, max(0, round((1 - seconds / top) * (4 * rows - 1))))

    grid = [[(" ", Ink.LABEL) for _ in range(room)] for _ in range(rows)]
    if (bend := knee(figures.passes)) is not None:
        for row in grid:
            row[column(bend) // 2] = (_KNEE, Ink.VALUE)
    for cell in range(room) if limit is not None else ():
        tokens = 1 + cell / max(1, room - 1) * (last - 1)
        grid[level(along(least, tokens)) // 4][cell] = (_LIMIT, Ink.BASELINE)
    dots: dict[tuple[int, int], int] = {}
    before = None
    for dot in range(2 * room - 1):
        here = level(along(passes, 1 + dot / max(1, 2 * room - 2) * (last - 1)))
        begin = here if before is None else before
        for high in range(min(here, begin), max(here, begin) + 1):
            place = high // 4, dot // 2
            dots[place] = dots.get(place, 0) | _DOTS[dot % 2][high % 4]
        before = here
    for (down, across), bits in dots.items():
        grid[down][across] = (chr(0x2800 + bits), Ink.RUN)
    for tokens, seconds in passes.items():
        grid[level(seconds) // 4][column(tokens) // 2] = (_POINT, Ink.RUN)
    times_at = {level(passes[tokens]) // 4: passes[tokens] / plain for tokens in (1, last)}
    lines: list[Line] = []
    for index, row in enumerate(grid):
        told = {rows - 1: "0", 0: f"{top * 1e3:.3g}"}.get(index, "")
        ms = told.rjust(_AXIS - 1) + " "
        times = f" {times_at[index]:.2f}×" if right and index in times_at else ""
        parts = [("".join(text for text, _ in group), ink) for ink, group in groupby(row, key=itemgetter(1))]
        lines.append(padded([(ms, Ink.LABEL), *parts, (times, Ink.LABEL)], width))
    return [*lines, _numbers(list(passes), [column(tokens) // 2 for tokens in passes], room, width)]


def _numbers(tokens: list[int], places: list[int], room: int, width: int) -> Line:
    """The numbers of tokens below their points, as far as there is room between them, the last one first."""
    row = [" "] * room
    for number, place in [(tokens[-1], places[-1]), *zip(tokens[:-1], places[:-1], strict=True)]:
        text = str(number)
        begin = min(place, room - len(text))
        around = row[max(0, begin - 1) : begin + len(text) + 1]
        if begin >= 0 and all(cell == " " for cell in around):
            row[begin : begin + len(text)] = text
    return padded([("n".rjust(_AXIS - 1) + " " + "".join(row), Ink.LABEL)], width)
