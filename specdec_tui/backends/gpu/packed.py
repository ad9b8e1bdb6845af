"""Products of a few tokens with matrices whose weights are read packed, in Triton.

Codes go from memory to the registers that a tensor core multiplies from, where they become half-precision numbers that
stand for them exactly (`codes`); the sum over a group of columns is then multiplied by the group's scale, in float32.
So a weight is rounded once, as its number in half precision, and a scale never.

A program has one or two tiles of ROWS rows and all columns of them. Its warps have chunks of columns in turn, whose
sums are added at the end: a warp then has as many rows as a tensor core's tile, and reads each token's numbers once for
these. The order of a sum depends neither on the number of tokens nor on the tile.

Layouts as in `packing`: weight bytes [row tiles, chunks, ROWS, width], scales and offsets float32 [row tiles, groups,
ROWS]. Arrays are contiguous, sizes are compile-time numbers; `overlap` as in the other kernels. Without `asm` codes are
looked up in `numbers`, one by one: for machines that have no such instructions. Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra import libdevice  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.unpacked import ROWS, place_of

_LINE = tl.constexpr(128)  # bytes of a cache line


@triton.jit
def _ask_for(place: tl.tensor, size: tl.constexpr, ahead: tl.constexpr) -> None:
    """Bring the first `ahead` of `size` bytes into the cache, without waiting for them. `ahead`: a power of two."""
    line = tl.arange(0, ahead // _LINE) * _LINE
    at = place.to(tl.pointer_type(tl.uint8), bitcast=True) + tl.minimum(line, size - 1)
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [at.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _own(
    x: tl.tensor,
    places: tl.tensor,
    token: tl.tensor,
    column: tl.tensor,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    gathered: tl.constexpr,
    whole: tl.constexpr,
) -> tl.tensor:
    """x at some columns and tokens, 0 beyond: [warps, columns, tokens]."""
    inside = token < tokens
    if not whole:
        inside = inside & (column < columns)
    source = column
    if gathered:
        source = tl.load(places + column, mask=column < columns, other=0)
    return tl.load(x + token * columns + source, mask=inside, other=0.0)


@triton.jit
def _codes(
    x: tl.tensor,
    weight: tl.tensor,
    numbers: tl.tensor,
    tile: tl.tensor,
    chunk: tl.tensor,
    chunks: tl.constexpr,
    planes: tl.constexpr,
    straight: tl.constexpr,
    width: tl.constexpr,
    warps: tl.constexpr,
    tile_rows: tl.constexpr,
    asm: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """The numbers of both planes of chunks [warps, 1, 1] of `tile_rows` rows: [warps, tile_rows, width] in half
    precision, that of x. `tile`: the first row's."""
    half = x.dtype.element_ty
    row = tl.arange(0, tile_rows)[None, :, None]
    byte = tl.arange(0, width)[None, None, :]
    source = weight + (((tile + row // ROWS).to(tl.int64) * chunks + chunk) * ROWS + row % ROWS) * width
    if asm == "":
        first_byte, first_shift = place_of(byte, planes, straight, width)
        first = tl.load(source + first_byte, mask=chunk < chunks, other=0).to(tl.int32)
        if planes == 1:
            one = tl.load(numbers + first).to(half)
            return one, one
        second_byte, second_shift = place_of(byte + width, planes, straight, width)
        second = tl.load(source + second_byte, mask=chunk < chunks, other=0).to(tl.int32)
        one = tl.load(numbers + (first >> first_shift & 15)).to(half)
        return one, tl.load(numbers + (second >> second_shift & 15)).to(half)
    full: tl.constexpr = chunks % warps == 0
    packed = tl.load(source + byte) if full else tl.load(source + byte, mask=chunk < chunks, other=0)
    if planes == 1:
        one = tl.inline_asm_elementwise(asm, "=r,=r,r", [packed], dtype=half, is_pure=True, pack=4)
        return one, one
    one, two = tl.inline_asm_elementwise(asm, "=r,=r,=r,=r,r", [packed], dtype=(half, half), is_pure=True, pack=4)
    return one, two


@triton.jit
def _scaled(
    total: tl.tensor,
    sums: tl.tensor,
    own: tl.tensor,
    scales: tl.tensor,
    offsets: tl.tensor,
    tile: tl.tensor,
    column: tl.tensor,
    columns: tl.constexpr,
    group: tl.constexpr,
    offset: tl.constexpr,
) -> tl.tensor:
    """total + the scale of a group of columns · sums + its offset · the sum of x there. column [warps, 1]."""
    groups: tl.constexpr = (columns + group - 1) // group
    row = tl.arange(0, sums.shape[1])[None, :]
    place = ((tile + row // ROWS) * groups + column // group) * ROWS + row % ROWS
    inside = column < columns
    total += sums * tl.load(scales + place, mask=inside, other=0.0)[:, :, None]
    if offset:
        ones = tl.full((sums.shape[0], sums.shape[1], own.shape[1]), 1.0, own.dtype)
        total += tl.dot(ones, own) * tl.load(offsets + place, mask=inside, other=0.0)[:, :, None]
    return total


@triton.jit
def _added(
    total: tl.tensor,
    one: tl.tensor,
    two: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    scales: tl.tensor,
    offsets: tl.tensor,
    tile: tl.tensor,
    column: tl.tensor,
    columns: tl.constexpr,
    group: tl.constexpr,
    offset: tl.constexpr,
    planes: tl.constexpr,
    width: tl.constexpr,
) -> tl.tensor:
    """total [warps, rows, tokens] + the products of chunks with the numbers of x at their planes' columns."""
    if group >= columns and not offset:
        total = tl.dot(one, first, total)
        if planes == 2:
            total = tl.dot(two, second, total)
    else:
        total = _scaled(total, tl.dot(one, first), first, scales, offsets, tile, column, columns, group, offset)
        if planes == 2:
            total = _scaled(
                total, tl.dot(two, second), second, scales, offsets, tile, column + width, columns, group, offset
            )
    return total


@triton.jit
def _row_sums(
    total: tl.tensor,
    scales: tl.tensor,
    tile: tl.tensor,
    columns: tl.constexpr,
    group: tl.constexpr,
    offset: tl.constexpr,
) -> tl.tensor:
    """[rows, tokens]: what all warps have of a row, times its scale where that is one for the whole row."""
    result = tl.sum(total, 0)
    if group >= columns and not offset:
        result = result * tl.load(scales + tile * ROWS + tl.arange(0, total.shape[1]))[:, None]
    return result


@triton.jit
def activated(x: tl.tensor, activation: tl.constexpr) -> tl.tensor:
    """silu, gelu (erf), gelu_tanh or relu of float32; "" leaves it alone."""
    if activation == "silu":
        x = x * tl.sigmoid(x)
    elif activation == "gelu":
        x = 0.5 * x * (1.0 + libdevice.erf(x * 0.7071067811865476))
    elif activation == "gelu_tanh":
        inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        x = x * tl.sigmoid(2.0 * inner)  # 0.5 (1 + tanh(a)) is the sigmoid of 2a
    elif activation == "relu":
        x = tl.maximum(x, 0.0)
    return x


@triton.jit
def capped(x: tl.tensor, cap: tl.constexpr) -> tl.tensor:
    """cap · tanh(x / cap); 0 leaves it alone."""
    if cap > 0:
        x = cap * (2.0 * tl.sigmoid(x * (2.0 / cap)) - 1.0)
    return x


@triton.jit
def _row_of(
    stream: tl.tensor, token: tl.tensor, tokens: tl.constexpr, columns: tl.constexpr, power_columns: tl.constexpr
) -> tl.tensor:
    column = tl.arange(0, power_columns)
    return tl.load(stream + token * columns + column, mask=(column < columns) & (token < tokens), other=0.0)


@triton.jit
def _spread(
    stream: tl.tensor,
    held: tl.tensor,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    epsilon: tl.constexpr,
    tile_tokens: tl.constexpr,
    power_columns: tl.constexpr,
) -> tl.tensor:
    """What an RMS norm multiplies each token of stream [tokens, columns] by: [1, tile_tokens] float32. `held`: the row
    of the first of them."""
    token = tl.arange(0, tile_tokens)
    squares = tl.zeros((tile_tokens,), tl.float32)
    for one in tl.static_range(min(tokens, tile_tokens)):
        if one > 0:
            held = _row_of(stream, tl.program_id(1) * tile_tokens + one, tokens, columns, power_columns)
        wide = held.to(tl.float32)
        squares = tl.where(token == one, tl.sum(wide * wide, 0), squares)
    return tl.rsqrt(squares / columns + epsilon)[None, :]


@triton.jit
def packed_product(
    x: tl.tensor,
    stream: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    offsets: tl.tensor,
    numbers: tl.tensor,
    places: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    norm: tl.tensor,
    z: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    group: tl.constexpr,
    offset: tl.constexpr,
    gathered: tl.constexpr,
    planes: tl.constexpr,
    straight: tl.constexpr,
    width: tl.constexpr,
    asm: tl.constexpr,
    normed: tl.constexpr,
    epsilon: tl.constexpr,
    norm_offset: tl.constexpr,
    biased: tl.constexpr,
    activation: tl.constexpr,
    scale: tl.constexpr,
    cap: tl.constexpr,
    added: tl.constexpr,
    followed: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    warps: tl.constexpr,
    stages: tl.constexpr,
    ahead: tl.constexpr,
    power_columns: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] = cap(scale · activation(x @ weights.T + bias)), or `added` to what y holds.

    x [tokens, columns], `gathered`: its columns come in the order `places` int32 [columns]. `normed`: x is `stream`
    [tokens, columns] times the weights of its RMS norm, whose factor is found here and comes behind the product.
    `followed`: z [tokens, rows] = y times the weights `norm` of its own. One program for `tile_rows` rows, a multiple
    of ROWS that tiles fill, and `tile_tokens` tokens.
    """
    chunk: tl.constexpr = planes * width
    chunks: tl.constexpr = (columns + chunk - 1) // chunk
    steps: tl.constexpr = (chunks + warps - 1) // warps
    whole: tl.constexpr = columns % (chunk * warps) == 0
    tile = tl.program_id(0) * (tile_rows // ROWS)
    if overlap:
        gdc_launch_dependents()
        _ask_for(weight + tile.to(tl.int64) * (chunks * ROWS * width), chunks * tile_rows * width, ahead)
        gdc_wait()
    row = tile * ROWS + tl.arange(0, tile_rows)[:, None]
    token = tl.program_id(1) * tile_tokens + tl.arange(0, tile_tokens)[None, :]
    place, inside = token * rows + row, (token < tokens) & (row < rows)
    # Asked for before the product, so that what comes behind it need not wait.
    before, shift, factor, held = 0.0, 0.0, 0.0, 0.0
    if normed:
        held = _row_of(stream, tl.program_id(1) * tile_tokens, tokens, columns, power_columns)
    if added:
        before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    if biased:
        shift = tl.load(bias + row, mask=row < rows, other=0.0).to(tl.float32)
    if followed:
        factor = tl.load(norm + row, mask=row < rows, other=0.0).to(tl.float32) + norm_offset
    warp, column = tl.arange(0, warps), tl.arange(0, width)[None, :, None]
    total = tl.zeros((warps, tile_rows, tile_tokens), tl.float32)
    for step in tl.range(0, steps, num_stages=stages):
        now = step * warps + warp
        begin = now[:, None, None] * chunk + column
        one, two = _codes(
            x, weight, numbers, tile, now[:, None, None], chunks, planes, straight, width, warps, tile_rows, asm
        )
        first = _own(x, places, token[None, :, :], begin, tokens, columns, gathered, whole)
        second = first
        if planes == 2:
            second = _own(x, places, token[None, :, :], begin + width, tokens, columns, gathered, whole)
        at = now[:, None] * chunk
        total = _added(total, one, two, first, second, scales, offsets, tile, at, columns, group, offset, planes, width)
    result = _row_sums(total, scales, tile, columns, group, offset)
    if normed:
        result = result * _spread(stream, held, tokens, columns, epsilon, tile_tokens, power_columns)
    result = capped(activated(result + shift, activation) * scale, cap) + before
    rounded = result.to(y.dtype.element_ty)
    tl.store(y + place, rounded, mask=inside)
    if followed:
        tl.store(z + place, (rounded.to(tl.float32) * factor).to(z.dtype.element_ty), mask=inside)


@triton.jit
def packed_gated_product(
    x: tl.tensor,
    stream: tl.tensor,
    weight: tl.tensor,
    scales: tl.tensor,
    offsets: tl.tensor,
    numbers: tl.tensor,
    places: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    group: tl.constexpr,
    offset: tl.constexpr,
    gathered: tl.constexpr,
    planes: tl.constexpr,
    straight: tl.constexpr,
    width: tl.constexpr,
    asm: tl.constexpr,
    normed: tl.constexpr,
    epsilon: tl.constexpr,
    biased: tl.constexpr,
    activation: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    warps: tl.constexpr,
    stages: tl.constexpr,
    ahead: tl.constexpr,
    power_columns: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] = activation(x @ gate.T) · (x @ up.T); weights [2 · rows, columns] hold gate, then up.

    `rows` is a multiple of ROWS; bias [2 · rows]; all else as in `packed_product`.
    """
    chunk: tl.constexpr = planes * width
    chunks: tl.constexpr = (columns + chunk - 1) // chunk
    steps: tl.constexpr = (chunks + warps - 1) // warps
    whole: tl.constexpr = columns % (chunk * warps) == 0
    size: tl.constexpr = chunks * ROWS * width
    tile = tl.program_id(0) * (tile_rows // ROWS)
    other = tile + rows // ROWS
    if overlap:
        gdc_launch_dependents()
        _ask_for(weight + tile.to(tl.int64) * size, chunks * tile_rows * width, ahead)
        _ask_for(weight + other.to(tl.int64) * size, chunks * tile_rows * width, ahead)
        gdc_wait()
    held = 0.0
    if normed:
        held = _row_of(stream, tl.program_id(1) * tile_tokens, tokens, columns, power_columns)
    warp, column = tl.arange(0, warps), tl.arange(0, width)[None, :, None]
    token = tl.program_id(1) * tile_tokens + tl.arange(0, tile_tokens)[None, None, :]
    gate = tl.zeros((warps, tile_rows, tile_tokens), tl.float32)
    up = tl.zeros((warps, tile_rows, tile_tokens), tl.float32)
    for step in tl.range(0, steps, num_stages=stages):
        now = step * warps + warp
        begin = now[:, None, None] * chunk + column
        one, two = _codes(
            x, weight, numbers, tile, now[:, None, None], chunks, planes, straight, width, warps, tile_rows, asm
        )
        three, four = _codes(
            x, weight, numbers, other, now[:, None, None], chunks, planes, straight, width, warps, tile_rows, asm
        )
        first = _own(x, places, token, begin, tokens, columns, gathered, whole)
        second = first
        if planes == 2:
            second = _own(x, places, token, begin + width, tokens, columns, gathered, whole)
        at = now[:, None] * chunk
        gate = _added(gate, one, two, first, second, scales, offsets, tile, at, columns, group, offset, planes, width)
        up = _added(up, three, four, first, second, scales, offsets, other, at, columns, group, offset, planes, width)
    gated = _row_sums(gate, scales, tile, columns, group, offset)
    result = _row_sums(up, scales, other, columns, group, offset)
    if normed:
        spread = _spread(stream, held, tokens, columns, epsilon, tile_tokens, power_columns)
        gated, result = gated * spread, result * spread
    row = tile * ROWS + tl.arange(0, tile_rows)[:, None]
    token = tl.program_id(1) * tile_tokens + tl.arange(0, tile_tokens)[None, :]
    if biased:
        gated += tl.load(bias + row, mask=row < rows, other=0.0).to(tl.float32)
        result += tl.load(bias + rows + row, mask=row < rows, other=0.0).to(tl.float32)
    result = activated(gated, activation) * result
    tl.store(y + token * rows + row, result.to(y.dtype.element_ty), mask=(token < tokens) & (row < rows))
