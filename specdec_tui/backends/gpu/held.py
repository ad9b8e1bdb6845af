"""Rows of a matrix that a program's threads hold in their registers, times a few tokens, in Triton; see `multiplied`.

All of a program's rows that find room are on their way at once, straight to where a tensor core reads them: nothing is
then left to do behind the wait for the kernel before but the product itself. A thread of a tensor core's tile holds
pairs of neighbouring columns here and there; so that it can load eight of them at once, each 32 columns are taken in
another order, the same for weights and tokens, which a sum does not feel. Such loads have the shape [8, pieces, rows /
8, 32], row i2 · 8 + i0 of piece i1: so laid out, each thread loads what it multiplies with.

Where there are instructions of our own, `direct` is what does this.
"""

# ruff: noqa: RUF005 (Triton's tuples are added to)

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

STEP = tl.constexpr(32)  # columns that are held together


@triton.jit
def lines_of(lines: tl.constexpr) -> tl.tensor:
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
    within = begin + tl.arange(0, STEP)
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
    return tl.reshape(tl.permute(x, (0, 1, 3, 4, 2, 5)), (pieces, lines, STEP))


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
def rows_of(rows: tl.constexpr, lines: tl.constexpr, gated: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The rows of a program, [8, 1, lines / 8], and which are real; `gated`: half of them of gate, half of up."""
    line = lines_of(lines)
    if gated:
        half: tl.constexpr = lines // 2
        own = tl.program_id(0) * half + line % half
        return tl.minimum(own, rows - 1) + line // half * rows, own < rows
    else:
        own = tl.program_id(0) * lines + line
        return tl.minimum(own, rows - 1), own < rows


@triton.jit
def read_rows(
    line: tl.tensor, tokens: tl.constexpr, paired: tl.constexpr, apart: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Which rows of tokens are multiplied, and which of them there are; `paired`: by turns of stream and branch, which
    lie `apart` rows from each other."""
    if paired:
        return line // 2 + line % 2 * apart, line // 2 < tokens
    else:
        return line, line < tokens


@triton.jit
def begun_rows(
    weight: tl.tensor,
    rows: tl.constexpr,
    columns: tl.constexpr,
    gated: tl.constexpr,
    pieces: tl.constexpr,
    lines: tl.constexpr,
    early: tl.constexpr,
) -> tl.tuple:
    """The first columns of the program's rows: a tuple of `_held_step`."""
    share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
    line, real = rows_of(rows, lines, gated)
    held: tl.tuple = ()
    for begin in tl.static_range(0, early, STEP):
        step = _held_step(
            weight, line, real, columns, pieces, begin, begin + STEP <= share and pieces * share == columns
        )
        held = held + (step,)
    return held


@triton.jit
def ask(x: tl.tensor, asking: tl.constexpr) -> None:
    """Ask for all tokens, see `ptx.asking`."""
    if asking != "":
        tl.inline_asm_elementwise(asking, "=r,l", [x.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def arrived(code: tl.constexpr) -> tl.tensor:
    """Where a thread's own columns of the tokens asked for are in shared memory, see `ptx.arriving`; 0 where none
    were."""
    if code == "":
        return 0
    else:
        return tl.inline_asm_elementwise(code, "=r,r", [0], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def held_product(
    held: tl.tuple,
    x: tl.tensor,
    weight: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    gated: tl.constexpr,
    pieces: tl.constexpr,
    tile_tokens: tl.constexpr,
    lines: tl.constexpr,
    early: tl.constexpr,
    paired: tl.constexpr,
    apart: tl.constexpr,
) -> tl.tensor:
    """[pieces, lines, tile_tokens] float32, of rows of which `early` columns of each piece are held at any time: a step
    that was multiplied makes room for another. `paired`: see `multiplied`."""
    share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
    token, real = read_rows(lines_of(tile_tokens), tokens, paired, apart)
    line, real_line = rows_of(rows, lines, gated)
    total = tl.zeros((pieces, lines, tile_tokens), tl.float32)
    last: tl.constexpr = (share - 1) // early * early  # what is held at the end begins there
    for begin in range(0, last, early):
        after: tl.tuple = ()
        for offset in tl.static_range(0, early, STEP):
            own = _held_step(x, token, real, columns, pieces, begin + offset, False)
            total = _with_step(held[offset // STEP], own, total, pieces, lines, tile_tokens)
            after = after + (_held_step(weight, line, real_line, columns, pieces, begin + early + offset, False),)
        held = after
    for offset in tl.static_range(0, share - last, STEP):
        own = _held_step(
            x, token, real, columns, pieces, last + offset, last + offset + STEP <= share and pieces * share == columns
        )
        total = _with_step(held[offset // STEP], own, total, pieces, lines, tile_tokens)
    return total
