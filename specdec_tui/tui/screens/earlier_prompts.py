"""ctrl+r: the earlier prompts, newest first, and a line to search them."""

from __future__ import annotations

from collections.abc import Sequence
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

# A row shows no more than this, and is found by no more.
_LONGEST_ROW = 2000


def fitting(prompts: Sequence[str], words: str) -> list[str]:
    """The prompts that hold every one of `words`, in any case and order: newest first, each once."""
    wanted = words.casefold().split()
    newest_first = dict.fromkeys(reversed(prompts))
    return [prompt for prompt in newest_first if all(word in prompt[:_LONGEST_ROW].casefold() for word in wanted)]


class EarlierPrompts(Dialog[str]):
    """Dismisses with the chosen prompt, or None. `prompts` are oldest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+r", "move('cursor_down')", show=False),
        Binding("up", "move('cursor_up')", show=False),
        Binding("pagedown", "move('page_down')", show=False),
        Binding("pageup", "move('page_up')", show=False),
    ]

    def __init__(self, prompts: Sequence[str]) -> None:
        super().__init__()
        self._prompts = prompts
        self._rows: list[str] = []
        self._words: str | None = None

    def compose(self) -> ComposeResult:
        with Vertical(id="earlier") as box:
            box.border_title = "Earlier prompts"
            box.border_subtitle = "enter takes one up · escape closes"
            yield Input(placeholder="words of the prompt", select_on_focus=False)
            rows = OptionList(markup=False)
            rows.can_focus = False
            yield rows

    def on_mount(self) -> None:
        self._list("")

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
            self.dismiss(self._rows[highlighted])

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._rows[event.option_index])

    def action_move(self, how: str) -> None:
        getattr(self.query_one(OptionList), f"action_{how}")()

    def _list(self, words: str) -> None:
        if words == self._words:
            return
        self._rows, self._words = fitting(self._prompts, words), words
        options = self.query_one(OptionList)
        options.clear_options()
        if self._rows:
            options.add_options([Option(Content(one_row(prompt[:_LONGEST_ROW]))) for prompt in self._rows])
            options.highlighted = 0
        else:
            options.add_option(Option(Content.styled("nothing fits", "italic $text-muted"), disabled=True))
