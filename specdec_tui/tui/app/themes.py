"""The app's themes. Each carries the token colours that stand for a token's fate.

The style sheet uses them as `$token-accepted` and so on. Style sheets are read before a theme is
chosen, so an app that loads `app.tcss` returns TOKEN_DEFAULTS from `get_theme_variable_defaults`.
"""

from __future__ import annotations

from textual.theme import Theme

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
        "token-pending": "#98a2ae",
        "token-sampled": "#dfe5ec",
        "quiet": "#93a0b0",
        "faint": "#4a5868",
        "edge": "#3b4654",
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
        "token-pending": "#5c646e",
        "token-sampled": "#1d232b",
        "quiet": "#59616c",
        "faint": "#b3b0a8",
        "edge": "#bdb8ac",
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
        "token-pending": "#a6a6a6",
        "token-sampled": "#f2f2f2",
        "quiet": "#a0a0a0",
        "faint": "#5a5a5a",
        "edge": "#454545",
    },
)

THEMES: tuple[Theme, ...] = (_DARK, _LIGHT, _COLOUR_BLIND)
TOKEN_DEFAULTS: dict[str, str] = dict(_DARK.variables)
