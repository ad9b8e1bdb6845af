"""A user's theme: a TOML file with the fields of Textual's themes, read each time that it is chosen.

What it does not say of tokens follows from its own colours, so that any theme of Textual's can be taken as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import Theme

from specdec_tui.config_table import Unreadable, read_table
from specdec_tui.settings import SettingError, quoted
from specdec_tui.theme_files import THEMES, theme_file
from specdec_tui.tui.app.themes import TOKEN_DEFAULTS, themes_for
from specdec_tui.tui.tokens.style import FEW_COLOURS

COLOURS = (
    *("primary", "secondary", "accent", "success", "warning", "error"),
    *("foreground", "background", "surface", "panel", "boost"),
)
SHARES = ("luminosity_spread", "text_alpha")
FIELDS = ("name", "dark", *COLOURS, *SHARES, "variables")
VARIABLES = (*TOKEN_DEFAULTS,)
STYLES = ("none", "bold", "dim", "italic", "underline", "strike", "reverse")
_FOLLOWS = {
    "token-accepted": "success",
    "token-rejected": "error",
    "token-resampled": "accent",
    "token-bonus": "primary",
    "token-pending": "secondary",
    "token-sampled": "foreground",
}
"""The colours that token colours are, where they are not given."""
_BETWEEN = {"token-unverified": 0.75, "quiet": 0.75, "faint": 0.35, "edge": 0.3}
"""How far from surface to foreground others lie, where they are not given."""


def own_theme(name: str, color_system: str | None) -> Theme:
    """The user's theme of this name, as a terminal can show it (Rich's word for its colours).

    A terminal of 16 colours cannot show a theme's own: it gets ours, dark or light. SettingError, in one line.
    """
    path = theme_file(name)
    try:
        theme = _theme(name, _table(path))
    except SettingError as error:
        raise SettingError(f"theme {name}: {error} (in {path})") from None
    if color_system in FEW_COLOURS:
        return replace(themes_for(color_system)[0 if theme.dark else 1], name=name)
    return theme


def take_theme(app: App[Any], name: str) -> str:
    """Give an app a theme's colours, a user's as its file has them now. Why that cannot be, in a line; else empty."""
    try:
        if name not in THEMES:
            app.register_theme(own_theme(name, app.console.color_system))
    except SettingError as error:
        return str(error)
    if app.theme == name:
        app._watch_theme(name)  # the same name, with other colours perhaps (Textual 8.2.8)
    app.theme = name
    return ""


def check_theme(name: str) -> None:
    """SettingError, in one line, where this is a user's theme and its file is wrong."""
    if name not in THEMES:
        own_theme(name, None)


def _table(path: Path) -> dict[str, Any]:
    try:
        table = read_table(path)
    except Unreadable as error:
        raise SettingError(f"cannot be read: {error}") from None
    if not table and not os.path.exists(path):
        raise SettingError("there is no such file" + " behind the link" * os.path.islink(path))
    if not table:
        raise SettingError("there is nothing in it: give at least primary")
    return table


def _theme(name: str, table: Mapping[str, Any]) -> Theme:
    if unknown := [word for word in table if word not in FIELDS]:
        raise SettingError(f"{quoted(unknown[0])} is no field of a theme: allowed are {', '.join(FIELDS)}")
    if table.get("name", name) != name:
        raise SettingError(f"name: {_shown(table['name'])} is not valid: give {name}, as the file is called")
    if "primary" not in table:
        raise SettingError("primary is missing: give a colour as #79b8ff")
    dark = table.get("dark", True)
    if not isinstance(dark, bool):
        raise SettingError(f"dark: {_shown(dark)} is not valid: give true or false")
    given: dict[str, Any] = {field: _colour(field, table[field]) for field in COLOURS if field in table}
    given |= {field: _share(field, table[field]) for field in SHARES if field in table}
    base = themes_for(None)[0 if dark else 1]
    colours = {field: getattr(base, field) for field in COLOURS if field != "boost"} | given
    variables = dict(base.variables) | {
        variable: given[field] for variable, field in _FOLLOWS.items() if field in given
    }
    surface, foreground = Color.parse(colours["surface"]), Color.parse(colours["foreground"])
    variables |= {variable: surface.blend(foreground, share).hex for variable, share in _BETWEEN.items()}
    return Theme(name=name, dark=dark, **colours, variables=variables | _variables(table.get("variables", {})))


def _variables(table: Any) -> dict[str, str]:
    if not isinstance(table, dict):
        raise SettingError(f"variables: {_shown(table)} is not valid: give a table, as [variables]")
    found: dict[str, str] = {}
    for word, value in table.items():
        if word not in VARIABLES:
            raise SettingError(f"variables: {quoted(word)} is none of ours: allowed are {', '.join(VARIABLES)}")
        found[word] = _style(word, value) if word.endswith("-style") else _colour(word, value)
    return found


def _colour(field: str, value: Any) -> str:
    """A colour as Textual reads it, whole and without the terminal's own ones, which no other can be mixed with."""
    try:
        colour = Color.parse(value) if isinstance(value, str) else None
    except (ColorParseError, ValueError):
        colour = None
    if colour is None or colour.ansi is not None or colour.a != 1 or colour.auto:
        raise SettingError(f"{field}: {_shown(value)} is not valid: give a colour as #79b8ff, rgb(121,184,255) or teal")
    return colour.hex


def _style(field: str, value: Any) -> str:
    words = value.split() if isinstance(value, str) else []
    if not words or any(word not in STYLES for word in words):
        raise SettingError(f"{field}: {_shown(value)} is not valid: give words of {', '.join(STYLES)}")
    return " ".join(words)


def _share(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise SettingError(f"{field}: {_shown(value)} is not valid: give a number from 0 to 1")
    return float(value)


def _shown(value: Any) -> str:
    """A bad value in a message; numbers of thousands of digits have no text."""
    try:
        return quoted(str(value))
    except (ValueError, RecursionError):
        return "this value"
