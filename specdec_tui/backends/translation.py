"""Between two tokenizers: which tokens of one are tokens of the other, and how the text of one is read by the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from specdec_tui.backends.spelling import Spelling
from specdec_tui.backends.utf8 import before_the_last_word, whole_and_rest

_LOOKED_AT = 24  # bytes of a text in which a tokenizer is asked whether it would merge across an end
_TRIED = 256  # tokens of each side that are tried on the other


@dataclass(frozen=True, eq=False)
class Translation:
    """`to_drafter`: the drafter's id of each of the target's that stands for the same bytes; one to one.

    `for_encoder`: the drafter's encoder reads
    the prompt, with whatever its tokenizer puts around a text.
    """

    target: Spelling
    drafter: Spelling
    to_drafter: dict[int, int]
    for_encoder: bool = False

    def place_in(self, width: int) -> torch.Tensor:
        """Int64 [width]: where the drafter's logits hold that of each of the target's ids; -1 for ids it lacks."""
        places = torch.full((width,), -1, dtype=torch.long)
        known = {token: own for token, own in self.to_drafter.items() if token < width}
        places[list(known)] = torch.tensor(list(known.values()), dtype=torch.long)
        return places

    def ordinary(self, width: int) -> torch.Tensor:
        """Bool [width]: the target's ids that stand for text."""
        mask = torch.zeros(width, dtype=torch.bool)
        mask[[token for token in self.target.bytes_of if token < width]] = True
        return mask

    def prompt(self, ids: Sequence[int], cancelled: Callable[[], bool]) -> tuple[list[int], bytes]:
        """The drafter's ids for the text of a prompt, and the bytes of a last character that is not complete.

        Special tokens never cross: it begins with what the drafter's own tokenizer begins a text with.
        """
        whole, rest = whole_and_rest(self.target.text(ids))
        own = list(self.drafter.before) + list(self.drafter.ids_in_time(whole, cancelled))
        return own + list(self.drafter.behind) * self.for_encoder or [0], rest

    def written(self, text: bytes, new: bytes, ended: bool) -> list[int] | None:
        """The target's ids for `new` behind `text`, as far as what may still be written changes none of them.

        None where its tokenizer would not end a token where `text` ends: then it says nothing of what comes next.
        `ended`: nothing more will be written.
        """
        whole, rest = whole_and_rest(new)
        before = text[-_LOOKED_AT:]
        while before and before[0] & 0xC0 == 0x80:  # begins within a character
            before = before[1:]
        last = before.decode(errors="replace")[-1:] or "\n"
        ids = self.target.ids(whole, last)
        if before and whole and self.target.ids(before + whole) != self.target.ids(before) + ids:
            return None
        if ended and not rest:
            return list(ids)
        sure, length = [], before_the_last_word(whole)
        for token in islice(ids, max(0, len(ids) - 1)):
            length -= len(self.target.bytes_of.get(token, b""))
            if length < 0:
                break
            sure.append(token)
        return sure


def translate(target: Spelling, drafter: Spelling, for_encoder: bool = False) -> Translation:
    shared = {token: drafter.id_of[text] for text, token in target.id_of.items() if text in drafter.id_of}
    return Translation(target, drafter, dict(sorted(shared.items())), for_encoder)


def can_write(one: Spelling, other: Spelling) -> bool:
    """Whether a tokenizer can write any of the other's tokens: of some from all over its vocabulary."""
    texts = [text for text in other.id_of if text.strip() and not whole_and_rest(text)[1]]
    for text in texts[:: max(1, len(texts) // _TRIED)]:
        ids = one.ids(text)
        if ids and one.spells(ids, text):
            return True
    return False
