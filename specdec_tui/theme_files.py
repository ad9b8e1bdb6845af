"""Which themes there are: those of the app, and files in the folder `themes` beside the user's config file.

Here they are but names, so that command line and settings know them without Textual.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specdec_tui.config_table import config_file
from specdec_tui.setting_kinds import format_value

THEMES = ("specdec-dark", "specdec-light", "specdec-colour-blind")
"""Those of the app."""
MOST_THEMES = 100
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


def themes_folder() -> Path:
    """Where a user's themes lie: each a file whose name without `.toml` is that of the theme."""
    return config_file().parent / "themes"


def theme_file(name: str) -> Path:
    """The file of a user's theme."""
    return themes_folder() / f"{name}.toml"


def own_themes() -> tuple[str, ...]:
    """The names of the user's themes. Files called otherwise than in a-z, 0-9, - and _, or as ours, are none."""
    try:
        with os.scandir(themes_folder()) as entries:
            files = [entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml")]
    except OSError:
        return ()
    return tuple(sorted(name for name in files if _NAME.fullmatch(name) and name not in THEMES)[:MOST_THEMES])


def _parse(text: str) -> str:
    value = text.strip().lower()
    if value not in (*THEMES, *own_themes()):
        raise ValueError
    return value


@dataclass(frozen=True)
class ThemeKind:
    """A `Kind` whose choices are what there is at the moment."""

    parse: Callable[[str], str] = _parse
    written: Callable[[Any], str] = format_value
    joined: None = None

    @property
    def choices(self) -> tuple[str, ...]:
        return (*THEMES, *own_themes())

    @property
    def allowed(self) -> str:
        return f"one of {', '.join(self.choices)} (a file NAME.toml in {themes_folder()} adds another)"
