"""What recordings ask of the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from textual.message import Message
from textual.notifications import SeverityLevel

from specdec_tui.tui.app.notices import Holds, always

if TYPE_CHECKING:
    from specdec_tui.traces.format import Trace
    from specdec_tui.tui.app.runs import Run
    from specdec_tui.tui.commands.dialog import Answer, Dialog


class RecordingScreen(Protocol):
    """What recordings ask of the screen."""

    def say(
        self, text: str, severity: SeverityLevel = "information", timeout: float = 5, holds: Holds = always
    ) -> None:
        """Tell a person."""

    def post_message(self, message: Message) -> bool:
        """Take any of the messages of recordings from any thread."""

    def ask(
        self, dialog: Dialog[Answer], answered: Callable[[Answer], None], left: Callable[[], None] = lambda: None
    ) -> None:
        """Open a dialog; `answered` is called with its answer, `left` where it is closed without one."""

    def show_trace(self, trace: Trace, race: bool, run: Run | None = None) -> None:
        """Fill the panes with a run of the past, and race it. `run`: it is that one, made here."""

    def photograph(self) -> str:
        """The panes as SVG; empty where something lies on top of them."""

    def settle(self) -> None:
        """Something here is not as it was."""
