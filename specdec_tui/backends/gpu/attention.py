"""Attention of a few tokens over the text held, in Triton; see `products` for what all kernels here keep to.

One kernel turns queries and keys to their places, writes the new keys and values behind those of the text, attends
share by share, and joins the shares.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.multiplied import capped, prefetch


@triton.jit
def _angles(
    place: tl.tensor,
    real: tl.tensor,
    cosines: tl.tensor,
    sines: tl.tensor,
    lanes: tl.constexpr,
    turned: tl.constexpr,
    pairs: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """What the numbers of heads at `place` [n] are multiplied by, and what their partners are: two of [n, lanes]."""
    half: tl.constexpr = turned // 2
    lane = tl.arange(0, lanes)
    if pairs:
        angle, first = lane // 2, lane % 2 == 0
    else:
        angle, first = tl.where(lane < half, lane, lane - half), lane < half
    at, inside = place[:, None] * half + angle[None, :], real[:, None] & (lane < turned)[None, :]
    cosine = tl.load(cosines + at, mask=inside, other=1.0)
    sine = tl.load(sines + at, mask=inside, other=0.0)
    return cosine, tl.where(first[None, :], -sine, sine)


@triton.jit
def _turned(
    source: tl.tensor,
    real: tl.tensor,
    norm: tl.tensor,
    spread: tl.tensor,
    cosine: tl.tensor,
    sine: tl.tensor,
    epsilon: tl.constexpr,
    norm_offset: tl.constexpr,
    normed: tl.constexpr,
    width: tl.constexpr,
    lanes: tl.constexpr,
    turned: tl.constexpr,
    pairs: tl.constexpr,
) -> tl.tensor:
    """Heads [n, lanes] float32 that begin at `source` [n], normed with the weights at `norm` [n], or by what is
    given as `spread` [n], and turned by their `_angles`."""
    half: tl.constexpr = turned // 2
    lane = tl.arange(0, lanes)
    partner = lane ^ 1 if pairs else tl.where(lane < half, lane + half, lane - half)
    inside, turns = real[:, None] & (lane < width)[None, :], real[:, None] & (lane < turned)[None, :]
    x = tl.load(source[:, None] + lane[None, :], mask=inside, other=0.0).to(tl.float32)
    if turned > 0:
        other = tl.load(source[:, None] + partner[None, :], mask=turns, other=0.0).to(tl.float32)
    if normed == "head":
        spread = tl.rsqrt(tl.sum(x * x, 1) / width + epsilon)
    if normed != "":
        weight = tl.load(norm[:, None] + lane[None, :], mask=inside, other=0.0).to(tl.float32) + norm_offset
        x = x * spread[:, None] * weight
        if turned > 0:
            weight = tl.load(norm[:, None] + partner[None, :], mask=turns, other=0.0).to(tl.float32) + norm_offset
            other = other * spread[:, None] * weight
    if turned > 0:
        x = x * cosine + other * sine
    return x


@triton.jit
def _spread_of(
    source: tl.tensor,
    token: tl.tensor,
    tokens: tl.constexpr,
    row_length: tl.constexpr,
    numbers: tl.constexpr,
    tile: tl.constexpr,
    epsilon: tl.constexpr,
) -> tl.tensor:
    """The RMS norm's factor of `numbers` numbers from `source` on in the row of each `token` [n]."""
    spread = tl.zeros_like(token).to(tl.float32)
    column = tl.arange(0, tile)
    for one in tl.static_range(tokens):
        x = tl.load(source + one * row_length + column, mask=column < numbers, other=0.0).to(tl.float32)
        spread = tl.where(token == one, tl.rsqrt(tl.sum(x * x, 0) / numbers + epsilon), spread)
    return spread


@triton.jit
def _parts(
    parts: tl.tensor,
    highest: tl.tensor,
    sums: tl.tensor,
    at: tl.tensor,
    real: tl.tensor,
    begin: tl.tensor,
    high: tl.tensor,
    width: tl.constexpr,
    lanes: tl.constexpr,
    beside: tl.constexpr,
) -> tl.tuple:
    """Values [rows, lanes], highest scores and sums of weights [rows] of `beside` shares from `begin` on, all asked for
    before one is used. What other programs wrote does not come from a cache that might not know it."""
    lane = tl.arange(0, lanes)
    found = ()
    for each in tl.static_range(beside):
        there = real & (begin + each <= high)
        place = at + begin + each
        inside = there[:, None] & (lane < width)[None, :]
        part = tl.load(parts + place[:, None] * width + lane[None, :], inside, 0.0, cache_modifier=".cg")
        top = tl.load(highest + place, there, -float("inf"), cache_modifier=".cg")
        found += (part, top, tl.load(sums + place, there, 0.0, cache_modifier=".cg"))  # type: ignore[assignment]
    return found


