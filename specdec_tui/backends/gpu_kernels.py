"""Kernels of a decoder pass over a few tokens, in Triton, which comes with torch's CUDA builds.

At batch size 1 a pass is bound by reading the weights, so every product reads each weight once
for all tokens of the block, with the norm before it and the activation or sum behind it in the
same kernel. Tokens fill one side of a tensor core's tile, whose size does not depend on their
number: a token's numbers are the same whether it comes alone or in a block of drafts.

Arrays are contiguous, sizes are compile-time numbers, places in the text are read on the device.
Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import globaltimer  # type: ignore[import-not-found]


@triton.jit
def store_time(place: tl.tensor) -> None:
    """The GPU's clock in nanoseconds, as int64."""
    tl.store(place, globaltimer())


@triton.jit
def product(
    x: tl.tensor,
    norm: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    epsilon: tl.constexpr,
    shrink: tl.constexpr,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    normed: tl.constexpr,
    biased: tl.constexpr,
    added: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:
    """y [tokens, rows] = f(x) @ weight.T (+ bias) (+ y): f is the RMS norm with weights `norm`, or nothing.

    x [tokens, columns], weight [rows, columns]; one program for `tile_rows` rows. `shrink`, a power of two, keeps
    the normed numbers small until they are divided by their length.
    """
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    token = tl.arange(0, tile_tokens)
    total = tl.zeros((tile_tokens, tile_rows), tl.float32)
    squares = tl.zeros((tile_tokens,), tl.float32)
    for begin in range(0, columns, tile_columns):
        column = begin + tl.arange(0, tile_columns)
        w = tl.load(
            weight + row[:, None] * columns + column[None, :],
            mask=(row[:, None] < rows) & (column[None, :] < columns),
            other=0.0,
        )
        own = tl.load(
            x + token[:, None] * columns + column[None, :],
            mask=(token[:, None] < tokens) & (column[None, :] < columns),
            other=0.0,
        )
        if normed:
            wide = own.to(tl.float32)
            squares += tl.sum(wide * wide, 1)
            scale = tl.load(norm + column, mask=column < columns, other=0.0).to(tl.float32)
            own = (wide * scale[None, :] * shrink).to(w.dtype)
        total += tl.dot(own, tl.trans(w))
    if normed:
        total = total * (tl.rsqrt(squares / columns + epsilon) / shrink)[:, None]
    place = token[:, None] * rows + row[None, :]
    inside = (token[:, None] < tokens) & (row[None, :] < rows)
    if biased:
        total += tl.load(bias + row, mask=row < rows, other=0.0).to(tl.float32)[None, :]
    if added:
        total += tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + place, total.to(y.dtype.element_ty), mask=inside)


