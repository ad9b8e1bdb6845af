"""What keys do with text: copy an answer, find something in it, take up an earlier prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from textual.notifications import SeverityLevel

from specdec_tui.data_folder import data_folder
from specdec_tui.doors.characters import copyable
from specdec_tui.tui.lines.line_view import LineView
from specdec_tui.tui.prompt.history import PromptHistory

if TYPE_CHECKING:
    from specdec_tui.tui.commands.dialog import Answer, Dialog
    from specdec_tui.tui.panes.pane import StrategyPane

HISTORY_FILE = "prompts.jsonl"


class TextScreen(Protocol):
    """What work on texts asks of the screen."""

    @property
    def current_pane(self) -> StrategyPane:
        """The pane that keys act on."""

    @property
    def dialog_is_open(self) -> bool:
        """Whether something lies on top of the panes."""

    def say(self, text: str, severity: SeverityLevel = "information", timeout: float = 5) -> None:
        """Tell a person."""

    def copy_to_clipboard(self, text: str) -> None:
        """Put a text where other programs find it."""

    def ask(self, dialog: Dialog[Answer], answered: Callable[[Answer], None]) -> None:
        """Open a dialog; `answered` is called unless it is closed without an answer."""

    def take_up(self, prompt: str) -> None:
        """Put an earlier prompt into the box, to be edited."""


class Texts:
    """The texts a person has before them. With `keep` false no prompt is written down."""

    def __init__(self, screen: TextScreen, keep: bool) -> None:
        self._screen = screen
        self.prompts = PromptHistory(
            data_folder() / HISTORY_FILE,
            keep=keep,
            tell=lambda message: screen.say(message, "warning", timeout=10),
        )

    def copy(self) -> None:
        """What is selected in the current pane goes to the clipboard, else its whole answer."""
        pane = self._screen.current_pane
        selected = [view.get_selection(view.text_selection) for view in pane.query(LineView) if view.text_selection]
        text = "\n".join(part[0] for part in selected if part)
        what = "selected in" if text else "of"
        text = text or copyable(pane.answer)
        if not text:
            self._screen.say(f"{pane.strategy} has no text to copy yet")
            return
        self._screen.copy_to_clipboard(text)
        count = "1 character" if len(text) == 1 else f"{len(text):,} characters"
        self._screen.say(f"Copied {count} {what} {pane.strategy}")

    def find(self) -> None:
        """Find text in the current pane."""
        self._screen.current_pane.find()

    def earlier_prompts(self) -> None:
        """List the earlier prompts; the chosen one goes into the box and does not run."""
        if self._screen.dialog_is_open:
            return
        self.prompts.reload()
        if prompts := self.prompts.entries:
            from specdec_tui.tui.screens.earlier_prompts import EarlierPrompts  # not at a start

            self._screen.ask(EarlierPrompts(prompts), self._screen.take_up)
        else:
            self._screen.say("No prompt has run yet")

    def keep_unsent(self, text: str) -> str:
        """The app is left: a text that was not sent becomes an earlier prompt. Why it does not; else empty."""
        if not text.strip() or text in self.prompts.entries:
            return ""
        self.prompts.remember(text)
        reason = self.prompts.why_not_kept(text)
        return f"what was typed and not sent: {reason}" if reason else ""
