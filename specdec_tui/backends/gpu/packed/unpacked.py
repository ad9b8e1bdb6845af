"""Packed weights as numbers, in Triton: where the code of a weight lies (`packing`), and what it stands for.

Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.packed.packing import ROWS as _ROWS

ROWS = tl.constexpr(_ROWS)


@triton.jit
def place_of(
    row: tl.tensor, column: tl.tensor, planes: tl.constexpr, straight: tl.constexpr, width: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Where the code of a row of a tile and a column of a chunk lies: its byte in the chunk, and how far up in it."""
    quarter: tl.constexpr = width // 4
    words: tl.constexpr = 2 if quarter >= 8 else 1  # of a row, of its eight columns
    plane, within = column // width, column % width
    lane, rest = row % 8 * 4 + within // quarter, within % quarter
    word = ((rest // 8 * 32 + lane) * words + rest // 2 % words) * 2 + row // 8
    place = rest % 8 // (2 * words) * 2 + rest % 2
    if planes == 1:
        return word * 4 + place, place * 0
    nibble = place + 4 * plane if straight else place % 2 * 4 + place // 2 + 2 * plane
    return word * 4 + nibble // 2, nibble % 2 * 4


@triton.jit
def weight_tile(
    weight: tl.tensor,
    scales: tl.tensor,
    offsets: tl.tensor,
    numbers: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    rows: tl.constexpr,
    columns: tl.constexpr,
    group: tl.constexpr,
    offset: tl.constexpr,
    planes: tl.constexpr,
    straight: tl.constexpr,
    width: tl.constexpr,
) -> tl.tensor:
    """The weights at row [n, 1] and column [1, m] as float32, 0 beyond the matrix: scale · number + offset.

    They are rounded to half precision by whoever wants them so. `group`: columns that share a scale.
    """
    chunk: tl.constexpr = planes * width
    chunks: tl.constexpr = (columns + chunk - 1) // chunk
    groups: tl.constexpr = (columns + group - 1) // group
    inside = (row < rows) & (column < columns)
    tile, lane = row // ROWS, row % ROWS
    byte, shift = place_of(lane, column % chunk, planes, straight, width)
    place = (tile.to(tl.int64) * chunks + column // chunk) * (ROWS * width) + byte
    code = tl.load(weight + place, mask=inside, other=0).to(tl.int32)
    if planes == 2:
        code = code >> shift & 15
    found = (tile * groups + column // group) * ROWS + lane
    value = tl.load(numbers + code) * tl.load(scales + found, mask=inside, other=0.0)
    if offset:
        value += tl.load(offsets + found, mask=inside, other=0.0)
    return value


@triton.jit
def unpack(
    weight: tl.tensor,
    scales: tl.tensor,
    offsets: tl.tensor,
    numbers: tl.tensor,
    y: tl.tensor,
    rows: tl.constexpr,
    columns: tl.constexpr,
    group: tl.constexpr,
    offset: tl.constexpr,
    planes: tl.constexpr,
    straight: tl.constexpr,
    width: tl.constexpr,
    tile_columns: tl.constexpr,
) -> None:
    """y [rows, columns]: the weights themselves, in its dtype. One program for ROWS rows and `tile_columns` columns."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * tile_columns + tl.arange(0, tile_columns)[None, :]
    value = weight_tile(
        weight, scales, offsets, numbers, row, column, rows, columns, group, offset, planes, straight, width
    )
    place = row.to(tl.int64) * columns + column
    tl.store(y + place, value.to(y.dtype.element_ty), mask=(row < rows) & (column < columns))
