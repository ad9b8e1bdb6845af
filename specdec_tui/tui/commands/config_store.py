"""Writes the settings a user changed in the app to the config file, and nothing else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from specdec_tui.settings import SettingError, flag_of, name_of, reason_of


def save_settings(path: Path, changed: Mapping[str, Any]) -> None:
    """Put `changed` (setting name -> value) into the TOML file at `path`; other entries and all comments stay.

    The file is replaced as a whole, so that a reader or a crash never meets half of it.
    SettingError, in one line, when the file is damaged (it is left alone) or cannot be written.
    """
    try:
        table = _read(path)
        for name, value in changed.items():
            for word in [word for word in table if _means(word, name) and word != flag_of(name)]:
                del table[word]
            table[flag_of(name)] = list(value) if isinstance(value, tuple) else value
        _replace(path, tomlkit.dumps(table))
    except TOMLKitError as error:
        raise SettingError(f"settings not saved: {path} is damaged: {error}") from None
    except (OSError, UnicodeDecodeError, TypeError) as error:
        raise SettingError(f"settings not saved to {path}: {reason_of(error)}") from None


def _read(path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return tomlkit.document()


def _means(word: str, name: str) -> bool:
    try:
        return name_of(word) == name
    except SettingError:
        return False


def _replace(path: Path, text: str) -> None:
    path = path.resolve()  # keep a symbolic link (dotfiles) a link
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError("the file is read-only")
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
