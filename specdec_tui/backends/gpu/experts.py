"""Mixtures of experts for a few tokens, in Triton; see `products` for what all kernels keep to.

Behind the router, a product like others, two kernels stand for those of a plain MLP: gate and up of each token's
experts are multiplied, and so is down, summed over a token's experts and added to the stream. Each warp finds out from
the scores which experts are chosen: to wait until one has told all others would take longer. It asks for each score
once: all programs need those few lines, which the L2 cache hands out to one warp after the other, and Triton's own
loads of so few numbers, one for each way they are laid out, took longer than the weights of 64 experts. Only experts
that were chosen are read; those that several tokens chose come from the cache. No program sees more than one token.
"""

# ruff: noqa: RUF005 (Triton's tuples are added to)

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.choosing import finding, operands, results
from specdec_tui.backends.gpu.multiplied import activated, multiplied, prefetch
from specdec_tui.backends.gpu.sums import spread_of_rows, stream_row

_LANES = tl.constexpr(8)  # the narrow side of a tensor core's tile; a token fills one of them


@triton.jit
def _chosen(
    scores: tl.tensor,
    count: tl.constexpr,
    slots: tl.constexpr,
    power_count: tl.constexpr,
    behind: tl.constexpr,
    by_warp: tl.constexpr,
) -> tl.tuple:
    """Of one token: the experts of the highest scores, of equal ones the earlier first, then their scores. `behind`:
    the scores are of a kernel that was waited for, else of one whose end that one waited for. `by_warp`: as `choosing`
    has it, which takes compute capability 8.0."""
    if by_warp:
        return tl.inline_asm_elementwise(
            finding(count, slots, behind), operands(slots), [scores.to(tl.int64)], dtype=results(slots), is_pure=False,
            pack=1,
        )  # fmt: skip
    else:
        expert = tl.arange(0, power_count)
        own = tl.load(scores + expert, mask=expert < count, other=-float("inf"))
        stands = (own[:, None] > own[None, :]) | ((own[:, None] == own[None, :]) & (expert[:, None] < expert[None, :]))
        before = tl.sum(stands.to(tl.int32), 0)
        experts: tl.tuple = ()
        found: tl.tuple = ()
        for slot in tl.static_range(slots):
            here = before == slot
            which = tl.minimum(tl.sum(tl.where(here, expert, 0), 0), count - 1)  # what is no number chooses some
            experts = experts + (which,)
            found = found + (tl.sum(tl.where(here, own, 0.0), 0),)
        return experts + found


