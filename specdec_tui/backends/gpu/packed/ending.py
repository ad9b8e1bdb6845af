"""Norms of what packed products read and leave, in Triton. Imported only where there is Triton."""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.ending import stored
from specdec_tui.backends.gpu.sums import plus


@triton.jit
def _part(sums: tl.tensor, token: tl.tensor, tokens: tl.constexpr, parts: tl.constexpr) -> tl.tensor:
    """[32] of what the parts of a token's sum make: each warp adds them up by itself. The last token's beyond it."""
    lane = tl.arange(0, 32)
    place = sums + tl.minimum(token, tokens - 1) * parts + lane
    found = tl.load(place, mask=lane < parts, other=0.0)
    for begin in tl.static_range(32, parts, 32):
        found += tl.load(place + begin, mask=lane < parts - begin, other=0.0)
    return found


@triton.jit
def asked_parts(
    sums: tl.tensor, first: tl.constexpr, tokens: tl.constexpr, parts: tl.constexpr, tile_tokens: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """What the program's tokens `first` … `first` + 3 need of sums [tokens, 1, parts], see `sums`."""
    token = tl.program_id(1) * tile_tokens + first
    one = _part(sums, token, tokens, parts)
    two, three, four = one, one, one
    if min(tokens, tile_tokens) > first + 1:
        two = _part(sums, token + 1, tokens, parts)
        three = _part(sums, token + 2, tokens, parts)
        four = _part(sums, token + 3, tokens, parts)
    return one, two, three, four


@triton.jit
def _placed(squares: tl.tensor, asked: tl.tuple, first: tl.constexpr, tile_tokens: tl.constexpr) -> tl.tensor:
    token = tl.arange(0, tile_tokens)
    a, b, c, d = tl.reduce((asked[0], asked[1], asked[2], asked[3]), 0, plus)
    group = tl.where(token == first, a, tl.where(token == first + 1, b, tl.where(token == first + 2, c, d)))
    return tl.where(token >= first, group, squares)


@triton.jit
def factor_of_sums(
    asked: tl.tuple,
    sums: tl.tensor,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    parts: tl.constexpr,
    epsilon: tl.constexpr,
    tile_tokens: tl.constexpr,
) -> tl.tensor:
    """What an RMS norm multiplies each token by: [1, 1, tile_tokens]. `asked`: what the first four tokens need."""
    squares = _placed(tl.zeros((tile_tokens,), tl.float32), asked, 0, tile_tokens)
    for first in tl.static_range(4, min(tokens, tile_tokens), 4):
        squares = _placed(squares, asked_parts(sums, first, tokens, parts, tile_tokens), first, tile_tokens)
    return tl.rsqrt(squares / columns + epsilon)[None, None, :]


@triton.jit
def row_of(
    stream: tl.tensor, token: tl.tensor, tokens: tl.constexpr, columns: tl.constexpr, power_columns: tl.constexpr
) -> tl.tensor:
    column = tl.arange(0, power_columns)
    return tl.load(stream + token * columns + column, mask=(column < columns) & (token < tokens), other=0.0)


@triton.jit
def factor_of_rows(
    stream: tl.tensor,
    held: tl.tensor,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    epsilon: tl.constexpr,
    tile_tokens: tl.constexpr,
    power_columns: tl.constexpr,
) -> tl.tensor:
    """The same where no sums are left of the stream [tokens, columns]. `held`: the row of the first token."""
    token = tl.arange(0, tile_tokens)
    squares = tl.zeros((tile_tokens,), tl.float32)
    for one in tl.static_range(min(tokens, tile_tokens)):
        if one > 0:
            held = row_of(stream, tl.program_id(1) * tile_tokens + one, tokens, columns, power_columns)
        wide = held.to(tl.float32)
        squares = tl.where(token == one, tl.sum(wide * wide, 0), squares)
    return tl.rsqrt(squares / columns + epsilon)[None, None, :]


@triton.jit
def leave_sums(
    left: tl.tensor,
    rounded: tl.tensor,
    inside: tl.tensor,
    tokens: tl.constexpr,
    rows_tiles: tl.constexpr,
    tile_tokens: tl.constexpr,
    asm: tl.constexpr,
) -> None:
    """The program's part of `left` [tokens, 1, row tiles]: the sums of squares over its rows of the stream."""
    wide = tl.where(inside, rounded, 0.0).to(tl.float64)
    total = tl.sum(wide * wide, 1, keep_dims=True).to(tl.float32)
    token = tl.program_id(1) * tile_tokens + tl.arange(0, tile_tokens)[None, None, :]
    stored(left, token * rows_tiles + tl.program_id(0), total, token < tokens, asm)
