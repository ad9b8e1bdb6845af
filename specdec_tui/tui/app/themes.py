"""How the app looks: its style sheet, and its themes, which carry the colours that stand for a token's fate.

The style sheet uses them as `$token-accepted` and so on. Style sheets are read before a theme is
chosen, so an app that loads `app.tcss` returns TOKEN_DEFAULTS from `get_theme_variable_defaults`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from textual.theme import Theme

import specdec_tui
from specdec_tui.tui.tokens.style import FEW_COLOURS

_DARK = Theme(
    name="specdec-dark",
    primary="#79b8ff",
    secondary="#b392f0",
    accent="#ffab70",
    success="#7ee2a0",
    warning="#f5c26b",
    error="#ff8a80",
    foreground="#dfe5ec",
    background="#0e1217",
    surface="#141a21",
    panel="#1e2630",
    dark=True,
    variables={
        "token-accepted": "#7ee2a0",
        "token-rejected": "#ff8a80",
        "token-resampled": "#ffb066",
        "token-bonus": "#79b8ff",
        "token-unverified": "#8f9bab",
        "token-pending": "#b0a0dc",
        "token-sampled": "#dfe5ec",
        "quiet": "#93a0b0",
        "faint": "#4a5868",
        "edge": "#3b4654",
        "unverified-style": "italic",
    },
)

_LIGHT = Theme(
    name="specdec-light",
    primary="#0a58b5",
    secondary="#6639ba",
    accent="#a04100",
    success="#12662f",
    warning="#7d5200",
    error="#b3201b",
    foreground="#1d232b",
    background="#f3f1ec",
    surface="#fcfbf8",
    panel="#e6e3dc",
    dark=False,
    variables={
        "token-accepted": "#12662f",
        "token-rejected": "#b3201b",
        "token-resampled": "#964200",
        "token-bonus": "#0a58b5",
        "token-unverified": "#5a626d",
        "token-pending": "#66519a",
        "token-sampled": "#1d232b",
        "quiet": "#59616c",
        "faint": "#b3b0a8",
        "edge": "#bdb8ac",
        "unverified-style": "italic",
    },
)

# Okabe and Ito, "Color universal design" (2008): bluish green, vermillion, orange and sky blue,
# apart in lightness too. Their dark blue is unreadable on a dark ground.
_COLOUR_BLIND = Theme(
    name="specdec-colour-blind",
    primary="#56b4e9",
    secondary="#cc79a7",
    accent="#e69f00",
    success="#009e73",
    warning="#f0e442",
    error="#e8742a",
    foreground="#f2f2f2",
    background="#050505",
    surface="#0c0c0c",
    panel="#181818",
    dark=True,
    variables={
        "token-accepted": "#00b080",
        "token-rejected": "#e8651a",
        "token-resampled": "#f0c419",
        "token-bonus": "#56b4e9",
        "token-unverified": "#9a9a9a",
        "token-pending": "#b4a4dc",
        "token-sampled": "#f2f2f2",
        "quiet": "#a0a0a0",
        "faint": "#5a5a5a",
        "edge": "#454545",
        "unverified-style": "italic",
    },
)

THEMES: tuple[Theme, ...] = (_DARK, _LIGHT, _COLOUR_BLIND)
TOKEN_DEFAULTS: dict[str, str] = dict(_DARK.variables)

# A terminal of 16 colours shows the nearest of them, and the nearest of three fates may be the same grey. So
# there every colour is one of the 16 as Rich counts them, whatever the terminal's owner has made of it.
_BLACK, _RED, _GREEN, _BROWN = "#000000", "#aa0000", "#00aa00", "#aa5500"
_BLUE, _MAGENTA, _GREY, _DARK_GREY = "#0000aa", "#aa00aa", "#aaaaaa", "#555555"
_BRIGHT_RED, _BRIGHT_GREEN, _YELLOW, _BRIGHT_BLUE = "#ff5555", "#55ff55", "#ffff55", "#5555ff"
_BRIGHT_MAGENTA, _BRIGHT_CYAN, _WHITE = "#ff55ff", "#55ffff", "#ffffff"


def _of_sixteen(
    theme: Theme, *, accepted: str, rejected: str, resampled: str, bonus: str, pending: str, quiet: str, faint: str
) -> Theme:
    """`theme` in 16 colours; `quiet` is that of unverified tokens too."""
    ground, letters = (_BLACK, _WHITE) if theme.dark else (_WHITE, _BLACK)
    return replace(
        theme,
        primary=bonus,
        secondary=pending,
        accent=resampled,
        success=accepted,
        warning=resampled,
        error=rejected,
        foreground=letters,
        background=ground,
        surface=ground,
        panel=ground,
        variables={
            "token-accepted": accepted,
            "token-rejected": rejected,
            "token-resampled": resampled,
            "token-bonus": bonus,
            "token-unverified": quiet,
            "token-pending": pending,
            "token-sampled": letters,
            "quiet": quiet,
            "faint": faint,
            "edge": faint,
            "text-muted": quiet,
            # Such terminals show italics as another colour or reversed.
            "unverified-style": "none",
        },
    )


_OF_SIXTEEN: tuple[Theme, ...] = (
    _of_sixteen(
        _DARK,
        accepted=_BRIGHT_GREEN,
        rejected=_BRIGHT_RED,
        resampled=_YELLOW,
        bonus=_BRIGHT_CYAN,
        pending=_BRIGHT_MAGENTA,
        quiet=_GREY,
        faint=_DARK_GREY,
    ),
    _of_sixteen(
        _LIGHT,
        accepted=_GREEN,
        rejected=_RED,
        resampled=_MAGENTA,
        bonus=_BLUE,
        pending=_BROWN,
        quiet=_DARK_GREY,
        faint=_GREY,
    ),
    _of_sixteen(
        _COLOUR_BLIND,
        accepted=_BRIGHT_CYAN,
        rejected=_BRIGHT_RED,
        resampled=_YELLOW,
        bonus=_BRIGHT_BLUE,
        pending=_BRIGHT_MAGENTA,
        quiet=_GREY,
        faint=_DARK_GREY,
    ),
)


def themes_for(color_system: str | None) -> tuple[Theme, ...]:
    """The themes as a terminal can show them; `color_system`: what Rich found that it can (`Console.color_system`)."""
    return _OF_SIXTEEN if color_system in FEW_COLOURS else THEMES


def stylesheet() -> Path:
    """In a wheel it lies in the package, in a checkout beside it."""
    package = Path(specdec_tui.__file__).parent
    packaged = package / "app.tcss"
    return packaged if os.path.exists(packaged) else package.parent / "app.tcss"
