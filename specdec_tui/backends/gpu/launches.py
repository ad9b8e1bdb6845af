"""The kernels as functions of tensors: what they are compiled for, and how their work is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from specdec_tui.backends.decoder import Decoder
from specdec_tui.backends.gpu.own_code import by_code
from specdec_tui.backends.gpu.packed.packing import ROWS, Packed
from specdec_tui.backends.gpu.staging import way
from specdec_tui.backends.gpu.tensor_core import MOST_FEW
from specdec_tui.backends.gpu.tiles import Cut, Tile, Tiles, attention_cut, lanes_of, power, tile_tokens
from specdec_tui.backends.gpu.weights import Affine

_SLICE = 64  # columns of values, see `whole_shares`


@cache
def kernels() -> ModuleType | None:
    """The kernels' module `products`, with those of `norms` and of attention loaded; None where there is no Triton."""
    try:
        from specdec_tui.backends.gpu import attention, norms, products, whole_shares  # noqa: F401
    except ImportError:
        return None
    return products


@dataclass(frozen=True, slots=True)
class Branch:
    """What a part of a layer, with a norm behind it, adds to the `stream` [tokens, hidden]: `own` [tokens, hidden],
    times the norm's weights, to be multiplied by the norm's factor times `scale`.

    `fresh`: where the stream goes with the branch, and with `follow` that times the next norm's weights; None: nowhere.
    """

    stream: Tensor
    own: Tensor
    scale: float
    fresh: Tensor | None
    follow: Follow | None


@dataclass(frozen=True, slots=True)
class Read:
    """Numbers [tokens, columns] that a product reads. With a `stream` of the same shape they are it times the weights
    of its norm, and what is meant is that norm.

    `sums`: those of the stream, float32 [tokens, kinds, parts], see `products`. Of a stream with a `branch`, x [2,
    tokens, columns] is both, times the weights of its norm where it is `normed`. Without a branch x [2, tokens,
    columns] is by way of two norms.
    """

    x: Tensor
    stream: Tensor | None = None
    sums: Tensor | None = None
    branch: Branch | None = None
    normed: bool = False

    @property
    def tokens(self) -> int:
        return self.x.shape[-2]

    def by(self, norm: int) -> Read:
        """By way of one of two norms."""
        return replace(self, x=self.x[norm]) if self.x.dim() == 3 else self


@dataclass(frozen=True, slots=True)
class Follow:
    """Where what is added to the stream goes besides: times the weights `norm` of the next norm, to `x`; with the
    weights `other` of a second norm that reads it x is [2, tokens, hidden]."""

    norm: Tensor
    x: Tensor
    other: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Beyond:
    """Rows of a matrix from `begin` on, whose products go through the activation, those of others not, and to `y`."""

    begin: int
    y: Tensor


@dataclass(frozen=True, slots=True)
class Rules:
    """What all kernels of a model are compiled for. `overlap`: they begin before the one before has ended. `shrink`:
    what the stream times the weights of its next norm is besides multiplied by."""

    overlap: bool
    epsilon: float
    norm_offset: float
    centred: bool
    tiles: Tiles
    shrink: float = 1.0

    @property
    def launch(self) -> dict[str, bool]:
        return {"launch_pdl": True} if self.overlap else {}


def embed(
    rules: Rules,
    ids: Tensor,
    begin: Tensor,
    table: Tensor,
    places: tuple[Tensor, int],
    x: Tensor,
    scale: float,
    follow: Follow | None,
    sums: Tensor | None = None,
    branch: tuple[Tensor, Tensor] | None = None,
) -> None:
    """The first kernel of a pass: it waits for all before it, so that those behind may read ahead what passes left.

    `sums` [tokens, kinds, parts] are left; `branch`: its numbers, and those times the next norm's weights, are zeros.
    """
    from specdec_tui.backends.gpu import norms

    columns, (rows, first) = x.shape[1], places
    own, weighted = branch or (x, x)
    other = follow.other if follow else None
    kinds, parts = (0, 1) if sums is None else sums.shape[1:]
    norms.embed[(len(ids),)](
        ids, begin, table, rows if len(rows) else table, x, follow.norm if follow else x, follow.x if follow else x,
        x if sums is None else sums, own, weighted, x if other is None else other, scale, bool(len(rows)), first,
        max(0, len(rows) - 1), follow is not None, other is not None, rules.norm_offset, rules.shrink, kinds, parts,
        columns, power(columns), power(parts), rules.overlap, num_warps=8,
    )  # fmt: skip


