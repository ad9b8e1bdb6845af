"""One prompt through the enabled strategies: order, seed, warm-up, schedule, cancel, history, lossless check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from specdec_tui.backends.pair import PairInfo, ReportProgress
from specdec_tui.decoding.records import Event
from specdec_tui.settings import ModelChoice, Settings


class Engine(Protocol):
    """What the app and the benchmark drive. Not thread-safe: one call at a time, from one thread.

    Importing this module costs no torch; `load` is what imports it.
    """

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        """Load a pair and make it the current one. LoadError leaves the previous pair in place."""
        ...

    def run(self, prompt: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
        """Run every enabled strategy on a prompt; the last event is `Finished`.

        `cancelled` is asked between rounds. With chat on, the prompt and the target's answer
        join the history (when it was not cancelled before any answer).
        """
        ...

    def new_chat(self) -> None:
        """Forget the conversation."""
        ...
