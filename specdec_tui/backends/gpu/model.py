"""Described models on a GPU at the speed of its memory: passes over a few tokens by our own kernels.

What has no description is captured as transformers computes it (`static_model`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_tui.backends.cards import Card
from specdec_tui.backends.decoder import Decoder, describe
from specdec_tui.backends.gpu import launches, tuning
from specdec_tui.backends.gpu.expert_launches import Room, mix
from specdec_tui.backends.gpu.launches import Beyond, Read, Rules, Shares
from specdec_tui.backends.gpu.packed.linear import PackedLinear
from specdec_tui.backends.gpu.streams import Folded, Stream, kind_of, shrink_of
from specdec_tui.backends.gpu.tiles import Tiles
from specdec_tui.backends.gpu.weights import NONE, Affine, ExpertWeights, LayerWeights, Weights, fuse
from specdec_tui.backends.model import bucket, nothing
from specdec_tui.backends.static_model import Forward, prefilled

MOST_TOKENS = 64  # of a pass by these kernels

_UNBOUNDED = 32_768  # positions where a model names no limit
_TRIAL_TEXT = 128  # tokens before a pass that is timed


def fits(model: PreTrainedModel) -> bool:
    """Whether a loaded model is one that these kernels compute."""
    return not why_not(model)


def why_not(model: PreTrainedModel) -> str:
    """Why these kernels do not compute a loaded model; empty where they do."""
    decoder = describe(model)
    if isinstance(decoder, str):
        return decoder
    if model.dtype not in (torch.bfloat16, torch.float16):
        return "its weights are not in half precision"
    if any(weight.dtype is not model.dtype for weight in model.parameters()):
        return "its weights are of several kinds"
    mixed = any(layer.experts for layer in decoder.layers)
    if mixed and (decoder.family.parallel or decoder.family.norms[3]):
        return "its mixtures of experts are not added to the stream alone"
    if (names := decoder.family.experts) and (shared := tuple(filter(None, (*names.shared, names.shared_gate)))):
        modules = [module for name, module in model.named_modules() if name.endswith(shared)]
        if any(isinstance(module, PackedLinear) for module in modules):
            return "its shared experts are quantized"
    if decoder.width > 256:
        return "its heads are wider than 256"
    return "" if launches.kernels() is not None else "there is no Triton"


def opener(model: PreTrainedModel, forward: Forward, context_length: int | None) -> Callable[[int], GpuContext]:
    """What opens sequences of a model that `fits`, given their capacity."""
    positions = bucket((context_length or _UNBOUNDED) + MOST_TOKENS)
    decoder = describe(model)
    assert isinstance(decoder, Decoder), "ask `fits` first"
    weights = fuse(model, decoder, positions)
    tiles = tiles_of(weights)

    def open_static(capacity: int) -> GpuContext:
        if capacity > positions:
            raise ValueError(f"a text of {capacity} tokens is too long for it")
        return GpuContext(weights, forward, capacity, tiles)

    return open_static


def tiles_of(weights: Weights) -> Tiles:
    """How products with the matrices of a model are cut: tried on this card once, where there is one, and kept."""
    device = weights.embedding.device
    if device.type != "cuda":
        return Tiles()
    card = torch.cuda.get_device_name(device)
    known, shapes = tuning.kept(card), tuning.shapes_of(weights)
    if all(shape in known.tried for shape in shapes):
        return known
    part, ids = tuning.some_layers(weights), torch.zeros(1, dtype=torch.int64, device=device)
    begin = torch.full((1,), _TRIAL_TEXT, device=device)

    def seconds(tiles: Tiles) -> float:
        context = GpuContext(part, _no_forward, bucket(2 * _TRIAL_TEXT), tiles)
        return tuning.captured_seconds(lambda: _discard(context.extend(ids, begin, 1)), device)

    found = tuning.tried(shapes, known, seconds)
    tuning.keep(card, found)
    return found


def _no_forward(*_: Any) -> Tensor:
    raise NotImplementedError("a pass for its time alone begins with no text")


def _discard(_: Tensor) -> None:
    """The logits of a pass that is timed."""


class GpuContext:
    """A `StaticSequence` with keys and values [layers, key heads, capacity, width]."""

    def __init__(self, weights: Weights, forward: Forward, capacity: int, tiles: Tiles) -> None:
        decoder, family = weights.decoder, weights.decoder.family
        self._weights, self._forward, self._capacity = weights, forward, capacity
        self._stream = kind_of(weights)
        self._rules = Rules(
            launches.overlaps(self._device), decoder.epsilon, family.norm_offset, family.norm == "layer", tiles,
            shrink_of(weights) if self._stream is Folded else 1.0,
        )  # fmt: skip
        shape = (len(weights.layers), decoder.key_heads, capacity, decoder.width)
        self._keys, self._values = (torch.zeros(shape, dtype=self._dtype, device=self._device) for _ in range(2))
        cut = launches.attention_cut(launches.lanes_of(decoder), decoder.key_heads, capacity)
        self._shares = cut.shares(capacity)
        counters = decoder.key_heads * max(launches.row_tiles(decoder, tokens) for tokens in range(1, MOST_TOKENS + 1))
        self._arrived = torch.zeros(counters, dtype=torch.int32, device=self._device)

    @property
    def _dtype(self) -> torch.dtype:
        return self._weights.embedding.dtype

    @property
    def _device(self) -> torch.device:
        return self._weights.embedding.device

    @property
    def card(self) -> Card:
        return Card(self._device)

    @property
    def capacity(self) -> int:
        return self._capacity

    @torch.inference_mode()
    def prefill(self, ids: Tensor, between: Callable[[], None] = nothing) -> Tensor:
        """See `model.StaticSequence`: by the loaded model in chunks, whose keys and values are taken over."""
        logits, held = prefilled(self._forward, ids, between)
        for index, (keys, values) in enumerate(held):
            copies = len(keys) // self._weights.decoder.key_heads  # Falcon's code repeats them
            self._keys[index, :, : len(ids)] = keys[::copies]
            self._values[index, :, : len(ids)] = values[::copies]
        return logits

    def extend(self, ids: Tensor, begin: Tensor, keep: int) -> Tensor:
        """See `model.StaticSequence`; at most `MOST_TOKENS` ids."""
        if len(ids) > MOST_TOKENS:
            raise ValueError(f"{len(ids)} tokens are too many for one pass: at most {MOST_TOKENS}")
        with torch.cuda.device_of(ids), torch.inference_mode():  # Triton launches on the current device
            return self._extend(ids, begin, keep)

    def _extend(self, ids: Tensor, begin: Tensor, keep: int) -> Tensor:
        weights, decoder, rules = self._weights, self._weights.decoder, self._rules
        stream, work = self._stream(rules, weights, len(ids)), _Work(self, len(ids))
        stream.begin(ids, begin)
        for index, layer in enumerate(weights.layers):
            after = weights.layers[index + 1].norms[0] if index + 1 < len(weights.layers) else weights.last_norm
            self._layer(index, layer, begin, after, stream, work)
        logits = self._empty(keep, weights.head.weight.shape[0], dtype=torch.float32)
        own = stream.read(weights.last_norm, None, keep)
        launches.product(rules, own, weights.head, logits, scale=decoder.logit_scale, cap=decoder.logit_cap)
        return logits

    def _layer(
        self, index: int, layer: LayerWeights, begin: Tensor, after: Affine | None, stream: Stream, work: _Work
    ) -> None:
        """The stream goes through a layer; `after`: the norm behind the layer."""
        first, behind, second, last = layer.norms
        if self._weights.decoder.family.parallel:
            self._parallel(index, layer, begin, after, stream, work)
            return
        launches.product(self._rules, stream.read(first, second), layer.qkv, work.joint)
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
            activation = self._weights.decoder.activation
            launches.product(self._rules, own, layer.qkv, work.joint, activation=activation, beyond=beyond)
        else:
            launches.product(self._rules, own.by(0), layer.qkv, work.joint)
            self._feed_forward(own.by(1), layer, work)
        self._attend(index, layer, begin, work)
        if layer.down.weight is NONE:
            stream.add(Read(work.both), layer.output, behind, after)
        else:
            stream.add(Read(work.mixed), layer.output, behind, None)
            stream.add(Read(work.active), layer.down, last, after)

    def _feed_forward(self, own: Read, layer: LayerWeights, work: _Work) -> None:
        decoder = self._weights.decoder
        if decoder.family.gated:
            launches.gated_product(self._rules, own, layer.gate_up, work.active, decoder.activation)
        else:
            launches.product(self._rules, own, layer.gate_up, work.active, activation=decoder.activation)

    def _mix(
        self, index: int, weights: ExpertWeights, norm: Affine | None, after: Affine | None, stream: Stream, work: _Work
    ) -> None:
        decoder = self._weights.decoder
        kind = decoder.layers[index].experts
        assert kind is not None, "they have weights"
        own, room = stream.read(norm, after), work.mixtures[kind]
        follow, scale = stream.mixing(after), decoder.residual_scale
        mix(self._rules, own, weights, kind, decoder.activation, scale, room, stream.x, follow)

    def _attend(self, index: int, layer: LayerWeights, begin: Tensor, work: _Work) -> None:
        weights, kind = self._weights, self._weights.decoder.layers[index]
        launches.attend(
            self._rules,
            weights.decoder,
            work.joint,
            (layer.query_norm, layer.key_norm),
            None if kind.rotation < 0 else (weights.cosines[kind.rotation], weights.sines[kind.rotation]),
            begin,
            (self._keys[index], self._values[index]),
            layer.sinks,
            work.shares,
            work.mixed,
            kind.window,
        )

    def _empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self._dtype, device=self._device)


class _Work:
    """What the layers of a pass over some tokens write and read again, beside the stream."""

    def __init__(self, context: GpuContext, tokens: int) -> None:
        decoder = context._weights.decoder
        rows, shares, width = tokens * decoder.heads, context._shares, decoder.width
        self.joint = context._empty(tokens, (decoder.heads + 2 * decoder.key_heads) * width)
        of_heads = decoder.heads * width
        layer = context._weights.layers[0]
        if decoder.family.parallel and layer.down.weight is NONE:  # output and down are one product
            self.both = context._empty(tokens, of_heads + decoder.inner)
            self.mixed, self.active = self.both[:, :of_heads], self.both[:, of_heads:]
        else:
            self.mixed, self.active = context._empty(tokens, of_heads), context._empty(tokens, decoder.inner)
        single = torch.float32
        kinds = {layer.experts for layer in decoder.layers if layer.experts}
        self.mixtures = {kind: Room.of(kind, tokens, context._dtype, context._device) for kind in kinds}
        self.shares = Shares(
            context._empty(rows, shares, width, dtype=single),
            context._empty(rows, shares, dtype=single),
            context._empty(rows, shares, dtype=single),
            context._arrived,
        )
