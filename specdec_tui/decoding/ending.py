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

    def behind(self, prompt: int) -> Ending:
        """The same for texts whose first tokens, so many, are read apart: nothing that is written completes them."""
        completes = self.completes
        return self if completes is nowhere else Ending(self.ids, lambda text: completes(text[prompt:]))
