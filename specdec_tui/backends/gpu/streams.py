"""The stream of numbers [tokens, hidden] that goes through the layers of a pass: three ways to norm it.

Products read it by way of a norm, and what attention and MLP make of that, a branch, is added to it, maybe by way of
another. A kernel for each norm costs more than its work (`Apart`), so that its factor comes behind the product that
reads it (`Folded`, `Branched`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specdec_tui.backends.gpu import launches
from specdec_tui.backends.gpu.launches import Branch, Follow, Read, Rules
from specdec_tui.backends.gpu.weights import NONE, Affine, LayerWeights, Weights

FOLDING = (torch.bfloat16, torch.float16)  # where the weights of a norm come before its factor
_LEAST_SHRINK = 2.0**-6  # numbers of float16 that are smaller lose digits


class Stream(Protocol):
    def __init__(self, rules: Rules, weights: Weights, tokens: int) -> None: ...

    @property
    def x(self) -> Tensor:
        """[tokens, hidden], to which a mixture of experts is added."""
        ...

    def begin(self, ids: Tensor, begin: Tensor, table: Tensor) -> None:
        """Embed the ids, rows of a table, for the first layer's norm."""
        ...

    def leave(self) -> list[Tensor]:
        """All of it behind the layers, for another card."""
        ...

    def take(self, left: Sequence[Tensor]) -> None:
        """Go on from what one of another card has left."""
        ...

    def read(self, norm: Affine | None, then: Affine | None, keep: int = 0) -> Read:
        """What one product reads by way of a norm, of the last `keep` tokens (0: of all); `then`: the norm that reads
        the stream after the next branch. None stands for no norm."""
        ...

    def read_both(self, norm: Affine, other: Affine) -> Read:
        """The stream by way of two norms."""
        ...

    def add(self, own: Read, linear: Affine, norm: Affine | None, after: Affine | None) -> None:
        """A product is a branch, with a norm of its own or without; `after`: the norm that reads the stream next, None
        where it is none or another branch comes first. A parallel layer may read it by a second one, its own."""
        ...

    def mixing(self, after: Affine | None) -> Follow | None:
        """A mixture of experts is to be added to `x`: what follows that."""
        ...


def kind_of(weights: Weights) -> type[Stream]:
    """How the stream of a model is normed."""
    family, dtype, layers = weights.decoder.family, weights.embedding.dtype, weights.layers
    matrices = [linear.weight for layer in layers for linear in (layer.qkv, layer.output, layer.gate_up, layer.down)]
    matrices.append(weights.head.weight)
    plain = all(isinstance(matrix, Tensor) for matrix in matrices) and not any(layer.experts for layer in layers)
    centred, behind, short = family.norm == "layer", any(family.norms[1::2]), dtype is torch.float16
    if dtype not in FOLDING or (_twice(weights) and any(layer.gate_up.weight is not NONE for layer in layers)):
        return Apart
    if behind:  # a branch times the weights of its norm may be too large for float16
        known = plain and not centred and not family.parallel and all(family.norms[1::2])
        return Branched if known and not short else Apart
    if short and (not plain or shrink_of(weights) < _LEAST_SHRINK):
        return Apart
    return Folded if plain or not centred else Apart


def shrink_of(weights: Weights) -> float:
    """What keeps the stream times the weights of a norm within float16, in which the stream is: a power of two."""
    if weights.embedding.dtype is not torch.float16:
        return 1.0
    norms = [*(norm for layer in weights.layers for norm in layer.norms[::2] if norm), weights.last_norm]
    offset = weights.decoder.family.norm_offset
    largest = max((norm.weight.float() + offset).abs().max().item() for norm in norms if norm)
    return float(0.5 ** max(0, math.ceil(math.log2(max(1.0, largest)))))


def _embed(
    rules: Rules,
    weights: Weights,
    ids: Tensor,
    begin: Tensor,
    table: Tensor,
    x: Tensor,
    follow: Follow | None = None,
    sums: Tensor | None = None,
    branch: tuple[Tensor, Tensor] | None = None,
) -> None:
    decoder = weights.decoder
    places = weights.places, decoder.family.position_offset
    launches.embed(rules, ids, begin, table, places, x, decoder.embedding_scale, follow, sums, branch)


