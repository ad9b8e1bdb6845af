"""How well one colour can be read on another, as WCAG 2 measures it."""

from __future__ import annotations

from textual.color import Color


def luminance(color: Color) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [c / 255 for c in color.rgb]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
