"""What keys do with text: copy an answer, find something in it, take up an earlier prompt."""

from __future__ import annotations

from typing import Any

from specdec_tui.data_folder import data_folder
from specdec_tui.tui.app.inspecting_app import InspectingApp
from specdec_tui.tui.lines.line_view import LineView
from specdec_tui.tui.lines.sanitize import copyable
from specdec_tui.tui.prompt.box import PromptBox
from specdec_tui.tui.prompt.history import PromptHistory
from specdec_tui.tui.screens.earlier_prompts import EarlierPrompts

HISTORY_FILE = "prompts.jsonl"


class TextActions(InspectingApp):
    """The part of the app that works on texts a person has before them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.prompt_history = PromptHistory(
            data_folder() / HISTORY_FILE,
            keep=self.settings.record,
            tell=lambda message: self.say(message, "warning", timeout=10),
        )

    def action_copy(self) -> None:
        """What is selected in the current pane goes to the clipboard, else its whole answer."""
        pane = self.grid.current
        selected = [view.get_selection(view.text_selection) for view in pane.query(LineView) if view.text_selection]
        text = "\n".join(part[0] for part in selected if part)
        what = "selected in" if text else "of"
        text = text or copyable(pane.answer)
        if not text:
            self.say(f"{pane.strategy} has no text to copy yet")
            return
        self.copy_to_clipboard(text)
        count = "1 character" if len(text) == 1 else f"{len(text):,} characters"
        self.say(f"Copied {count} {what} {pane.strategy}")

    def action_find(self) -> None:
        """Find text in the current pane."""
        self.grid.current.find()

    def action_earlier_prompts(self) -> None:
        """List the earlier prompts; the chosen one goes into the box and does not run."""

        def chosen(prompt: str | None) -> None:
            if prompt is not None:
                self.prompt_box.take_up(prompt)
                self.prompt_box.focus()

        if len(self.screen_stack) > 1:
            return
        self.prompt_history.reload()
        if prompts := self.prompt_history.entries:
            self.push_screen(EarlierPrompts(prompts), chosen)
        else:
            self.say("No prompt has run yet")

    def on_prompt_box_earlier_wanted(self, message: PromptBox.EarlierWanted) -> None:
        self.action_earlier_prompts()
