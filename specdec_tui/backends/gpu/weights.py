"""The weights of a loaded model as the kernels read them.

Those of a layer that read the same numbers lie in one matrix, of which the loaded model's own are views: both ways to
compute share the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_tui.backends.decoder import HEAD_NORMS, Decoder
from specdec_tui.backends.families import ExpertNames
from specdec_tui.backends.gpu.packed.linear import PackedLinear, whole_of
from specdec_tui.backends.gpu.tiles import HEAD_ROWS

NONE = torch.empty(0)
_TILE_ROWS = 32  # of a program at most, of which none has rows of two kinds
_ROWS_AT_ONCE = 8192  # of a matrix that becomes float32 for a moment


@dataclass(frozen=True)
class Affine:
    """A linear layer's weight [rows, columns] and bias [rows], or those of a norm [columns]; empty: it has none.

    `lowered` and `lifted` [rows] float32, of one that reads a layer norm: what its weight makes of the norm's weights,
    and of the norm's bias, to which its own is added.
    """

    weight: Any  # a Tensor, or `packing.Packed`
    bias: Tensor
    lowered: Tensor = NONE
    lifted: Tensor = NONE


Norms = tuple[Affine | None, Affine | None, Affine | None, Affine | None]


@dataclass(frozen=True)
class ExpertWeights:
    """Weights of a mixture of experts.

    router [count (+ 1: the gate of the shared expert), hidden], gate_up [count, 2 · inner, hidden], whose rows of gate
    and up lie `in_turn` or gate first, down [count, hidden, inner]; biases of the last two [count, rows]. The shared
    expert's as those of an MLP, empty where there is none.
    """

    router: Affine
    gate_up: Affine
    down: Affine
    in_turn: bool
    shared_gate_up: Affine
    shared_down: Affine


@dataclass(frozen=True)
class LayerWeights:
    """Weights of a layer.

    norms: before attention, behind it, before the MLP, behind it. qkv [row length, hidden], output [hidden, heads ·
    width], gate_up [2 · inner, hidden] (or [inner, hidden] without a gate), down [hidden, inner]; these two are empty
    where there are `experts`. Where attention and MLP are in parallel, rows of gate_up may lie behind those of qkv, and
    columns of down behind those of output: these are empty then as well.
    """

    norms: Norms
    query_norm: Tensor
    key_norm: Tensor
    sinks: Tensor
    qkv: Affine
    output: Affine
    gate_up: Affine
    down: Affine
    experts: ExpertWeights | None = None


@dataclass(frozen=True)
class Weights:
    """Of a model, or of those of its layers that lie on one card (`laid`).

    `places` [positions, hidden]: learned positions. `last_norm` reads the stream behind the layers, and so may
    `other_last`: the norms of the next layer where the model goes on elsewhere. `cosines` and `sines` of each rotation
    [positions, turned / 2], float32.
    """

    decoder: Decoder
    layers: tuple[LayerWeights, ...]
    embedding: Tensor
    places: Tensor
    last_norm: Affine | None
    head: Affine
    cosines: tuple[Tensor, ...]
    sines: tuple[Tensor, ...]
    other_last: Affine | None = None


def module_at(module: Any, path: str) -> Any:
    """The part of a module at a dotted path; None for no path."""
    for name in path.split(".") if path else ():
        module = getattr(module, name)
    return module if path else None


def _norm(module: Any, like: Tensor) -> Affine | None:
    """A norm without weights has ones [columns], of the kind of `like` [rows, columns]."""
    if module is None:
        return None
    found = _affine(module)
    return found if found.weight.numel() else replace(found, weight=torch.ones_like(like[0]))


def _reading(linear: Affine, norm: Affine | None) -> Affine:
    """A linear layer that reads a layer norm."""
    if norm is None or not isinstance(linear.weight, Tensor) or not linear.weight.numel():
        return linear

    def times(vector: Tensor) -> Tensor:
        vector = vector.to(linear.weight.device).float()
        return torch.cat([rows.float() @ vector for rows in linear.weight.split(_ROWS_AT_ONCE)])

    biases = [times(norm.bias)] if norm.bias.numel() else []
    biases += [linear.bias.float()] if linear.bias.numel() else []
    return replace(linear, lowered=times(norm.weight), lifted=sum(biases[1:], biases[0]) if biases else NONE)


def _affine(module: Any) -> Affine:
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    return Affine(NONE if weight is None else weight.detach(), NONE if bias is None else bias.detach())


def _joined(modules: Sequence[Any], transposed: bool) -> Affine:
    """Linear layers by rows as one, of which they become views. One without a bias beside others has zeros."""
    if (packed := whole_of(modules)) is not None:
        return Affine(packed, _joined_biases(modules, [module.out_features for module in modules], modules[0].dtype))
    weights = [module.weight.detach().T if transposed else module.weight.detach() for module in modules]
    whole = weights[0].contiguous() if len(weights) == 1 else torch.cat(weights)
    begin = 0
    for module, weight in zip(modules, weights, strict=True):
        view = whole[begin : begin + len(weight)]
        module.weight.data = view.T if transposed else view
        begin += len(weight)
    return Affine(whole, _joined_biases(modules, [len(weight) for weight in weights], whole.dtype))


def _side_by_side(modules: Sequence[Any]) -> Affine:
    """Linear layers by columns as one, of which they become views: the sum of their products."""
    whole = torch.cat([module.weight.detach() for module in modules], 1)
    begin = 0
    for module in modules:
        end = begin + module.weight.shape[1]
        module.weight.data = whole[:, begin:end]
        begin = end
    biases = [module.bias.detach().float() for module in modules if module.bias is not None]
    return Affine(whole, sum(biases[1:], biases[0]) if biases else NONE)


def _joined_biases(modules: Sequence[Any], rows: Sequence[int], dtype: torch.dtype) -> Tensor:
    biases = [getattr(module, "bias", None) for module in modules]
    given = [bias for bias in biases if bias is not None]
    if not given:
        return NONE
    joint = torch.cat(
        [
            torch.zeros(count, dtype=dtype, device=given[0].device) if bias is None else bias.detach().to(dtype)
            for bias, count in zip(biases, rows, strict=True)
        ]
    )
    begin = 0
    for bias, count in zip(biases, rows, strict=True):
        if bias is not None:
            bias.data = joint[begin : begin + count]
        begin += count
    return joint


def _experts(layer: Any, names: ExpertNames) -> ExpertWeights:
    """Experts that lie [columns, rows] are turned over, and the model's own become views: never two of a layer."""
    nothing = Affine(NONE, NONE)
    gates = [module_at(layer, name) for name in (names.router, names.shared_gate) if name]
    experts = module_at(layer, names.experts)
    found = []
    for name in ("gate_up_proj", "down_proj"):
        weight, bias = getattr(experts, name), getattr(experts, f"{name}_bias", None)
        whole = weight.detach().mT.contiguous() if names.transposed else weight.detach().contiguous()
        weight.data = whole.mT if names.transposed else whole
        found.append(Affine(whole, NONE if bias is None else bias.detach()))
    shared = [module_at(layer, name) for name in names.shared]
    gate_up, down = (_joined(shared[:2], False), _joined(shared[2:], False)) if shared else (nothing, nothing)
    return ExpertWeights(_joined(gates, False), found[0], found[1], names.transposed, gate_up, down)