@triton.jit
def _write(
    mixed: tl.tensor,
    sinks: tl.tensor,
    top: tl.tensor,
    total: tl.tensor,
    mix: tl.tensor,
    token: tl.tensor,
    head: tl.tensor,
    real: tl.tensor,
    sinking: tl.constexpr,
    width: tl.constexpr,
    lanes: tl.constexpr,
    mixed_length: tl.constexpr,
) -> None:
    """Rows of attention, with their heads' sinks, to where they belong."""
    lane = tl.arange(0, lanes)
    if sinking:
        sink = tl.load(sinks + head, mask=real, other=0.0).to(tl.float32)
        now = tl.maximum(top, sink)
        old = tl.exp(top - now)
        total = total * old + tl.exp(sink - now)
        mix = mix * old[:, None]
    target = mixed + (token * mixed_length + head * width)[:, None] + lane[None, :]
    tl.store(target, (mix / total[:, None]).to(mixed.dtype.element_ty), mask=real[:, None] & (lane < width)[None, :])


@triton.jit
def _join(
    mixed: tl.tensor,
    sinks: tl.tensor,
    parts: tl.tensor,
    highest: tl.tensor,
    sums: tl.tensor,
    row: tl.tensor,
    key_head: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    tokens: tl.constexpr,
    heads: tl.constexpr,
    group: tl.constexpr,
    sinking: tl.constexpr,
    width: tl.constexpr,
    lanes: tl.constexpr,
    rows: tl.constexpr,
    shares: tl.constexpr,
    tile_shares: tl.constexpr,
    beside: tl.constexpr,
    mixed_length: tl.constexpr,
) -> None:
    """What `attend` leaves for rows `row` [rows] of a key head, by their shares from `low` to `high`.

    Shares are added up one by one, whatever the number of rows; `beside` of them are on their way at once.
    """
    token, head = row // group, key_head * group + row % group
    real = row < tokens * group
    at = (token * heads + head) * shares
    share = tl.arange(0, tile_shares)
    there = real[:, None] & ((share >= low) & (share <= high))[None, :]
    tops = tl.load(highest + at[:, None] + share[None, :], there, -float("inf"), cache_modifier=".cg")
    found = _parts(parts, highest, sums, at, real, low, high, width, lanes, beside)
    top = tl.max(tops, 1)
    safe = tl.where(top == -float("inf"), 0.0, top)
    total = tl.zeros((rows,), tl.float32)
    mix = tl.zeros((rows, lanes), tl.float32)
    for each in tl.static_range(beside):
        weight = tl.exp(found[3 * each + 1] - safe)
        total += weight * found[3 * each + 2]
        mix += found[3 * each] * weight[:, None]
    for begin in range(low + beside, high + 1, beside):
        found = _parts(parts, highest, sums, at, real, begin, high, width, lanes, beside)
        for each in tl.static_range(beside):
            weight = tl.exp(found[3 * each + 1] - safe)
            total += weight * found[3 * each + 2]
            mix += found[3 * each] * weight[:, None]
    _write(mixed, sinks, top, total, mix, token, head, real, sinking, width, lanes, mixed_length)


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
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_keys: tl.constexpr,
    asked_keys: tl.constexpr,
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
    part of the attention.
    parts [tokens · heads, shares, width], highest and sums [tokens · heads, shares] float32; arrived int32, zeros
    before and after. Of a row's shares that hold something, the one that is ready last joins them.
    One program for a key head, a share and `tile_rows` rows, of which a token has one for each query head.
    """
    if overlap:
        gdc_launch_dependents()
    key_head, share = tl.program_id(0), tl.program_id(1)
    group: tl.constexpr = heads // key_heads
    # Where the pass begins, and all that lies before it, was there before its first kernel, which waits for all others.
    start = tl.load(begin)
    end = start + tokens
    seen_first = start * 0
    if window > 0:
        seen_first = tl.maximum(start - window + 1, 0)
    low, high = seen_first // length, (end - 1) // length
    active = (share >= low) & (share <= high)
    lane = tl.arange(0, lanes)
    narrow = (lane < width)[None, :]
    new = tl.arange(0, tile_tokens)
    place = start + new
    own = (new < tokens) & (place // length == share)
    row = tl.program_id(2) * tile_rows + tl.arange(0, tile_rows)
    token, head = row // group, key_head * group + row % group
    real = (row < tokens * group) & active
    stop = tl.minimum(share * length + length, end)  # a share need not be whole tiles
    first_tile = share * length + tl.maximum(seen_first - share * length, 0) // tile_keys * tile_keys
    if overlap:  # noqa: SIM102 (one is known when this is compiled, the other is not)
        if active:
            lines: tl.constexpr = (width + 63) // 64
            asked = first_tile + tl.arange(0, asked_keys)
            asked = tl.maximum(tl.minimum(asked, tl.minimum(start, stop) - 1), 0)
            for line in tl.static_range(lines):
                prefetch(keys + (key_head * capacity + asked) * width + line * 64)
                prefetch(values + (key_head * capacity + asked) * width + line * 64)
    key_cosine, key_sine = _angles(place, own, cosines, sines, lanes, turned, pairs)
    cosine, sine = _angles(start + token, real, cosines, sines, lanes, turned, pairs)
    if overlap:
        gdc_wait()
    if active:
        spread = tl.zeros((tile_tokens,), tl.float32)
        of_head = 0 * new
        if normed == "whole":
            spread = _spread_of(joint + key_first, new, tokens, row_length, key_heads * width, tile_heads, epsilon)
            of_head += key_head * width
        source = joint + new * row_length + key_head * key_group
        k = _turned(
            source + key_first, own, key_norm + of_head, spread, key_cosine, key_sine, epsilon, norm_offset, normed,
            width, lanes, turned, pairs,
        )  # fmt: skip
        v = tl.load(source[:, None] + value_first + lane[None, :], mask=own[:, None] & narrow, other=0.0)
        held = (key_head * capacity + place[:, None]) * width + lane[None, :]
        tl.store(keys + held, k.to(keys.dtype.element_ty), mask=own[:, None] & narrow)
        tl.store(values + held, v, mask=own[:, None] & narrow)
        factor = tl.zeros((tile_rows,), tl.float32)
        of_row = 0 * row
        if normed == "whole":
            factor = _spread_of(joint, token, tokens, row_length, heads * width, tile_heads, epsilon)
            of_row += head * width
        source = joint + token * row_length + key_head * query_group + row % group * width
        q = _turned(
            source, real, query_norm + of_row, factor, cosine, sine, epsilon, norm_offset, normed, width, lanes,
            turned, pairs,
        )  # fmt: skip
        q = q.to(keys.dtype.element_ty)
        tl.debug_barrier()  # what other threads of the program wrote is read below
        last = start + token  # what a row may see
        top = tl.full((tile_rows,), -float("inf"), tl.float32)
        totals = tl.zeros((tile_rows, tile_keys), tl.float32)  # added up over keys in the end
        mix = tl.zeros((tile_rows, lanes), tl.float32)
        for first in range(first_tile, stop, tile_keys):
            at_key = first + tl.arange(0, tile_keys)
            there = (key_head * capacity + at_key[:, None]) * width + lane[None, :]
            inside = (at_key[:, None] < stop) & narrow
            held_keys = tl.load(keys + there, mask=inside, other=0.0)
            held_values = tl.load(values + there, mask=inside, other=0.0)
            scores = capped(tl.dot(q, tl.trans(held_keys)) * score_scale, score_cap)
            seen = at_key[None, :] <= tl.minimum(last, stop - 1)[:, None]
            if window > 0:
                seen = seen & (at_key[None, :] > last[:, None] - window)
            scores = tl.where(seen, scores, -float("inf"))
            now = tl.maximum(top, tl.max(scores, 1))
            safe = tl.where(now == -float("inf"), 0.0, now)
            p = tl.exp(scores - safe[:, None])
            old = tl.exp(top - safe)
            totals = totals * old[:, None] + p
            mix = mix * old[:, None] + tl.dot(p.to(held_values.dtype), held_values)
            top = now
        total = tl.sum(totals, 1)
        if low == high:
            _write(mixed, sinks, top, total, mix, token, head, real, sinking, width, lanes, mixed_length)
        elif shares > 1:
            at = (token * heads + head) * shares + share
            tl.store(highest + at, top, mask=real)
            tl.store(sums + at, total, mask=real)
            tl.store(parts + at[:, None] * width + lane[None, :], mix, mask=real[:, None] & narrow)
            tl.debug_barrier()
            counter = arrived + key_head * tl.num_programs(2) + tl.program_id(2)
            if tl.atomic_add(counter, 1, sem="acq_rel") == high - low:
                tl.store(counter, 0)
                joined = tl.program_id(2) * tile_rows + tl.arange(0, joined_rows)
                _join(
                    mixed, sinks, parts, highest, sums, joined, key_head, low, high, tokens, heads, group, sinking,
                    width, lanes, joined_rows, shares, tile_shares, beside, mixed_length,
                )  # fmt: skip