@triton.jit
def gated_product(
    x: tl.tensor,
    norm: tl.tensor,
    weight: tl.tensor,
    y: tl.tensor,
    epsilon: tl.constexpr,
    shrink: tl.constexpr,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:
    """y [tokens, rows] = silu(f(x) @ gate.T) * (f(x) @ up.T), f the RMS norm; weight [2 * rows, columns]: gate, up."""
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    token = tl.arange(0, tile_tokens)
    gate = tl.zeros((tile_tokens, tile_rows), tl.float32)
    up = tl.zeros((tile_tokens, tile_rows), tl.float32)
    squares = tl.zeros((tile_tokens,), tl.float32)
    for begin in range(0, columns, tile_columns):
        column = begin + tl.arange(0, tile_columns)
        place = row[:, None] * columns + column[None, :]
        inside = (row[:, None] < rows) & (column[None, :] < columns)
        first = tl.load(weight + place, mask=inside, other=0.0)
        second = tl.load(weight + rows * columns + place, mask=inside, other=0.0)
        own = tl.load(
            x + token[:, None] * columns + column[None, :],
            mask=(token[:, None] < tokens) & (column[None, :] < columns),
            other=0.0,
        ).to(tl.float32)
        squares += tl.sum(own * own, 1)
        scale = tl.load(norm + column, mask=column < columns, other=0.0).to(tl.float32)
        narrow = (own * scale[None, :] * shrink).to(first.dtype)
        gate += tl.dot(narrow, tl.trans(first))
        up += tl.dot(narrow, tl.trans(second))
    spread = (tl.rsqrt(squares / columns + epsilon) / shrink)[:, None]
    gate, up = gate * spread, up * spread
    result = gate * tl.sigmoid(gate) * up
    inside = (token[:, None] < tokens) & (row[None, :] < rows)
    tl.store(y + token[:, None] * rows + row[None, :], result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def rotate_and_store(
    joint: tl.tensor,
    query_norm: tl.tensor,
    key_norm: tl.tensor,
    cosines: tl.tensor,
    sines: tl.tensor,
    begin: tl.tensor,
    queries: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    epsilon: tl.constexpr,
    heads: tl.constexpr,
    key_heads: tl.constexpr,
    width: tl.constexpr,
    half: tl.constexpr,
    capacity: tl.constexpr,
    normed: tl.constexpr,
) -> None:
    """Turn queries and keys to their places and write keys and values behind those of the text.

    joint [tokens, heads + 2 * key_heads, width]; queries [tokens, heads, width]; keys and values [key_heads,
    capacity, width]; cosines and sines [positions, width / 2] float32; begin int64 [1]. One program for a head
    of a token; `normed`: an RMS norm of every head comes first. width and half are powers of two.
    """
    token, head = tl.program_id(0), tl.program_id(1)
    place = tl.load(begin) + token
    source = joint + (token * (heads + 2 * key_heads) + head) * width
    lane = tl.arange(0, half)
    first = tl.load(source + lane).to(tl.float32)
    second = tl.load(source + half + lane).to(tl.float32)
    if head >= heads + key_heads:
        target = values + ((head - heads - key_heads) * capacity + place) * width
        tl.store(target + lane, first.to(values.dtype.element_ty))
        tl.store(target + half + lane, second.to(values.dtype.element_ty))
    else:
        if normed:
            spread = tl.rsqrt((tl.sum(first * first, 0) + tl.sum(second * second, 0)) / width + epsilon)
            scale = query_norm
            if head >= heads:
                scale = key_norm
            first = first * spread * tl.load(scale + lane).to(tl.float32)
            second = second * spread * tl.load(scale + half + lane).to(tl.float32)
        cosine = tl.load(cosines + place * half + lane)
        sine = tl.load(sines + place * half + lane)
        one = first * cosine - second * sine
        other = second * cosine + first * sine
        if head < heads:
            target = queries + (token * heads + head) * width
        else:
            target = keys + ((head - heads) * capacity + place) * width
        tl.store(target + lane, one.to(keys.dtype.element_ty))
        tl.store(target + half + lane, other.to(keys.dtype.element_ty))


@triton.jit
def attend(
    queries: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    begin: tl.tensor,
    parts: tl.tensor,
    highest: tl.tensor,
    sums: tl.tensor,
    scale: tl.constexpr,
    tokens: tl.constexpr,
    heads: tl.constexpr,
    key_heads: tl.constexpr,
    width: tl.constexpr,
    capacity: tl.constexpr,
    splits: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_keys: tl.constexpr,
) -> None:
    """Attention over one share of the text for all query heads of a key head (flash decoding, Dao et al. 2023).

    queries [tokens, heads, width], keys and values [key_heads, capacity, width]. Shares are fixed pieces of the
    capacity, so that a row's sums do not depend on what else is computed. parts [tokens * heads, splits, width],
    highest and sums [tokens * heads, splits], float32. A share without a token of the text says so by `highest`.
    """
    key_head, split = tl.program_id(0), tl.program_id(1)
    group: tl.constexpr = heads // key_heads
    share: tl.constexpr = capacity // splits
    end = tl.load(begin) + tokens
    row = tl.arange(0, tile_rows)
    token, head = row // group, key_head * group + row % group
    real = row < tokens * group
    lane = tl.arange(0, width)
    q = tl.load(
        queries + (token[:, None] * heads + head[:, None]) * width + lane[None, :], mask=real[:, None], other=0.0
    )
    last = tl.load(begin) + token  # what a row may see
    top = tl.full((tile_rows,), -float("inf"), tl.float32)
    total = tl.zeros((tile_rows,), tl.float32)
    mixed = tl.zeros((tile_rows, width), tl.float32)
    for piece in range(0, share, tile_keys):
        first = split * share + piece
        if first < end:
            place = first + tl.arange(0, tile_keys)
            held = (key_head * capacity + place[:, None]) * width + lane[None, :]
            k = tl.load(keys + held, mask=place[:, None] < end, other=0.0)
            v = tl.load(values + held, mask=place[:, None] < end, other=0.0)
            scores = tl.dot(q, tl.trans(k)) * scale
            scores = tl.where(place[None, :] <= last[:, None], scores, -float("inf"))
            now = tl.maximum(top, tl.max(scores, 1))
            safe = tl.where(now == -float("inf"), 0.0, now)
            p = tl.exp(scores - safe[:, None])
            old = tl.exp(top - safe)
            total = total * old + tl.sum(p, 1)
            mixed = mixed * old[:, None] + tl.dot(p.to(v.dtype), v)
            top = now
    at = (token * heads + head) * splits + split
    tl.store(highest + at, top, mask=real)
    tl.store(sums + at, total, mask=real)
    tl.store(parts + at[:, None] * width + lane[None, :], mixed, mask=real[:, None])


@triton.jit
def gather_parts(
    parts: tl.tensor,
    highest: tl.tensor,
    sums: tl.tensor,
    mixed: tl.tensor,
    width: tl.constexpr,
    splits: tl.constexpr,
    tile_splits: tl.constexpr,
) -> None:
    """mixed [rows, width] from the shares that `attend` left; one program for a row."""
    row = tl.program_id(0)
    split, lane = tl.arange(0, tile_splits), tl.arange(0, width)
    real = split < splits
    top = tl.load(highest + row * splits + split, mask=real, other=-float("inf"))
    factor = tl.exp(top - tl.max(top, 0))
    total = tl.sum(factor * tl.load(sums + row * splits + split, mask=real, other=0.0), 0)
    part = tl.load(parts + (row * splits + split[:, None]) * width + lane[None, :], mask=real[:, None], other=0.0)
    result = tl.sum(part * factor[:, None], 0) / total
    tl.store(mixed + row * width + lane, result.to(mixed.dtype.element_ty))
