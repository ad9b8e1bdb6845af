"""A drafter of another tokenizer beside a target: its own ids of the same text, round after round.

What its context holds is a function of the target's ids alone, built up token by token, with what is needed to go back
behind each of them. So it stays aligned over any rounds, whatever was drafted and refused in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from specdec_tui.backends import in_time
from specdec_tui.backends.model import CausalModel, ModelContext, longest_text
from specdec_tui.backends.utf8 import whole_and_rest
from specdec_tui.decoding.drafters import DraftSetup
from specdec_tui.decoding.prompt import Stopped, read_prompt

if TYPE_CHECKING:
    from specdec_tui.backends.translation import Translation

_PENDING = 64  # bytes of a text that are read again with what follows, so that its words become the tokens of words


@dataclass(frozen=True, slots=True)
class _Mark:
    """Where the drafter's text stands behind a token: ids that are settled, bytes behind them, what is before those."""

    settled: int
    pending: bytes
    last: str


class Alignment:
    """The drafter's ids of a text of the target's.

    With `by_token` a token of both vocabularies stays one, and others are read by the drafter's tokenizer where a
    character is complete. Without, it reads the whole text as it would anyway, some words again with what follows.
    """

    def __init__(self, translation: Translation, by_token: bool) -> None:
        self.translation = translation
        self._by_token = by_token
        self._prompt = 0
        self._new: list[int] = []
        self._ids: list[int] = []
        self._marks: list[_Mark] = []

    def start(self, prompt: Sequence[int], cancelled: Callable[[], bool]) -> list[int]:
        """The drafter's ids of a prompt."""
        self._prompt, self._new = len(prompt), []
        self._ids, rest = self.translation.prompt(prompt, cancelled)
        text = self.translation.target.text(prompt[-8:])
        self._marks = [_Mark(len(self._ids), rest, _last(text, "\n"))]
        return list(self._ids)

    def cut(self, length: int) -> None:
        """Forget what follows the first `length` tokens of the target's text."""
        kept = max(0, length - self._prompt)
        if kept < len(self._new):
            del self._new[kept:], self._marks[kept + 1 :]
            del self._ids[self._marks[-1].settled :]

    def behind(self, text: Sequence[int]) -> list[int] | None:
        """The drafter's ids for the target's whole text; None within a character that the drafter cannot write."""
        new = text[self._prompt :]
        if self._new != new[: len(self._new)]:
            same = next(at for at, token in enumerate(self._new) if at >= len(new) or token != new[at])
            self.cut(self._prompt + same)
        for token in new[len(self._new) :]:
            self._take(token)
        whole, rest = whole_and_rest(self._marks[-1].pending)
        spelled = self.translation.drafter.exactly(rest)
        if spelled is None:
            return None
        return [*self._ids, *self.translation.drafter.ids(whole, self._marks[-1].last), *spelled]

    def _take(self, token: int) -> None:
        mark, drafter = self._marks[-1], self.translation.drafter
        settled: Sequence[int]
        text = self.translation.target.bytes_of.get(token, b"")
        own = self.translation.to_drafter.get(token)
        if self._by_token and not mark.pending and own is not None:
            settled, left = (own,), b""
        else:
            done, left = self._settled(mark.pending + text)
            settled = drafter.ids(done, mark.last) if done else ()
            text = done
        self._ids += settled
        self._new.append(token)
        self._marks.append(_Mark(len(self._ids), left, _last(text, mark.last)))

    def _settled(self, data: bytes) -> tuple[bytes, bytes]:
        """What of the pending bytes is read for good, and what stays pending."""
        if self._by_token:
            return whole_and_rest(data)
        if len(data) <= _PENDING:
            return b"", data
        half = data[: _PENDING // 2]
        cut = max(half.rfind(b" "), half.rfind(b"\n"))
        cut = cut if cut > 0 else len(whole_and_rest(half)[0])
        return data[:cut], data[cut:]


def _last(text: bytes, otherwise: str) -> str:
    """The last character of a text."""
    return text[-4:].decode(errors="ignore")[-1:] or otherwise


class Follower:
    """A drafter's model that is fed its own ids of the target's text, as far as it does not hold them yet."""

    def __init__(self, model: CausalModel, translation: Translation, by_token: bool, told: str = "") -> None:
        self.model, self._told = model, told
        self.alignment = Alignment(translation, by_token)
        self._full = ""
        self._context: ModelContext | None = None
        self._held: list[int] = []
        self._limit: int | None = None

    @property
    def notice(self) -> str:
        return "; ".join(filter(None, (self._told, self._full)))

    def start(self, ids: Sequence[int], setup: DraftSetup) -> None:
        try:
            own = self.alignment.start(ids, setup.cancelled)
        except in_time.Stopped:
            raise Stopped from None
        self._full, self._held = "", []
        self._limit = limit = longest_text(self.model, len(own))
        more = setup.capacity - len(ids)
        # Its tokens may be shorter: a context grows where the hint was too small.
        capacity = len(own) + 2 * more if limit is None else min(len(own) + 2 * more, limit)
        self._context = self.model.open(use_cache=setup.use_cache, capacity=capacity)
        own = [token if token < self.model.vocab_size else 0 for token in own]
        if limit is None or len(own) <= limit:
            read_prompt(self.model, self._context, own, setup.use_cache, setup.cancelled)
            self._held = own

    def logits(self, ids: list[int]) -> torch.Tensor | None:
        """The model's logits [V'] behind its own `ids`; None, and a notice, where its context has no room for them."""
        assert self._context is not None, "start comes first"
        if self._limit is not None and len(ids) > self._limit:
            limit = self.model.context_length
            self._full = f"the drafter's context of {limit} tokens is full: no more drafts from it"
            return None
        size = self.model.vocab_size
        ids = [token if token < size else 0 for token in ids]
        same = min(len(ids) - 1, len(self._held))  # the last is always fed: its logits are what is asked for
        while self._held[:same] != ids[:same]:
            same -= 1
        if same < len(self._held):
            self._context.rewind(same)
            self._held = self._held[:same]
        row = self._context.extend(ids[same:], keep=1)[0]
        self._held = ids
        return row