class Apart:
    """A norm is a kernel, which adds the branch before it where that has a norm as well."""

    def __init__(self, rules: Rules, weights: Weights, tokens: int) -> None:
        self._rules, self._weights = rules, weights
        self._x = _room(weights, tokens)
        self._branch: tuple[Tensor, Affine] | None = None

    @property
    def x(self) -> Tensor:
        return self._x

    def begin(self, ids: Tensor, begin: Tensor, table: Tensor) -> None:
        _embed(self._rules, self._weights, ids, begin, table, self.x)

    def leave(self) -> list[Tensor]:
        if self._branch is not None:
            self._normalize((), 0)
        return [self._x]

    def take(self, left: Sequence[Tensor]) -> None:
        (self._x,) = left

    def read(self, norm: Affine | None, then: Affine | None, keep: int = 0) -> Read:
        begin = len(self.x) - (keep or len(self.x))
        if self._branch is None and norm is None:
            return Read(self.x[begin:])
        y = torch.empty_like(self.x[begin:])
        self._normalize(() if norm is None else ((norm, y),), keep)
        return Read(self.x[begin:] if norm is None else y)

    def read_both(self, norm: Affine, other: Affine) -> Read:
        both = self.x.new_empty(2, *self.x.shape)
        self._normalize(((norm, both[0]), (other, both[1])), 0)
        return Read(both)

    def _normalize(self, norms: Sequence[tuple[Affine, Tensor]], keep: int) -> None:
        scale = self._weights.decoder.residual_scale
        launches.normalize(self._rules, self.x, self._branch, tuple(norms), scale, keep)
        self._branch = None

    def add(self, own: Read, linear: Affine, norm: Affine | None, after: Affine | None) -> None:
        if norm is None:
            scale = self._weights.decoder.residual_scale
            launches.product(self._rules, own, linear, self.x, scale=scale, added=True)
            return
        y = torch.empty_like(self.x)
        launches.product(self._rules, own, linear, y)
        self._branch = y, norm

    def mixing(self, after: Affine | None) -> Follow | None:
        return None


class Folded:
    """What is added to the stream goes besides times the weights of the norm that follows, with sums over it, and the
    norm's factor comes behind the product that reads that."""

    def __init__(self, rules: Rules, weights: Weights, tokens: int) -> None:
        self._rules, self._weights = rules, weights
        self._twice = _twice(weights)
        self._x, self._z = _room(weights, tokens), _room(weights, 2 * tokens).view(2, tokens, -1)
        self._sums: Tensor | None = None
        self._rows = weights.decoder.family.experts is not None  # experts read no sums

    @property
    def x(self) -> Tensor:
        return self._x

    def begin(self, ids: Tensor, begin: Tensor, table: Tensor) -> None:
        layer = self._weights.layers[0]
        sums = self._room_of_sums(_last_of(layer), len(ids))
        _embed(self._rules, self._weights, ids, begin, table, self.x, self._follow(layer.norms[0]), sums)
        self._sums = sums

    def leave(self) -> list[Tensor]:
        return [self._x, self._z, *([] if self._sums is None else [self._sums])]

    def take(self, left: Sequence[Tensor]) -> None:
        self._x, self._z, *sums = left
        self._sums = sums[0] if sums else None

    def _room_of_sums(self, linear: Affine, tokens: int) -> Tensor | None:
        if self._rows:
            return None
        return launches.left_sums(self._rules, linear, tokens, 2 if self._rules.centred else 1)

    def _follow(self, norm: Affine | None) -> Follow | None:
        if norm is None:
            return None
        if not self._twice:
            return Follow(norm.weight, self._z[0])
        weights = self._weights
        pairs = [*(layer.norms[::2] for layer in weights.layers), (weights.last_norm, weights.other_last)]
        other = next((second for first, second in pairs if first is norm), None)
        return Follow(norm.weight, self._z, other.weight if other else None)

    def read(self, norm: Affine | None, then: Affine | None, keep: int = 0) -> Read:
        begin = len(self.x) - (keep or len(self.x))
        if norm is None:
            return Read(self.x[begin:])
        return Read(self._z[0][begin:], self.x[begin:], None if self._sums is None else self._sums[begin:])

    def read_both(self, norm: Affine, other: Affine) -> Read:
        return Read(self._z, self.x, self._sums)

    def add(self, own: Read, linear: Affine, norm: Affine | None, after: Affine | None) -> None:
        scale, follow = self._weights.decoder.residual_scale, self._follow(after)
        sums = None if after is None else self._room_of_sums(linear, len(self.x))
        launches.product(self._rules, own, linear, self.x, scale=scale, added=True, follow=follow, sums=sums)
        self._sums = sums

    def mixing(self, after: Affine | None) -> Follow | None:
        self._sums = None
        return self._follow(after)


