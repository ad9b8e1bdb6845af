"""What norms need to know of the stream of a decoder, in Triton: sums over its rows; see `products`.

Programs that write rows of the stream add to its sums, float64 [tokens, kinds, APART], of which the first ones count:
each lies where the L2 cache has a part for it. In double precision sums of half-precision numbers are exact, or nearly
so: it matters neither in which order programs come nor how a tile lies in their threads.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

from specdec_tui.backends.gpu import tiles

APART = tl.constexpr(tiles.APART)


@triton.jit
def stream_row(stream: tl.tensor, token: tl.tensor, columns: tl.constexpr, power_columns: tl.constexpr) -> tl.tensor:
    column = tl.arange(0, power_columns)
    return tl.load(stream + token * columns + column, mask=column < columns, other=0.0)


@triton.jit
def _sum(a: tl.tensor, b: tl.tensor) -> tl.tensor:
    return a + b


@triton.jit
def first_rows(
    stream: tl.tensor, tokens: tl.constexpr, columns: tl.constexpr, power_columns: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The rows of the first four tokens, asked for before they are needed; the first again where there are fewer."""
    one = stream_row(stream, 0, columns, power_columns)
    two = stream_row(stream, 1, columns, power_columns) if tokens > 1 else one
    three = stream_row(stream, 2, columns, power_columns) if tokens > 2 else one
    four = stream_row(stream, 3, columns, power_columns) if tokens > 3 else one
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
def spread_of_rows(
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
                stream_row(stream, other, columns, power_columns),
                stream_row(stream, tl.minimum(other + 1, tokens - 1), columns, power_columns),
                stream_row(stream, tl.minimum(other + 2, tokens - 1), columns, power_columns),
                stream_row(stream, tl.minimum(other + 3, tokens - 1), columns, power_columns),
            )
            group = tl.where(token == other, a, tl.where(token == other + 1, b, tl.where(token == other + 2, c, d)))
            squares = tl.where(token >= other, group, squares)
    return tl.rsqrt(squares / columns + epsilon)


@triton.jit
def asked_sums(
    sums: tl.tensor, kinds: tl.constexpr, tokens: tl.constexpr, tile_tokens: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The sums of each kind [tile_tokens] float32, the first ones again where there are fewer than four."""
    token = tl.arange(0, tile_tokens)
    place = sums + token * kinds * APART
    one = tl.load(place, mask=token < tokens, other=0.0, cache_modifier=".cg").to(tl.float32)
    two, three, four = one, one, one
    if kinds > 1:
        two = tl.load(place + APART, mask=token < tokens, other=0.0, cache_modifier=".cg").to(tl.float32)
    if kinds > 2:
        three = tl.load(place + 2 * APART, mask=token < tokens, other=0.0, cache_modifier=".cg").to(tl.float32)
        four = tl.load(place + 3 * APART, mask=token < tokens, other=0.0, cache_modifier=".cg").to(tl.float32)
    return one, two, three, four


@triton.jit
def add_sums(
    left: tl.tensor,
    value: tl.tensor,
    kind: tl.constexpr,
    kinds: tl.constexpr,
    tokens: tl.constexpr,
    tile_tokens: tl.constexpr,
) -> None:
    """Add the sums of value [rows, tile_tokens] float64 over its rows to a kind of those `left`."""
    token = tl.arange(0, tile_tokens)
    place = left + (token * kinds + kind) * APART
    tl.atomic_add(place, tl.sum(value, 0), mask=token < tokens, sem="relaxed")


@triton.jit
def behind(
    result: tl.tensor,
    one: tl.tensor,
    two: tl.tensor,
    three: tl.tensor,
    four: tl.tensor,
    lowered: tl.tensor,
    columns: tl.constexpr,
    normed: tl.constexpr,
    paired: tl.constexpr,
    epsilon: tl.constexpr,
    shrink: tl.constexpr,
    branch_scale: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_tokens: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """What comes behind a product by the sums of the stream it reads, one to four: [tile_rows, tile_tokens], and what
    a branch is multiplied by [tile_tokens]. `lowered` [tile_rows]: what the matrix makes of a layer norm's weights."""
    if normed != "" and shrink != 1.0:
        result *= 1.0 / shrink
    share = one
    if paired:  # sums of y², x², x · v, v²
        share = tl.rsqrt(one / columns + epsilon) * branch_scale
        stream, branch = tl.split(tl.reshape(result, (tile_rows, tile_tokens, 2)))
        result = stream + branch * share[None, :]
        squares = two + share * (2.0 * three + share * four)
    elif normed == "layer":  # of x, x²
        mean = one / columns
        result -= lowered[:, None] * mean[None, :]
        squares = two - one * mean
    else:
        squares = one
    if normed != "":
        result *= tl.rsqrt(tl.maximum(squares, 0.0) / columns + epsilon)[None, :]
    return result, share


@triton.jit
def asked_slice(
    source: tl.tensor,
    branch: tl.tensor,
    norm: tl.tensor,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    followed: tl.constexpr,
    norm_offset: tl.constexpr,
    shrink: tl.constexpr,
    tile_tokens: tl.constexpr,
    slice_columns: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """A program's columns of the stream, the branch, both [tile_tokens, slice_columns], and the next norm's weights."""
    column, token = tl.program_id(0) * slice_columns + tl.arange(0, slice_columns), tl.arange(0, tile_tokens)
    inside = (token < tokens)[:, None] & (column < columns)[None, :]
    place = token[:, None] * columns + column[None, :]
    x, v = tl.load(source + place, mask=inside, other=0.0), tl.load(branch + place, mask=inside, other=0.0)
    factor = column
    if followed:
        factor = (tl.load(norm + column, mask=column < columns, other=0.0).to(tl.float32) + norm_offset) * shrink
    return x, v, factor


@triton.jit
def store_slice(
    x: tl.tensor,
    v: tl.tensor,
    factor: tl.tensor,
    share: tl.tensor,
    fresh: tl.tensor,
    z: tl.tensor,
    tokens: tl.constexpr,
    columns: tl.constexpr,
    followed: tl.constexpr,
    tile_tokens: tl.constexpr,
    slice_columns: tl.constexpr,
) -> None:
    """The stream with the branch, and that times the next norm's weights."""
    column, token = tl.program_id(0) * slice_columns + tl.arange(0, slice_columns), tl.arange(0, tile_tokens)
    inside = (token < tokens)[:, None] & (column < columns)[None, :]
    place = token[:, None] * columns + column[None, :]
    rounded = (x.to(tl.float32) + v.to(tl.float32) * share[:, None]).to(fresh.dtype.element_ty)
    tl.store(fresh + place, rounded, mask=inside)
    if followed:
        tl.store(z + place, (rounded.to(tl.float32) * factor[None, :]).to(z.dtype.element_ty), mask=inside)
