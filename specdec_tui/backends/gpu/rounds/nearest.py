"""Kernels that find the edges of top-k by a short list, in Triton; see `choosing`.

Where few tokens are kept, a bound below the k-th highest logit is at hand: k parts of the vocabulary have a highest
logit of at least that. What reaches the bound is listed, and the edges are found among it, bit by bit. Where the list
has no room for it, as where many logits are equal, the row itself takes its place: slower, with the same result.
Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.rounds.choosing import peak_of

_FAR = tl.constexpr(0x7FFFFFFF)  # a key behind all others
_COARSE = tl.constexpr(17)  # bits of the bound that are looked for, of 31
_OTHERS = tl.constexpr((1 << 14) - 1)


@triton.jit
def gather_near(
    rows: tl.tensor,
    settings: tl.tensor,
    peaks: tl.tensor,
    crests: tl.tensor,
    near: tl.tensor,
    total: tl.tensor,
    parts: tl.constexpr,
    width: tl.constexpr,
    tiles: tl.constexpr,
    many: tl.constexpr,
    tile: tl.constexpr,
    room: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """near int32 [n, room]: keys of the tokens of rows [n, width] that may be among the k best. Grid (tiles, n).

    In any order; their number is added to total int64 [n, 2] at 1. crests float32 [n, tiles, parts].
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    token = tl.program_id(0) * tile + tl.arange(0, tile)
    row = tl.program_id(1)
    x = tl.load(rows + row.to(tl.int64) * width + token, mask=token < width, other=-float("inf"))
    inverse = tl.load(settings).to(tl.float32)
    wanted = tl.load(settings + 1).to(tl.int32)
    top = peak_of(peaks, row, tiles, many)
    lane = tl.arange(0, many * parts)
    crest = tl.load(crests + row * tiles * parts + lane, mask=lane < tiles * parts, other=-float("inf"))
    least = tl.where(lane < tiles * parts, ((top - crest) * inverse).to(tl.int32, bitcast=True), _FAR)
    bound = tl.zeros((), tl.int32)
    for step in range(_COARSE):
        trial = bound + (1 << (30 - step))
        bound = tl.where(tl.sum((least < trial).to(tl.int32), 0) < wanted, trial, bound)
    bound += _OTHERS
    distance = (top - x) * inverse
    key = distance.to(tl.int32, bitcast=True)
    asked = (token < width) & (distance == distance) & (key <= bound)
    rank = tl.cumsum(asked.to(tl.int32), 0)
    begin = tl.atomic_add(total + 2 * row + 1, tl.sum(asked.to(tl.int64), 0), sem="relaxed")
    place = begin + rank - 1
    tl.store(near + row * room + place, key, mask=asked & (place < room))


@triton.jit
def _before(
    row: tl.tensor,
    settings: tl.tensor,
    top: tl.tensor,
    trial: tl.tensor,
    mass: tl.constexpr,
    scale: tl.constexpr,
    width: tl.constexpr,
    tile: tl.constexpr,
) -> tl.tensor:
    """How many tokens of a row have keys below `trial`, or with `mass` their probability, int64."""
    inverse = tl.load(settings).to(tl.float32)
    total = tl.zeros((), tl.int64)
    for begin in range(0, width, tile):
        token = begin + tl.arange(0, tile)
        x = tl.load(row + token, mask=token < width, other=-float("inf"))
        distance = (top - x) * inverse
        whole = (token < width).to(tl.int64)
        if mass:
            whole *= (tl.exp(-distance).to(tl.float64) * scale).to(tl.int64)
        total += tl.sum(tl.where(distance.to(tl.int32, bitcast=True) < trial, whole, 0), 0)
    return total


@triton.jit
def nearest_edge(
    row: tl.tensor,
    settings: tl.tensor,
    near: tl.tensor,
    count: tl.tensor,
    top: tl.tensor,
    mass: tl.constexpr,
    scale: tl.constexpr,
    width: tl.constexpr,
    tile: tl.constexpr,
    room: tl.constexpr,
) -> tl.tensor:
    """The key of the edge of top-k, or with `mass` of top-p after it, of a row [width]; the probability up to it.

    near [room] holds `count` keys if there is room for so many.
    """
    wanted = tl.load(settings + 1).to(tl.int64)
    edge = tl.zeros((), tl.int32)
    if count <= room:
        lane = tl.arange(0, room)
        key = tl.load(near + lane, mask=lane < count, other=_FAR)
        for step in range(31):
            trial = edge + (1 << (30 - step))
            edge = tl.where(tl.sum((key < trial).to(tl.int32), 0) < wanted, trial, edge)
        whole = (tl.exp(-key.to(tl.float32, bitcast=True)).to(tl.float64) * scale).to(tl.int64)
        whole = tl.where(key <= edge, whole, 0)
        held = tl.sum(whole, 0)
        if mass:
            goal = tl.maximum(tl.ceil(held.to(tl.float64) * tl.load(settings + 2)).to(tl.int64), 1)
            edge = tl.zeros((), tl.int32)
            for step in range(31):
                trial = edge + (1 << (30 - step))
                edge = tl.where(tl.sum(tl.where(key < trial, whole, 0), 0) < goal, trial, edge)
            held = tl.sum(tl.where(key <= edge, whole, 0), 0)
    else:
        for step in range(31):
            trial = edge + (1 << (30 - step))
            edge = tl.where(_before(row, settings, top, trial, False, scale, width, tile) < wanted, trial, edge)
        held = _before(row, settings, top, edge + 1, True, scale, width, tile)
        if mass:
            goal = tl.maximum(tl.ceil(held.to(tl.float64) * tl.load(settings + 2)).to(tl.int64), 1)
            edge = tl.zeros((), tl.int32)
            for step in range(31):
                trial = edge + (1 << (30 - step))
                edge = tl.where(_before(row, settings, top, trial, True, scale, width, tile) < goal, trial, edge)
            held = _before(row, settings, top, edge + 1, True, scale, width, tile)
    return edge, held
