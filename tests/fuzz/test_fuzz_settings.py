"""Config files of any content are read, or refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from campaign import campaign, check_refusal, check_told
from mutations import TEXTS, damaged, nested, value

from specdec_tui.setting_kinds import format_value
from specdec_tui.setting_sources import resolve
from specdec_tui.settings import FIELDS, ModelChoice, SettingError, Settings, flag_of
from specdec_tui.theme_files import theme_file
from specdec_tui.tui.app.own_themes import FIELDS as THEME_FIELDS
from specdec_tui.tui.app.own_themes import VARIABLES, own_theme
from specdec_tui.tui.commands.keymap import ids, read_keymap


def test_config_files(tmp_path: Path) -> None:
    campaign("config files", config_files(tmp_path))


def test_theme_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", str(tmp_path / "config.toml"))
    theme_file("mine").parent.mkdir()
    campaign("theme files", theme_files(theme_file("mine")))


def theme_files(path: Path) -> Callable[[Random], str]:
    colours = ('"#79b8ff"', '"teal"', '"rgb(1,2,3)"', '"hsl(0,50%,50%)"', '"auto 50%"', '"ansi_red"', '"#fff0"')

    def try_one(dice: Random) -> str:
        lines = ['primary = "red"'] * (dice.random() < 0.8)
        for part, words in (("", THEME_FIELDS), ("[variables]", VARIABLES)):
            own = dice.sample(words, dice.randrange(4))
            lines += [part, *(f"{w} = {literal(dice) if dice.random() < 0.3 else dice.choice(colours)}" for w in own)]
        data = "\n".join(lines).encode("utf-8", "surrogatepass")
        path.write_bytes(damaged(dice, data) if dice.random() < 0.3 else data)
        try:
            theme = own_theme("mine", None)
        except SettingError as error:
            return check_refusal(error)
        theme.to_color_system().generate()
        return "read"

    return try_one


def config_files(folder: Path) -> Callable[[Random], str]:
    path = folder / "config.toml"

    def try_one(dice: Random) -> str:
        path.write_bytes(config(dice))
        _, problems = read_keymap(path)
        check_told(*problems)
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
        case 5:
            lines += ["[keymap]", *(f"{json.dumps(word)} = {keys}" for word, keys in keymap(dice))]
        case 6:
            lines.append(f"keymap = {literal(dice)}")
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    return damaged(dice, data) if dice.random() < 0.4 else data


def keymap(dice: Random) -> Iterator[tuple[str, str]]:
    """Commands, or nearly, and keys that there are or are not."""
    parts = ("ctrl", "shift", "alt", "+", "+", ",", "a", "R", "f5", "esc", "enter", "é", "\x1b", " ", "plus", "")
    known = [id for id, _ in ids()]
    for word in dict.fromkeys(dice.choice(known) if dice.random() < 0.8 else dice.choice(TEXTS) for _ in range(4)):
        keys = "+".join(dice.choices(parts, k=dice.randrange(1, 4)))
        yield word, literal(dice) if dice.random() < 0.3 else json.dumps(keys)


def vars_of(table: object) -> dict[str, object]:
    return {name: getattr(table, name) for name in FIELDS if hasattr(table, name)}


def literal(dice: Random) -> str:
    """A TOML value of any kind."""
    fixed = ("inf", "nan", "1979-05-27T07:32:00Z", "0x7fffffffffffffffffff", "'''a\nb'''", "[[1], {a = 2}]", "1_000")
    if dice.random() < 0.3:
        return dice.choice(fixed)
    return json.dumps(dice.choice(TEXTS) if dice.random() < 0.5 else value(dice))
