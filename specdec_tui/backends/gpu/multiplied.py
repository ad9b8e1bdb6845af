"""Rows of a matrix times a few tokens, in Triton: what all kernels that multiply have in common; see `products`.

Columns are cut into pieces, whose sums run side by side, a warp for each where there are several. Tiles of a matrix go
by way of shared memory, some of them on their way at any time: that streams a large matrix best. Where a program's rows
fit into the registers of its threads they are `held` instead.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.direct import begun_directly
from specdec_tui.backends.gpu.held import begun_rows, held_product, read_rows

_LINE = tl.constexpr(64)  # half-precision numbers in a cache line


@triton.jit
def prefetch(place: tl.tensor) -> None:
    """Bring the lines of some places into the L2 cache, without waiting for them."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [place.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _ask_for(
    weight: tl.tensor,
    row: tl.tensor,
    columns: tl.constexpr,
    pieces: tl.constexpr,
    begin: tl.constexpr,
    ahead: tl.constexpr,
) -> None:
    """Bring `ahead` columns of each piece of some rows, from `begin` on, into the cache, without waiting for them."""
    share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
    line = tl.arange(0, pieces)[:, None] * share + begin + (tl.arange(0, ahead // _LINE) * _LINE)[None, :]
    prefetch(weight + row.to(tl.int64)[:, None, None] * columns + tl.minimum(line, columns - 1)[None, :, :])


@triton.jit
def activated(x: tl.tensor, activation: tl.constexpr) -> tl.tensor:
    """silu, gelu (erf), gelu_tanh, relu or relu2 of float32; "" leaves it alone."""
    if activation == "silu":
        x = x * tl.sigmoid(x)
    elif activation == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif activation == "gelu_tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x * tl.sigmoid(2.0 * inner)  # 0.5 (1 + tanh(a)) is the sigmoid of 2a
    elif activation == "relu":
        x = tl.maximum(x, 0.0)
    elif activation == "relu2":
        x = tl.maximum(x, 0.0) * tl.maximum(x, 0.0)
    return x


@triton.jit
def capped(x: tl.tensor, cap: tl.constexpr) -> tl.tensor:
    """cap · tanh(x / cap); 0 leaves it alone."""
    if cap > 0:
        x = cap * (2.0 * tl.sigmoid(x * (2.0 / cap)) - 1.0)
    return x


@triton.jit
def _tile(
    matrix: tl.tensor,
    row: tl.tensor,
    real_row: tl.tensor,
    columns: tl.constexpr,
    pieces: tl.constexpr,
    begin: tl.tensor,
    tile_columns: tl.constexpr,
) -> tl.tensor:
    """[pieces, rows of the tile, tile_columns] of rows of a matrix: columns from `begin` on of each piece; of one piece
    [rows of the tile, tile_columns]."""
    share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
    within = begin + tl.arange(0, tile_columns)
    start = row.to(tl.int64) * columns  # may pass 2^31 in a large head
    if pieces == 1:
        return tl.load(
            matrix + start[:, None] + within[None, :], mask=real_row[:, None] & (within < columns)[None, :], other=0.0
        )
    else:
        column = tl.arange(0, pieces)[:, None] * share + within[None, :]
        real = (within < share)[None, :] & (column < columns)
        return tl.load(
            matrix + start[None, :, None] + column[:, None, :],
            mask=real_row[None, :, None] & real[:, None, :],
            other=0.0,
        )


@triton.jit
def begun(
    weight: tl.tensor,
    row: tl.tensor,
    real_row: tl.tensor,
    rows: tl.constexpr,
    columns: tl.constexpr,
    gated: tl.constexpr,
    pieces: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    early: tl.constexpr,
    ahead: tl.constexpr,
    direct: tl.constexpr,
    overlap: tl.constexpr,
) -> tl.tensor:
    """The first columns of some rows of a matrix, where there are any `early`. Waits for the kernel before.

    Without `tile_columns` they are to be held, see `held` and, where that is meant, `direct`.
    """
    if direct:
        own = begun_directly(weight, rows, columns, gated, pieces, tile_rows, early)
        if overlap:
            gdc_wait()
        return own
    elif tile_columns == 0:
        held = begun_rows(weight, rows, columns, gated, pieces, tile_rows, early)
        if overlap:
            gdc_wait()
        return held
    else:
        first = tl.zeros((1,), weight.dtype.element_ty)
        if early > 0:
            first = _tile(weight, row, real_row, columns, pieces, 0, early)
        if overlap:
            if ahead > 0:
                _ask_for(weight, row, columns, pieces, early, ahead)
            gdc_wait()
        return first


@triton.jit
def _added_product(w: tl.tensor, own: tl.tensor, total: tl.tensor, pieces: tl.constexpr) -> tl.tensor:
    """total + w @ own.T, piece by piece."""
    if pieces == 1:
        return tl.dot(w, tl.trans(own), total)
    else:
        return tl.dot(w, tl.permute(own, (0, 2, 1)), total)


@triton.jit
def _zeros(pieces: tl.constexpr, tile_rows: tl.constexpr, tile_tokens: tl.constexpr) -> tl.tensor:
    if pieces == 1:
        return tl.zeros((tile_rows, tile_tokens), tl.float32)
    else:
        return tl.zeros((pieces, tile_rows, tile_tokens), tl.float32)


@triton.jit
def _streamed_product(
    first: tl.tensor,
    x: tl.tensor,
    weight: tl.tensor,
    row: tl.tensor,
    real_row: tl.tensor,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    pieces: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    early: tl.constexpr,
    early_last: tl.constexpr,
    paired: tl.constexpr,
    apart: tl.constexpr,
) -> tl.tensor:
    share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
    token, real = read_rows(tl.arange(0, tile_tokens), tokens, paired, apart)
    total = _zeros(pieces, tile_rows, tile_tokens)
    mine = first
    if early > 0:
        mine = _tile(x, token, real, columns, pieces, 0, early)
        if not early_last:
            total = _added_product(first, mine, total, pieces)
    for begin in range(early, share, tile_columns):
        w = _tile(weight, row, real_row, columns, pieces, begin, tile_columns)
        own = _tile(x, token, real, columns, pieces, begin, tile_columns)
        total = _added_product(w, own, total, pieces)
    if early > 0 and early_last:
        total = _added_product(first, mine, total, pieces)
    if pieces == 1:
        return total[None, :, :]
    else:
        return total


@triton.jit
def multiplied(
    first: tl.tensor,
    x: tl.tensor,
    weight: tl.tensor,
    row: tl.tensor,
    real_row: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    gated: tl.constexpr,
    pieces: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    early: tl.constexpr,
    early_last: tl.constexpr = False,
    paired: tl.constexpr = False,
    apart: tl.constexpr = 0,
) -> tuple[tl.tensor, tl.tensor]:
    """[pieces, tile_rows, tile_tokens] float32: rows of a matrix, whose `first` was loaded, times x [tokens, columns].

    `early_last`: that is multiplied behind all others, which are then asked for sooner, and takes room until then.
    `paired`: two of half as many tokens, the second with what lies `apart` rows behind x; else they are the same.
    """
    if tile_columns > 0:
        total = _streamed_product(
            first, x, weight, row, real_row, tokens, columns, pieces, tile_tokens, tile_rows, tile_columns, early,
            early_last, paired, apart,
        )  # fmt: skip
    else:
        total = held_product(
            first, x, weight, tokens, rows, columns, gated, pieces, tile_tokens, tile_rows, early, paired, apart
        )
    if paired:
        return tl.split(tl.reshape(total, (pieces, tile_rows, tile_tokens // 2, 2)))
    else:
        return total, total
