"""How well one colour can be read on another, as WCAG 2 measures it."""

from __future__ import annotations

from collections.abc import Iterable

from textual.color import Color
from textual.strip import Strip


def luminance(color: Color) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [c / 255 for c in color.rgb]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def faint_words(strips: Iterable[Strip], least: float = 4.5) -> dict[str, float]:
    """Words with a letter, digit or sign whose contrast to their ground is below `least`, as the strips are painted.

    Frames, bars and the dots that stand for blanks are no words.
    """
    found: dict[str, float] = {}
    for segment in (segment for strip in strips for segment in strip if segment.style is not None):
        words = "".join(" " if c == "·" or "\u2500" <= c <= "\u25a0" else c for c in segment.text)
        if not words.strip() or segment.style is None:
            continue
        text, ground = (Color.from_rich_color(c) for c in (segment.style.color, segment.style.bgcolor))
        if segment.style.reverse:
            text, ground = ground, text
        if segment.style.dim:
            text = ground.blend(text, 0.66)  # as Textual draws it
        if (ratio := contrast(text, ground)) < least:
            found[words.strip()] = round(ratio, 2)
    return found
