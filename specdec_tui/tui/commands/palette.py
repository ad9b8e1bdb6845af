"""The command palette: a line to type in and the rows that fit it.

Not Textual's own: its list is gathered by a task that lags behind the typed text, so a fast
`enter` runs a stale first row, and an unknown word runs some row (Textualize/textual #6701).
Here the rows are a function of the text, computed where `enter` is handled: they cannot be stale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from specdec_tui.tui.commands.dialog import Dialog
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.commands.palette_rows import Ask, Refuse, Row


class Palette(Dialog[Row]):
    """Dismisses with the chosen row, or None. `rows_for` maps a text to its rows, best first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move('cursor_down')", show=False),
        Binding("up", "move('cursor_up')", show=False),
        Binding("pagedown", "move('page_down')", show=False),
        Binding("pageup", "move('page_up')", show=False),
        Binding("tab", "complete", show=False, priority=True),
    ]

    def __init__(
        self,
        rows_for: Callable[[str], list[Row]],
        text: str = "",
        placeholder: str = "a command, or a setting and its value: gamma 8",
    ) -> None:
        super().__init__()
        self._placeholder = placeholder
        self._rows_for = rows_for
        self._text = text
        self._rows: list[Row] = []
        self._rows_text: str | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="palette"):
            yield Input(self._text, placeholder=self._placeholder, select_on_focus=False)
            rows = OptionList(id="palette-rows", markup=False)
            rows.can_focus = False
            yield rows

    def on_mount(self) -> None:
        self._list(self._text)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._list(event.value)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self._list(event.value)
        highlighted = self.query_one(OptionList).highlighted
        if self._rows and highlighted is not None:
            self._choose(self._rows[highlighted])
        elif self._rows:
            self.app.notify(f"{self._rows[0].text}: type the whole name, or choose it with ↓", markup=False)
        elif event.value.strip():
            self.app.notify(f"No command or setting fits '{one_row(event.value)}'", severity="warning", markup=False)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._choose(self._rows[event.option_index])

    def action_move(self, how: str) -> None:
        getattr(self.query_one(OptionList), f"action_{how}")()

    def action_complete(self) -> None:
        """Take over the text of the highlighted row, to go on typing."""
        highlighted = self.query_one(OptionList).highlighted
        if highlighted is not None:
            self._write(self._rows[highlighted].text.removesuffix("…").rstrip() + " ")

    def _choose(self, row: Row) -> None:
        match row.does:
            case Ask(text=text):
                self._write(text)
            case Refuse(message=message):
                self.app.notify(one_row(message), severity="error", markup=False)
            case _:
                self.dismiss(row)

    def _write(self, text: str) -> None:
        box = self.query_one(Input)
        box.value = text
        box.cursor_position = len(text)
        self._list(text)

    def _list(self, text: str) -> None:
        if text == self._rows_text:
            return
        self._rows, self._rows_text = self._rows_for(text), text
        options = self.query_one(OptionList)
        options.clear_options()
        if self._rows:
            options.add_options([Option(_prompt(row)) for row in self._rows])
            first = self._rows[0]
            is_meant = not first.by_choice or text.strip().lower() == first.text
            options.highlighted = 0 if is_meant else None
        else:
            options.add_option(Option(Content.styled("nothing fits", "italic $text-muted"), disabled=True))


def _prompt(row: Row) -> Content:
    colour = "$text-error" if isinstance(row.does, Refuse) else "$text-muted"
    text = row.text + (" …" if isinstance(row.does, Ask) else "")
    return Content.assemble((one_row(text), "bold"), "  ", (one_row(row.help), f"not bold {colour}"))
