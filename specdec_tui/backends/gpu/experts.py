"""Mixtures of experts for a few tokens, in Triton; see `products` for what all kernels keep to.

Three kernels stand for the two of a plain MLP: the router chooses, gate and up of each token's experts are multiplied,
and so is down, summed over a token's experts and added to the stream. Only experts that were chosen are read; those
that several tokens chose come from the cache. No program sees more than one token, but for the router's product.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.multiplied import activated, begun, multiplied, prefetch
from specdec_tui.backends.gpu.sums import first_rows, spread_of_rows, stream_row

_LANES = tl.constexpr(8)  # the narrow side of a tensor core's tile; a token fills one of them
_BLOCK = tl.constexpr(32)  # scores that all others are compared with at a time


@triton.jit
def _choose(
    scores: tl.tensor,
    chosen: tl.tensor,
    shares: tl.tensor,
    rows: tl.constexpr,
    count: tl.constexpr,
    slots: tl.constexpr,
    among: tl.constexpr,
    scale: tl.constexpr,
    shared_scale: tl.constexpr,
    power_count: tl.constexpr,
) -> None:
    """Of one token. An expert's slot is how many stand before it: those of higher scores, or as high and earlier."""
    expert = tl.arange(0, power_count)
    own = tl.load(scores + expert, mask=expert < count, other=-float("inf"), cache_modifier=".cg")
    before = tl.zeros((power_count,), tl.int32)
    for begin in range(0, power_count, _BLOCK):
        other = begin + tl.arange(0, _BLOCK)
        score = tl.load(scores + other, mask=other < count, other=-float("inf"), cache_modifier=".cg")
        higher = score[None, :] > own[:, None]
        earlier = (score[None, :] == own[:, None]) & (other[None, :] < expert[:, None])
        before += tl.sum((higher | earlier).to(tl.int32), 1)
    taken = (expert < count) & (before < slots)
    part = tl.exp(own - tl.max(own, 0))
    total = tl.sum(tl.where(taken, part, 0.0) if among else part, 0)
    tl.store(chosen + before, expert, mask=taken)
    tl.store(shares + before, part / total * scale, mask=taken)
    if rows > count:
        gate = tl.load(scores + count, cache_modifier=".cg")
        tl.store(shares + slots, tl.sigmoid(gate) * shared_scale)


