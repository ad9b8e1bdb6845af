"""Kernels of a decoder pass over a few tokens, in Triton, which comes with torch's CUDA builds.

At batch size 1 a pass is bound by reading the weights, so every product reads each weight once
for all tokens of the block. Tokens fill one side of a tensor core's tile, whose size does not
depend on their number: a token's numbers are the same whether it comes alone or in a block of drafts.

Arrays are contiguous, sizes are compile-time numbers, places in the text are read on the device.
With `overlap` (programmatic dependent launch, from compute capability 9.0 on) a kernel starts while the one
before it still runs, asks for its first weights, and waits for the other's end before it reads or writes anything
else; every kernel of a pass has to do so.
Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import (  # type: ignore[import-not-found]
    gdc_launch_dependents,
    gdc_wait,
    globaltimer,
)

_LINE = tl.constexpr(64)  # half-precision numbers in a cache line


@triton.jit
def store_time(place: tl.tensor) -> None:
    """The GPU's clock in nanoseconds, as int64."""
    tl.store(place, globaltimer())


@triton.jit
def _ask_for(
    weight: tl.tensor, row: tl.tensor, begin: tl.tensor, rows: tl.constexpr, columns: tl.constexpr, ahead: tl.constexpr
) -> None:
    """Bring `ahead` columns of some rows of a matrix into the cache, without waiting for them."""
    line = begin + tl.arange(0, ahead // _LINE) * _LINE
    place = weight + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * columns + tl.minimum(line, columns - 1)[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [place.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def normalize(
    x: tl.tensor,
    pieces: tl.tensor,
    norm: tl.tensor,
    y: tl.tensor,
    epsilon: tl.constexpr,
    first: tl.constexpr,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    splits: tl.constexpr,
    tile_columns: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """x += the sum of `pieces`, and y = RMS norm of x with weights `norm`; one program for a token from `first` on.

    x [tokens, columns], pieces [splits, tokens, columns] float32, y [tokens - first, columns]; rounded as
    transformers does.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    column = tl.arange(0, tile_columns)
    inside = column < columns
    token = first + tl.program_id(0)
    place = token * columns + column
    wide = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if splits > 0:
        for split in tl.static_range(splits):
            wide += tl.load(pieces + split * tokens * columns + place, mask=inside, other=0.0)
        narrow = wide.to(x.dtype.element_ty)
        tl.store(x + place, narrow, mask=inside)
        wide = narrow.to(tl.float32)
    normed = (wide * tl.rsqrt(tl.sum(wide * wide, 0) / columns + epsilon)).to(y.dtype.element_ty)
    normed = normed * tl.load(norm + column, mask=inside, other=0.0)
    tl.store(y + tl.program_id(0) * columns + column, normed, mask=inside)


@triton.jit
def product(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    biased: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    splits: tl.constexpr,
    ahead: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [splits, tokens, rows]: shares of x @ weight.T (+ bias), each over a piece of the columns.

    x [tokens, columns]; one program for `tile_rows` rows and a piece.
    """
    share: tl.constexpr = (columns + splits * tile_columns - 1) // (splits * tile_columns) * tile_columns
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    split = tl.program_id(1)
    if overlap:
        gdc_launch_dependents()
        _ask_for(weight, row, split * share, rows, columns, ahead)
        gdc_wait()
    token = tl.arange(0, tile_tokens)
    total = tl.zeros((tile_tokens, tile_rows), tl.float32)
    for begin in range(0, share, tile_columns):
        column = split * share + begin + tl.arange(0, tile_columns)
        w = tl.load(
            weight + row.to(tl.int64)[:, None] * columns + column[None, :],  # may pass 2^31 in a large head
            mask=(row[:, None] < rows) & (column[None, :] < columns),
            other=0.0,
        )
        own = tl.load(
            x + token[:, None] * columns + column[None, :],
            mask=(token[:, None] < tokens) & (column[None, :] < columns),
            other=0.0,
        )
        total += tl.dot(own, tl.trans(w))
    if biased:
        total += tl.load(bias + row, mask=row < rows, other=0.0).to(tl.float32)[None, :]
    place = (split * tokens + token[:, None]) * rows + row[None, :]
    tl.store(y + place, total.to(y.dtype.element_ty), mask=(token[:, None] < tokens) & (row[None, :] < rows))


@triton.jit
def gated_product(
    x: tl.tensor,
    weight: tl.tensor,
    y: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    ahead: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] = silu(x @ gate.T) * (x @ up.T); weight [2 * rows, columns] holds gate, then up."""
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    if overlap:
        gdc_launch_dependents()
        _ask_for(weight, row, 0, rows, columns, ahead)
        _ask_for(weight + rows * columns, row, 0, rows, columns, ahead)
        gdc_wait()
    token = tl.arange(0, tile_tokens)
    gate = tl.zeros((tile_tokens, tile_rows), tl.float32)
    up = tl.zeros((tile_tokens, tile_rows), tl.float32)
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
        )
        gate += tl.dot(own, tl.trans(first))
        up += tl.dot(own, tl.trans(second))
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
    overlap: tl.constexpr,
) -> None:
    """Turn queries and keys to their places and write keys and values behind those of the text.

    joint [tokens, heads + 2 * key_heads, width]; queries [tokens, heads, width]; keys and values [key_heads,
    capacity, width]; cosines and sines [positions, width / 2] float32; begin int64 [1]. One program for a head
    of a token; `normed`: an RMS norm of every head comes first. width and half are powers of two.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
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
    window: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_keys: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """Attention over one share of the text for all query heads of a key head (flash decoding, Dao et al. 2023).

    queries [tokens, heads, width], keys and values [key_heads, capacity, width]. Shares are fixed pieces of the
    capacity, so that a row's sums do not depend on what else is computed. parts [tokens * heads, splits, width],
    highest and sums [tokens * heads, splits], float32. A share without a token of the text says so by `highest`.
    A token sees the last `window` ones; 0: all of them. One program for a key head, a share and `tile_rows` rows, of
    which a token has one for each query head.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    key_head, split = tl.program_id(0), tl.program_id(1)
    group: tl.constexpr = heads // key_heads
    share: tl.constexpr = capacity // splits
    end = tl.load(begin) + tokens
    row = tl.program_id(2) * tile_rows + tl.arange(0, tile_rows)
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
            seen = place[None, :] <= last[:, None]
            if window > 0:
                seen = seen & (place[None, :] > last[:, None] - window)
            scores = tl.where(seen, scores, -float("inf"))
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
    overlap: tl.constexpr,
) -> None:
    """mixed [rows, width] from the shares that `attend` left; one program for a row."""
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0)
    split, lane = tl.arange(0, tile_splits), tl.arange(0, width)
    real = split < splits
    top = tl.load(highest + row * splits + split, mask=real, other=-float("inf"))
    factor = tl.exp(top - tl.max(top, 0))
    total = tl.sum(factor * tl.load(sums + row * splits + split, mask=real, other=0.0), 0)
    part = tl.load(parts + (row * splits + split[:, None]) * width + lane[None, :], mask=real[:, None], other=0.0)
    result = tl.sum(part * factor[:, None], 0) / total
    tl.store(mixed + row * width + lane, result.to(mixed.dtype.element_ty))
