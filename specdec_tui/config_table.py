"""The user's config file as the table that it is, before anyone says what its entries mean."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import platformdirs

from specdec_tui import variables
from specdec_tui.doors.reading import is_null_device, read_text

LONGEST_CONFIG = 16 * 1024
"""Bytes; all settings with a page of comments take a third of it. Reading keys of many dots takes quadratic time."""

KEYMAP = "keymap"
"""The one table in it that holds no settings."""


def config_file() -> Path:
    """The user's config file (TOML); `SPECDEC_TUI_CONFIG` names another."""
    named = os.environ.get(variables.PREFIX + "CONFIG")
    return Path(named) if named else platformdirs.user_config_path("specdec-tui") / "config.toml"


class Unreadable(ValueError):
    """Why a file holds no table, in a few words without its name."""


def read_table(path: Path) -> dict[str, Any]:
    """The table of a TOML file; empty when there is none. Unreadable for what is no such file."""
    try:
        return {} if is_null_device(path) else tomllib.loads(read_text(path, most=LONGEST_CONFIG))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # the latter: no TOML, or a number of thousands of digits
        digits = "a number in it has too many digits" if "integer string" in str(error) else ""
        raise Unreadable(digits or getattr(error, "strerror", None) or str(error)) from None
    except RecursionError:
        raise Unreadable("it is nested too deeply") from None
