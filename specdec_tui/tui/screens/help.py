"""Help: the idea and its words, then keys, commands and settings from the same tables as everything else."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import wrap
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from specdec_tui.glossary import FATES, FIGURES, IDEA, OF_A_TOKEN
from specdec_tui.settings import FIELDS, flag_of
from specdec_tui.tui.commands.command import (
    ANYWHERE,
    APP,
    FIND,
    INSPECT,
    PROMPT,
    RACE,
    SIDE_BAR,
    TOUR,
    key_names,
    keys_of,
)
from specdec_tui.tui.commands.dialog import Dialog
from specdec_tui.tui.commands.keymap import ids
from specdec_tui.tui.commands.table import commands_with, key

_SCOPES = {
    PROMPT: lambda: "In the prompt box",
    ANYWHERE: lambda: "Anywhere",
    APP: lambda: f"Outside the prompt box ({key('panes')} leaves it, {key('prompt')} returns)",
    INSPECT: lambda: f"While a token is inspected ({key('inspect')}, or a click)",
    RACE: lambda: f"During a race ({key('race')})",
    TOUR: lambda: f"During the tour ({key('tour')})",
    FIND: lambda: f"While text is looked for ({key('find')})",
    SIDE_BAR: lambda: f"In the side bar ({key('settings')})",
}
# One round of four drafts: what each model says, and what is left.
_ROUND = (
    ("the drafter guesses", (("pending", "the"), ("pending", "theory"), ("pending", "of"), ("pending", "light"))),
    ("the target checks", (("accepted", "the"), ("rejected", "theory"), ("unverified", "of"), ("unverified", "light"))),
    ("the text gets", (("accepted", "the"), ("resampled", "concept"))),
)
_LEAST_WIDTH = 24
_WIDEST = 96
_ROWS_FOR_BLANKS = 28


def help_text(width: int = 80, rows: int = 50, drafters: int = 0) -> Content:
    """The whole help as lines of at most `width` cells; what does not fit goes on under its own column.

    Of strategies with further drafters there are the keys only where so many `drafters` are loaded.
    Idea, letters and fates stand close together where `rows` are few: they are the first page of 80×24.
    """
    lines = [*_about(width, [Content("")] * (rows >= _ROWS_FOR_BLANKS)), Content(""), *_round(width), Content("")]
    lines += [_title("Beside a token (view rounds)"), *_table(OF_A_TOKEN.items(), width), Content("")]
    for scope, title in _SCOPES.items():
        keys = [(" ".join(key_names(c)), c.help) for c in commands_with(drafters) if c.scope == scope and keys_of(c)]
        lines += [_title(title()), *_table(keys, width), Content("")]
    lines.append(_title(f"Settings: {key('commands')}, then a name and a value"))
    settings = [
        (field.metadata.get("palette", flag_of(name)), f"{field.metadata['help']}: {field.metadata['kind'].allowed}")
        for name, field in FIELDS.items()
    ]
    own = 'Own keys: a line id = "key" each below [keymap] in the config file'
    lines += [*_table(settings, width), Content(""), *map(_title, wrap(own, max(_LEAST_WIDTH, width)))]
    return Content("\n").join([*lines, *_table(ids(), width)])


def _about(width: int, between: list[Content]) -> list[Content]:
    """The idea, the letters, the fates."""
    lines = [_title("What this is about"), *(Content("  " + line) for line in wrap(IDEA, max(_LEAST_WIDTH, width - 2)))]
    lines += [*between, _title("Letters"), *_table(FIGURES.items(), width)]
    lines += [*between, _title("What becomes of a token")]
    for fate, (glyph, meaning) in FATES.items():
        lines += _hanging((f"{glyph} {fate}", f"$token-{fate}"), 12, meaning, width)
    return lines


def _round(width: int) -> list[Content]:
    """One round of it."""
    lines = [_title("A round")]
    for who, tokens in _ROUND:
        parts: list[str | tuple[str, str]] = [(f"  {who:<20}" if width >= 64 else f"  {who}:\n    ", "$text-muted")]
        for fate, word in tokens:
            parts += [(f"{FATES[fate][0]} {word}", f"$token-{fate}"), "  "]
        lines += Content.assemble(*parts).split("\n")
    return lines


def _title(text: str) -> Content:
    return Content.styled(text, "bold $text-primary")


def _table(rows: Iterable[tuple[str, str]], width: int) -> list[Content]:
    rows = list(rows)
    left = max(len(word) for word, _ in rows)
    return [line for word, text in rows for line in _hanging((word, "bold"), left, text, width)]


def _hanging(word: tuple[str, str], left: int, text: str, width: int) -> list[Content]:
    """A word in a column of `left` cells, and its text beside it."""
    first, *others = wrap(text, max(_LEAST_WIDTH, width - left - 4)) or [""]
    head = Content.assemble("  ", (word[0].ljust(left), word[1]), "  ", first)
    return [head, *(Content(" " * (left + 4) + line) for line in others)]


class HelpText(Static):
    """The help in the width there is."""

    def __init__(self, drafters: int) -> None:
        super().__init__(markup=False)
        self._drafters = drafters

    def on_resize(self, event: events.Resize) -> None:
        self.update(help_text(min(event.size.width, _WIDEST), self.app.size.height, self._drafters))


class HelpScreen(Dialog[None]):
    """Scrolls with the arrow keys; escape, q, h, ? or f1 closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,h,question_mark", "close", show=False)]

    def __init__(self, drafters: int = 0) -> None:
        super().__init__()
        self._drafters = drafters

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as box:
            box.border_title = "Help"
            box.border_subtitle = "↓ keys and settings · escape closes"
            yield HelpText(self._drafters)  # has its lines as soon as its width is known
