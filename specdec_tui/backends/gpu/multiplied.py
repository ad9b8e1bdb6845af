"""Rows of a matrix times a few tokens, in Triton: what all kernels that multiply have in common; see `products`.

Columns are cut into pieces, whose sums run side by side. Tiles of a matrix go by way of shared memory, some of them on
their way at any time: that streams a large matrix best. Where a program's rows fit into the registers of its threads
they are `held` instead, all of them on their way at once, straight to where a tensor core reads them: nothing is then
left to do behind the wait for the kernel before but the product itself. A thread of a tensor core's tile holds pairs
of neighbouring columns here and there; so that it can load eight of them at once, each 32 columns are taken in another
order, the same for weights and tokens, which a sum does not feel. Such loads have the shape [8, pieces, rows / 8, 32],
row i2 · 8 + i0 of piece i1: so laid out, each thread loads what it multiplies with.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_wait  # type: ignore[import-not-found]

_LINE = tl.constexpr(64)  # half-precision numbers in a cache line
_STEP = tl.constexpr(32)  # columns that are held together
_AT_ONCE = tl.constexpr(256)  # columns of each piece, at most, of which a token is asked for at once


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
def _lines(lines: tl.constexpr) -> tl.tensor:
    """The numbers of `lines` rows, int32 [8, 1, lines / 8]."""
    return (tl.arange(0, lines // 8)[None, :] * 8 + tl.arange(0, 8)[:, None])[:, None, :]


@triton.jit
def _held_step(
    matrix: tl.tensor,
    row: tl.tensor,
    real: tl.tensor,
    columns: tl.constexpr,
    pieces: tl.constexpr,
    begin: tl.tensor,
    whole: tl.constexpr,
) -> tl.tensor:
    """[8, pieces, rows / 8, 32] of rows [8, 1, rows / 8] of a matrix: 32 columns from `begin` on of each piece, `whole`
    where there are so many in each."""
    share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
    within = begin + tl.arange(0, _STEP)
    column = tl.arange(0, pieces)[:, None] * share + within[None, :]
    inside = real[:, :, :, None]
    if not whole:
        inside = inside & ((within < share)[None, :] & (column < columns))[None, :, None, :]
    return tl.load(
        matrix + (row.to(tl.int64) * columns)[:, :, :, None] + column[None, :, None, :], mask=inside, other=0.0
    )


@triton.jit
def _side(loaded: tl.tensor, pieces: tl.constexpr, lines: tl.constexpr) -> tl.tensor:
    """[pieces, lines, 32] of what was loaded so, columns in the order in which a tensor core's threads hold them."""
    x = tl.reshape(tl.permute(loaded, (1, 2, 0, 3)), (pieces, lines, 4, 2, 2, 2))
    return tl.reshape(tl.permute(x, (0, 1, 3, 4, 2, 5)), (pieces, lines, _STEP))


@triton.jit
def _with_step(
    weights: tl.tensor,
    own: tl.tensor,
    total: tl.tensor,
    pieces: tl.constexpr,
    lines: tl.constexpr,
    tile_tokens: tl.constexpr,
) -> tl.tensor:
    """total [pieces, lines, tile_tokens] float32 + the product of what was loaded so of weights and tokens."""
    return tl.dot(_side(weights, pieces, lines), tl.permute(_side(own, pieces, tile_tokens), (0, 2, 1)), total)


