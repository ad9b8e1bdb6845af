"""Controls of generation: changes of logits that depend on the text so far, and of nothing else.

So they are part of the target's distribution, and speculation stays lossless: each row of a verification block is
changed by the text that would precede it, drafts included, exactly as plain decoding would change it, and a drafter
is changed by the same. Definitions and order are those of transformers' `generate`, which is what they are tested
against; presence and frequency penalties, which it lacks, are those of the OpenAI API and of vLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import torch


@dataclass(frozen=True, slots=True)
class Controls:
    """What is asked of a text. The defaults ask for nothing.

    `repetition_penalty`: logits of tokens of the whole text, the prompt included, are divided by it (multiplied, where
    below 0; Keskar et al. 2019, arXiv 1909.05858). `presence_penalty` and `frequency_penalty` are taken from the logits
    of new tokens, once each and once for every time. `no_repeat_ngram`: no n tokens come twice. `biases`: added to the
    logit of the last token of a sequence where the others precede it; minus infinity forbids it, as do `banned` ones,
    which hold against every bias. `end_ids` are forbidden before there are `min_new_tokens`, or `min_length` tokens
    with the prompt's. Behind one token alone `forced_first` follows, and where there are `last_at` new ones, one of
    `forced_last`. `begin`: what stands for the prompt where an encoder reads that, whose tokens then count for
    nothing; None where the text goes on behind it.
    """

    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram: int = 0
    min_new_tokens: int = 0
    min_length: int = 0
    biases: tuple[tuple[tuple[int, ...], float], ...] = ()
    banned: tuple[tuple[int, ...], ...] = ()
    forced_first: int | None = None
    forced_last: tuple[int, ...] = ()
    last_at: int = 0
    end_ids: frozenset[int] = frozenset()
    begin: tuple[int, ...] | None = None

    @property
    def asked(self) -> tuple[str, ...]:
        """Names of the fields that change logits."""
        return _asked(self)

    def apply(self, logits: torch.Tensor, text: Sequence[int], prompt: int) -> torch.Tensor:
        """`logits` [n, V] as they count: row i stands behind all of `text` but its last n-1-i tokens.

        `prompt`: how many tokens of the text are the prompt's. The logits given are left as they are.
        """
        if not self.asked:
            return logits
        if self.begin is not None:
            text, prompt = [*self.begin, *text[prompt:]], len(self.begin)
        logits = logits.clone()
        ids = torch.tensor(text, dtype=torch.long)
        for index, row in enumerate(logits):
            self._change(row, ids[: len(ids) - (len(logits) - 1 - index)], prompt)
        return logits

    def _change(self, row: torch.Tensor, ids: torch.Tensor, prompt: int) -> None:
        for sequence, bias in self.biases:
            if _is_next(sequence, ids, len(row)):
                row[sequence[-1]] += bias
        if self.repetition_penalty != 1.0:
            seen = ids.unique()
            seen = seen[seen < len(row)].to(row.device)
            values = row[seen]
            row[seen] = torch.where(values < 0, values * self.repetition_penalty, values / self.repetition_penalty)
        if self.presence_penalty or self.frequency_penalty:
            new, counts = ids[prompt:].unique(return_counts=True)
            row[new.to(row.device)] -= (self.frequency_penalty * counts + self.presence_penalty).to(row)
        if self.no_repeat_ngram and len(ids) >= self.no_repeat_ngram:
            row[_followers(ids, self.no_repeat_ngram).to(row.device)] = -torch.inf
        for sequence in self.banned:
            if _is_next(sequence, ids, len(row)):
                row[sequence[-1]] = -torch.inf
        if len(ids) - prompt < self.min_new_tokens or len(ids) < self.min_length:
            ends = [token for token in self.end_ids if token < len(row)]
            row[torch.tensor(ends, dtype=torch.long, device=row.device)] = -torch.inf
        forced = [self.forced_first] if len(ids) == 1 and self.forced_first is not None else []
        if len(ids) - prompt == self.last_at:
            forced = [*self.forced_last] or forced
        if forced and max(forced) < len(row):
            row.fill_(-torch.inf)
            row[torch.tensor(forced, device=row.device)] = 0.0


NO_CONTROLS = Controls()


@lru_cache(maxsize=64)
def _asked(controls: Controls) -> tuple[str, ...]:
    names = (field.name for field in fields(controls) if field.name not in ("last_at", "end_ids", "begin"))
    return tuple(name for name in names if getattr(controls, name) != getattr(NO_CONTROLS, name))


def _is_next(sequence: Sequence[int], ids: torch.Tensor, width: int) -> bool:
    """Whether the last token of a sequence would complete it behind `ids`, which, as for `generate`, are as many."""
    before = sequence[:-1]
    if sequence[-1] >= width or (before and len(sequence) > len(ids)):
        return False
    return ids[len(ids) - len(before) :].tolist() == list(before)


def _followers(ids: torch.Tensor, n: int) -> torch.Tensor:
    """The tokens that followed earlier where the last n-1 tokens stood; of n = 1 all."""
    if n == 1:
        return ids
    windows = ids.unfold(0, n, 1)
    return windows[(windows[:, :-1] == ids[len(ids) - n + 1 :]).all(1), -1]
