"""The kernels as functions of tensors: what they are compiled for, and how their work is cut."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from specdec_tui.backends.decoder import Decoder
from specdec_tui.backends.gpu.packed.packing import Packed
from specdec_tui.backends.gpu.tiles import Tiles, attention_cut, power, tile_tokens
from specdec_tui.backends.gpu.weights import Affine

_TILE_ROWS = 16  # of queries in a program of attention: how sums round hangs on it


@cache
def kernels() -> ModuleType | None:
    """The kernels' module `products`, with those of `norms` and `attention` loaded; None where there is no Triton."""
    try:
        from specdec_tui.backends.gpu import attention, norms, products  # noqa: F401
    except ImportError:
        return None
    return products


@dataclass(frozen=True, slots=True)
class Read:
    """Numbers [tokens, columns] that a product reads. With a `stream` of the same shape they are it times the weights
    of its RMS norm, and what is meant is that norm."""

    x: Tensor
    stream: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Follow:
    """Where what is added to the stream goes besides: times the weights `norm` of the next norm, to `x`."""

    norm: Tensor
    x: Tensor


@dataclass(frozen=True, slots=True)
class Rules:
    """What all kernels of a model are compiled for. `overlap`: they begin before the one before has ended."""

    overlap: bool
    epsilon: float
    norm_offset: float
    centred: bool
    tiles: Tiles

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
) -> None:
    """The first kernel of a pass: it waits for all before it, so that those behind may read ahead what passes left."""
    from specdec_tui.backends.gpu import norms

    columns, (rows, first) = x.shape[1], places
    norms.embed[(len(ids),)](
        ids, begin, table, rows if len(rows) else table, x, follow.norm if follow else x, follow.x if follow else x,
        scale, bool(len(rows)), first, max(0, len(rows) - 1), follow is not None, rules.norm_offset, columns,
        power(columns), rules.overlap, num_warps=8,
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
    weighted = [found.weight.numel() > 0 for found, _ in norms] + ([after.weight.numel() > 0] if branch else [])
    assert len(set(weighted)) == 1, "norms of a model have weights, or none has"

    def some(tensor: Tensor) -> Tensor:
        return tensor if tensor.numel() else x

    kernel[(keep or tokens,)](
        x, added, some(after.weight), some(after.bias), some(one.weight), some(one.bias), y, some(two.weight),
        some(two.bias), z, tokens - (keep or tokens), columns, rules.centred, rules.epsilon, rules.norm_offset, scale,
        branch is not None, bool(norms), len(norms) > 1, weighted[0], after.bias.numel() > 0, one.bias.numel() > 0,
        two.bias.numel() > 0, power(columns), rules.overlap, num_warps=8, **rules.launch,
    )  # fmt: skip


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
) -> None:
    """y [tokens, rows] = cap(scale · activation(x @ weight.T + bias)), or `added` to it."""
    from specdec_tui.backends.gpu import products
    from specdec_tui.backends.gpu.packed import launch as packed_launch

    if isinstance(linear.weight, Packed):
        packed_launch.product(
            own.x,
            linear.weight,
            y,
            normed=None if own.stream is None else packed_launch.Normed(own.stream, rules.epsilon),
            bias=linear.bias if linear.bias.numel() else None,
            activation=activation,
            scale=scale,
            cap=cap,
            added=added,
            follow=None if follow is None else packed_launch.Follow(follow.norm, follow.x, rules.norm_offset),
            overlap=rules.overlap,
        )
        return
    tokens, (rows, columns) = len(own.x), linear.weight.shape
    tile = rules.tiles.of(False, rows, columns, tokens)
    biased = linear.bias.numel() > 0
    products.product[(-(-rows // tile.rows),)](
        own.x, own.x if own.stream is None else own.stream, linear.weight, linear.bias if biased else linear.weight,
        y, follow.norm if follow else y, follow.x if follow else y, tokens, rows, columns, own.stream is not None,
        rules.epsilon, rules.norm_offset, biased, activation, scale, cap, added, follow is not None, tile.pieces,
        tile_tokens(tokens), tile.rows, tile.columns, tile.early, tile.ahead, power(columns), rules.overlap,
        num_warps=tile.warps, num_stages=tile.stages, **rules.launch,
    )  # fmt: skip


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
            normed=None if own.stream is None else packed_launch.Normed(own.stream, rules.epsilon),
            bias=linear.bias if linear.bias.numel() else None,
            overlap=rules.overlap,
        )
        return
    tokens, rows, columns = len(own.x), linear.weight.shape[0] // 2, linear.weight.shape[1]
    tile = rules.tiles.of(True, rows, columns, tokens)
    biased = linear.bias.numel() > 0
    products.gated_product[(-(-rows // tile.rows),)](
        own.x, own.x if own.stream is None else own.stream, linear.weight, linear.bias if biased else linear.weight,
        y, tokens, rows, columns, own.stream is not None, rules.epsilon, biased, activation, tile.pieces,
        tile_tokens(tokens), tile.rows, tile.columns, tile.early, tile.ahead, power(columns), rules.overlap,
        num_warps=tile.warps, num_stages=tile.stages, **rules.launch,
    )  # fmt: skip


def row_tiles(decoder: Decoder, tokens: int) -> int:
    """Programs of attention for a key head and a share: a token has a row for each query head of a key head."""
    return -(-tokens * (decoder.heads // decoder.key_heads) // _TILE_ROWS)


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
    from specdec_tui.backends.gpu import attention

    tokens, capacity, count = len(joint), held[0].shape[1], shares.sums.shape[1]
    lanes = max(16, power(decoder.width))
    cosines, sines = angles or (shares.sums, shares.sums)
    cut = attention_cut(lanes)
    attention.attend[(decoder.key_heads, count, row_tiles(decoder, tokens))](
        joint, norms[0] if norms[0].numel() else joint, norms[1] if norms[1].numel() else joint, cosines, sines, begin,
        *held, sinks if sinks.numel() else joint, shares.parts, shares.highest, shares.sums, shares.arrived, mixed,
        rules.epsilon, rules.norm_offset, decoder.family.head_norms, decoder.score_scale, decoder.score_cap,
        sinks.numel() > 0, tokens, decoder.heads, decoder.key_heads, decoder.width, lanes,
        decoder.turned if angles else 0, decoder.family.pairs, joint.shape[1], decoder.query_group, decoder.key_first,
        decoder.value_first, decoder.key_group, capacity, count, window, max(16, power(tokens)), _TILE_ROWS,
        min(cut.keys, capacity // count), min(256, capacity // count), power(decoder.heads * decoder.width),
        rules.overlap, num_warps=cut.warps, num_stages=cut.stages, **rules.launch,
    )  # fmt: skip


def store_time(place: Tensor) -> None:
    from specdec_tui.backends.gpu import norms

    norms.store_time[(1,)](place)


def overlaps(device: torch.device) -> bool:
    """Whether a device begins a kernel before the one before has ended."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
