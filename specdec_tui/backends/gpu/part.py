"""The layers of a model that lie on one card, with their keys and values: a pass goes through them in one go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from specdec_tui.backends.gpu import launches
from specdec_tui.backends.gpu.expert_launches import Room, mix
from specdec_tui.backends.gpu.launches import Beyond, Read, Rules, Shares
from specdec_tui.backends.gpu.streams import Folded, Stream
from specdec_tui.backends.gpu.tiles import Tiles
from specdec_tui.backends.gpu.weights import NONE, Affine, ExpertWeights, LayerWeights, Weights

MOST_TOKENS = 64  # of a pass by these kernels


class Part:
    """Weights of one card, with keys and values [layers, key heads, capacity, width].

    `kind` of the stream of numbers and `shrink`: those of the whole model, see `streams`.
    """

    def __init__(self, weights: Weights, kind: type[Stream], shrink: float, capacity: int, tiles: Tiles) -> None:
        decoder, family = weights.decoder, weights.decoder.family
        self.weights, self.kind = weights, kind
        self.rules = Rules(
            launches.overlaps(self.device), decoder.epsilon, family.norm_offset, family.norm == "layer", tiles,
            shrink if kind is Folded else 1.0,
        )  # fmt: skip
        shape = (len(weights.layers), decoder.key_heads, capacity, decoder.width)
        self.keys, self.values = (torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(2))
        cut = launches.cut_of(decoder, capacity, self.dtype, self.device)
        self.shares = cut.shares(capacity)
        most = max(launches.row_cut(decoder, cut, self.shares, tokens)[1] for tokens in range(1, MOST_TOKENS + 1))
        counters = decoder.key_heads * cut.slices * most
        self.arrived = torch.zeros(counters, dtype=torch.int32, device=self.device)

    @property
    def dtype(self) -> torch.dtype:
        return self.weights.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.weights.embedding.device

    def fill(self, index: int, keys: Tensor, values: Tensor) -> None:
        """Keys and values [heads, n, width] of the first n tokens, in a layer."""
        copies = len(keys) // self.weights.decoder.key_heads  # Falcon's code repeats them
        self.keys[index, :, : keys.shape[1]] = keys[::copies]
        self.values[index, :, : values.shape[1]] = values[::copies]

    def stream(self, tokens: int, left: Sequence[Tensor] = ()) -> Stream:
        """Of a pass over so many tokens, that goes on from what another card's has left, or is to begin."""
        found = self.kind(self.rules, self.weights, tokens)
        if left:
            found.take(left)
        return found

    def begin(self, stream: Stream, ids: Tensor, begin: Tensor, table: Tensor) -> None:
        """Embed ids int64 [tokens] as rows of `table` [n, hidden]."""
        with self._current:
            stream.begin(ids, begin, table)

    def through(self, stream: Stream, begin: Tensor) -> None:
        """The stream, of tokens at places from `begin` int64 [1] on, goes through all layers."""
        weights, layers = self.weights, self.weights.layers
        if not layers:
            return
        work = _Work(self, len(stream.x))
        after = [*(layer.norms[0] for layer in layers[1:]), weights.last_norm]
        with self._current:
            for index, layer in enumerate(layers):
                self._layer(index, layer, begin, after[index], stream, work)

    def leave(self, stream: Stream) -> list[Tensor]:
        """What another card goes on from."""
        with self._current:
            return stream.leave()

    def logits(self, stream: Stream, keep: int) -> Tensor:
        """Of the last `keep` tokens, float32, where the head is of this part."""
        weights, decoder = self.weights, self.weights.decoder
        logits = self.empty(keep, weights.head.weight.shape[0], dtype=torch.float32)
        with self._current:
            own = stream.read(weights.last_norm, None, keep)
            launches.product(self.rules, own, weights.head, logits, scale=decoder.logit_scale, cap=decoder.logit_cap)
        return logits

    @property
    def _current(self) -> AbstractContextManager[None]:
        """Triton launches on the current device."""
        return torch.cuda.device_of(self.keys)

    def _layer(
        self, index: int, layer: LayerWeights, begin: Tensor, after: Affine | None, stream: Stream, work: _Work
    ) -> None:
        """The stream goes through a layer; `after`: the norm behind the layer."""
        first, behind, second, last = layer.norms
        if self.weights.decoder.family.parallel:
            self._parallel(index, layer, begin, after, stream, work)
            return
        launches.product(self.rules, stream.read(first, second), layer.qkv, work.joint)
        self._attend(index, layer, begin, work)
        stream.add(Read(work.mixed), layer.output, behind, second)
        if layer.experts is not None:
            self._mix(index, layer.experts, second, after, stream, work)
            return
        self._feed_forward(stream.read(second, after), layer, work)
        stream.add(Read(work.active), layer.down, last, after)

    def _parallel(
        self, index: int, layer: LayerWeights, begin: Tensor, after: Affine | None, stream: Stream, work: _Work
    ) -> None:
        """A layer whose MLP reads the stream before attention is added."""
        first, behind, second, last = layer.norms
        own = stream.read(first, None) if second is None or first is None else stream.read_both(first, second)
        if layer.gate_up.weight is NONE:
            beyond = Beyond(work.joint.shape[1], work.active)
            activation = self.weights.decoder.activation
            launches.product(self.rules, own, layer.qkv, work.joint, activation=activation, beyond=beyond)
        else:
            launches.product(self.rules, own.by(0), layer.qkv, work.joint)
            self._feed_forward(own.by(1), layer, work)
        self._attend(index, layer, begin, work)
        if layer.down.weight is NONE:
            stream.add(Read(work.both), layer.output, behind, after)
        else:
            stream.add(Read(work.mixed), layer.output, behind, None)
            stream.add(Read(work.active), layer.down, last, after)

    def _feed_forward(self, own: Read, layer: LayerWeights, work: _Work) -> None:
        decoder = self.weights.decoder
        if decoder.family.gated:
            launches.gated_product(self.rules, own, layer.gate_up, work.active, decoder.activation)
        else:
            launches.product(self.rules, own, layer.gate_up, work.active, activation=decoder.activation)

    def _mix(
        self, index: int, weights: ExpertWeights, norm: Affine | None, after: Affine | None, stream: Stream, work: _Work
    ) -> None:
        decoder = self.weights.decoder
        kind = decoder.layers[index].experts
        assert kind is not None, "they have weights"
        own, room = stream.read(norm, after), work.mixtures[kind]
        follow, scale = stream.mixing(after), decoder.residual_scale
        mix(self.rules, own, weights, kind, decoder.activation, scale, room, stream.x, follow)

    def _attend(self, index: int, layer: LayerWeights, begin: Tensor, work: _Work) -> None:
        weights, kind = self.weights, self.weights.decoder.layers[index]
        launches.attend(
            self.rules,
            weights.decoder,
            work.joint,
            (layer.query_norm, layer.key_norm),
            None if kind.rotation < 0 else (weights.cosines[kind.rotation], weights.sines[kind.rotation]),
            begin,
            (self.keys[index], self.values[index]),
            layer.sinks,
            work.shares,
            work.mixed,
            kind.window,
        )

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self.dtype, device=self.device)


class _Work:
    """What the layers of a pass over some tokens write and read again, beside the stream."""

    def __init__(self, part: Part, tokens: int) -> None:
        decoder = part.weights.decoder
        rows, shares, width = tokens * decoder.heads, part.shares, decoder.width
        self.joint = part.empty(tokens, (decoder.heads + 2 * decoder.key_heads) * width)
        of_heads = decoder.heads * width
        layer = part.weights.layers[0]
        if decoder.family.parallel and layer.down.weight is NONE:  # output and down are one product
            self.both = part.empty(tokens, of_heads + decoder.inner)
            self.mixed, self.active = self.both[:, :of_heads], self.both[:, of_heads:]
        else:
            self.mixed, self.active = part.empty(tokens, of_heads), part.empty(tokens, decoder.inner)
        single = torch.float32
        kinds = {layer.experts for layer in decoder.layers if layer.experts}
        self.mixtures = {kind: Room.of(kind, tokens, part.dtype, part.device) for kind in kinds}
        self.shares = Shares(
            part.empty(rows, shares, width, dtype=single),
            part.empty(rows, shares, dtype=single),
            part.empty(rows, shares, dtype=single),
            part.arrived,
        )