@triton.jit
def gated_experts(
    x: tl.tensor,
    stream: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    scores: tl.tensor,
    y: tl.tensor,
    count: tl.constexpr,
    slots: tl.constexpr,
    score_row: tl.constexpr,
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
    power_count: tl.constexpr,
    by_warp: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens · slots, rows] = activation(x @ gate.T) · (x @ up.T), by the expert of each token and slot.

    An expert's slot is how many have higher scores [tokens, score_row], or as high and stand before it. weight [count,
    2 · rows, columns] holds gate, then up of an expert, or `in_turn` a row of each; bias [count, 2 · rows]. `limit`
    above 0: see `decoder.Experts`. All else as in `products.product`; one program for `tile_rows` rows of a token and
    slot.
    """
    pair, line = tl.program_id(0), tl.arange(0, 2 * tile_rows)  # of gate, then of up
    half, own_row = line // tile_rows, tl.program_id(1) * tile_rows + line % tile_rows
    real_row, least = own_row < rows, tl.minimum(own_row, rows - 1)
    safe = 2 * least + half if in_turn else least + half * rows
    if overlap:
        gdc_wait()
        gdc_launch_dependents()  # only now: who comes next reads the scores before it waits
    token = pair // slots
    chosen = _chosen(scores + token * score_row, count, slots, power_count, True, by_warp)
    expert = chosen[0]
    for slot in tl.static_range(1, slots):
        expert = tl.where(pair % slots == slot, chosen[slot], expert)
    expert = expert.to(tl.int64)
    if biased:
        shift = tl.load(bias + expert * (2 * rows) + safe).to(tl.float32)
    if normed:
        one = stream_row(stream, token, columns, power_columns)
    result, _ = multiplied(
        tl.zeros((1,), weight.dtype.element_ty), x + token * columns, weight + expert * (2 * rows * columns), safe,
        real_row, 1, rows, columns, True, pieces, _LANES, 2 * tile_rows, tile_columns, 0,
    )  # fmt: skip
    result = tl.sum(result, 0)
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
    scores: tl.tensor,
    y: tl.tensor,
    norm: tl.tensor,
    z: tl.tensor,
    count: tl.constexpr,
    slots: tl.constexpr,
    score_row: tl.constexpr,
    shared: tl.constexpr,
    among: tl.constexpr,
    scale: tl.constexpr,
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
    power_count: tl.constexpr,
    by_warp: tl.constexpr,
    threads: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] += the sum over slots of share · (x @ weight.T + bias) of the expert in that slot.

    x [tokens · slots, columns], weight [count, rows, columns], bias [count, rows]. The slots are those of
    `gated_experts`; a share is `scale` · the softmax of scores [tokens, score_row] over all `count` experts, or `among`
    those in a slot. `shared`: there is one expert, of all tokens, whose share is `scale` · the sigmoid of score
    `count`, and of weight and bias it is the only one. Of the `pieces`, a power of two, `cuts` stand for the columns of
    a slot; all else as in `products.product`. One program, of so many
    `threads`, for `tile_rows` rows of a token. The kernel before may let this one begin only when the scores are there.
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
    if shared:
        expert = tl.zeros((pieces,), tl.int64)
        gate = tl.load(scores + token * score_row + count, cache_modifier=".cg")
        part = tl.where(real_slot, tl.sigmoid(gate) * scale, 0.0)
    else:
        chosen = _chosen(scores + token * score_row, count, slots, power_count, False, by_warp)
        highest, expert = chosen[slots], tl.zeros((pieces,), tl.int32)
        grown = tl.zeros((pieces,), tl.float32)
        total_grown = highest * 0.0
        for other in tl.static_range(slots):
            share_of = tl.exp(chosen[slots + other] - highest)
            expert = tl.where(slot == other, chosen[other], expert)
            grown = tl.where(slot == other, share_of, grown)
            total_grown += share_of
        if not among:
            each = tl.arange(0, max(power_count, threads))  # of fewer each thread would load several
            every = tl.load(
                scores + token * score_row + each, mask=each < count, other=-float("inf"), cache_modifier=".cg"
            )
            total_grown = tl.sum(tl.exp(every - highest), 0)
        part = tl.where(real_slot, grown / total_grown * scale, 0.0)
        expert = expert.to(tl.int64)
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
    total = tl.zeros((pieces, tile_rows, _LANES), tl.float32)
    if early > 0:
        mine = _pieces_of(x, own_start, own_real, cut, columns, share, 0, early)
    for begin in range(early, share, tile_columns):
        w = _pieces_of(weight, start, real, cut, columns, share, begin, tile_columns)
        own = _pieces_of(x, own_start, own_real, cut, columns, share, begin, tile_columns)
        total = tl.dot(w, tl.permute(own, (0, 2, 1)), total)
    if early > 0:  # only now: the loop's first tiles are asked for while this one's numbers come
        total = tl.dot(first, tl.permute(mine, (0, 2, 1)), total)
    found = tl.sum(total, 2)  # zeros but for one
    if biased:
        found += shift.to(tl.float32)
    result = tl.sum(found * part[:, None], 0) + before.to(tl.float32)
    rounded = result.to(y.dtype.element_ty)
    tl.store(y + token * rows + row, rounded, mask=real_row)
    if followed:
        tl.store(z + token * rows + row, (rounded.to(tl.float32) * factor).to(z.dtype.element_ty), mask=real_row)