def normalize(
    rules: Rules,
    x: Tensor,
    branch: tuple[Tensor, Affine] | None,
    norms: tuple[tuple[Affine, Tensor], ...],
    scale: float = 1.0,
    keep: int = 0,
) -> None:
    """Add the norm of a branch to x; then for each of at most two norms its result of x, of the last `keep` tokens."""
    from specdec_tui.backends.gpu.norms import normalize as kernel

    tokens, columns = x.shape
    none = Affine(x, x[:0])
    after, added = (branch[1], branch[0]) if branch else (none, x)
    (one, y), (two, z) = (*norms, (none, x), (none, x))[:2]

    def some(tensor: Tensor) -> Tensor:
        return tensor if tensor.numel() else x

    kernel[(keep or tokens,)](
        x, added, after.weight, some(after.bias), one.weight, some(one.bias), y, two.weight,
        some(two.bias), z, tokens - (keep or tokens), columns, rules.centred, rules.epsilon, rules.norm_offset, scale,
        branch is not None, bool(norms), len(norms) > 1, after.bias.numel() > 0, one.bias.numel() > 0,
        two.bias.numel() > 0, power(columns), rules.overlap, num_warps=8, **rules.launch,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a product is told of what it reads."""

    pointers: tuple[Tensor, ...]  # stream, sums, lowered
    constants: tuple[Any, ...]  # normed, paired, apart, parts
    bias: Tensor
    branch: tuple[Tensor, ...]  # source, branch, fresh
    slice_columns: int


def _reading(rules: Rules, own: Read, linear: Affine, programs: int) -> _Reading:
    x, sums, branch = own.x, own.sums, own.branch
    if branch is not None:
        assert sums is not None, "a branch has sums"
        width = 0 if branch.fresh is None else max(16, power(-(-x.shape[-1] // programs)))
        pointers, apart = (x, sums, x), x.stride(0) // x.shape[-1]
        fresh = x if branch.fresh is None else branch.fresh
        constants = ("rms" if own.normed else "", True, apart, sums.shape[-1])
        return _Reading(pointers, constants, linear.bias, (branch.stream, branch.own, fresh), width)
    if own.stream is None or sums is None:
        way = "" if own.stream is None else "rows"
        return _Reading((x if own.stream is None else own.stream, x, x), (way, False, 0, 1), linear.bias, (x, x, x), 0)
    way, lowered = ("layer", linear.lowered) if rules.centred else ("rms", x)
    bias = linear.lifted if rules.centred else linear.bias
    return _Reading((x, sums, lowered), (way, False, 0, sums.shape[-1]), bias, (x, x, x), 0)


def product(
    rules: Rules,
    own: Read,
    linear: Affine,
    y: Tensor,
    *,
    activation: str = "",
    scale: float = 1.0,
    cap: float = 0.0,
    added: bool = False,
    follow: Follow | None = None,
    sums: Tensor | None = None,
    behind: tuple[Tensor, Tensor] | None = None,
    beyond: Beyond | None = None,
) -> None:
    """y [tokens, rows] = cap(scale · activation(x @ weight.T + bias)), or `added` to it.

    `behind`: the stream, and the weights of a norm that y is a branch of it with. `beyond`: products with those rows,
    which read by way of the second norm where there are two. `sums` are left as `products.product` says.
    """
    from specdec_tui.backends.gpu import products
    from specdec_tui.backends.gpu.packed import launch as packed_launch

    if isinstance(linear.weight, Packed):
        packed_launch.product(
            own.x,
            linear.weight,
            y,
            normed=None if own.stream is None else packed_launch.Normed(own.stream, rules.epsilon, own.sums),
            bias=linear.bias if linear.bias.numel() else None,
            activation=activation,
            scale=scale,
            cap=cap,
            added=added,
            follow=None if follow is None else packed_launch.Follow(follow.norm, follow.x, rules.norm_offset),
            left=sums,
            overlap=rules.overlap,
        )
        return
    tokens, (rows, columns) = own.tokens, linear.weight.shape
    tile = rules.tiles.of(False, rows, columns, tokens, own.branch is not None)
    *_, direct, _ = staged = way(own.x, linear.weight, tokens, own.branch is not None, tile, 1)
    programs = -(-rows // tile.rows)
    reading = _reading(rules, own, linear, programs)
    biased = reading.bias.numel() > 0
    if own.branch is not None:
        follow = own.branch.follow
    source, branch, fresh = (*behind, y) if behind else reading.branch
    other_norm = None if follow is None else follow.other
    bound, other_y = (beyond.begin, beyond.y) if beyond else (0, y)
    other_x = tokens if beyond and own.x.dim() == 3 else 0
    products.product[(programs,)](
        own.x, *reading.pointers, linear.weight, reading.bias if biased else linear.weight, y, source, branch, fresh,
        follow.norm if follow else y, follow.x if follow else y, y if sums is None else sums, other_y,
        y if other_norm is None else other_norm, tokens, rows, columns, *reading.constants, rules.epsilon,
        rules.norm_offset, rules.shrink, own.branch.scale if own.branch else 1.0, biased, activation, scale, cap,
        "branch" if behind else "added" if added else "", follow is not None, other_norm is not None,
        0 if sums is None else sums.shape[1], reading.slice_columns, bound, other_x,
        y.stride(0), other_y.stride(0), tile.pieces, read_tokens(own, direct), tile.rows,
        tile.columns, tile.early, tile.early_last, tile.ahead, power(columns), *staged, rules.overlap,
        num_warps=tile.warps, num_stages=tile.stages, **_registers(tile, own.x), **rules.launch,
    )  # fmt: skip


def _registers(tile: Tile, x: Tensor) -> dict[str, int]:
    """Rows that are held leave room for as many programs as their warps allow."""
    return {} if tile.columns or not by_code(x.device) else {"maxnreg": 128}


def read_tokens(own: Read, direct: bool) -> int:
    """The side of a tensor core's tile that what is read fills; of few tokens that are multiplied directly, these."""
    count = 2 * power(own.tokens) if own.branch else power(own.tokens)
    return count if direct and count <= MOST_FEW else tile_tokens(count)


def left_sums(rules: Rules, linear: Affine, tokens: int, kinds: int) -> Tensor:
    """Room for the sums that a product leaves."""
    rows, columns = linear.weight.shape
    packed = isinstance(linear.weight, Packed)
    parts = -(-rows // (ROWS if packed else rules.tiles.of(False, rows, columns, tokens).rows))
    device = linear.weight.weight.device if packed else linear.weight.device
    return torch.empty(tokens, kinds, parts, dtype=torch.float32, device=device)


def gated_product(rules: Rules, own: Read, linear: Affine, y: Tensor, activation: str) -> None:
    """y [tokens, rows] = activation(x @ gate.T) · (x @ up.T)."""
    from specdec_tui.backends.gpu import products
    from specdec_tui.backends.gpu.packed import launch as packed_launch

    if isinstance(linear.weight, Packed):
        packed_launch.gated_product(
            own.x,
            linear.weight,
            y,
            activation,
            normed=None if own.stream is None else packed_launch.Normed(own.stream, rules.epsilon, own.sums),
            bias=linear.bias if linear.bias.numel() else None,
            overlap=rules.overlap,
        )
        return
    tokens, rows, columns = own.tokens, linear.weight.shape[0] // 2, linear.weight.shape[1]
    tile = rules.tiles.of(True, rows, columns, tokens, own.branch is not None)
    *_, direct, _ = staged = way(own.x, linear.weight, tokens, own.branch is not None, tile, 2)
    programs = -(-rows // tile.rows)
    reading = _reading(rules, own, linear, programs)
    biased = reading.bias.numel() > 0
    follow = own.branch.follow if own.branch else None
    products.gated_product[(programs,)](
        own.x, *reading.pointers, linear.weight, reading.bias if biased else linear.weight, y, *reading.branch,
        follow.norm if follow else y, follow.x if follow else y, tokens, rows, columns, *reading.constants,
        rules.epsilon, rules.norm_offset, rules.shrink, own.branch.scale if own.branch else 1.0, biased, activation,
        follow is not None, reading.slice_columns, y.stride(0), tile.pieces, read_tokens(own, direct), tile.rows,
        tile.columns, tile.early, tile.early_last, tile.ahead, power(columns), *staged, rules.overlap,
        num_warps=tile.warps, num_stages=tile.stages, **_registers(tile, own.x), **rules.launch,
    )  # fmt: skip


def cut_of(decoder: Decoder, capacity: int, dtype: torch.dtype, device: torch.device) -> Cut:
    """How attention goes through a text of at most `capacity` tokens."""
    return attention_cut(decoder.width, decoder.key_heads, capacity, dtype.itemsize == 2 or not by_code(device))


def row_cut(decoder: Decoder, cut: Cut, shares: int, tokens: int) -> tuple[int, int]:
    """Rows of a program of attention, of which a token has one for each query head of a key head, and how many programs
    have those of a key head and one of the `shares`."""
    rows = tokens * (decoder.heads // decoder.key_heads)
    tile = cut.rows(rows, shares * decoder.key_heads)
    return tile, -(-rows // tile)


@dataclass(frozen=True)
class Shares:
    """Where shares of attention are put down: parts [rows, shares, width], highest and sums [rows, shares] float32;
    arrived int32, zeros."""

    parts: Tensor
    highest: Tensor
    sums: Tensor
    arrived: Tensor


def attend(
    rules: Rules,
    decoder: Decoder,
    joint: Tensor,
    norms: tuple[Tensor, Tensor],
    angles: tuple[Tensor, Tensor] | None,
    begin: Tensor,
    held: tuple[Tensor, Tensor],
    sinks: Tensor,
    shares: Shares,
    mixed: Tensor,
    window: int,
) -> None:
    """`angles`: cosines and sines, None for a layer that does not rotate; `held`: its keys and values."""
    from specdec_tui.backends.gpu import attention, whole_shares

    tokens, capacity, count = len(joint), held[0].shape[1], shares.sums.shape[1]
    cosines, sines = angles or (shares.sums, shares.sums)
    cut = cut_of(decoder, capacity, joint.dtype, joint.device)
    tile, tiles = row_cut(decoder, cut, count, tokens)
    joined = min(tile, power(tokens * (decoder.heads // decoder.key_heads)))
    lanes = _SLICE if cut.whole else lanes_of(decoder.width)
    tensors = (
        joint, norms[0] if norms[0].numel() else joint, norms[1] if norms[1].numel() else joint, cosines, sines, begin,
        *held, sinks if sinks.numel() else joint, shares.parts, shares.highest, shares.sums, shares.arrived, mixed,
    )  # fmt: skip
    known = (
        rules.epsilon, rules.norm_offset, decoder.family.head_norms, decoder.score_scale, decoder.score_cap,
        sinks.numel() > 0, tokens, decoder.heads, decoder.key_heads, decoder.width, cut.slices if cut.whole else lanes,
        decoder.turned if angles else 0, decoder.family.pairs, joint.shape[1], decoder.query_group, decoder.key_first,
        decoder.value_first, decoder.key_group, capacity, count, cut.share, window,
    )  # fmt: skip
    ending = (
        power(decoder.heads * decoder.width), mixed.stride(0), joined, power(count), cut.beside(joined, lanes),
    )  # fmt: skip
    if cut.whole:
        whole_shares.attend[(decoder.key_heads * cut.slices, count, tiles)](
            *tensors, *known, tile, *ending, cut.warps, by_code(joint.device), rules.overlap,
            num_warps=cut.warps, **rules.launch,
        )  # fmt: skip
        return
    attention.attend[(decoder.key_heads, count, tiles)](
        *tensors, *known, tile, cut.keys, min(256, cut.share), cut.early, *ending, rules.overlap,
        num_warps=cut.warps, num_stages=cut.stages, **rules.launch,
    )  # fmt: skip


def store_time(place: Tensor) -> None:
    from specdec_tui.backends.gpu import norms

    overlap = overlaps(place.device)
    norms.store_time[(1,)](place, overlap, num_warps=1, **({"launch_pdl": True} if overlap else {}))


def overlaps(device: torch.device) -> bool:
    """Whether a device begins a kernel before the one before has ended."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
