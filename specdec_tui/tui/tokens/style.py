"""How a token's fate is shown: a component class for its colours and a glyph beside them."""

from __future__ import annotations

from rich.style import Style
from textual.color import Color
from textual.widget import Widget

from specdec_tui.decoding.records import Status
from specdec_tui.glossary import FATES

GLYPHS: dict[Status, str] = {status: FATES[status][0] for status in Status}

_FAINT = 0.25

TOKEN_CLASSES: dict[Status, str] = {status: f"token--{status.value}" for status in Status}


def token_styles(widget: Widget) -> dict[Status, Style]:
    """The current style of every status on a widget whose COMPONENT_CLASSES hold TOKEN_CLASSES."""
    return {status: widget.get_component_rich_style(name) for status, name in TOKEN_CLASSES.items()}


def stressed(style: Style, strength: int, no_color: bool) -> Style:
    """A style made stronger (1) or fainter (-1), in steps that a screen without colours shows too."""
    if strength > 0:
        return style + Style(bold=True)
    if strength == 0:
        return style
    if no_color or style.color is None or style.bgcolor is None or style.color.is_default:
        return style + Style(dim=True)
    # Terminals halve what is dim, and on a light ground that cannot be read.
    colour, ground = Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)
    return style + Style(color=colour.blend(ground, _FAINT).rich_color)
