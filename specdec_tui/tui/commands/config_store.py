"""Writes the settings a user changed in the app to the config file, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from specdec_tui.config_table import LONGEST_CONFIG
from specdec_tui.doors.reading import read_text
from specdec_tui.doors.writing import place
from specdec_tui.settings import SettingError, flag_of, name_of, reason_of


def save_settings(path: Path, changed: Mapping[str, Any]) -> None:
    """Put `changed` (setting name -> value) into the TOML file at `path`; other entries and all comments stay.

    The file is replaced as a whole, so that a reader or a crash never meets half of it; what is no
    regular file, like /dev/null, stays as it is.
    SettingError, in one line, when the file is damaged (it is left alone) or cannot be written.
    """
    try:
        table = _read(path)
        for name, value in changed.items():
            for word in [word for word in table if _means(word, name) and word != flag_of(name)]:
                del table[word]
            table[flag_of(name)] = list(value) if isinstance(value, tuple) else value
        text = tomlkit.dumps(table)
        if len(text.encode()) > LONGEST_CONFIG:
            raise SettingError(f"settings not saved: {path} would be longer than can be read again")
        place(path, [text])
    except TOMLKitError as error:
        raise SettingError(f"settings not saved: {path} is damaged: {error}") from None
    except RecursionError:
        raise SettingError(f"settings not saved: {path} is damaged: it is nested too deeply") from None
    except (OSError, ValueError, TypeError) as error:
        raise SettingError(f"settings not saved to {path}: {reason_of(error)}") from None


def _read(path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(read_text(path, most=LONGEST_CONFIG))
    except FileNotFoundError:
        return tomlkit.document()


def _means(word: str, name: str) -> bool:
    try:
        return name_of(word) == name
    except SettingError:
        return False
