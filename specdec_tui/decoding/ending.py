"""Where a text ends: at an end token, or at the token that completes a stop string."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Completes = Callable[[Sequence[int]], bool]
"""Whether the last of these tokens completes a stop string."""


def nowhere(ids: Sequence[int]) -> bool:
    """For a text that no string ends."""
    return False


@dataclass(frozen=True, slots=True)
class Ending:
    """Ends at `ids`, and where `completes` holds. A draft behind an end could never be part of the text."""

    ids: frozenset[int] = frozenset()
    completes: Completes = nowhere

    def at(self, text: Sequence[int]) -> bool:
        """Whether a text, whose last token is a new one, ends there."""
        return text[-1] in self.ids or self.completes(text)

    @property
    def needs_text(self) -> bool:
        """Whether ids alone do not tell."""
        return self.completes is not nowhere
