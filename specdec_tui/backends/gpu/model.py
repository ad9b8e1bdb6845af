"""Described models on a GPU at the speed of its memory: passes over a few tokens by our own kernels.

What has no description is captured as transformers computes it (`static_model`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_tui.backends.cards import Card, cross
from specdec_tui.backends.decoder import Decoder, describe
from specdec_tui.backends.gpu import launches, tuning
from specdec_tui.backends.gpu.laid import Laid, Where, parted, where_of
from specdec_tui.backends.gpu.packed.linear import PackedLinear
from specdec_tui.backends.gpu.part import MOST_TOKENS, Part
from specdec_tui.backends.gpu.streams import kind_of, shrink_of
from specdec_tui.backends.gpu.tiles import Tiles
from specdec_tui.backends.gpu.weights import NONE, Weights, fuse
from specdec_tui.backends.model import bucket, nothing
from specdec_tui.backends.static_model import Forward, prefilled

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
    if len({weight.device.type for weight in model.parameters()}) > 1:
        return "a part of it is not on a GPU"
    return "" if launches.kernels() is not None else "there is no Triton"


def opener(
    model: PreTrainedModel, forward: Forward, context_length: int | None, where: Where | None = None
) -> Callable[[int], GpuContext]:
    """What opens sequences of a model that `fits`, given their capacity; `where` its weights are taken to lie."""
    positions = bucket((context_length or _UNBOUNDED) + MOST_TOKENS)
    decoder = describe(model)
    assert isinstance(decoder, Decoder), "ask `fits` first"
    where = where or where_of(model, decoder)
    weights = fuse(model, decoder, positions)
    cards, parts = parted(weights, where)
    laid = Laid(weights, where.embedding, cards, parts, tuple(map(tiles_of, parts)))

    def open_static(capacity: int) -> GpuContext:
        if capacity > positions:
            raise ValueError(f"a text of {capacity} tokens is too long for it")
        return GpuContext(laid, forward, capacity)

    return open_static


def tiles_of(weights: Weights) -> Tiles:
    """How products with the matrices of a model are cut: tried on this card once, where there is one, and kept."""
    device = weights.embedding.device
    if device.type != "cuda":
        return Tiles()
    card = torch.cuda.get_device_name(device)
    known, shapes = tuning.kept(card), tuning.shapes_of(weights)
    if not weights.layers or all(shape in known.tried for shape in shapes):
        return known
    some, ids = tuning.some_layers(weights), torch.zeros(tuning.BLOCK, dtype=torch.int64, device=device)
    begin = torch.full((1,), _TRIAL_TEXT, device=device)
    table = weights.embedding if len(weights.embedding) else weights.embedding.new_zeros(1, weights.decoder.hidden)

    def seconds(tiles: Tiles, tokens: int) -> float:
        part = Part(some, kind_of(some), shrink_of(some), bucket(2 * _TRIAL_TEXT), tiles)
        return tuning.captured_seconds(lambda: _pass_alone(part, ids[:tokens], begin, table), device)

    found = tuning.tried(shapes, known, seconds)
    tuning.keep(card, found)
    return found


def _pass_alone(part: Part, ids: Tensor, begin: Tensor, table: Tensor) -> None:
    with torch.inference_mode():
        stream = part.stream(len(ids))
        part.begin(stream, ids, begin, table)
        part.through(stream, begin)
        if part.weights.head.weight is not NONE:
            part.logits(stream, len(ids))


class GpuContext:
    """A `StaticSequence`, whose passes go over the cards that a model's weights lie on."""

    def __init__(self, laid: Laid, forward: Forward, capacity: int) -> None:
        self._laid, self._forward, self._capacity = laid, forward, capacity
        kind, shrink = kind_of(laid.whole), shrink_of(laid.whole)
        self._parts = [
            Part(weights, kind, shrink, capacity, tiles) for weights, tiles in zip(laid.parts, laid.tiles, strict=True)
        ]
        self._rows = torch.arange(MOST_TOKENS, device=laid.cards[0].device)

    @property
    def card(self) -> Card:
        """That of the head."""
        return self._laid.cards[-1]

    @property
    def capacity(self) -> int:
        return self._capacity

    @torch.inference_mode()
    def prefill(self, ids: Tensor, between: Callable[[], None] = nothing) -> Tensor:
        """See `model.StaticSequence`: by the loaded model in chunks, whose keys and values are taken over."""
        logits, held = prefilled(self._forward, ids, between)
        layers = ((part, index) for part in self._parts for index in range(len(part.keys)))
        for (part, index), (keys, values) in zip(layers, held, strict=True):
            part.fill(index, keys, values)
        return logits.to(self.card.device)

    @torch.inference_mode()
    def extend(self, ids: Tensor, begin: Tensor, keep: int) -> Tensor:
        """See `model.StaticSequence`; at most `MOST_TOKENS` ids."""
        tokens, laid = len(ids), self._laid
        if tokens > MOST_TOKENS:
            raise ValueError(f"{tokens} tokens are too many for one pass: at most {MOST_TOKENS}")
        here, part, table = laid.cards[0], self._parts[0], laid.whole.embedding
        ids, begin = cross(self.card, laid.embedded, ids, begin)
        if laid.embedded != here:
            table, begin = cross(laid.embedded, here, table[ids], begin)
            ids = self._rows[:tokens]
        stream = part.stream(tokens)
        part.begin(stream, ids, begin, table)
        part.through(stream, begin)
        for there, other in zip(laid.cards[1:], self._parts[1:], strict=True):
            begin, *left = cross(here, there, begin, *part.leave(stream))
            here, part, stream = there, other, other.stream(tokens, left)
            part.through(stream, begin)
        return part.logits(stream, keep)
