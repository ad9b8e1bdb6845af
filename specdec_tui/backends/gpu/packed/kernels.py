"""Products of a few tokens with matrices whose weights are read packed, in Triton.

Codes go from memory to the registers that a tensor core multiplies from, where they become half-precision numbers that
stand for them exactly (`codes`); the sum over a group of columns is then multiplied by the group's scale, in float32.
So a weight is rounded once, as its number in half precision, and a scale never.

A program has one tile of ROWS rows and all columns of it. Its warps have chunks of columns in turn, whose sums are
added at the end. Weights lie in memory in the order of a tensor core's lanes (`packing`), so that nothing is exchanged
between threads before that; those of the first steps and their scales are loaded while the kernel before still runs.
The order of a sum depends on the matrix's shape alone.

Layouts as in `packing`: weight bytes [row tiles, chunks, ROWS · width], scales and offsets float32 [row tiles, groups,
ROWS]. Arrays are contiguous, sizes are compile-time numbers; `overlap` as in the other kernels. Without `asm` codes are
looked up in `numbers`, one by one: for machines that have no such instructions. Imported only where there is Triton.
"""

# ruff: noqa: RUF005 (Triton's tuples are added to)

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.multiplied import activated, capped
from specdec_tui.backends.gpu.packed.unpacked import ROWS, place_of

_WITH_TABLE = tl.constexpr("=r,=r,=r,=r,r,r,r,r,r")


@triton.jit
def _column(inner: tl.tensor, width: tl.constexpr) -> tl.tensor:
    """The column, within a plane of a chunk, of each place of a product's inner dimension [u, k, t, b]."""
    quarter: tl.constexpr = width // 4
    if quarter == 4:
        return inner
    return inner // 4 % 4 * quarter + inner // 32 * 8 + inner // 16 % 2 * 4 + inner % 4


