"""The prompt: several lines, `enter` runs, `up` and `down` at its edges walk through the history."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType
from textual.document._document_navigator import DocumentNavigator
from textual.document._wrapped_document import WrappedDocument
from textual.events import Key
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea

from specdec_tui.tui.commands.command import PROMPT, keys_of
from specdec_tui.tui.commands.table import COMMANDS, bindings, key
from specdec_tui.tui.prompt.document import PromptDocument
from specdec_tui.tui.prompt.history import PromptHistory

_IN_ORDER = ("run", "new line", "earlier prompts", "panes")
"""Commands whose keys must wait for what was typed before them."""


def placeholder(is_new: bool = False) -> str:
    """What the empty box says where a prompt would run; where nothing was run yet (`is_new`), how to the tour too."""
    if is_new:
        return f"Ask something; {key('run')} runs it · new here? {key('panes')}, then {key('tour')}: a tour"
    return f"Ask something; {key('run')} runs it with every strategy"


class PromptBox(TextArea):
    """A text box that keeps every pasted line (an `Input` would keep the first only)."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(PROMPT)]

    class Submitted(Message):
        """Enter was pressed; the text stays in the box until `accept` is called."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class EarlierWanted(Message):
        """The list of earlier prompts was asked for."""

    def __init__(self, history: PromptHistory | None = None) -> None:
        super().__init__(
            placeholder=placeholder(),
            compact=False,
            tab_behavior="focus",
            soft_wrap=True,
            highlight_cursor_line=False,
            id="prompt",
        )
        self.earlier_prompts = history or PromptHistory()
        self.is_used = False
        """Whether something was typed into it."""
        # What a walk goes through, as it was when the walk began: other apps may add to the history.
        self._earlier: list[str] = []
        self._place = 0
        self._unsent = ""

    def render_line(self, y: int) -> Strip:
        """Without a column to write in, wrapping the placeholder would fail (Textual 8.2.8)."""
        return super().render_line(y) if self.content_size.width > 0 else Strip.blank(0)

    def _set_document(self, text: str, language: str | None) -> None:
        """Every text comes in here. As Textual's own, which makes a document of its own (8.2.8)."""
        self._highlight_query = None
        self.document = PromptDocument(text)
        self.wrapped_document = WrappedDocument(self.document, tab_width=self.indent_width)
        self.navigator = DocumentNavigator(self.wrapped_document)
        self._build_highlight_map()
        self.move_cursor((0, 0))
        self._rewrap_and_refresh_virtual_size()

    def accept(self, text: str) -> None:
        """A submitted text is on its way: remember it and keep what was typed behind it since."""
        self.remember(text)
        self._earlier, self._place = [], 0
        self.show(self.text.removeprefix(text))

    def remember(self, text: str) -> None:
        """Make `text` the newest entry of the history; a walk through it goes on undisturbed."""
        self.earlier_prompts.remember(text)

    def give_back(self, text: str) -> None:
        """Return a prompt that could not run, in front of what was typed since."""
        self.show(text if not self.text.strip() else f"{text}\n{self.text}")

    def take_up(self, text: str) -> None:
        """Put an earlier prompt into the box; `down` at its end brings back what was there."""
        self._begin_walk()
        if text in self._earlier:
            self._place = self._earlier.index(text)
        self.show(text)

    def show(self, text: str) -> None:
        self.text = text
        self.move_cursor(self.document.end)

    def check_consume_key(self, key: str, character: str | None = None) -> bool:
        # Textual does not know which character these names stand for, and the footer would show them.
        return key in ("slash", "plus", "minus", "equals_sign") or super().check_consume_key(key, character)

    async def _on_key(self, event: Key) -> None:
        # Here and not in a binding: a binding acts outside the order of the keys, and a fast
        # "go" + enter would submit a text that lacks its end.
        own = (command for command in COMMANDS if command.scope == PROMPT and command.name in _IN_ORDER)
        actions = {key: getattr(self, f"action_{command.action}") for command in own for key in keys_of(command)}
        if (action := actions.get(event.key)) is None:
            self.is_used = True
            await super()._on_key(event)
        else:
            event.stop()
            event.prevent_default()
            action()

    def action_submit(self) -> None:
        self.post_message(self.Submitted(self.text))

    def action_newline(self) -> None:
        self.insert("\n")

    def action_earlier_prompts(self) -> None:
        self.post_message(self.EarlierWanted())

    def action_leave_prompt(self) -> None:
        self.screen.set_focus(None)

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and self._on_edge(first=True) and self._walk(-1):
            return
        super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if not select and self._on_edge(first=False) and self._walk(1):
            return
        super().action_cursor_down(select)

    def _on_edge(self, first: bool) -> bool:
        """Whether the cursor is on the first (last) line as wrapped on the screen."""
        row = self.wrapped_document.location_to_offset(self.cursor_location).y
        return row == 0 if first else row >= self.wrapped_document.height - 1

    def _walk(self, step: int) -> bool:
        """Show the next older (-1) or newer (1) prompt; False when there is none."""
        if self._place == len(self._earlier):
            if step > 0:
                return False
            self._begin_walk()
        if not 0 <= self._place + step <= len(self._earlier):
            return False
        if self._place < len(self._earlier):
            self._earlier[self._place] = self.text  # an edit is kept for as long as the walk
        self._place += step
        at_end = self._place == len(self._earlier)
        self.show(self._unsent if at_end else self._earlier[self._place])
        return True

    def _begin_walk(self) -> None:
        if self._place == len(self._earlier):
            self._unsent = self.text
            self._earlier = self.earlier_prompts.entries
            self._place = len(self._earlier)
