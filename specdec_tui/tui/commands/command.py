"""What a command is: its name, keys, argument and the scope in which its keys count."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from specdec_tui.doors.reading import refuse_other_kinds
from specdec_tui.settings import (
    SettingError,
    name_of,
    parse_path,
    parse_processor,
    parse_value,
    quoted,
    reason_of,
)
from specdec_tui.tui.commands.paths import status_in_time

VIEWS = ("text", "rounds", "tree", "charts", "time")
"""What a pane can show."""

EXPORTS = ("json", "csv", "svg", "html")
"""What a run can be written as."""
_EXPORT_WORDS = {"picture": "svg", "screenshot": "svg", "report": "html", "trace": "json", "table": "csv"}

APP = "app"
"""Scope of keys that count when no text box has the focus."""
ANYWHERE = "anywhere"
"""Scope of keys that count inside text boxes and dialogs too."""
PROMPT = "prompt"
"""Scope of keys that count inside the prompt box only."""

INSPECT = "inspect"
"""Scope of keys that count in a pane while one of its tokens is inspected."""
RACE = "race"
"""Scope of keys that count while a race is on."""
FIND = "find"
"""Scope of keys that count in the line that finds text."""
TOUR = "tour"
"""Scope of keys that count while the tour is on, when no text box has the focus."""
SIDE_BAR = "side bar"
"""Scope of keys that count in the side bar."""


@dataclass(frozen=True)
class Command:
    """`name` is typed in the palette, `action` is an action of the app.

    `keys` are Textual's key names, comma separated. In the palette an `argument` may follow the name
    (`values` are suggestions); the action then gets it as text. `check` raises SettingError for one that
    is not valid. `also` are other words that find it; `is_final`: it cannot be undone.
    """

    name: str
    help: str
    action: str
    keys: str = ""
    scope: str = APP
    in_palette: bool = True
    argument: str = ""
    values: tuple[str, ...] = ()
    check: Callable[[str], object] = str
    also: str = ""
    is_final: bool = False

    @property
    def id(self) -> str:
        return self.name.replace(" ", "-")

    def action_with(self, argument: str) -> str:
        """The action for an argument as typed."""
        return f"{self.action.partition('(')[0]}({argument!r})"


def following_view(view: str) -> str:
    """The view behind `view`, the first behind the last."""
    return VIEWS[(VIEWS.index(view) + 1) % len(VIEWS)]


def check_view(text: str) -> None:
    """SettingError when there is no such view."""
    if text not in VIEWS:
        raise SettingError(f"view: '{text}' is not valid: give one of {', '.join(VIEWS)}")


def export_kind(word: str) -> str:
    """The format that a word stands for, itself if it is none."""
    return _EXPORT_WORDS.get(word, word)


def check_export(text: str) -> None:
    """SettingError when a run cannot be written so: `text` is a format and perhaps a file."""
    kind = text.partition(" ")[0]
    if export_kind(kind) not in EXPORTS:
        raise SettingError(f"export: '{kind}' is not valid: give one of {', '.join(EXPORTS)}, and a file")


def check_trace(text: str) -> None:
    """SettingError where there is no such file, or none that may be looked at, as far as that can be known at once."""
    path = parse_path(text)
    try:
        if (status := status_in_time(path)) is not None:
            refuse_other_kinds(status, path)
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else reason_of(error)
        raise SettingError(f"open trace: {quoted(text)}: {reason}: give a file") from None


def check_what_if(text: str) -> None:
    """SettingError where this is no setting with a value."""
    word, _, value = text.partition(" ")
    name = name_of(word)
    if name == "processor":
        parse_processor(value)
    elif value:
        parse_value(name, value.strip())
    else:
        raise SettingError(f"what if: {quoted(text)} is not valid: give a setting and its value")


_KEY_NAMES = {
    "plus": "+",
    "minus": "-",
    "slash": "/",
    "underscore": "_",
    "equals_sign": "=",
    "escape": "esc",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "comma": ",",
    "full_stop": ".",
    "question_mark": "?",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "pagedown": "PgDn",
    "pageup": "PgUp",
}


_OWN_KEYS: dict[str, str] = {}


def use_keymap(keymap: Mapping[str, str]) -> None:
    """From now on commands have a user's keys: ids, and Textual's names of keys, comma separated. One app a process."""
    _OWN_KEYS.clear()
    _OWN_KEYS.update(keymap)


def keys_of(command: Command) -> list[str]:
    """Textual's names of the keys that a command has for this user."""
    return [key for key in _OWN_KEYS.get(command.id, command.keys).split(",") if key]


def key_names(command: Command) -> list[str]:
    """The keys of a command as a person reads them."""
    chords = [key.split("+") for key in keys_of(command)]
    return ["+".join([*held, _KEY_NAMES.get(key, key)]) for *held, key in chords]