@triton.jit
def _rows_of(rows: tl.constexpr, lines: tl.constexpr, gated: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The rows of a program, [8, 1, lines / 8], and which are real; `gated`: half of them of gate, half of up."""
    line = _lines(lines)
    if gated:
        half: tl.constexpr = lines // 2
        own = tl.program_id(0) * half + line % half
        return tl.minimum(own, rows - 1) + line // half * rows, own < rows
    else:
        own = tl.program_id(0) * lines + line
        return tl.minimum(own, rows - 1), own < rows


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
    overlap: tl.constexpr,
) -> tl.tensor:
    """The first columns of some rows of a matrix, where there are any `early`. Waits for the kernel before.

    Without `tile_columns` they are those of `_rows_of`, to be held: a tuple of `_held_step`.
    """
    if tile_columns == 0:
        share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
        line, real = _rows_of(rows, tile_rows, gated)
        held = ()
        for begin in tl.static_range(0, early, _STEP):
            step = _held_step(
                weight, line, real, columns, pieces, begin, begin + _STEP <= share and pieces * share == columns
            )
            held = held + (step,)  # type: ignore[assignment]  # noqa: RUF005
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
def _there_with(x: tl.tensor, other: tl.tensor, zero: tl.tensor) -> tl.tensor:
    """x, which is there only when another tensor of its kind is: x ^ (other & zero)."""
    return tl.inline_asm_elementwise(
        "lop3.b32 $0, $1, $2, $3, 0x78;", "=r,r,r,r", [x, other, zero], dtype=x.dtype, is_pure=True, pack=2
    )


@triton.jit
def _of_tokens(
    x: tl.tensor,
    token: tl.tensor,
    real: tl.tensor,
    columns: tl.constexpr,
    pieces: tl.constexpr,
    begin: tl.tensor,
    end: tl.constexpr,
    whole: tl.constexpr,
    at_once: tl.constexpr,
) -> tl.tuple:
    """Steps of tokens from column `begin` on of each piece, as many as `end` columns have, as `_held_step` loads them.

    `at_once`: the compiler is told that the first needs all others, for else it would wait for some before it asks for
    the next.
    """
    first = _held_step(x, token, real, columns, pieces, begin, whole)
    others = ()
    for offset in tl.static_range(_STEP, end, _STEP):
        others = others + (_held_step(x, token, real, columns, pieces, begin + offset, whole),)  # type: ignore[assignment]  # noqa: RUF005
    if at_once:
        zero = tl.zeros_like(first).to(tl.int16) + tl.program_id(2).to(tl.int16)  # which no compiler knows
        for number in tl.static_range(len(others)):
            first = _there_with(first, others[number], zero)
    return (first,) + others  # noqa: RUF005


@triton.jit
def _held_product(
    held: tl.tuple,
    x: tl.tensor,
    weight: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    gated: tl.constexpr,
    pieces: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    early: tl.constexpr,
    paired: tl.constexpr,
    apart: tl.constexpr,
    overlap: tl.constexpr,
) -> tl.tensor:
    """As `multiplied`, of rows of which `early` columns of each piece are held at any time: a step that was multiplied
    makes room for another."""
    share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
    token = _lines(tile_tokens)
    real = token < tokens
    if paired:
        half: tl.constexpr = tile_tokens // 2
        real = token % half < tokens
        token = token // half * apart + token % half
    line, real_line = _rows_of(rows, tile_rows, gated)
    total = tl.zeros((pieces, tile_rows, tile_tokens), tl.float32)
    last: tl.constexpr = (share - 1) // early * early  # what is held at the end begins there
    rest: tl.constexpr = share - last
    # Where threads have room for what is then on its way. More tokens at once were slower.
    at_once: tl.constexpr = overlap and tokens == 1 and early <= _AT_ONCE
    for begin in range(0, last, early):
        after, own = (), _of_tokens(x, token, real, columns, pieces, begin, early, False, at_once)
        for offset in tl.static_range(0, early, _STEP):
            total = _with_step(held[offset // _STEP], own[offset // _STEP], total, pieces, tile_rows, tile_tokens)
            step = _held_step(weight, line, real_line, columns, pieces, begin + early + offset, False)
            after = after + (step,)  # type: ignore[assignment]  # noqa: RUF005
        held = after
    whole: tl.constexpr = last + early <= share and pieces * share == columns
    own = _of_tokens(x, token, real, columns, pieces, last, rest, whole, at_once)
    for offset in tl.static_range(0, rest, _STEP):
        total = _with_step(held[offset // _STEP], own[offset // _STEP], total, pieces, tile_rows, tile_tokens)
    return tl.sum(total, 0)


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
    token = tl.arange(0, tile_tokens)
    real = token < tokens
    if paired:
        half: tl.constexpr = tile_tokens // 2
        real = token % half < tokens
        token = token // half * apart + token % half
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
        return total
    else:
        return tl.sum(total, 0)


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
    overlap: tl.constexpr = False,
) -> tl.tensor:
    """[tile_rows, tile_tokens] float32: rows of a matrix, of which `first` was loaded, with x [tokens, columns].

    `early_last`: that is multiplied behind all others, which are then asked for sooner, and takes room until then.
    `paired`: the second half of them with what lies `apart` rows behind x.
    """
    if tile_columns == 0:
        return _held_product(
            first,
            x,
            weight,
            tokens,
            rows,
            columns,
            gated,
            pieces,
            tile_tokens,
            tile_rows,
            early,
            paired,
            apart,
            overlap,
        )
    else:
        return _streamed_product(
            first, x, weight, row, real_row, tokens, columns, pieces, tile_tokens, tile_rows, tile_columns, early,
            early_last, paired, apart,
        )  # fmt: skip
