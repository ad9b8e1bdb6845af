"""A text inside a model whose whole state is keys and values, and one of which nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import torch

from specdec_tui.backends.model import Branches

if TYPE_CHECKING:
    from specdec_tui.backends.cache import RewindableCache
    from specdec_tui.backends.rotations import Forwarding


class CachedContext:
    """A sequence whose keys and values are kept."""

    recomputes = False

    def __init__(self, model: Forwarding, cache: RewindableCache) -> None:
        self._model, self._cache, self._length = model, cache, 0

    @property
    def length(self) -> int:
        return self._length

    def extend(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        length = self._length + len(ids)
        self._model.check_room(length)
        try:
            logits = self._model.forward(ids, keep, self._cache)
        except BaseException:
            # Interrupted or out of memory between two layers: some of them hold the new tokens.
            self._cache.rewind(self._length)
            raise
        self._length = length
        return logits

    def rewind(self, length: int) -> None:
        self._length = min(self._length, length)
        self._cache.rewind(self._length)

    def branches(self) -> Branches | None:
        """See `model.Branching`."""
        model = self._model
        return CachedBranches(model, self._cache, self._length) if isinstance(model, ForwardingRows) else None


class Recomputing(Protocol):
    """What `RecomputedContext` needs of a model."""

    def forward(self, ids: Sequence[int], keep: int) -> torch.Tensor: ...

    def check_room(self, length: int) -> None: ...


@runtime_checkable
class ForwardingRows(Protocol):
    """A model that can read one token of each of several texts in one pass."""

    def forward_rows(self, rows: Sequence[Sequence[int]], keep: int, cache: RewindableCache) -> torch.Tensor: ...

    def check_room(self, length: int) -> None: ...


class CachedBranches:
    """Several texts whose keys and values are kept in the rows of one cache."""

    def __init__(self, model: ForwardingRows, cache: RewindableCache, length: int) -> None:
        self._model, self._cache, self._length = model, cache, length

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        """See `model.Branches`."""
        self._model.check_room(self._length + 1)
        self._cache.select(parents)
        logits = self._model.forward_rows([[token] for token in tokens], 1, self._cache)
        self._length += 1
        return logits[:, 0]


class RecomputedContext:
    """A sequence of which only the ids are kept: every extension computes all of it."""

    recomputes = True

    def __init__(self, model: Recomputing) -> None:
        self._model = model
        self._ids: list[int] = []

    @property
    def length(self) -> int:
        return len(self._ids)

    def extend(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        sequence = [*self._ids, *ids]
        self._model.check_room(len(sequence))
        logits = self._model.forward(sequence, keep)
        self._ids = sequence
        return logits

    def rewind(self, length: int) -> None:
        del self._ids[length:]