class Branched:
    """As `Folded`, where branches have norms of their own: the product that reads the stream next reads the branch
    beside it, and leaves the stream with the branch."""

    def __init__(self, rules: Rules, weights: Weights, tokens: int) -> None:
        self._rules, self._weights = rules, weights
        # Stream and branch, then both times the weights of the next norm; others are written while these are read.
        self._plain, self._weighted = (
            [_room(weights, 2 * tokens).view(2, tokens, -1) for _ in range(2)] for _ in range(2)
        )
        self._now, self._sums = 0, torch.empty(0)

    @property
    def x(self) -> Tensor:
        return self._plain[self._now][0]

    def begin(self, ids: Tensor, begin: Tensor, table: Tensor) -> None:
        layer = self._weights.layers[0]
        (x, branch), (z, weighted) = self._plain[0], self._weighted[0]
        self._sums = launches.left_sums(self._rules, _last_of(layer), len(ids), 4)
        norm = layer.norms[0]
        follow = None if norm is None else Follow(norm.weight, z)
        _embed(self._rules, self._weights, ids, begin, table, x, follow, self._sums, (branch, weighted))

    def leave(self) -> list[Tensor]:
        return [self._plain[self._now], self._weighted[self._now], self._sums]

    def take(self, left: Sequence[Tensor]) -> None:
        self._plain[0], self._weighted[0], self._sums = left
        self._now = 0

    def read(self, norm: Affine | None, then: Affine | None, keep: int = 0) -> Read:
        plain, own = self._plain[self._now], (self._plain if norm is None else self._weighted)[self._now]
        begin = plain.shape[1] - (keep or plain.shape[1])
        scale = self._weights.decoder.residual_scale
        if keep:  # nothing reads the stream behind
            branch = Branch(plain[0], plain[1], scale, None, None)
            return Read(own[:, begin:], None, self._sums[begin:], branch, norm is not None)
        self._now = 1 - self._now
        follow = None if then is None else Follow(then.weight, self._weighted[self._now][0])
        branch = Branch(plain[0], plain[1], scale, self.x, follow)
        return Read(own, None, self._sums, branch, norm is not None)

    def read_both(self, norm: Affine, other: Affine) -> Read:
        raise NotImplementedError("one norm follows")

    def add(self, own: Read, linear: Affine, norm: Affine | None, after: Affine | None) -> None:
        assert norm is not None, "all branches have one"
        x, branch = self._plain[self._now]
        follow = None if after is None else Follow(after.weight, self._weighted[self._now][1])
        self._sums = launches.left_sums(self._rules, linear, len(x), 4)
        launches.product(self._rules, own, linear, branch, follow=follow, sums=self._sums, behind=(x, norm.weight))

    def mixing(self, after: Affine | None) -> Follow | None:
        raise NotImplementedError("experts' branches have no norms")


def _twice(weights: Weights) -> bool:
    """Whether attention and MLP read the same stream by way of two norms."""
    return weights.decoder.family.parallel and bool(weights.decoder.family.norms[2])


def _last_of(layer: LayerWeights) -> Affine:
    """What leaves a layer's stream."""
    return layer.down if layer.down.weight is not NONE else layer.output


def _room(weights: Weights, tokens: int) -> Tensor:
    return weights.embedding.new_empty(tokens, weights.decoder.hidden)