@triton.jit
def _held(
    weight: tl.tensor,
    tile: tl.tensor,
    step: tl.constexpr,
    chunks: tl.constexpr,
    width: tl.constexpr,
    warps: tl.constexpr,
    asm: tl.constexpr,
) -> tl.tensor:
    """The bytes of a step, a chunk of each warp: [warps, ROWS, width] as in memory, which asm takes as they are."""
    if asm == "":
        return step
    full: tl.constexpr = (step + 1) * warps <= chunks
    units: tl.constexpr = (width + 31) // 32
    size: tl.constexpr = width // 2 // units  # bytes of a lane that follow each other
    thread, unit = tl.arange(0, warps * 32)[:, None, None], tl.arange(0, units)[None, :, None]
    chunk = step * warps + thread // 32
    source = weight + (tile.to(tl.int64) * chunks + chunk) * (ROWS * width) + unit * 512 + thread % 32 * size
    source += tl.arange(0, size)[None, None, :]
    packed = tl.load(source) if full else tl.load(source, mask=chunk < chunks, other=0)
    packed = tl.reshape(packed, (warps, 8, 4, units, size // 8, 2, 4))  # warp, g, t, u, k, h, b
    return tl.reshape(tl.permute(packed, (0, 5, 1, 3, 4, 2, 6)), (warps, ROWS, width))


@triton.jit
def _numbers(
    x: tl.tensor,
    held: tl.tensor,
    lane: tl.tensor,
    weight: tl.tensor,
    numbers: tl.tensor,
    tile: tl.tensor,
    step: tl.constexpr,
    chunks: tl.constexpr,
    planes: tl.constexpr,
    straight: tl.constexpr,
    width: tl.constexpr,
    warps: tl.constexpr,
    asm: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """What the codes of a step stand for, for both planes: [warps, ROWS, width] in half precision, that of x."""
    half = x.dtype.element_ty
    if asm == "":
        chunk = (step * warps + tl.arange(0, warps))[:, None, None]
        column = _column(tl.arange(0, width), width)[None, None, :]
        row = tl.arange(0, ROWS)[None, :, None]
        source = weight + (tile.to(tl.int64) * chunks + chunk) * (ROWS * width)
        byte, shift = place_of(row, column, planes, straight, width)
        code = tl.load(source + byte, mask=chunk < chunks, other=0).to(tl.int32)
        if planes == 1:
            one = tl.load(numbers + code).to(half)
            return one, one
        one = tl.load(numbers + (code >> shift & 15)).to(half)
        byte, shift = place_of(row, column + width, planes, straight, width)
        code = tl.load(source + byte, mask=chunk < chunks, other=0).to(tl.int32)
        return one, tl.load(numbers + (code >> shift & 15)).to(half)
    if planes == 1:
        one = tl.inline_asm_elementwise(asm, "=r,=r,r", [held], dtype=half, is_pure=True, pack=4)
        return one, one
    if straight:
        one, two = tl.inline_asm_elementwise(asm, _WITH_TABLE, [held, lane], dtype=(half, half), is_pure=True, pack=4)
    else:
        one, two = tl.inline_asm_elementwise(asm, "=r,=r,=r,=r,r", [held], dtype=(half, half), is_pure=True, pack=4)
    return one, two


@triton.jit
def _own(
    x: tl.tensor,
    places: tl.tensor,
    begin: tl.constexpr,
    stride: tl.constexpr,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    gathered: tl.constexpr,
    width: tl.constexpr,
    warps: tl.constexpr,
    tile_tokens: tl.constexpr,
) -> tl.tensor:
    """x of all tokens of the program, at `width` columns from `begin` + `stride` · warp on: [warps, width, tokens],
    0 beyond x. In the order of `_held`, and loaded as that is."""
    quarter: tl.constexpr = width // 4
    units: tl.constexpr = (quarter + 7) // 8
    size: tl.constexpr = quarter // units
    full: tl.constexpr = begin + stride * (warps - 1) + width <= columns
    thread = tl.arange(0, warps * 32)[:, None, None, None]
    token = tl.program_id(1) * tile_tokens + tl.arange(0, tile_tokens // 8)[None, :, None, None] * 8 + thread // 4 % 8
    column = begin + thread // 32 * stride + thread % 4 * quarter + tl.arange(0, units)[None, None, :, None] * 8
    column += tl.arange(0, size)[None, None, None, :]
    inside = token < tokens if full else (token < tokens) & (column < columns)
    if gathered:
        column = tl.load(places + column, mask=column < columns, other=0)
    own = tl.load(x + token * columns + column, mask=inside, other=0.0)
    own = tl.reshape(own, (warps, 8, 4, tile_tokens // 8, units, size // 4, 4))  # warp, g, t, n, u, k, b
    return tl.reshape(tl.permute(own, (0, 4, 5, 2, 6, 3, 1)), (warps, width, tile_tokens))


@triton.jit
def _of_group(
    values: tl.tensor,
    tile: tl.tensor,
    begin: tl.constexpr,
    stride: tl.constexpr,
    columns: tl.constexpr,
    group: tl.constexpr,
    warps: tl.constexpr,
) -> tl.tensor:
    """Scales or offsets [warps, ROWS] of the groups that begin + stride · warp are in; 0 beyond the matrix."""
    groups: tl.constexpr = (columns + group - 1) // group
    full: tl.constexpr = begin + stride * (warps - 1) < columns
    column = (begin + stride * tl.arange(0, warps))[:, None]
    place = values + (tile * groups + column // group) * ROWS + tl.arange(0, ROWS)[None, :]
    return tl.load(place) if full else tl.load(place, mask=column < columns, other=0.0)


@triton.jit
def _scales_of(
    scales: tl.tensor,
    offsets: tl.tensor,
    tile: tl.tensor,
    step: tl.constexpr,
    columns: tl.constexpr,
    group: tl.constexpr,
    offset: tl.constexpr,
    planes: tl.constexpr,
    width: tl.constexpr,
    warps: tl.constexpr,
) -> tl.tensor:
    """(scales, offsets) of a step's first plane, then of the second; the first again where there is no other."""
    begin: tl.constexpr = step * warps * planes * width
    stride: tl.constexpr = planes * width
    one, two, three, four = 0.0, 0.0, 0.0, 0.0
    if group < columns or offset:
        one = _of_group(scales, tile, begin, stride, columns, group, warps)
        three = one
        if planes == 2 and group % stride != 0:
            three = _of_group(scales, tile, begin + width, stride, columns, group, warps)
    if offset:
        two = _of_group(offsets, tile, begin, stride, columns, group, warps)
        four = two
        if planes == 2 and group % stride != 0:
            four = _of_group(offsets, tile, begin + width, stride, columns, group, warps)
    return one, two, three, four


@triton.jit
def _added(
    total: tl.tensor,
    one: tl.tensor,
    two: tl.tensor,
    first: tl.tensor,
    second: tl.tensor,
    scales: tl.tensor,
    columns: tl.constexpr,
    group: tl.constexpr,
    offset: tl.constexpr,
    planes: tl.constexpr,
    width: tl.constexpr,
) -> tl.tensor:
    """total [warps, ROWS, tokens] + scale · a step's product with x at its planes' columns + offset · the sum of x."""
    if group >= columns and not offset:
        total = tl.dot(one, first, total)
        return tl.dot(two, second, total) if planes == 2 else total
    sums = tl.dot(one, first)
    if planes == 2 and group % (2 * width) == 0:  # both planes are of one group
        total += tl.dot(two, second, sums) * scales[0][:, :, None]
    else:
        total += sums * scales[0][:, :, None]
        if planes == 2:
            total += tl.dot(two, second) * scales[2][:, :, None]
    if offset:
        ones = tl.full((one.shape[0], one.shape[1], one.shape[2]), 1.0, one.dtype)
        total += tl.dot(ones, first) * scales[1][:, :, None]
        if planes == 2:
            total += tl.dot(ones, second) * scales[3][:, :, None]
    return total


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
    tables: tl.tensor,
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
    filling: tl.constexpr,
    gated: tl.constexpr,
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
    warps: tl.constexpr,
    early: tl.constexpr,
    power_columns: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] = cap(scale · activation(x @ weights.T + bias)), or `added` to what y holds.

    x [tokens, columns], `gathered`: its columns come in the order `places` int32 [columns]. `normed`: x is `stream`
    [tokens, columns] times the weights of its RMS norm, whose factor is found here and comes behind the product.
    `followed`: z [tokens, rows] = y times the weights `norm` of its own. `gated`: y = activation(x @ gate.T) · (x @
    up.T); the weights [2 · rows, columns] and bias [2 · rows] hold gate, then up, and rows is a multiple of ROWS.
    One program for ROWS rows and `tile_tokens` tokens; `early` steps are loaded before the kernel before has ended.
    """
    chunk: tl.constexpr = planes * width
    chunks: tl.constexpr = (columns + chunk - 1) // chunk
    steps: tl.constexpr = (chunks + warps - 1) // warps
    tile = tl.program_id(0)
    below = tile + rows // ROWS
    if overlap:
        gdc_launch_dependents()
    held: tl.tuple = ()
    kept: tl.tuple = ()
    found: tl.tuple = ()
    more: tl.tuple = ()
    for step in tl.static_range(min(early, steps)):
        held = held + (_held(weight, tile, step, chunks, width, warps, asm),)
        found = found + (_scales_of(scales, offsets, tile, step, columns, group, offset, planes, width, warps),)
        if gated:
            kept = kept + (_held(weight, below, step, chunks, width, warps, asm),)
            more = more + (_scales_of(scales, offsets, below, step, columns, group, offset, planes, width, warps),)
    lane = 0
    if filling != "":
        lane = tl.inline_asm_elementwise(filling, "=r,l", [tables.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1)
    row = tile * ROWS + tl.arange(0, ROWS)[:, None]
    shift, lift, factor, own_scale, other_scale = 0.0, 0.0, 0.0, 1.0, 1.0
    if group >= columns and not offset:  # one for the whole row
        own_scale = tl.load(scales + row)
        if gated:
            other_scale = tl.load(scales + rows + row)
    if biased:
        shift = tl.load(bias + row, mask=row < rows, other=0.0).to(tl.float32)
        if gated:
            lift = tl.load(bias + rows + row, mask=row < rows, other=0.0).to(tl.float32)
    if followed:
        factor = tl.load(norm + row, mask=row < rows, other=0.0).to(tl.float32) + norm_offset
    if overlap:
        gdc_wait()
    token = tl.program_id(1) * tile_tokens + tl.arange(0, tile_tokens)[None, :]
    place, inside = token * rows + row, (token < tokens) & (row < rows)
    # Asked for before the product, so that what comes behind it need not wait.
    before, own_row = 0.0, 0.0
    if normed:
        own_row = _row_of(stream, tl.program_id(1) * tile_tokens, tokens, columns, power_columns)
    if added:
        before = tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros((warps, ROWS, tile_tokens), tl.float32)
    other = tl.zeros((warps, ROWS, tile_tokens), tl.float32)
    for step in tl.static_range(steps):
        if step + early < steps:
            held = held + (_held(weight, tile, step + early, chunks, width, warps, asm),)
            found = found + (
                _scales_of(scales, offsets, tile, step + early, columns, group, offset, planes, width, warps),
            )
            if gated:
                kept = kept + (_held(weight, below, step + early, chunks, width, warps, asm),)
                more = more + (
                    _scales_of(scales, offsets, below, step + early, columns, group, offset, planes, width, warps),
                )
        first = _own(x, places, step * warps * chunk, chunk, tokens, columns, gathered, width, warps, tile_tokens)
        second = first
        if planes == 2:
            second = _own(
                x, places, step * warps * chunk + width, chunk, tokens, columns, gathered, width, warps, tile_tokens
            )
        one, two = _numbers(
            x, held[step], lane, weight, numbers, tile, step, chunks, planes, straight, width, warps, asm
        )
        total = _added(total, one, two, first, second, found[step], columns, group, offset, planes, width)
        if gated:
            one, two = _numbers(
                x, kept[step], lane, weight, numbers, below, step, chunks, planes, straight, width, warps, asm
            )
            other = _added(other, one, two, first, second, more[step], columns, group, offset, planes, width)
    result = tl.sum(total, 0) * own_scale
    spread = 1.0
    if normed:
        spread = _spread(stream, own_row, tokens, columns, epsilon, tile_tokens, power_columns)
    result = activated(result * spread + shift, activation)
    if gated:
        result = result * (tl.sum(other, 0) * other_scale * spread + lift)
    rounded = (capped(result * scale, cap) + before).to(y.dtype.element_ty)
    tl.store(y + place, rounded, mask=inside)
    if followed:
        tl.store(z + place, (rounded.to(tl.float32) * factor).to(z.dtype.element_ty), mask=inside)