@triton.jit
def route(
    x: tl.tensor,
    stream: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    scores: tl.tensor,
    chosen: tl.tensor,
    shares: tl.tensor,
    arrived: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    count: tl.constexpr,
    slots: tl.constexpr,
    among: tl.constexpr,
    scale: tl.constexpr,
    shared_scale: tl.constexpr,
    normed: tl.constexpr,
    epsilon: tl.constexpr,
    biased: tl.constexpr,
    pieces: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    early: tl.constexpr,
    ahead: tl.constexpr,
    power_columns: tl.constexpr,
    power_count: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """chosen [tokens, slots] int32 = the experts of the highest scores x @ weight.T + bias, the first of equal ones.

    shares [tokens, slots + 1] float32 = `scale` · their softmax over all `count` experts, or `among` those chosen; the
    last is `shared_scale` · the sigmoid of row `count`, where there is one. scores [tokens, rows] float32 and arrived
    int32 [1], which is 0 before and after, are work space. All else as in `products.product`; the last program that
    has its scores chooses.
    """
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    safe, real_row = tl.minimum(row, rows - 1), row < rows
    if overlap:
        gdc_launch_dependents()
    if biased:
        shift = tl.load(bias + safe).to(tl.float32)
    first = begun(weight, safe, real_row, rows, columns, False, pieces, tile_rows, tile_columns, early, ahead, overlap)
    if normed:
        one, two, three, four = first_rows(stream, tokens, columns, power_columns)
    result = multiplied(
        first, x, weight, safe, real_row, tokens, rows, columns, False, pieces, tile_tokens, tile_rows, tile_columns,
        early,
    )  # fmt: skip
    if normed:
        spread = spread_of_rows(stream, one, two, three, four, tokens, columns, epsilon, tile_tokens, power_columns)
        result = result * spread[None, :]
    if biased:
        result += shift[:, None]
    token = tl.arange(0, tile_tokens)
    inside = (token < tokens)[None, :] & real_row[:, None]
    tl.store(scores + token[None, :] * rows + row[:, None], result, mask=inside)
    tl.debug_barrier()
    if tl.atomic_add(arrived, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        tl.store(arrived, 0)
        for each in range(tokens):
            _choose(
                scores + each * rows, chosen + each * slots, shares + each * (slots + 1), rows, count, slots, among,
                scale, shared_scale, power_count,
            )  # fmt: skip


@triton.jit
def gated_experts(
    x: tl.tensor,
    stream: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    chosen: tl.tensor,
    y: tl.tensor,
    count: tl.constexpr,
    slots: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    in_turn: tl.constexpr,
    normed: tl.constexpr,
    epsilon: tl.constexpr,
    biased: tl.constexpr,
    activation: tl.constexpr,
    limit: tl.constexpr,
    alpha: tl.constexpr,
    pieces: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    power_columns: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens · slots, rows] = activation(x @ gate.T) · (x @ up.T), by the expert of each token and slot.

    weight [count, 2 · rows, columns] holds gate, then up of an expert, or `in_turn` a row of each; bias [count, 2 ·
    rows]. `limit` above 0: see `decoder.Experts`. All else as in `products.product`; one program for `tile_rows` rows
    of a token and slot.
    """
    pair, line = tl.program_id(0), tl.arange(0, 2 * tile_rows)  # of gate, then of up
    half, own_row = line // tile_rows, tl.program_id(1) * tile_rows + line % tile_rows
    real_row, least = own_row < rows, tl.minimum(own_row, rows - 1)
    safe = 2 * least + half if in_turn else least + half * rows
    if overlap:
        gdc_wait()
        gdc_launch_dependents()  # only now: who comes next reads what was chosen before it waits
    expert = tl.minimum(tl.maximum(tl.load(chosen + pair), 0), count - 1).to(tl.int64)
    token = pair // slots
    if biased:
        shift = tl.load(bias + expert * (2 * rows) + safe).to(tl.float32)
    if normed:
        one = stream_row(stream, token, columns, power_columns)
    result = multiplied(
        tl.zeros((1,), weight.dtype.element_ty), x + token * columns, weight + expert * (2 * rows * columns), safe,
        real_row, 1, rows, columns, True, pieces, _LANES, 2 * tile_rows, tile_columns, 0,
    )  # fmt: skip
    if normed:
        spread = spread_of_rows(stream, one, one, one, one, 1, columns, epsilon, _LANES, power_columns)
        result = result * spread[None, :]
    result = tl.sum(result, 1)  # zeros but for one
    if biased:
        result += shift
    gate, up = tl.split(tl.permute(tl.reshape(result, (2, tile_rows)), (1, 0)))
    if limit > 0:
        gate, up = tl.minimum(gate, limit), tl.minimum(tl.maximum(up, -limit), limit)
        found = gate * tl.sigmoid(alpha * gate) * (up + 1.0)
    else:
        found = activated(gate, activation) * up
    row = tl.program_id(1) * tile_rows + tl.arange(0, tile_rows)
    tl.store(y + pair * rows + row, found.to(y.dtype.element_ty), mask=row < rows)


@triton.jit
def _pieces_of(
    matrix: tl.tensor,
    start: tl.tensor,
    real: tl.tensor,
    cut: tl.tensor,
    columns: tl.constexpr,
    share: tl.constexpr,
    begin: tl.tensor,
    tile_columns: tl.constexpr,
) -> tl.tensor:
    """[pieces, lines, tile_columns]: from column `begin` on of the share `cut` [pieces] of lines that begin at `start`
    [pieces, lines]."""
    within = begin + tl.arange(0, tile_columns)
    column = cut[:, None] * share + within[None, :]
    inside = (within < share)[None, :] & (column < columns)
    return tl.load(
        matrix + start[:, :, None] + column[:, None, :], mask=real[:, :, None] & inside[:, None, :], other=0.0
    )


@triton.jit
def add_experts(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    chosen: tl.tensor,
    shares: tl.tensor,
    y: tl.tensor,
    norm: tl.tensor,
    z: tl.tensor,
    count: tl.constexpr,
    slots: tl.constexpr,
    share_row: tl.constexpr,
    first_share: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    norm_offset: tl.constexpr,
    biased: tl.constexpr,
    followed: tl.constexpr,
    cuts: tl.constexpr,
    pieces: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    early: tl.constexpr,
    ahead: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] += the sum over slots of share · (x @ weight.T + bias) of the expert in that slot.

    x [tokens · slots, columns], weight [count, rows, columns], bias [count, rows]; a token's shares begin at
    `first_share` of its `share_row`. With one expert (`count` 1) `chosen` is not read. Of the `pieces`, a power of two,
    `cuts` stand for the columns of a slot; all else as in `products.product`. One program for `tile_rows` rows of a
    token. The kernel before may let this one begin only when `chosen` is there.
    """
    share: tl.constexpr = (columns + cuts * 16 - 1) // (cuts * 16) * 16
    token = tl.program_id(0)
    row = tl.program_id(1) * tile_rows + tl.arange(0, tile_rows)
    safe, real_row = tl.minimum(row, rows - 1), row < rows
    piece = tl.arange(0, pieces)
    slot, cut = piece // cuts, piece % cuts
    real_slot, own_slot = slot < slots, tl.minimum(slot, slots - 1)
    if overlap:
        gdc_launch_dependents()
    if followed:
        factor = tl.load(norm + safe).to(tl.float32) + norm_offset
    if count > 1:
        expert = tl.load(chosen + token * slots + own_slot)
        expert = tl.minimum(tl.maximum(expert, 0), count - 1).to(tl.int64)
    else:
        expert = tl.zeros((pieces,), tl.int64)
    start = expert[:, None] * (rows * columns) + safe.to(tl.int64)[None, :] * columns
    real = real_slot[:, None] & real_row[None, :]
    if biased:
        shift = tl.load(bias + expert[:, None] * rows + safe[None, :], mask=real & (cut == 0)[:, None], other=0.0)
    if early > 0:
        first = _pieces_of(weight, start, real, cut, columns, share, 0, early)
    if overlap:
        if ahead > 0:
            line = cut[:, None] * share + early + (tl.arange(0, ahead // 64) * 64)[None, :]
            prefetch(weight + start[:, :, None] + tl.minimum(line, columns - 1)[:, None, :])
        gdc_wait()
    lane = tl.arange(0, _LANES)
    own_start = ((token * slots + own_slot) * columns)[:, None] + 0 * lane[None, :]
    own_real = real_slot[:, None] & (lane == 0)[None, :]
    before = tl.load(y + token * rows + row, mask=real_row, other=0.0)
    part = tl.load(shares + token * share_row + first_share + own_slot, mask=real_slot, other=0.0)
    total = tl.zeros((pieces, tile_rows, _LANES), tl.float32)
    if early > 0:
        mine = _pieces_of(x, own_start, own_real, cut, columns, share, 0, early)
        total = tl.dot(first, tl.permute(mine, (0, 2, 1)), total)
    for begin in range(early, share, tile_columns):
        w = _pieces_of(weight, start, real, cut, columns, share, begin, tile_columns)
        own = _pieces_of(x, own_start, own_real, cut, columns, share, begin, tile_columns)
        total = tl.dot(w, tl.permute(own, (0, 2, 1)), total)
    found = tl.sum(total, 2)  # zeros but for one
    if biased:
        found += shift.to(tl.float32)
    result = tl.sum(found * part[:, None], 0) + before.to(tl.float32)
    rounded = result.to(y.dtype.element_ty)
    tl.store(y + token * rows + row, rounded, mask=real_row)
    if followed:
        tl.store(z + token * rows + row, (rounded.to(tl.float32) * factor).to(z.dtype.element_ty), mask=real_row)
