"""Where the values of settings come from: flags, environment and config file, merged and validated in one place.

Precedence: command-line flags > environment (`SPECDEC_TUI_GAMMA=8`) > the user's config file > defaults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from specdec_tui import variables
from specdec_tui.config_table import KEYMAP, Unreadable, config_file, read_table
from specdec_tui.setting_kinds import Kind
from specdec_tui.settings import (
    FIELDS,
    ModelChoice,
    SettingError,
    Settings,
    flag_of,
    implied_processor,
    name_of,
    parse_value,
    quoted,
)


def read_config(path: Path) -> dict[str, str]:
    """Settings of a config file as text; empty when there is none. SettingError at the first that is wrong."""
    found, problems = _read_config(path)
    if problems:
        raise SettingError(problems[0])
    return found


def _read_config(path: Path) -> tuple[dict[str, str], list[str]]:
    """Settings of a config file as text, and what is wrong with the others, a line each."""
    try:
        table = read_table(path)
    except Unreadable as error:
        return {}, [f"cannot read the config file {path}: {error}"]
    table.pop(KEYMAP, None)  # of the app, which reads it by itself
    found: dict[str, str] = {}
    problems: list[str] = []
    for word, value in table.items():
        try:
            name = name_of(word)
            if isinstance(value, dict):
                raise SettingError(f"{flag_of(name)}: a table is not valid: give a value")
            found[name] = FIELDS[name].metadata["kind"].written(value)
        except SettingError as error:
            problems.append(f"{error} (in {path})")
        except (ValueError, RecursionError):  # numbers of thousands of digits have no text
            problems.append(f"{flag_of(name)}: this value is not valid: give {_allowed(name)} (in {path})")
    return found, problems


def _read_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Settings named by `SPECDEC_TUI_*` variables, as text, and a line for each variable that names none."""
    found: dict[str, str] = {}
    problems: list[str] = []
    for key, value in environment.items():
        word = variables.setting_in(key, FIELDS)
        if not word:
            continue
        with suppress(SettingError):
            if key.startswith(variables.PREFIX):
                found[name_of(word)] = value
                continue
        problems.append(f"environment: {quoted(key)} is not valid{variables.what_is_meant(word, FIELDS)}")
    return found, problems


def resolve(
    flags: Mapping[str, str], environment: Mapping[str, str] | None = None, config: Path | None = None
) -> tuple[Settings, ModelChoice]:
    """Merge all sources and validate once. Every value arrives as text, so every source is checked alike.

    SettingError at the first that is wrong. Sampling flags without `--processor` choose the processor that
    uses them, since greedy, or another that has no use for them, would silently ignore them.
    """
    settings, choice, problems = resolve_rest(flags, environment, config)
    if problems:
        raise SettingError(problems[0])
    return settings, choice


def resolve_rest(
    flags: Mapping[str, str], environment: Mapping[str, str] | None = None, config: Path | None = None
) -> tuple[Settings, ModelChoice, list[str]]:
    """The same for what needs no setting in particular: wrong ones of environment and config file are left out.

    Each is told, in a line. SettingError only for a flag.
    """
    environment = os.environ if environment is None else environment
    path = config_file() if config is None else config
    merged: dict[str, Any] = {}
    problems: list[str] = []
    for source, (values, wrong) in (
        (f"in {path}", _read_config(path)),
        ("environment", _read_environment(environment)),
    ):
        problems += wrong
        for name, text in values.items():
            try:
                merged[name] = parse_value(name, text, source=source)
            except SettingError as error:
                problems.append(str(error))
    given = {name: parse_value(name, text) for name, text in flags.items()}
    given |= implied_processor(given, merged.get("processor", Settings.processor))
    merged |= given
    settings_names = {f.name for f in fields(Settings)}
    settings = replace(Settings(), **{k: v for k, v in merged.items() if k in settings_names})
    choice = replace(ModelChoice(), **{k: v for k, v in merged.items() if k not in settings_names})
    return settings, choice, problems


def _allowed(name: str) -> str:
    """What a setting takes."""
    kind: Kind = FIELDS[name].metadata["kind"]
    return kind.allowed
