"""What every screen on top of the app shares: escape closes it, ctrl+c still stops the run."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer | None]):
    """A modal screen that answers with a value, or None when closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close"),
        Binding("ctrl+c", "app.stop_or_quit", show=False),
    ]

    def action_close(self) -> None:
        self.dismiss(None)
