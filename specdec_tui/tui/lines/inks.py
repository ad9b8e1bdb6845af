"""Styles by name that many views draw with, kept once: by the app, whose views are many."""

from __future__ import annotations

from rich.style import Style
from textual.widget import Widget

_CHARTS = (
    *("label", "value", "good", "fair", "poor", "run", "baseline"),
    *("drafting", "verifying", "rest", "host", "wire", "reading", "capturing"),
)
_TOKENS = ("accepted", "rejected", "resampled", "bonus", "unverified", "pending", "sampled")
INKS = {
    *(f"token--{fate}" for fate in _TOKENS),
    *(f"turn--{part}" for part in ("prompt", "rule", "more", "kept", "seam")),
    *(f"rounds--{part}" for part in ("numbers", "blanks")),
    *(f"find--{part}" for part in ("match", "current")),
    *(f"charts--{part}" for part in _CHARTS),
}
"""The component classes of an app with such views: were they those of each view, they would be restyled with each."""


def ink(widget: Widget, name: str, *, alone: bool = False) -> Style:
    """The style of this name on a widget's own ground; `alone`: without what it stands on.

    KeyError where the app has no such ink.
    """
    style = widget.app.get_component_styles(name).partial_rich_style
    return style if alone else widget.rich_style + style
