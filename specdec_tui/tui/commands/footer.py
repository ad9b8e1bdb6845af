"""The line at the bottom: the few keys that matter where one is, each a button for the mouse.

Not Textual's own: that shows every binding of the focus and cuts what does not fit, and makes its
widgets anew at each change of the focus. Here it is one line of text, chosen in one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from specdec_tui.settings import SPECULATIVE, STRATEGIES
from specdec_tui.tui.commands.command import key_names, keys_of
from specdec_tui.tui.commands.examples import EXAMPLES
from specdec_tui.tui.commands.table import COMMANDS, commands_with

Place = Literal[
    "empty prompt",
    "prompt",
    "prompt at work",
    "panes",
    "at work",
    "after a run",
    "trace",
    "race",
    "race at rest",
    "tour",
    "tour at work",
    "inspector",
    "search",
    "side bar",
    "dialog",
]
"""Where a person is, and what they can do there."""

MOST_ENTRIES = 9
"""In 80 columns; in wider ones a few more."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one or more commands are called at the bottom of the screen."""

    label: str
    commands: tuple[str, ...]

    @property
    def keys(self) -> list[tuple[str, str]]:
        """The first key of each command: its name for a person, and Textual's."""
        found = [_BY_NAME[name] for name in self.commands]
        return [(key_names(command)[0].replace("ctrl+", "^"), keys_of(command)[0]) for command in found]


_BY_NAME = {command.name: command for command in COMMANDS}


def _entry(label: str, *commands: str) -> Entry:
    return Entry(label, commands)


_STOP = _entry("Stop", "stop or quit")
_PROMPT = _entry("Ask", "prompt")
_PANE = _entry("Pane", "next pane", f"go to {STRATEGIES[0]}")
_VIEW = _entry("View", "view")
_INSPECT = _entry("Token", "inspect")
_MODELS = _entry("Models", "models")
_SETTINGS = _entry("Settings", "settings")
_EXPORT = _entry("Export", "export")
_LAB = _entry("γ-lab", "lab")
_TOUR = _entry("Tour", "tour")
_MENU = _entry("Menu", "commands")
_HELP = _entry("Help", "help on a plain key")
_HELP_ANYWHERE = _entry("Help", "help")
_QUIT = _entry("Quit", "quit")

_RACE = (
    _entry("Round", "previous round of the race", "next round of the race"),
    _entry("End", "race"),
    _entry("Speed", "slower race", "faster race"),
    _PANE,
    _entry("Jump", "back in the race", "on in the race"),
    _MENU,
    _HELP,
)

