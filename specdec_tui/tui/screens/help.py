"""f1: keys, commands and settings, written from the same tables as everything else."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from specdec_tui.settings import FIELDS, flag_of
from specdec_tui.tui.commands.dialog import Dialog
from specdec_tui.tui.commands.table import ANYWHERE, APP, COMMANDS, FIND, INSPECT, PROMPT, SIDE_BAR, key_names

_SCOPES = {
    PROMPT: "In the prompt box",
    ANYWHERE: "Anywhere",
    APP: "Outside the prompt box (escape leaves it, / goes back)",
    INSPECT: "While a token is inspected (i, or a click on a token)",
    FIND: "While text is looked for (f)",
    SIDE_BAR: "In the side bar (s)",
}


def help_text() -> Content:
    """The whole help as text."""
    lines: list[Content] = []
    for scope, title in _SCOPES.items():
        lines += [Content.styled(title, "bold $text-primary")]
        for command in COMMANDS:
            if command.scope == scope and command.keys:
                lines.append(_line(" ".join(key_names(command)), 10, command.help))
        lines.append(Content(""))
    lines += [Content.styled("Settings: ctrl+p, then a name and a value", "bold $text-primary")]
    for name, field in FIELDS.items():
        word = field.metadata.get("palette", flag_of(name))
        lines.append(_line(word, 18, f"{field.metadata['help']}: {field.metadata['kind'].allowed}"))
    return Content("\n").join(lines)


def _line(left: str, width: int, right: str) -> Content:
    return Content.assemble("  ", (left.ljust(width), "bold"), " ", right)


class HelpScreen(Dialog[None]):
    """Scrolls with the arrow keys; escape, q, h, ? or f1 closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,h,question_mark", "close", show=False)]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help") as box:
            box.border_title = "Help"
            box.border_subtitle = "escape closes"
            yield Static(help_text())
