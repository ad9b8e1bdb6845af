"""Two tiny vocabularies of which only some tokens are the same, in other places."""

from __future__ import annotations

from collections.abc import Sequence

from specdec_tui.backends.spelling import Spelling
from specdec_tui.backends.translation import Translation, translate


def spelling(tokens: Sequence[str]) -> Spelling:
    """A vocabulary of ASCII tokens, read longest first."""

    def read(text: str) -> list[int]:
        found: list[int] = []
        while text:
            token = max((token for token in tokens if text.startswith(token)), key=len)
            found.append(tokens.index(token))
            text = text[len(token) :]
        return found

    return Spelling({index: token.encode() for index, token in enumerate(tokens)}, read)


def tiny_translation() -> Translation:
    """The target's 0, 1 and 3 are the drafter's 2, 3 and 0; its 2 the drafter can only spell."""
    return translate(spelling(["a", "b", "ab", " c"]), spelling([" c", "bb", "a", "b", " "]))
