"""Products of a few tokens with the matrices of a model, in Triton, which comes with torch's CUDA builds.

At batch size 1 a pass is bound by reading the weights, so every product reads each weight once for all tokens of the
block. Tokens fill one side of a tensor core's tile: a token's numbers are the same whether it comes alone or in a
block of drafts, since sums run over the columns one by one and never depend on how many tokens there are.

Arrays are contiguous, sizes are compile-time numbers, places in the text are read on the device. With `overlap`
(programmatic dependent launch, from compute capability 9.0 on) a kernel starts while the one before it still runs,
asks for its first weights, and waits for the other's end before it reads or writes anything else; every kernel of a
pass has to do so. Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

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
def _begin(
    weight: tl.tensor,
    row: tl.tensor,
    real_row: tl.tensor,
    columns: tl.constexpr,
    pieces: tl.constexpr,
    early: tl.constexpr,
    ahead: tl.constexpr,
    overlap: tl.constexpr,
) -> tl.tensor:
    """The first columns of some rows of a matrix, where there are any `early`. Waits for the kernel before."""
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
def _multiplied(
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
) -> tl.tensor:
    """[tile_rows, tile_tokens] float32: rows of a matrix, of which `first` was loaded, with x [tokens, columns]."""
    share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
    token = tl.arange(0, tile_tokens)
    total = _zeros(pieces, tile_rows, tile_tokens)
    if early > 0:
        mine = _tile(x, token, token < tokens, columns, pieces, 0, early)
        total = _added_product(first, mine, total, pieces)
    for begin in range(early, share, tile_columns):
        w = _tile(weight, row, real_row, columns, pieces, begin, tile_columns)
        own = _tile(x, token, token < tokens, columns, pieces, begin, tile_columns)
        total = _added_product(w, own, total, pieces)
    if pieces == 1:
        return total
    else:
        return tl.sum(total, 0)


@triton.jit
def _stream_row(stream: tl.tensor, token: tl.tensor, columns: tl.constexpr, power_columns: tl.constexpr) -> tl.tensor:
    column = tl.arange(0, power_columns)
    return tl.load(stream + token * columns + column, mask=column < columns, other=0.0)


@triton.jit
def _sum(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    return a + b


@triton.jit
def _first_rows(
    stream: tl.tensor, tokens: tl.constexpr, columns: tl.constexpr, power_columns: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The rows of the first four tokens, asked for before they are needed; the first again where there are fewer."""
    one = _stream_row(stream, 0, columns, power_columns)
    two = _stream_row(stream, 1, columns, power_columns) if tokens > 1 else one
    three = _stream_row(stream, 2, columns, power_columns) if tokens > 2 else one
    four = _stream_row(stream, 3, columns, power_columns) if tokens > 3 else one
    return one, two, three, four


