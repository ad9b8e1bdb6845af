"""Shares of attention, in Triton: a row's share of the text is put down, and what is ready last joins them.

Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.ending import put


@triton.jit
def _parts(
    parts: tl.tensor,
    highest: tl.tensor,
    sums: tl.tensor,
    at: tl.tensor,
    real: tl.tensor,
    begin: tl.tensor,
    high: tl.tensor,
    lane: tl.tensor,
    width: tl.constexpr,
    beside: tl.constexpr,
) -> tl.tuple:
    """Values [rows, lanes], highest scores and sums of weights [rows] of `beside` shares from `begin` on, all asked for
    before one is used. What other programs wrote does not come from a cache that might not know it."""
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
    lane: tl.tensor,
    sinking: tl.constexpr,
    width: tl.constexpr,
    mixed_length: tl.constexpr,
    asm: tl.constexpr,
) -> None:
    """Rows of attention mix [rows, lanes], with the highest scores and the sums of weights [rows, 1 or lanes] and their
    heads' sinks, to where they belong. `asm`: see `ending`."""
    if sinking:
        sink = tl.load(sinks + head, mask=real, other=0.0).to(tl.float32)[:, None]
        now = tl.maximum(top, sink)
        old = tl.exp(top - now)
        total = total * old + tl.exp(sink - now)
        mix = mix * old
    place = (token * mixed_length + head * width)[:, None] + lane[None, :]
    inside = real[:, None] & (lane < width)[None, :]
    if asm:
        put(mixed, place, mix / total, inside)
    else:
        tl.store(mixed + place, (mix / total).to(mixed.dtype.element_ty), mask=inside)


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
    lane: tl.tensor,
    tokens: tl.constexpr,
    heads: tl.constexpr,
    group: tl.constexpr,
    sinking: tl.constexpr,
    width: tl.constexpr,
    rows: tl.constexpr,
    shares: tl.constexpr,
    tile_shares: tl.constexpr,
    beside: tl.constexpr,
    mixed_length: tl.constexpr,
) -> None:
    """What is left for rows `row` [rows] of a key head, by their shares from `low` to `high`.

    Shares are added up one by one, whatever the number of rows; `beside` of them are on their way at once.
    """
    token, head = row // group, key_head * group + row % group
    real = row < tokens * group
    at = (token * heads + head) * shares
    share = tl.arange(0, tile_shares)
    there = real[:, None] & ((share >= low) & (share <= high))[None, :]
    tops = tl.load(highest + at[:, None] + share[None, :], there, -float("inf"), cache_modifier=".cg")
    found = _parts(parts, highest, sums, at, real, low, high, lane, width, beside)
    top = tl.max(tops, 1)
    safe = tl.where(top == -float("inf"), 0.0, top)
    total = tl.zeros((rows,), tl.float32)
    mix = tl.zeros((rows, lane.shape[0]), tl.float32)
    for each in tl.static_range(beside):
        weight = tl.exp(found[3 * each + 1] - safe)
        total += weight * found[3 * each + 2]
        mix += found[3 * each] * weight[:, None]
    for begin in range(low + beside, high + 1, beside):
        found = _parts(parts, highest, sums, at, real, begin, high, lane, width, beside)
        for each in tl.static_range(beside):
            weight = tl.exp(found[3 * each + 1] - safe)
            total += weight * found[3 * each + 2]
            mix += found[3 * each] * weight[:, None]
    _write(
        mixed, sinks, top[:, None], total[:, None], mix, token, head, real, lane, sinking, width, mixed_length, False
    )  # fmt: skip


@triton.jit
def leave(
    mixed: tl.tensor,
    sinks: tl.tensor,
    parts: tl.tensor,
    highest: tl.tensor,
    sums: tl.tensor,
    counter: tl.tensor,
    top: tl.tensor,
    total: tl.tensor,
    mix: tl.tensor,
    row: tl.tensor,
    joined: tl.tensor,
    key_head: tl.tensor,
    share: tl.tensor,
    low: tl.tensor,
    high: tl.tensor,
    lane: tl.tensor,
    joined_lane: tl.tensor,
    tokens: tl.constexpr,
    heads: tl.constexpr,
    group: tl.constexpr,
    sinking: tl.constexpr,
    width: tl.constexpr,
    shares: tl.constexpr,
    tile_shares: tl.constexpr,
    beside: tl.constexpr,
    mixed_length: tl.constexpr,
    asm: tl.constexpr,
) -> None:
    """A share of rows `row` [n], with the highest scores and the sums of weights [n, 1 or lanes] and mix [n, lanes]: to
    where attention belongs when it is the only one, else to `parts`; the last of the shares `low` to `high` joins them
    for the rows `joined` of its program, whose `counter` is 0 before and after."""
    token, head = row // group, key_head * group + row % group
    real = row < tokens * group
    if low == high:
        _write(mixed, sinks, top, total, mix, token, head, real, lane, sinking, width, mixed_length, asm)
    elif shares > 1:
        at = (token * heads + head) * shares + share
        column = tl.arange(0, top.shape[1])[None, :]
        once = real[:, None] & (column == 0)
        tl.store(highest + at[:, None] + column, top, mask=once)
        tl.store(sums + at[:, None] + column, total, mask=once)
        tl.store(parts + at[:, None] * width + lane[None, :], mix, mask=real[:, None] & (lane < width)[None, :])
        tl.debug_barrier()
        if tl.atomic_add(counter, 1, sem="acq_rel") == high - low:
            tl.store(counter, 0)
            _join(
                mixed, sinks, parts, highest, sums, joined, key_head, low, high, joined_lane, tokens, heads, group,
                sinking, width, joined.shape[0], shares, tile_shares, beside, mixed_length,
            )  # fmt: skip
