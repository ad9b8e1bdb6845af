"""How a token's fate is shown: a component class for its colours and a glyph beside them."""

from __future__ import annotations

from rich.style import Style
from textual.widget import Widget

from specdec_tui.decoding.records import Status
from specdec_tui.glossary import FATES

GLYPHS: dict[Status, str] = {status: FATES[status][0] for status in Status}

TOKEN_CLASSES: dict[Status, str] = {status: f"token--{status.value}" for status in Status}


def token_styles(widget: Widget) -> dict[Status, Style]:
    """The current style of every status on a widget whose COMPONENT_CLASSES hold TOKEN_CLASSES."""
    return {status: widget.get_component_rich_style(name) for status, name in TOKEN_CLASSES.items()}
