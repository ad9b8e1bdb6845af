"""How a token's fate is shown: a component class for its colours and a glyph beside them."""

from __future__ import annotations

from rich.style import Style
from textual.color import Color
from textual.widget import Widget

from specdec_tui.decoding.records import Status
from specdec_tui.glossary import FATES
from specdec_tui.tui.lines.inks import ink

GLYPHS: dict[Status, str] = {status: FATES[status][0] for status in Status}

FEW_COLOURS = ("standard", "windows")
"""What Rich calls the colours of a terminal that has 16."""

_FAINT = 0.25

TOKEN_CLASSES: dict[Status, str] = {status: f"token--{status.value}" for status in Status}


def token_styles(widget: Widget) -> dict[Status, Style]:
    """The current style of every status on a widget."""
    return {status: ink(widget, name) for status, name in TOKEN_CLASSES.items()}


def stressed(style: Style, strength: int, no_color: bool, color_system: str | None = "truecolor") -> Style:
    """A style made stronger (1) or fainter (-1), in steps that a screen without colours shows too.

    Of 16 colours (`color_system` is Rich's word) none is fainter than another without being a fate of its own.
    """
    if strength > 0:
        return style + Style(bold=True)
    if strength == 0 or (color_system in FEW_COLOURS and not no_color):
        return style
    if no_color or style.color is None or style.bgcolor is None or style.color.is_default:
        return style + Style(dim=True)
    # Terminals halve what is dim, and on a light ground that cannot be read.
    colour, ground = Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)
    return style + Style(color=colour.blend(ground, _FAINT).rich_color)
