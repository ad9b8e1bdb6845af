"""Prompt look-up: copy what followed the most recent occurrence of the last n..1 tokens.

The idea is Saxena's prompt look-up decoding (2023). Here an index finds the occurrence in
constant time, and the copy may run into its own drafts, so that a repeating text is drafted on
at full length.
"""

from __future__ import annotations

from collections.abc import Sequence

from specdec_tui.decoding.drafters import DraftSetup, Proposal
from specdec_tui.decoding.rows import Scores


class LookupIndex:
    """Where each sequence of 1..n tokens last ended in a text that grows."""

    def __init__(self, order: int) -> None:
        self._order = order
        self._next: dict[tuple[int, ...], int] = {}
        self._seen = 0

    def extend(self, text: Sequence[int]) -> None:
        """Take in the part of `text` that is new since the last call."""
        for index in range(max(self._seen, 1), len(text)):
            for length in range(1, min(self._order, index) + 1):
                self._next[tuple(text[index - length : index])] = index
        self._seen = len(text)

    def find(self, text: Sequence[int]) -> int | None:
        """Index of what followed the last earlier occurrence of the longest known ending of `text`."""
        for length in range(min(self._order, len(text)), 0, -1):
            found = self._next.get(tuple(text[-length:]))
            if found is not None:
                return found
        return None


class LookupDrafter:
    """Drafts by copying from the text itself. `order` is the longest ending looked for."""

    notice = ""
    goes_step_by_step = ""

    def __init__(self, order: int) -> None:
        self._order = order
        self._index = LookupIndex(order)

    def start(self, ids: Sequence[int], setup: DraftSetup) -> None:
        self._index = LookupIndex(self._order)
        self._index.extend(ids)

    def propose(self, ids: Sequence[int], most: int, position: int) -> Proposal:
        proposal = Proposal()
        source = self._index.find(ids)
        if source is not None:
            for index in range(source, source + most):
                proposal.add(ids[index] if index < len(ids) else proposal.ids[index - len(ids)], None)
        return proposal

    def settle(self, ids: Sequence[int], kept: int, scores: Scores) -> None:
        self._index.extend(ids)

    def synchronize(self) -> None:
        pass
