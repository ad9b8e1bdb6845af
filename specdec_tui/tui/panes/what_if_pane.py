"""The pane of a what-if: the text that it was given, quietly, and behind it what it wrote itself."""

from __future__ import annotations

from textual.content import Content

from specdec_tui.decoding.records import CHILD, Origin
from specdec_tui.doors.characters import visible
from specdec_tui.tui.panes.pane import StrategyPane

MOST_WHAT_IFS = 3
"""Panes of what-ifs on the screen; where another one comes, the oldest goes. Its run stays in the trace."""


class WhatIfPane(StrategyPane):
    """Stands ready, hidden, until a what-if needs it; then it is of that one's `name`."""

    _title = Content("")

    def __init__(self) -> None:
        super().__init__("", "")

    def become(self, name: str, origin: Origin, token: str, kept: str) -> None:
        """Be the pane of a what-if whose text begins with `kept`; `token` is what it has in the parent's place."""
        self.strategy, self.number = name, CHILD + name.partition(CHILD)[2]
        other = [] if origin.token is None else [token]
        other += [f"{field.replace('_', '-')} {value}" for field, value in origin.changes]
        told = f" what-if of {origin.parent} at {origin.position + 1}: {', '.join(other)}"
        self._title = Content.assemble((str(self.number), "bold"), visible(told))
        self.name_drafter("")
        self.token_view.tell_rounds_apart(not self.is_plain)
        self.token_view.transcript.kept = kept

    def name_drafter(self, name: str) -> None:
        """Its parent's pane has that."""
        self.border_title = self._title