@triton.jit
def _plus(
    a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, e: tl.tensor, f: tl.tensor, g: tl.tensor, h: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    return a + e, b + f, c + g, d + h


@triton.jit
def _squares(
    one: tl.tensor, two: tl.tensor, three: tl.tensor, four: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The sums of four rows' squares, side by side: the threads meet once."""
    a, b, c, d = one.to(tl.float32), two.to(tl.float32), three.to(tl.float32), four.to(tl.float32)
    return tl.reduce((a * a, b * b, c * c, d * d), 0, _plus)


@triton.jit
def _spread(
    stream: tl.tensor,
    one: tl.tensor,
    two: tl.tensor,
    three: tl.tensor,
    four: tl.tensor,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    epsilon: tl.constexpr,
    tile_tokens: tl.constexpr,
    power_columns: tl.constexpr,
) -> tl.tensor:
    """What an RMS norm multiplies each token of stream [tokens, columns] by: [tile_tokens] float32. The rows of the
    first four tokens were loaded. Each row is added up by itself, so that it does not matter how many there are."""
    token = tl.arange(0, tile_tokens)
    if tokens == 1:
        wide = one.to(tl.float32)
        squares = tl.where(token == 0, tl.reduce(wide * wide, 0, _sum), 0.0)  # in the order of several rows
    else:
        a, b, c, d = _squares(one, two, three, four)
        squares = tl.where(token == 0, a, tl.where(token == 1, b, tl.where(token == 2, c, d)))
        for other in range(4, tokens, 4):
            a, b, c, d = _squares(
                _stream_row(stream, other, columns, power_columns),
                _stream_row(stream, tl.minimum(other + 1, tokens - 1), columns, power_columns),
                _stream_row(stream, tl.minimum(other + 2, tokens - 1), columns, power_columns),
                _stream_row(stream, tl.minimum(other + 3, tokens - 1), columns, power_columns),
            )
            group = tl.where(token == other, a, tl.where(token == other + 1, b, tl.where(token == other + 2, c, d)))
            squares = tl.where(token >= other, group, squares)
    return tl.rsqrt(squares / columns + epsilon)


@triton.jit
def product(
    x: tl.tensor,
    stream: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    norm: tl.tensor,
    z: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    normed: tl.constexpr,
    epsilon: tl.constexpr,
    norm_offset: tl.constexpr,
    biased: tl.constexpr,
    activation: tl.constexpr,
    scale: tl.constexpr,
    cap: tl.constexpr,
    added: tl.constexpr,
    followed: tl.constexpr,
    pieces: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    early: tl.constexpr,
    ahead: tl.constexpr,
    power_columns: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] = cap(scale · activation(x @ weight.T + bias)), or `added` to what y holds.

    x [tokens, columns]; `normed`: x is `stream` [tokens, columns] times the weights of its RMS norm, whose factor is
    found here and comes behind the product. `followed`: z [tokens, rows] = y times the weights `norm` of its own.
    Columns are cut into `pieces`, whose sums run side by side and are added up. One program for `tile_rows` rows,
    whose first `early` columns of each piece it loads before the kernel before has ended.
    """
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    safe, real_row = tl.minimum(row, rows - 1), row < rows
    if overlap:
        gdc_launch_dependents()
    # Weights do not depend on the kernel before.
    if biased:
        shift = tl.load(bias + safe).to(tl.float32)
    if followed:
        factor = tl.load(norm + safe).to(tl.float32) + norm_offset
    first = _begin(weight, safe, real_row, columns, pieces, early, ahead, overlap)
    token = tl.arange(0, tile_tokens)
    place, inside = token[None, :] * rows + row[:, None], (token < tokens)[None, :] & real_row[:, None]
    # What is needed last is asked for first: it comes while the product runs.
    if added:
        before = tl.load(y + place, mask=inside, other=0.0)
    if normed:
        one, two, three, four = _first_rows(stream, tokens, columns, power_columns)
    result = _multiplied(
        first, x, weight, safe, real_row, tokens, columns, pieces, tile_tokens, tile_rows, tile_columns, early
    )  # fmt: skip
    if normed:
        spread = _spread(stream, one, two, three, four, tokens, columns, epsilon, tile_tokens, power_columns)
        result = result * spread[None, :]
    if biased:
        result += shift[:, None]
    result = capped(activated(result, activation) * scale, cap)
    if added:
        result += before.to(tl.float32)
    rounded = result.to(y.dtype.element_ty)
    tl.store(y + place, rounded, mask=inside)
    if followed:
        tl.store(z + place, (rounded.to(tl.float32) * factor[:, None]).to(z.dtype.element_ty), mask=inside)


@triton.jit
def gated_product(
    x: tl.tensor,
    stream: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    normed: tl.constexpr,
    epsilon: tl.constexpr,
    biased: tl.constexpr,
    activation: tl.constexpr,
    pieces: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    early: tl.constexpr,
    ahead: tl.constexpr,
    power_columns: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] = activation(x @ gate.T) · (x @ up.T); weight [2 · rows, columns] holds gate, then up.

    All else as in `product`; bias [2 · rows].
    """
    line = tl.arange(0, 2 * tile_rows)  # of gate, then of up
    own_row = tl.program_id(0) * tile_rows + line % tile_rows
    safe, real_row = tl.minimum(own_row, rows - 1) + line // tile_rows * rows, own_row < rows
    if overlap:
        gdc_launch_dependents()
    if biased:
        shift = tl.load(bias + safe).to(tl.float32)
    first = _begin(weight, safe, real_row, columns, pieces, early, ahead, overlap)
    if normed:
        one, two, three, four = _first_rows(stream, tokens, columns, power_columns)
    result = _multiplied(
        first, x, weight, safe, real_row, tokens, columns, pieces, tile_tokens, 2 * tile_rows, tile_columns, early
    )  # fmt: skip
    if normed:
        spread = _spread(stream, one, two, three, four, tokens, columns, epsilon, tile_tokens, power_columns)
        result = result * spread[None, :]
    if biased:
        result += shift[:, None]
    gate, up = tl.split(tl.permute(tl.reshape(result, (2, tile_rows, tile_tokens)), (1, 2, 0)))
    row, token = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows), tl.arange(0, tile_tokens)
    inside = (row < rows)[:, None] & (token < tokens)[None, :]
    found = activated(gate, activation) * up
    tl.store(y + token[None, :] * rows + row[:, None], found.to(y.dtype.element_ty), mask=inside)
