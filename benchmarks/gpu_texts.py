"""Texts that passes go on from: how far logits are from float32, and which ids a way writes greedily."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from gpu_shapes import widened
from torch import Tensor

from specdec_tui.backends.cache import RewindableCache
from specdec_tui.backends.causal_lm import OpenStatic, TransformersModel
from specdec_tui.backends.model import StaticSequence, bucket
from specdec_tui.backends.static_model import PREFILL_CHUNK
from specdec_tui.decoding.device_run import SPARE

ROOM = 256
"""Tokens that a run would write behind the text."""
ROWS = 64
"""Tokens behind the text whose logits are compared."""
WRITTEN = 32
"""Tokens that are written greedily."""
NEAR = 6.0
"""Distances of transformers' forward pass that rounding may set the scores of two ids apart by."""

Prefill = Callable[[Sequence[int], int, RewindableCache], Tensor]


@dataclass(frozen=True, slots=True)
class Ids:
    """Of the ids that a way wrote: first choices of transformers' forward pass, near-ties, and neither."""

    same: int
    near: int
    unlike: int

    def __str__(self) -> str:
        return f"{self.same} + {self.near} near" + f" + {self.unlike} UNLIKE" * bool(self.unlike)


class Text:
    """Some tokens held, and ROWS behind them.

    `exact` [ROWS, vocab_size]: their logits in float32, by transformers' layers. `theirs`: the root mean square
    distance from these of transformers' forward pass in the dtype of the weights, once `judge` was called.
    """

    def __init__(self, model: TransformersModel, held: int, forward: Prefill | None = None) -> None:
        """`forward` reads the tokens held in float32 in the place of the model's own where it is given."""
        self.held, self.capacity, self.theirs = held, bucket(held + ROOM + SPARE), 0.0
        ids = [(37 * i + 5) % model.vocab_size for i in range(held + ROWS)]
        self.ids = torch.tensor(ids, device=model.device)
        self.begin = torch.tensor([held], device=model.device)
        with widened(model.model):
            self.exact = self._read(model, forward or model.forward, ids[held:])

    def _read(self, model: TransformersModel, forward: Prefill, behind: list[int]) -> Tensor:
        """Logits of a forward pass over some ids behind the text."""
        cache, held = RewindableCache(self.held + len(behind)), self.ids[: self.held].tolist()
        for begin in range(0, self.held, PREFILL_CHUNK):
            forward(held[begin : begin + PREFILL_CHUNK], 1, cache)
        return model.forward(behind, len(behind), cache)

    def judge(self, model: TransformersModel, forward: Prefill) -> None:
        self.theirs = self._off(self._read(model, forward, self.ids[self.held :].tolist()))

    def _off(self, logits: Tensor) -> float:
        return float((logits - self.exact).square().mean().sqrt())

    def open(self, open_static: OpenStatic) -> StaticSequence:
        sequence = open_static(self.capacity)
        sequence.prefill(self.ids[: self.held])
        return sequence

    def off(self, sequence: StaticSequence, most: int) -> float:
        """The distance of a sequence's passes over blocks of `most` tokens, one behind the other."""
        rows = [
            sequence.extend(self.ids[begin : begin + most], self.begin + begin - self.held, most)
            for begin in range(self.held, self.held + ROWS - most + 1, most)
        ]
        found = torch.cat(rows)
        return float((found - self.exact[: len(found)]).square().mean().sqrt())

    def written(self, sequence: StaticSequence) -> list[int]:
        """Greedily, behind the text's first token of those not held."""
        found = self.ids[self.held : self.held + 1]
        for place in range(WRITTEN):
            logits = sequence.extend(found[-1:], self.begin + place, 1)
            found = torch.cat([found, logits.argmax(1)])
        return found[1:].tolist()

    def compared(self, model: TransformersModel, forward: Prefill, ids: Sequence[int]) -> Ids:
        """What was written beside transformers' forward pass over the same text."""
        first = int(self.ids[self.held])
        logits = self._read(model, forward, [first, *ids[:-1]])
        own = logits.gather(1, torch.tensor(ids, device=logits.device)[:, None])[:, 0]
        gaps = logits.amax(1) - own
        same = logits.argmax(1).tolist()
        equal = [one == other for one, other in zip(ids, same, strict=True)]
        near = [gap <= NEAR * self.theirs for gap in gaps.tolist()]
        ties = sum(close and not alike for close, alike in zip(near, equal, strict=True))
        return Ids(sum(equal), ties, len(ids) - sum(equal) - ties)
