"""Marks on painted lines: another style for some of their cells, and the offsets that selecting needs."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from specdec_tui.tui.lines.layout import cluster_end


def restyled(strip: Strip, first: int, behind: int, style: Style) -> Strip:
    """The cells from `first` up to `behind` in `style`, which wins over their own."""
    behind = min(behind, strip.cell_length)
    if not 0 <= first < behind:
        return strip
    segments: list[Segment] = []
    column = 0
    for text, own, _ in strip:
        marked = style if own is None else own + style
        if text.isascii():
            start, end = max(0, first - column), max(0, behind - column)
            parts = ((text[:start], own), (text[start:end], marked), (text[end:], own))
            segments += [Segment(part, look) for part, look in parts if part]
            column += len(text)
            continue
        for character in _characters(text):  # Rich would cut an emoji made of several in two
            segments.append(Segment(character, marked if first <= column < behind else own))
            column += cell_len(character)
    return Strip(Segment.simplify(segments), strip.cell_length)


def with_offsets(strip: Strip, line: int) -> Strip:
    """The strip with the offset that Textual's selecting looks for under the mouse.

    Textual counts the cells of single characters, which is wrong where several share theirs: such
    text is cut into pieces that each say where they stand.
    """
    if strip.text.isascii():
        return strip.apply_offsets(0, line)
    segments: list[Segment] = []
    x = 0
    for text, style, _ in strip:
        for piece in _characters(text):
            offset = Style.from_meta({"offset": (x, line)})
            segments.append(Segment(piece, offset if style is None else style + offset))
            x += len(piece)
    return Strip(segments, strip.cell_length)


def start_of_character(strip: Strip, cell: int) -> int:
    """The first cell of the character drawn at `cell`."""
    column = 0
    for piece in _characters(strip.text):
        behind = column + cell_len(piece)
        if cell < behind:
            return column
        column = behind
    return cell


def _characters(text: str) -> Iterator[str]:
    """The characters of a text, each with what attaches to it."""
    at = 0
    while at < len(text):
        end = cluster_end(text, at)
        yield text[at:end]
        at = end
