"""Attention of a few tokens over the text held, in Triton; see `products` for what all kernels here keep to.

One kernel turns queries and keys to their places, writes the new keys and values behind those of the text, attends
share by share, and joins the shares.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.multiplied import capped, prefetch
from specdec_tui.backends.gpu.shares import leave
from specdec_tui.backends.gpu.sums import plus
from specdec_tui.backends.gpu.turning import angles, loaded, norm_weights, spread_of, spreads, turned_heads


@triton.jit
def _seen(
    scores: tl.tensor,
    at_key: tl.tensor,
    last: tl.tensor,
    stop: tl.tensor,
    score_scale: tl.constexpr,
    score_cap: tl.constexpr,
    window: tl.constexpr,
) -> tl.tensor:
    """Scores [rows, keys] of products with keys at `at_key` [keys]; those that a row does not see are -inf."""
    scores = capped(scores * score_scale, score_cap)
    seen = at_key[None, :] <= tl.minimum(last, stop - 1)[:, None]
    if window > 0:
        seen = seen & (at_key[None, :] > last[:, None] - window)
    return tl.where(seen, scores, -float("inf"))


@triton.jit
def _placed(scores: tl.tensor, own: tl.tensor, place: tl.tensor, count: tl.constexpr) -> tl.tensor:
    """scores [rows, keys] with the first `count` columns of own [rows, 16] where `place` [keys] is their number.

    Column by column, for the order of a row's sums hangs on how scores lie in the threads: that must not change, as it
    would by a gather, with the number of tokens.
    """
    column = tl.arange(0, 16)[None, :]
    for first in tl.static_range(0, count, 4):
        one, two, three, four = tl.reduce(
            (
                tl.where(column == first, own, 0.0),
                tl.where(column == first + 1, own, 0.0),
                tl.where(column == first + 2, own, 0.0),
                tl.where(column == first + 3, own, 0.0),
            ),
            1,
            plus,
        )
        scores = tl.where((place == first)[None, :], one[:, None], scores)
        if first + 1 < count:
            scores = tl.where((place == first + 1)[None, :], two[:, None], scores)
        if first + 2 < count:
            scores = tl.where((place == first + 2)[None, :], three[:, None], scores)
        if first + 3 < count:
            scores = tl.where((place == first + 3)[None, :], four[:, None], scores)
    return scores


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
    lanes: tl.constexpr,
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
    tile_keys: tl.constexpr,
    asked_keys: tl.constexpr,
    early: tl.constexpr,
    tile_heads: tl.constexpr,
    mixed_length: tl.constexpr,
    joined_rows: tl.constexpr,
    tile_shares: tl.constexpr,
    beside: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """mixed [tokens, heads, width], tokens `mixed_length` apart: attention over the text by all query heads of a key
    head, share by share (flash decoding, Dao et al. 2023).

    joint [tokens, row_length] holds a token's queries, keys and values: query head j of key head g from
    g · query_group + j · width on, key head g from key_first + g · key_group on, its values from value_first + g ·
    key_group on. keys and values [key_heads, capacity, width]; cosines and sines [positions, turned / 2] float32,
    `pairs`: of neighbouring numbers, not of halves; begin int64 [1]. `normed`: an RMS norm of each "head", or of the
    "whole" of queries and of keys, comes first.
    Shares are fixed pieces of the capacity, each `length` tokens, so that a row's sums do not depend on what else is
    computed. A token sees the last `window` ones; 0: all of them. `sinking`: a head's number in sinks [heads] has a
    part of the attention. `early`: the first tile of a share is loaded before the kernel before has ended.
    parts [tokens · heads, shares, width], highest and sums [tokens · heads, shares] float32; arrived int32, zeros
    before and after. Of a row's shares that hold something, the one that is ready last joins them.
    One program for a key head, a share and `tile_rows` rows, of which a token has one for each query head.
    """
    if overlap:
        gdc_launch_dependents()
    key_head, share = tl.program_id(0), tl.program_id(1)
    group: tl.constexpr = heads // key_heads
    # Where the pass begins, and all that lies before it, was there before its first kernel, which waits for all others.
    start = tl.load(begin).to(tl.int32)
    end = start + tokens
    seen_first = 0
    if window > 0:
        seen_first = tl.maximum(start - window + 1, 0)
    low, high = seen_first // length, (end - 1) // length
    if (share < low) | (share > high):
        return
    keys += key_head.to(tl.int64) * (capacity * width)
    values += key_head.to(tl.int64) * (capacity * width)
    lane = tl.arange(0, lanes)
    narrow = (lane < width)[None, :]
    row = tl.program_id(2) * tile_rows + tl.arange(0, tile_rows)
    token, head = row // group, key_head * group + row % group
    real = row < tokens * group
    stop = tl.minimum(share * length + length, end)  # a share need not be whole tiles
    first_tile = share * length + tl.maximum(seen_first - share * length, 0) // tile_keys * tile_keys
    at_key = first_tile + tl.arange(0, tile_keys)
    there = at_key[:, None] * width + lane[None, :]
    then = first_tile  # where keys that are not loaded early begin
    if early:
        held = at_key < tl.minimum(start, stop)
        held_keys = tl.load(keys + there, mask=held[:, None] & narrow, other=0.0)
        held_values = tl.load(values + there, mask=held[:, None] & narrow, other=0.0)
        then += tile_keys
    if overlap and (length > tile_keys or not early):
        lines: tl.constexpr = (width + 63) // 64
        asked = then + tl.arange(0, asked_keys)
        asked = tl.maximum(tl.minimum(asked, tl.minimum(start, stop) - 1), 0) * width
        for line in tl.static_range(lines):
            prefetch(keys + asked + line * 64)
            prefetch(values + asked + line * 64)
    new = tl.arange(0, tile_rows)
    own = (new < tokens) & ((start + new) // length == share)
    of_head, of_row = 0 * new, 0 * row
    if normed == "whole":
        of_head, of_row = of_head + key_head * width, head * width
    key_weight, key_other = norm_weights(key_norm + of_head, own, normed, lane, width, turned, pairs)
    weight, other_weight = norm_weights(query_norm + of_row, real, normed, lane, width, turned, pairs)
    key_cosine, key_sine = angles(start + new, own, cosines, sines, lane, turned, pairs)
    cosine, sine = angles(start + token, real, cosines, sines, lane, turned, pairs)
    if overlap:
        gdc_wait()
    # All that is read of this pass is asked for at once.
    source = joint + new * row_length + key_head * key_group
    k, k_other = loaded(source + key_first, own, lane, width, turned, pairs)
    v = tl.load(source[:, None] + value_first + lane[None, :], mask=own[:, None] & narrow, other=0.0)
    q, q_other = loaded(
        joint + token * row_length + key_head * query_group + row % group * width, real, lane, width, turned, pairs
    )
    if early:  # values of the pass's own tokens come from where they are
        mine = at_key - start
        fresh = (mine >= 0) & (at_key < stop)
        source = joint + value_first + key_head * key_group + mine[:, None] * row_length + lane[None, :]
        held_values = tl.load(source, mask=fresh[:, None] & narrow, other=held_values)
    factors = ()
    spread, factor = tl.zeros((tile_rows,), tl.float32), tl.zeros((tile_rows,), tl.float32)
    if normed == "whole":
        factors = spreads(
            joint, tokens, row_length, heads * width, key_first, key_heads * width, tile_heads, tile_heads, epsilon
        )
        spread, factor = spread_of(factors, new, min(tokens, tile_rows), 1), spread_of(factors, token, tokens, 0)
    k = turned_heads(
        k, k_other, key_weight, key_other, spread, key_cosine, key_sine, epsilon, norm_offset, normed, width, turned
    ).to(keys.dtype.element_ty)
    q = turned_heads(
        q, q_other, weight, other_weight, factor, cosine, sine, epsilon, norm_offset, normed, width, turned
    ).to(keys.dtype.element_ty)
    target = (start + new)[:, None] * width + lane[None, :]
    tl.store(keys + target, k, mask=own[:, None] & narrow)
    tl.store(values + target, v, mask=own[:, None] & narrow)
    fresh_keys = (k,)
    for first_new in tl.static_range(tile_rows, tokens, tile_rows):
        found = first_new + new
        new_own = (found < tokens) & ((start + found) // length == share)
        source = joint + found * row_length + key_head * key_group
        one, other = loaded(source + key_first, new_own, lane, width, turned, pairs)
        v = tl.load(source[:, None] + value_first + lane[None, :], mask=new_own[:, None] & narrow, other=0.0)
        own_weight, own_other = norm_weights(key_norm + of_head, new_own, normed, lane, width, turned, pairs)
        own_cosine, own_sine = angles(start + found, new_own, cosines, sines, lane, turned, pairs)
        if normed == "whole":
            spread = spread_of(factors, found, tokens, 1)
        one = turned_heads(
            one, other, own_weight, own_other, spread, own_cosine, own_sine, epsilon, norm_offset, normed, width,
            turned,
        ).to(keys.dtype.element_ty)  # fmt: skip
        target = (start + found)[:, None] * width + lane[None, :]
        tl.store(keys + target, one, mask=new_own[:, None] & narrow)
        tl.store(values + target, v, mask=new_own[:, None] & narrow)
        fresh_keys += (one,)  # type: ignore[assignment]
    if length > tile_keys or not early:
        tl.debug_barrier()  # what other threads of the program wrote is read below
    last = start + token  # what a row may see
    if early:
        # Of the first tile, what was held before the pass was loaded early, and its own tokens' keys come from
        # where they were turned: each score is one product, whichever tile its key lies in.
        scores = tl.dot(q, tl.trans(held_keys))
        for first_new in tl.static_range(0, tokens, tile_rows):
            own_scores = tl.dot(q, tl.trans(fresh_keys[first_new // tile_rows]))
            scores = _placed(scores, own_scores, at_key - (start + first_new), min(tile_rows, tokens - first_new))
        scores = _seen(scores, at_key, last, stop, score_scale, score_cap, window)
        top = tl.max(scores, 1)
        totals = tl.exp(scores - tl.where(top == -float("inf"), 0.0, top)[:, None])  # added up over keys in the end
        mix = tl.dot(totals.to(held_values.dtype), held_values)
    else:
        top = tl.full((tile_rows,), -float("inf"), tl.float32)
        totals = tl.zeros((tile_rows, tile_keys), tl.float32)
        mix = tl.zeros((tile_rows, lanes), tl.float32)
    if length > tile_keys or not early:
        for following in range(then, stop, tile_keys):
            at_key = following + tl.arange(0, tile_keys)
            there = at_key[:, None] * width + lane[None, :]
            within = (at_key[:, None] < stop) & narrow
            held_keys = tl.load(keys + there, mask=within, other=0.0)
            held_values = tl.load(values + there, mask=within, other=0.0)
            scores = tl.dot(q, tl.trans(held_keys))
            scores = _seen(scores, at_key, last, stop, score_scale, score_cap, window)
            now = tl.maximum(top, tl.max(scores, 1))
            safe = tl.where(now == -float("inf"), 0.0, now)
            p = tl.exp(scores - safe[:, None])
            old = tl.exp(top - safe)
            totals = totals * old[:, None] + p
            mix = mix * old[:, None] + tl.dot(p.to(held_values.dtype), held_values)
            top = now
    total = tl.sum(totals, 1)
    counter = arrived + key_head * tl.num_programs(2) + tl.program_id(2)
    joined = tl.program_id(2) * tile_rows + tl.arange(0, joined_rows)
    leave(
        mixed, sinks, parts, highest, sums, counter, top[:, None], total[:, None], mix, row, joined, key_head, share,
        low, high, lane, lane, tokens, heads, group, sinking, width, shares, tile_shares, beside, mixed_length, False,
    )  # fmt: skip
