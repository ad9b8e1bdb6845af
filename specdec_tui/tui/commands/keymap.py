"""The user's keys: the table `[keymap]` of the config file, ids of commands and the keys that they get.

    [keymap]
    run-again = "f5, r"

A command that stands there loses its own keys; those that nothing else could do (stopping, leaving) stay in addition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from textual.keys import KEY_ALIASES, Keys, _character_to_key

from specdec_tui.config_table import KEYMAP, Unreadable, read_table
from specdec_tui.settings import SettingError, quoted
from specdec_tui.tui.commands.command import ANYWHERE, APP, FIND, PROMPT, TOUR, Command, key_names
from specdec_tui.tui.commands.table import COMMANDS

Keymap = dict[str, str]
"""Ids of commands, and Textual's names of their keys, comma separated."""

STAY = {"stop-or-quit": "ctrl+c", "quit": "ctrl+q"}
AT_ONCE = frozenset((*STAY, "suspend"))
"""Ids of commands that do not wait behind a flood of keys."""
MOST_KEYS = 8
_HELD = frozenset(("alt", "ctrl", "hyper", "meta", "shift", "super"))
_SIGNS = frozenset(_character_to_key(chr(code)) for code in range(33, 127))
_NAMED = {key.value for key in Keys if key.value.isidentifier()} | {"enter", "backspace", "space"}
_MEANT = {alias: key for key, aliases in KEY_ALIASES.items() for alias in aliases}
_MEANT |= {"esc": "escape", "return": "enter", "pgdn": "pagedown", "pgup": "pageup", "del": "delete", "ins": "insert"}
_EDITS = frozenset(("space", "backspace", "delete", "left", "right", "home", "end"))
_MOVES = frozenset(("up", "down", "enter", "tab", "shift+tab", "escape", "pageup", "pagedown"))
_BY_ID = {command.id: command for command in COMMANDS if command.keys}
_ALLOWED = "give a key as r, R, f5, ctrl+g, alt+left or several with commas between"


def read_keymap(path: Path) -> tuple[Keymap, list[str]]:
    """The keys that the config file gives to commands, and a line for each entry that is wrong and left out."""
    try:
        given = read_table(path).get(KEYMAP, {})
    except Unreadable:  # whoever reads the settings says so
        return {}, []
    if not isinstance(given, dict):
        return {}, [f'keymap: a table is needed, as [keymap] and below it run-again = "f5" (in {path})']
    keymap: Keymap = {}
    problems: list[str] = []
    for word, value in given.items():
        try:
            keymap[_id(word)] = ",".join(_keys(_id(word), value))
        except SettingError as error:
            problems.append(f"keymap: {error} (in {path})")
    problems += [f"keymap: {problem} (in {path})" for problem in _clashes(keymap)]
    return keymap, problems


def _id(word: str) -> str:
    if word in _BY_ID:
        return word
    near = get_close_matches(word[:80], _BY_ID, 1)
    meant = f", perhaps {near[0]} is meant" if near else ""
    raise SettingError(f"{quoted(word)} is no command with a key{meant}: the help (f1) lists the ids at its end")


def _keys(id: str, value: Any) -> Iterator[str]:
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise SettingError(f"{id}: this value is not valid: {_ALLOWED}")
    words = [word.strip() for text in texts for word in _split(text)]
    found = list(dict.fromkeys(_key(id, word) for word in words))
    if not 0 < len(found) <= MOST_KEYS:
        raise SettingError(f"{id}: {len(found)} keys are not valid: give 1 to {MOST_KEYS}")
    stays = STAY.get(id)
    return iter(found if stays is None or stays in found else [*found, stays])


def _split(text: str) -> list[str]:
    """At commas, but for one that is itself a key."""
    return [text] if text == "," else text.split(",")


def _key(id: str, word: str) -> str:
    """Textual's name of a key."""
    wrong = SettingError(f"{id}: {quoted(word)} is not valid: {_ALLOWED}")
    *held, last = _chord(word)
    named = _character_to_key(last) if len(last) == 1 and last.isprintable() else _MEANT.get(last.lower(), last.lower())
    if held == ["shift"] and len(last) == 1 and last.isprintable():
        raise SettingError(f"{id}: {quoted(word)} is not valid: give {last.upper()} itself")
    if (
        not _HELD.issuperset(held)
        or len({*held}) < len(held)
        or not ((len(last) == 1 and last.isprintable()) or named in _SIGNS | _NAMED)
    ):
        raise wrong
    key = "+".join([*sorted(held), named.lower() if held else named])
    if not named or any(character in key for character in ", \t\n"):
        raise wrong
    key = _MEANT.get(key, key)
    _refuse_what_is_typed(id, key, word)
    return key


def _chord(word: str) -> list[str]:
    """The keys that are held, and the one that is pressed."""
    if word == "+" or word.endswith("++"):
        return [*(_chord(word[:-2]) if len(word) > 2 else []), "+"]
    *held, last = (part.strip() for part in word.split("+"))
    return [*(part.lower() for part in held), last]


def _refuse_what_is_typed(id: str, key: str, word: str) -> None:
    """Keys that count where one types must type nothing, or text would be lost."""
    command = _BY_ID[id]
    if command.scope not in (ANYWHERE, PROMPT, FIND) or key in command.keys.split(","):
        return
    types = key in _SIGNS or len(key) == 1 or key in _EDITS
    if types or (command.scope == ANYWHERE and key in _MOVES):
        needed = "it is needed where one types, and there this command counts too: give a key as f5 or ctrl+g"
        raise SettingError(f"{id}: {quoted(word)} is not valid: {needed}")


def _clashes(keymap: Keymap) -> Iterator[str]:
    """Entries that give a key to a second command in its scope: each is told and taken out."""
    while True:
        clash = next(_shared(keymap), None)
        if clash is None:
            return
        key, one, other = clash
        yield f"{_name(key)} would be a key of both {one} and {other}: give one of them another"
        del keymap[other if other in keymap else one]


def _shared(keymap: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(key, id, id) of two commands that share a key, and did not by themselves."""
    holders: dict[str, list[Command]] = {}
    for command in _BY_ID.values():
        for key in keymap.get(command.id, command.keys).split(","):
            for other in holders.setdefault(key, []):
                is_own = {command.id, other.id}.isdisjoint(keymap)
                if not is_own and _meet(command.scope, other.scope):
                    yield key, other.id, command.id
            holders[key].append(command)


def _meet(one: str, other: str) -> bool:
    return one == other or ANYWHERE in (one, other) or {one, other} == {APP, TOUR}


def _name(key: str) -> str:
    """A key as it is printed, and the chord that is the same one to a terminal."""
    same = {"enter": " (ctrl+m is the same)", "tab": " (ctrl+i is the same)", "escape": " (ctrl+[ is the same)"}
    return key_names(Command("", "", "", key))[0] + same.get(key, "")


def ids() -> list[tuple[str, str]]:
    """Every id that a keymap may hold, and the keys that its command has now."""
    return [(id, ", ".join(key_names(command))) for id, command in _BY_ID.items()]
