"""What norms need to know of the stream of a decoder, in Triton: sums over its rows; see `products`.

A kernel that writes rows of the stream leaves the sums of its part of each row, and kernels behind it add these up:
always in one order, however many tokens there are. Sums of a part are taken in double precision, in which those of
half-precision numbers are exact, so that it does not matter how a tile lies in the threads.
"""

# ruff: noqa: RUF005 (Triton's tuples are added to)

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.ending import stored


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
def plus(
    a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor, e: tl.tensor, f: tl.tensor, g: tl.tensor, h: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """How four sums run side by side: the threads meet once."""
    return a + e, b + f, c + g, d + h


@triton.jit
def _squares(
    one: tl.tensor, two: tl.tensor, three: tl.tensor, four: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The sums of four rows' squares, side by side: the threads meet once."""
    a, b, c, d = one.to(tl.float32), two.to(tl.float32), three.to(tl.float32), four.to(tl.float32)
    return tl.reduce((a * a, b * b, c * c, d * d), 0, plus)


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
def _part(
    sums: tl.tensor,
    token: tl.tensor,
    kind: tl.constexpr,
    kinds: tl.constexpr,
    parts: tl.constexpr,
) -> tl.tensor:
    """[32] of what the parts of a sum make: each warp adds them up by itself."""
    lane = tl.arange(0, 32)
    place = sums + (token * kinds + kind) * parts + lane
    found = tl.load(place, mask=lane < parts, other=0.0)
    for begin in tl.static_range(32, parts, 32):
        found += tl.load(place + begin, mask=lane < parts - begin, other=0.0)
    return found


@triton.jit
def _four_parts(
    sums: tl.tensor,
    token: tl.tensor,
    kinds: tl.constexpr,
    tokens: tl.constexpr,
    parts: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The parts of all kinds of sums, of as many tokens from `token` on as make four; the last token's again beyond."""
    one = _part(sums, token, 0, kinds, parts)
    if kinds == 4:
        two = _part(sums, token, 1, kinds, parts)
        three = _part(sums, token, 2, kinds, parts)
        four = _part(sums, token, 3, kinds, parts)
    elif kinds == 2:
        two = _part(sums, token, 1, kinds, parts)
        if tokens == 1:
            three, four = one, two
        else:
            other = tl.minimum(token + 1, tokens - 1)
            three = _part(sums, other, 0, kinds, parts)
            four = _part(sums, other, 1, kinds, parts)
    elif tokens == 1:
        two, three, four = one, one, one
    else:
        two = _part(sums, tl.minimum(token + 1, tokens - 1), 0, kinds, parts)
        three = _part(sums, tl.minimum(token + 2, tokens - 1), 0, kinds, parts)
        four = _part(sums, tl.minimum(token + 3, tokens - 1), 0, kinds, parts)
    return one, two, three, four


@triton.jit
def first_parts(
    sums: tl.tensor,
    kinds: tl.constexpr,
    tokens: tl.constexpr,
    parts: tl.constexpr,
) -> tl.tuple:
    """What the first four tokens need of sums [tokens, kinds, parts], asked for before it is needed."""
    held: tl.tuple = ()
    for token in tl.static_range(0, min(tokens, 4), 4 // kinds):
        held = held + (_four_parts(sums, token, kinds, tokens, parts),)
    return held


@triton.jit
def _placed(
    a: tl.tensor,
    b: tl.tensor,
    c: tl.tensor,
    d: tl.tensor,
    found: tl.tuple,
    begin: tl.tensor,
    kinds: tl.constexpr,
    tile_tokens: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Sums of each kind [tile_tokens], with those `found` of the tokens from `begin` on in their places."""
    token = tl.arange(0, tile_tokens)
    if kinds == 4:
        here = token == begin
        a, b = tl.where(here, found[0], a), tl.where(here, found[1], b)
        c, d = tl.where(here, found[2], c), tl.where(here, found[3], d)
    elif kinds == 2:
        here, next_one = token == begin, token == begin + 1
        a = tl.where(here, found[0], tl.where(next_one, found[2], a))
        b = tl.where(here, found[1], tl.where(next_one, found[3], b))
    else:
        last = tl.where(token == begin + 2, found[2], tl.where(token == begin + 3, found[3], a))
        a = tl.where(token == begin, found[0], tl.where(token == begin + 1, found[1], last))
    return a, b, c, d


@triton.jit
def totals(
    held: tl.tuple,
    sums: tl.tensor,
    kinds: tl.constexpr,
    tokens: tl.constexpr,
    parts: tl.constexpr,
    tile_tokens: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The sums of each token, of up to four kinds: [tile_tokens] float32 each. `held`: those asked for before."""
    a = tl.zeros((tile_tokens,), tl.float32)
    b, c, d = a, a, a
    for begin in tl.static_range(0, min(tokens, 4), 4 // kinds):
        asked = held[begin * kinds // 4]
        if kinds == 1 and tokens == 1:
            single = tl.reduce(asked[0], 0, _sum)  # in the order of four
            first = (single, single, single, single)
        else:
            first = tl.reduce((asked[0], asked[1], asked[2], asked[3]), 0, plus)
        a, b, c, d = _placed(a, b, c, d, first, begin, kinds, tile_tokens)
    if tokens > 4:
        for begin in range(4, tokens, 4 // kinds):
            one, two, three, four = _four_parts(sums, begin, kinds, tokens, parts)
            more = tl.reduce((one, two, three, four), 0, plus)
            a, b, c, d = _placed(a, b, c, d, more, begin, kinds, tile_tokens)
    return a, b, c, d


@triton.jit
def store_part(
    place: tl.tensor,
    value: tl.tensor,
    kinds: tl.constexpr,
    kind: tl.constexpr,
    tokens: tl.constexpr,
    parts: tl.constexpr,
    asm: tl.constexpr,
) -> None:
    """The sums of value [warps, rows, tile_tokens] over its rows, as one part of a kind of sums [tokens, kinds,
    parts]."""
    token = tl.arange(0, value.shape[2])[None, None, :]
    total = tl.sum(value.to(tl.float64), 1, keep_dims=True).to(tl.float32)
    stored(place, (token * kinds + kind) * parts, total, token < tokens, asm)


@triton.jit
def norm_factors(
    one: tl.tensor,
    two: tl.tensor,
    three: tl.tensor,
    four: tl.tensor,
    columns: tl.constexpr,
    normed: tl.constexpr,
    paired: tl.constexpr,
    epsilon: tl.constexpr,
    branch_scale: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """By the sums of each token what comes behind a product, [tile_tokens] each: what a norm multiplies by, the mean
    that a layer norm takes away, what a branch is multiplied by."""
    share, mean, squares = one, one, one
    if paired:  # sums of y², x², x · v, v²
        share = tl.rsqrt(one / columns + epsilon) * branch_scale
        # Told which products are added unrounded: a compiler may choose another way for other numbers of tokens.
        squares = tl.fma(share, tl.fma(share, four, three + three), two)
    elif normed == "layer":  # of x, x²
        mean = one / columns
        squares = two - one * mean
    return tl.rsqrt(tl.maximum(squares, 0.0) / columns + epsilon), mean, share


@triton.jit
def behind(
    result: tl.tensor,
    branch: tl.tensor,
    lowered: tl.tensor,
    spread: tl.tensor,
    mean: tl.tensor,
    share: tl.tensor,
    normed: tl.constexpr,
    paired: tl.constexpr,
    shrink: tl.constexpr,
) -> tl.tensor:
    """What comes behind a product by the sums of the stream it reads, see `norm_factors`: [warps, rows, tile_tokens].
    `lowered` [1, rows, 1]: what the matrix makes of a layer norm's weights."""
    if normed != "" and shrink != 1.0:
        result *= 1.0 / shrink
        branch *= 1.0 / shrink
    if paired:
        result = tl.fma(branch, tl.broadcast_to(share[None, None, :], branch.shape), result)
    elif normed == "layer":
        result -= lowered * mean[None, None, :]
    if normed != "":
        result *= spread[None, None, :]
    return result


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
    rounded = tl.fma(v.to(tl.float32), tl.broadcast_to(share[:, None], v.shape), x.to(tl.float32))
    rounded = rounded.to(fresh.dtype.element_ty)
    tl.store(fresh + place, rounded, mask=inside)
    if followed:
        tl.store(z + place, (rounded.to(tl.float32) * factor[None, :]).to(z.dtype.element_ty), mask=inside)