def _linear_layers(modules: Sequence[Sequence[Any]], norms: Norms, decoder: Decoder) -> tuple[Affine, ...]:
    """Queries, keys and values; output; gate and up; down; the last two are empty where a mixture is in their place."""
    family, nothing = decoder.family, Affine(NONE, NONE)
    before, _, second, _ = norms
    apart = not family.parallel or family.transposed or len(modules) < 4
    apart = apart or any(isinstance(module, PackedLinear) for group in modules for module in group)
    rows = (decoder.heads + 2 * decoder.key_heads) * decoder.width
    by_rows = not apart and not family.gated and rows % _TILE_ROWS == 0 and rows + decoder.inner < HEAD_ROWS
    if by_rows:
        whole = _joined([*modules[0], *modules[2]], False)
        qkv, gate_up = (
            Affine(whole.weight[part], whole.bias[part] if whole.bias.numel() else NONE)
            for part in (slice(rows), slice(rows, None))
        )
    else:
        qkv = _joined(modules[0], family.transposed)
        gate_up = _joined(modules[2], family.transposed) if len(modules) > 2 else nothing
    if family.norm == "layer":
        qkv, gate_up = _reading(qkv, before), _reading(gate_up, second or before)
    if by_rows:
        lifted = [one.lifted for one in (qkv, gate_up)]
        if any(one.numel() for one in lifted):
            lowered = qkv.lowered, gate_up.lowered
            lifted = [one if one.numel() else 0 * like for one, like in zip(lifted, lowered, strict=True)]
        qkv = Affine(whole.weight, whole.bias, torch.cat((qkv.lowered, gate_up.lowered)), torch.cat(lifted))
        gate_up = nothing
    if not apart:
        return qkv, _side_by_side([*modules[1], *modules[3]]), gate_up, nothing
    down = _joined(modules[3], family.transposed) if len(modules) > 3 else nothing
    return qkv, _joined(modules[1], family.transposed), gate_up, down


@torch.no_grad()
def fuse(model: PreTrainedModel, decoder: Decoder, positions: int) -> Weights:
    """The weights of a described model, with rotations for `positions`; the model goes on working."""
    family = decoder.family
    layers = []
    embedding = model.get_input_embeddings().weight.detach()
    for layer, kind in zip(module_at(model, family.layers), decoder.layers, strict=True):
        modules = [[module_at(layer, name) for name in names] for names in family.groups[: 2 if kind.experts else 4]]
        like = embedding[:1].to(next(layer.parameters()).device)
        before, behind, second, last = (_norm(module_at(layer, name), like) for name in family.norms)
        norms = before, behind, second, last
        qkv, output, gate_up, down = _linear_layers(modules, norms, decoder)
        experts = _experts(layer, family.experts) if kind.experts and family.experts else None
        query_norm, key_norm = (
            module_at(layer, name).weight.detach() if family.head_norms else NONE for name in HEAD_NORMS
        )
        sinks = module_at(layer, family.sinks)
        sinks = NONE if sinks is None else sinks.detach()
        layers.append(LayerWeights(norms, query_norm, key_norm, sinks, qkv, output, gate_up, down, experts))
    device = embedding.device
    last_norm = _norm(module_at(model, family.last_norm), embedding)
    head = _joined([model.get_output_embeddings()], False)
    assert last_norm is not None, "a family has one"
    angles = [torch.arange(positions)[:, None] * rotation.frequencies.float() for rotation in decoder.rotations]
    scales = [rotation.scale for rotation in decoder.rotations]
    return Weights(
        decoder,
        tuple(layers),
        embedding,
        module_at(model, family.positions).weight.detach() if family.positions else NONE,
        last_norm,
        _reading(head, last_norm) if family.norm == "layer" else head,
        tuple((angle.cos() * scale).to(device) for angle, scale in zip(angles, scales, strict=True)),
        tuple((angle.sin() * scale).to(device) for angle, scale in zip(angles, scales, strict=True)),
    )
