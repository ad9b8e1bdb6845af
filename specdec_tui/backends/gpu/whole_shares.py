"""Attention of a few tokens where a program reads its share of the text at once, in Triton; see `attention`.

Each warp has keys of its own, which come straight to the registers that a tensor core multiplies from, as their values
do. The threads meet when all get the queries that they have turned together, and when the parts of the warps are joined
by way of shared memory (`asm`; elsewhere by Triton's own sums).

Lane 4 · g + t of a warp's 32 loads eight numbers that follow each other at a time. Of keys these are columns 32 · s +
8 · t + 4 · k + 2 · m + c of key 8 · n + g, which a tensor core takes for 32 · s + 16 · k + 8 · m + 2 · t + c: queries
are loaded in that order too, which a sum does not feel. Of values they are columns 8 · g + j of a key 16 · s + 8 · m +
2 · t + c, taken for column 8 · j + g. Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.multiplied import capped
from specdec_tui.backends.gpu.shares import leave
from specdec_tui.backends.gpu.sums import plus
from specdec_tui.backends.gpu.turning import angles, loaded, norm_weights, spread_of, spreads, turned_heads

WIDE = tl.constexpr(64)  # columns of the values that a program has


@triton.constexpr_function
def _room(warps: int, rows: int) -> str:
    """PTX: room in shared memory for the parts of warps. $0: where it begins."""
    return f".shared .align 16 .b8 attention_parts[{4 * warps * rows * 74}];\nmov.u32 $0, attention_parts;"


@triton.jit
def _lane_of(warps: tl.constexpr) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """(warp, g, t) of each thread, [threads, 1, 1]."""
    thread = tl.arange(0, warps * 32)[:, None, None]
    return thread // 32, thread % 32 // 4, thread % 4


@triton.jit
def _operand(x: tl.tensor, warps: tl.constexpr, eights: tl.constexpr, steps: tl.constexpr) -> tl.tensor:
    """[warps, rows, columns] of what threads loaded of rows [warps · 32, eights · steps, 8]."""
    x = tl.reshape(x, (warps, 8, 4, eights, steps, 2, 2, 2))  # warp, g, t, n, s, k, m, c
    return tl.reshape(tl.permute(x, (0, 3, 1, 4, 5, 6, 2, 7)), (warps, 8 * eights, 32 * steps))


@triton.jit
def _placed(scores: tl.tensor, own: tl.tensor, place: tl.tensor, count: tl.constexpr) -> tl.tensor:
    """scores [warps, rows, keys] with the first `count` columns of own [warps, rows, 8] where `place` [warps, 1, keys]
    is their number: column by column, as in `attention`."""
    column = tl.arange(0, 8)[None, None, :]
    for first in tl.static_range(0, count, 4):
        one, two, three, four = tl.reduce(
            (
                tl.where(column == first, own, 0.0),
                tl.where(column == first + 1, own, 0.0),
                tl.where(column == first + 2, own, 0.0),
                tl.where(column == first + 3, own, 0.0),
            ),
            2,
            plus,
        )
        scores = tl.where(place == first, one[:, :, None], scores)
        if first + 1 < count:
            scores = tl.where(place == first + 1, two[:, :, None], scores)
        if first + 2 < count:
            scores = tl.where(place == first + 2, three[:, :, None], scores)
        if first + 3 < count:
            scores = tl.where(place == first + 3, four[:, :, None], scores)
    return scores


@triton.jit
def _put(address: tl.tensor, value: tl.tensor) -> None:
    tl.inline_asm_elementwise(
        "st.shared.f32 [$1], $2; mov.u32 $0, 0;", "=r,r,f", [address, value], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _got(address: tl.tensor) -> tl.tensor:
    return tl.inline_asm_elementwise(
        "ld.shared.f32 $0, [$1];", "=f,r", [address], dtype=tl.float32, is_pure=False, pack=1
    )


@triton.jit
def _joined(
    top: tl.tensor, total: tl.tensor, mix: tl.tensor, warps: tl.constexpr, rows: tl.constexpr, asm: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Of what warps have of the highest score and the sum of weights [warps, rows] and of the mix [warps, rows, 64]:
    the same of all, [rows, 1 or 64] and [rows, 64], and the columns [64] of that."""
    if asm:
        base = tl.inline_asm_elementwise(_room(warps, rows), "=r,r", [0], dtype=tl.int32, is_pure=False, pack=1)
        warp, row = tl.arange(0, warps)[:, None], tl.arange(0, rows)[None, :]
        place = base + (warp * rows + row) * 4
        _put(place, top)
        _put(place + warps * rows * 4, total)
        column = tl.arange(0, WIDE)[None, None, :]
        _put(base + 8 * warps * rows + ((warp * rows + row)[:, :, None] * 72 + column) * 4, mix)
        tl.inline_asm_elementwise("bar.sync 0; mov.u32 $0, 0;", "=r,r", [0], dtype=tl.int32, is_pure=False, pack=1)
        lane, own = tl.arange(0, WIDE), tl.arange(0, rows)[:, None]
        line = own + 0 * lane[None, :]
        highest = _got(base + line * 4)
        for other in tl.static_range(1, warps):
            highest = tl.maximum(highest, _got(base + (line + other * rows) * 4))
        safe = tl.where(highest == -float("inf"), 0.0, highest)
        weights, found = tl.zeros((rows, WIDE), tl.float32), tl.zeros((rows, WIDE), tl.float32)
        for other in tl.static_range(warps):
            share = tl.exp(_got(base + (line + other * rows) * 4) - safe)
            weights += share * _got(base + (warps * rows + line + other * rows) * 4)
            at = (line + other * rows) * 72 + (lane % 8 * 8 + lane // 8)[None, :]
            found += share * _got(base + 8 * warps * rows + at * 4)
        return highest, weights, found, lane
    else:
        highest = tl.max(top, 0)
        share = tl.exp(top - tl.where(highest == -float("inf"), 0.0, highest)[None, :])
        column = tl.arange(0, WIDE)
        mix, total = tl.sum(mix * share[:, :, None], 0), tl.sum(total * share, 0)
        return highest[:, None], total[:, None], mix, column % 8 * 8 + column // 8


@triton.jit
def attend(
    joint: tl.tensor,
    query_norm: tl.tensor,
    key_norm: tl.tensor,
    cosines: tl.tensor,
    sines: tl.tensor,
    begin: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    sinks: tl.tensor,
    parts: tl.tensor,
    highest: tl.tensor,
    sums: tl.tensor,
    arrived: tl.tensor,
    mixed: tl.tensor,
    epsilon: tl.constexpr,
    norm_offset: tl.constexpr,
    normed: tl.constexpr,
    score_scale: tl.constexpr,
    score_cap: tl.constexpr,
    sinking: tl.constexpr,
    tokens: tl.constexpr,
    heads: tl.constexpr,
    key_heads: tl.constexpr,
    width: tl.constexpr,
    slices: tl.constexpr,
    turned: tl.constexpr,
    pairs: tl.constexpr,
    row_length: tl.constexpr,
    query_group: tl.constexpr,
    key_first: tl.constexpr,
    value_first: tl.constexpr,
    key_group: tl.constexpr,
    capacity: tl.constexpr,
    shares: tl.constexpr,
    length: tl.constexpr,
    window: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_heads: tl.constexpr,
    mixed_length: tl.constexpr,
    joined_rows: tl.constexpr,
    tile_shares: tl.constexpr,
    beside: tl.constexpr,
    warps: tl.constexpr,
    asm: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """As `attention.attend`, where a share of `length` keys, at least 16 for each of the `warps`, is read at once. One
    program for a key head and one of the `slices` of its values' 64 columns, a share, and `tile_rows` rows, 8 or 16."""
    if overlap:
        gdc_launch_dependents()
    key_head, piece, share = tl.program_id(0) // slices, tl.program_id(0) % slices, tl.program_id(1)
    group: tl.constexpr = heads // key_heads
    start = tl.load(begin).to(tl.int32)
    end = start + tokens
    seen_first = 0
    if window > 0:
        seen_first = tl.maximum(start - window + 1, 0)
    low, high = seen_first // length, (end - 1) // length
    if (share < low) | (share > high):
        return
    own_keys: tl.constexpr = length // warps
    steps: tl.constexpr = 2 * slices
    keys += key_head.to(tl.int64) * (capacity * width)
    values += key_head.to(tl.int64) * (capacity * width)
    warp, g, t = _lane_of(warps)
    stop = tl.minimum(share * length + length, end)
    first_key = share * length + warp * own_keys
    unit = tl.arange(0, own_keys // 8 * steps)[None, :, None]
    key = first_key + unit // steps * 8 + g
    column = unit % steps * 32 + t * 8 + tl.arange(0, 8)[None, None, :]
    held_keys = tl.load(keys + key * width + column, mask=(key < tl.minimum(start, stop)) & (column < width), other=0.0)
    unit = tl.arange(0, own_keys // 4)[None, :, None]
    value_key = first_key + unit // 4 * 16 + unit // 2 % 2 * 8 + 2 * t + unit % 2
    value_column = piece * WIDE + g * 8 + tl.arange(0, 8)[None, None, :]
    held_values = tl.load(
        values + value_key * width + value_column,
        mask=(value_key < tl.minimum(start, stop)) & (value_column < width),
        other=0.0,
    )
    place = tl.arange(0, 32 * steps)
    lane = (
        place // 32 * 32 + place // 2 % 4 * 8 + place // 16 % 2 * 4 + place // 8 % 2 * 2 + place % 2
    )  # in the order of `_operand`
    row, new = tl.program_id(2) * tile_rows + tl.arange(0, tile_rows), tl.arange(0, 8)
    token, real = row // group, row < tokens * group
    of_query, of_key = 0 * row, 0 * new
    if normed == "whole":
        of_query, of_key = (key_head * group + row % group) * width, of_key + key_head * width
    weight, other_weight = norm_weights(query_norm + of_query, real, normed, lane, width, turned, pairs)
    cosine, sine = angles(start + token, real, cosines, sines, lane, turned, pairs)
    key_weight, key_other = norm_weights(key_norm + of_key, new < tokens, normed, lane, width, turned, pairs)
    key_cosine, key_sine = angles(start + new, new < tokens, cosines, sines, lane, turned, pairs)
    if overlap:
        gdc_wait()
    # All that is read of this pass is asked for at once.
    queries = joint + token * row_length + key_head * query_group + row % group * width
    q, q_other = loaded(queries, real, lane, width, turned, pairs)
    own = joint + new * row_length + key_head * key_group
    k, k_other = loaded(own + key_first, new < tokens, lane, width, turned, pairs)
    mine = value_key - start
    fresh = (mine >= 0) & (value_key < stop)
    source = joint + value_first + key_head * key_group + mine * row_length + value_column
    held_values = tl.load(source, mask=fresh & (value_column < width), other=held_values)
    value_lane = piece * WIDE + tl.arange(0, WIDE)
    v = tl.load(
        own[:, None] + value_first + value_lane[None, :], (new < tokens)[:, None] & (value_lane < width)[None, :], 0.0
    )
    factors = ()
    spread, key_spread = tl.zeros((tile_rows,), tl.float32), tl.zeros((8,), tl.float32)
    if normed == "whole":
        factors = spreads(
            joint, tokens, row_length, heads * width, key_first, key_heads * width, tile_heads, tile_heads, epsilon
        )
        spread, key_spread = spread_of(factors, token, tokens, 0), spread_of(factors, new, tokens, 1)
    kind: tl.constexpr = held_values.dtype
    q = turned_heads(
        q, q_other, weight, other_weight, spread, cosine, sine, epsilon, norm_offset, normed, width, turned
    ).to(kind)  # fmt: skip
    k = turned_heads(
        k, k_other, key_weight, key_other, key_spread, key_cosine, key_sine, epsilon, norm_offset, normed, width, turned
    ).to(kind)  # fmt: skip
    q = tl.broadcast_to(q[None, :, :], (warps, tile_rows, 32 * steps))
    scores = tl.dot(q, tl.permute(_operand(held_keys, warps, own_keys // 8, steps), (0, 2, 1)))
    at_key = share * length + tl.arange(0, warps)[:, None, None] * own_keys + tl.arange(0, own_keys)[None, None, :]
    for first_new in tl.static_range(0, tokens, 8):
        found = first_new + new
        if first_new > 0:
            own = joint + found * row_length + key_head * key_group
            k, k_other = loaded(own + key_first, found < tokens, lane, width, turned, pairs)
            v = tl.load(
                own[:, None] + value_first + value_lane[None, :],
                (found < tokens)[:, None] & (value_lane < width)[None, :],
                0.0,
            )
            key_weight, key_other = norm_weights(key_norm + of_key, found < tokens, normed, lane, width, turned, pairs)
            key_cosine, key_sine = angles(start + found, found < tokens, cosines, sines, lane, turned, pairs)
            if normed == "whole":
                key_spread = spread_of(factors, found, tokens, 1)
            k = turned_heads(
                k, k_other, key_weight, key_other, key_spread, key_cosine, key_sine, epsilon, norm_offset, normed,
                width, turned,
            ).to(kind)  # fmt: skip
        storing = ((found < tokens) & ((start + found) // length == share))[:, None]
        target = (start + found)[:, None] * width
        tl.store(keys + target + lane[None, :], k, mask=storing & (piece == 0) & (lane < width)[None, :])
        tl.store(values + target + value_lane[None, :], v, mask=storing & (value_lane < width)[None, :])
        new_keys = tl.broadcast_to(k[None, :, :], (warps, 8, 32 * steps))
        own_scores = tl.dot(q, tl.permute(new_keys, (0, 2, 1)))
        scores = _placed(scores, own_scores, at_key - (start + first_new), min(8, tokens - first_new))
    last = (start + token)[None, :, None]
    scores = capped(scores * score_scale, score_cap)
    seen = at_key <= tl.minimum(last, stop - 1)
    if window > 0:
        seen = seen & (at_key > last - window)
    scores = tl.where(seen, scores, -float("inf"))
    top = tl.max(scores, 2)
    p = tl.exp(scores - tl.where(top == -float("inf"), 0.0, top)[:, :, None])
    v = tl.reshape(held_values, (warps, 8, 4, own_keys // 16, 2, 2, 8))  # warp, g, t, s, m, c, j
    v = tl.reshape(tl.permute(v, (0, 3, 4, 2, 5, 6, 1)), (warps, own_keys, WIDE))
    mix = tl.dot(p.to(kind), v)
    top, total, found_mix, lane = _joined(top, tl.sum(p, 2), mix, warps, tile_rows, asm)
    counter = arrived + tl.program_id(0) * tl.num_programs(2) + tl.program_id(2)
    joined = tl.program_id(2) * tile_rows + tl.arange(0, joined_rows)
    leave(
        mixed, sinks, parts, highest, sums, counter, top, total, found_mix, row, joined, key_head, share, low, high,
        piece * WIDE + lane, piece * WIDE + tl.arange(0, WIDE), tokens, heads, group, sinking, width, shares,
        tile_shares, beside, mixed_length, asm,
    )  # fmt: skip
