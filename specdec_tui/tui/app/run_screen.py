"""What loads and runs ask of the screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from textual.notifications import SeverityLevel

from specdec_tui.tui.app.notices import Holds, always

if TYPE_CHECKING:
    from specdec_tui.backends.pair import PairInfo, Progress
    from specdec_tui.decoding.records import Event
    from specdec_tui.settings import Settings
    from specdec_tui.tui.app.runs import Run


class RunScreen(Protocol):
    """What runs ask of the screen."""

    @property
    def settings(self) -> Settings:
        """What the next run will be made with."""

    def say(
        self, text: str, severity: SeverityLevel = "information", timeout: float = 5, holds: Holds = always
    ) -> None:
        """Tell a person."""

    def show_progress(self, progress: Progress | None) -> None:
        """How far a load is, or what is made in the background."""

    def pair_loaded(self, pair: PairInfo) -> None:
        """The models that answer from now on."""

    def run_begins(self, run: Run) -> Callable[[Event], object]:
        """Make room for a run with the present settings. What comes back wants its events, in the engine's thread."""

    def run_goes_on(self, batch: Sequence[Event]) -> None:
        """Show what has happened."""

    def run_breaks(self, error: str) -> Sequence[Event]:
        """The engine failed. The ends of what was still at work, as they are shown."""

    def run_ended(self, run: Run) -> None:
        """Nothing more comes of this run."""

    def chat_is_new(self) -> None:
        """The conversation so far is forgotten."""

    def give_back(self, prompt: str) -> None:
        """A prompt that will not run."""

    def settle(self) -> None:
        """Something here is not as it was."""