# What does not fit is left out from the third last on: the menu and the last entry are always there.
FOOTERS: dict[Place, tuple[Entry, ...]] = {
    "empty prompt": (
        _entry("Run", "run"),
        _entry("Examples", *(f"example {one.kind}" for one in EXAMPLES)),
        _entry("Panes", "panes"),
        _entry("Earlier", "earlier prompts"),
        _QUIT,
        _MENU,
        _HELP_ANYWHERE,
    ),
    "prompt": (
        _entry("Run", "run"),
        _entry("New line", "new line"),
        _entry("Earlier", "earlier prompts"),
        _entry("Panes", "panes"),
        _QUIT,
        _MENU,
        _HELP_ANYWHERE,
    ),
    "prompt at work": (
        _STOP,
        _entry("Run next", "run"),
        _entry("New line", "new line"),
        _entry("Panes", "panes"),
        _MENU,
        _HELP_ANYWHERE,
    ),
    "panes": (
        _PROMPT,
        _PANE,
        _entry("On/off", *(f"toggle {name}" for name in (*STRATEGIES[:5], *SPECULATIVE[1:]))),  # the help has them all
        _MODELS,
        _SETTINGS,
        _TOUR,
        _QUIT,
        _MENU,
        _HELP,
    ),
    "at work": (
        _STOP,
        _PROMPT,
        _PANE,
        _VIEW,
        _INSPECT,
        _SETTINGS,
        _MODELS,
        _TOUR,
        _MENU,
        _HELP,
    ),
    "after a run": (
        _PROMPT,
        _PANE,
        _VIEW,
        _INSPECT,
        _EXPORT,
        _SETTINGS,
        _MODELS,
        _LAB,
        _TOUR,
        _MENU,
        _HELP,
    ),
    "trace": (
        _PANE,
        _VIEW,
        _INSPECT,
        _EXPORT,
        _MODELS,
        _entry("Race", "race"),
        _SETTINGS,
        _LAB,
        _MENU,
        _HELP,
    ),
    "race": (_entry("Pause", "pause the race"), *_RACE),
    "race at rest": (_entry("Play", "pause the race"), *_RACE),
    "tour": (
        _entry("Next", "next step"),
        _entry("Back", "step before"),
        _entry("End", "step out"),
        _PANE,
        _VIEW,
        _INSPECT,
        _MENU,
        _HELP,
    ),
    "tour at work": (
        _STOP,
        _entry("End", "step out"),
        _PANE,
        _VIEW,
        _INSPECT,
        _MENU,
        _HELP,
    ),
    "inspector": (
        _entry("Token", "previous token", "next token"),
        _entry("Close", "step out"),
        _entry("Rejection", "next rejection", "previous rejection"),
        _entry("Round", "previous round", "next round"),
        _entry("Differs", "first difference"),
        _entry("What if", "branch"),
        _MENU,
        _HELP,
    ),
    "search": (
        _entry("Next", "next match"),
        _entry("Previous", "previous match"),
        _entry("Another text", "another text"),
        _entry("Close", "close the search"),
    ),
    "side bar": (
        _entry("Next", "next setting"),
        _entry("Close", "step out"),
        _QUIT,
        _MENU,
        _HELP_ANYWHERE,
    ),
    # Its own keys stand on its frame.
    "dialog": (_entry("Close", "step out"), _QUIT),
}


def entries_of(place: Place, drafters: int) -> list[Entry]:
    """The entries of a place, with the commands that there are with so many drafters."""
    there = {command.name for command in commands_with(drafters)}
    return [replace(entry, commands=tuple(filter(there.__contains__, entry.commands))) for entry in FOOTERS[place]]


def fitting(entries: Sequence[Entry], width: int) -> tuple[list[Entry], int]:
    """As many entries as fit into `width` cells, and the cells between two of them."""
    kept = list(entries)
    while True:
        cells = sum(map(_cells, kept))
        for gap in (2, 1):
            if cells + gap * (len(kept) - 1) <= width:
                return kept, gap
        if not kept:
            return [], 1
        del kept[max(0, len(kept) - 3)]


def _cells(entry: Entry) -> int:
    return sum(cell_len(name) + 1 for name, _ in entry.keys) + cell_len(entry.label)


class Footer(Widget):
    """Shows the entries of a place."""

    ALLOW_SELECT = False

    place: reactive[Place] = reactive[Place]("empty prompt")
    drafters: reactive[int] = reactive(0)

    def render(self) -> Content:
        entries, gap = fitting(entries_of(self.place, self.drafters), self.content_size.width)
        parts: list[str | tuple[str, str]] = []
        for entry in entries:
            parts += [" " * gap] if parts else []
            for name, _ in entry.keys:
                parts += [(name, "bold $footer-key-foreground"), " "]
            parts.append(entry.label)
        return Content.assemble(*parts)

    def key_at(self, column: int) -> str:
        """The key that a click at this column means; empty between two entries."""
        entries, gap = fitting(entries_of(self.place, self.drafters), self.content_size.width)
        end = 0
        for entry in entries:
            keys = entry.keys
            for index, (name, key) in enumerate(keys):
                end += cell_len(name) + 1
                end += cell_len(entry.label) if index == len(keys) - 1 else 0
                if column < end:
                    return key
            end += gap
            if column < end:
                return ""
        return ""

    def on_click(self, event: events.Click) -> None:
        if key := self.key_at(event.x - self.content_region.x + self.region.x):
            self.app.simulate_key(key)
