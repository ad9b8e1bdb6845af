"""Config files of any content are read, or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from campaign import campaign, check_refusal
from mutations import TEXTS, damaged, nested, value

from specdec_tui.setting_kinds import format_value
from specdec_tui.settings import FIELDS, ModelChoice, SettingError, Settings, flag_of, resolve


def test_config_files(tmp_path: Path) -> None:
    campaign("config files", config_files(tmp_path))


def config_files(folder: Path) -> Callable[[Random], str]:
    path = folder / "config.toml"

    def try_one(dice: Random) -> str:
        path.write_bytes(config(dice))
        try:
            resolve({}, {}, path)
        except SettingError as error:
            return check_refusal(error)
        return "read"

    return try_one


def config(dice: Random) -> bytes:
    """A config file with some settings, of which some are not what they should be."""
    whole = {**vars_of(Settings()), **vars_of(ModelChoice())}
    lines = []
    for name in dice.sample(list(FIELDS), dice.randrange(1, 8)):
        word = dice.choice((name, flag_of(name).lstrip("-"), name.upper()))
        lines.append(f"{word} = {literal(dice) if dice.random() < 0.4 else json.dumps(format_value(whole[name]))}")
    match dice.randrange(8):
        case 0:
            lines.append(f"gamma = {nested(dice)}")
        case 1:
            lines.append("gamma = " + "9" * dice.choice((5, 400, 5000, 100_000)))
        case 2:
            lines.insert(0, "\ufeff# a byte order mark")
        case 3:
            lines.append("[" * dice.choice((1, 2, 500)) + "a" + "]" * dice.choice((1, 2, 500)))
        case 4:
            lines.append(".".join(["a"] * dice.choice((3, 3000))) + " = 1")
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    return damaged(dice, data) if dice.random() < 0.4 else data


def vars_of(table: object) -> dict[str, object]:
    return {name: getattr(table, name) for name in FIELDS if hasattr(table, name)}


def literal(dice: Random) -> str:
    """A TOML value of any kind."""
    fixed = ("inf", "nan", "1979-05-27T07:32:00Z", "0x7fffffffffffffffffff", "'''a\nb'''", "[[1], {a = 2}]", "1_000")
    if dice.random() < 0.3:
        return dice.choice(fixed)
    return json.dumps(dice.choice(TEXTS) if dice.random() < 0.5 else value(dice))
