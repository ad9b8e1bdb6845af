"""Where a stop string ends a text of tokens: at the token that completes it, as `generate` has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdec_tui.backends.byte_fallback import REPLACEMENT, decode

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TOKENS_A_CHARACTER = 4  # at most: one for each byte
_AROUND = 8  # tokens before them, for what a tokenizer does at the beginning of a text


class StopStrings:
    """Whether the last token of a text completes one of `stops`; asked of the last tokens only, however long it is."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stops: Sequence[str]) -> None:
        self._tokenizer, self._stops = tokenizer, tuple(stops)
        self._window = _TOKENS_A_CHARACTER * max(map(len, stops)) + _AROUND

    def __call__(self, ids: Sequence[int]) -> bool:
        tail = list(ids[-self._window :])
        text = decode(self._tokenizer, tail)
        if not any(stop in text for stop in self._stops):
            return False
        known = len(decode(self._tokenizer, tail[:-1]).rstrip(REPLACEMENT)) if len(tail) > 1 else 0
        return any(text.find(stop, max(0, known - len(stop) + 1)) >= 0 for stop in self._stops)
