"""Marks on painted lines: another style for some of their cells, and the offsets that selecting needs."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from specdec_tui.tui.text_layout import cluster_end


def restyled(strip: Strip, first: int, behind: int, style: Style) -> Strip:
    """The cells from `first` up to `behind` in `style`, which wins over their own."""
    behind = min(behind, strip.cell_length)
    if not 0 <= first < behind:
        return strip
    before, middle, after = strip.divide([first, behind, strip.cell_length])
    marked = [Segment(text, style if own is None else own + style) for text, own, _ in middle]
    return Strip([*before, *marked, *after], strip.cell_length)


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
        at = 0
        while at < len(text):
            end = cluster_end(text, at)
            offset = Style.from_meta({"offset": (x + at, line)})
            segments.append(Segment(text[at:end], offset if style is None else style + offset))
            at = end
        x += len(text)
    return Strip(segments, strip.cell_length)
