"""What a packed product reads, in Triton: weights as a tensor core's lanes want them, scales, the tokens' numbers.

Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.packed.unpacked import ROWS, place_of
from specdec_tui.backends.gpu.ptx import columns_read, constraints

_WITH_TABLE = tl.constexpr("=r,=r,=r,=r,r,r,r,r,r")
_READ_16, _READ_8, _READ_4 = (tl.constexpr(columns_read(count)) for count in (16, 8, 4))
_FOR_16, _FOR_8, _FOR_4 = (tl.constexpr(constraints(count)) for count in (16, 8, 4))


@triton.jit
def _column(inner: tl.tensor, width: tl.constexpr) -> tl.tensor:
    """The column, within a plane of a chunk, of each place of a product's inner dimension [u, k, t, m, c]."""
    quarter: tl.constexpr = width // 4
    if quarter == 4:
        return inner
    return inner // 4 % 4 * quarter + inner // 32 * 8 + inner // 2 % 2 * 4 + inner // 16 % 2 * 2 + inner % 2


@triton.jit
def held_step(
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
def numbers_of(
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
def own_columns(
    x: tl.tensor,
    places: tl.tensor,
    shared: tl.tensor,
    begin: tl.constexpr,
    stride: tl.constexpr,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    gathered: tl.constexpr,
    staged: tl.constexpr,
    width: tl.constexpr,
    warps: tl.constexpr,
    tile_tokens: tl.constexpr,
) -> tl.tensor:
    """x of all tokens of the program, at `width` columns from `begin` + `stride` · warp on: [warps, width, tokens],
    0 beyond x. In the order of `held_step`, and loaded as that is, or read from shared memory (`held.arrived`)."""
    quarter: tl.constexpr = width // 4
    units: tl.constexpr = (quarter + 7) // 8
    size: tl.constexpr = quarter // units
    full: tl.constexpr = begin + stride * (warps - 1) + width <= columns
    thread = tl.arange(0, warps * 32)[:, None, None, None]
    token = tl.program_id(1) * tile_tokens + tl.arange(0, tile_tokens // 8)[None, :, None, None] * 8 + thread // 4 % 8
    column = begin + thread // 32 * stride + thread % 4 * quarter + tl.arange(0, units)[None, None, :, None] * 8
    column += tl.arange(0, size)[None, None, None, :]
    token = tl.minimum(token, tokens - 1)  # behind the last one that is repeated, and nothing is made of it
    inside = column < columns
    if gathered:
        column = tl.load(places + column, mask=inside, other=0)
    if staged:
        # Nothing is loaded by this: Triton gives what is read the layout of what would be.
        own = tl.load(x + token * columns + column, mask=thread < 0, other=0.0)
        code: tl.constexpr = _READ_16 if quarter == 16 else _READ_8 if quarter == 8 else _READ_4
        kinds: tl.constexpr = _FOR_16 if quarter == 16 else _FOR_8 if quarter == 8 else _FOR_4
        own = tl.inline_asm_elementwise(
            code, kinds, [shared + 2 * begin, own], dtype=own.dtype, is_pure=True, pack=quarter
        )
    elif full:
        own = tl.load(x + token * columns + column)
    else:
        own = tl.load(x + token * columns + column, mask=inside, other=0.0)
    own = tl.reshape(own, (warps, 8, 4, tile_tokens // 8, units, 2, size // 4, 2))  # warp, g, t, n, u, m, k, c
    return tl.reshape(tl.permute(own, (0, 4, 6, 2, 5, 7, 3, 1)), (warps, width, tile_tokens))


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
def scales_of(
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
