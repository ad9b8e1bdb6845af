"""Heads of a few tokens as attention takes them, in Triton: normed and turned to their places. They are asked for
before anything is made of them, so that all that a pass reads is on its way at once."""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]


@triton.jit
def angles(
    place: tl.tensor,
    real: tl.tensor,
    cosines: tl.tensor,
    sines: tl.tensor,
    lane: tl.tensor,
    turned: tl.constexpr,
    pairs: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """What the numbers in columns `lane` of heads at `place` [n] are multiplied by, and what their partners are: two of
    [n, lanes]."""
    half: tl.constexpr = turned // 2
    if pairs:
        angle, first = lane // 2, lane % 2 == 0
    else:
        angle, first = tl.where(lane < half, lane, lane - half), lane < half
    at, inside = place[:, None] * half + angle[None, :], real[:, None] & (lane < turned)[None, :]
    cosine = tl.load(cosines + at, mask=inside, other=1.0)
    sine = tl.load(sines + at, mask=inside, other=0.0)
    return cosine, tl.where(first[None, :], -sine, sine)


@triton.jit
def norm_weights(
    norm: tl.tensor,
    real: tl.tensor,
    normed: tl.constexpr,
    lane: tl.tensor,
    width: tl.constexpr,
    turned: tl.constexpr,
    pairs: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """What a norm multiplies numbers of heads by, and their partners, from `norm` [n] on: two of [n, lanes]."""
    half: tl.constexpr = turned // 2
    partner = lane ^ 1 if pairs else tl.where(lane < half, lane + half, lane - half)
    one, other = lane, lane
    if normed != "":
        inside, turns = real[:, None] & (lane < width)[None, :], real[:, None] & (lane < turned)[None, :]
        one = tl.load(norm[:, None] + lane[None, :], mask=inside, other=0.0)
        other = one
        if turned > 0:
            other = tl.load(norm[:, None] + partner[None, :], mask=turns, other=0.0)
    return one, other


@triton.jit
def loaded(
    source: tl.tensor,
    real: tl.tensor,
    lane: tl.tensor,
    width: tl.constexpr,
    turned: tl.constexpr,
    pairs: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Heads that begin at `source` [n], and the partners of their numbers: two of [n, lanes]."""
    half: tl.constexpr = turned // 2
    partner = lane ^ 1 if pairs else tl.where(lane < half, lane + half, lane - half)
    x = tl.load(source[:, None] + lane[None, :], mask=real[:, None] & (lane < width)[None, :], other=0.0)
    other = x
    if turned > 0:
        turns = real[:, None] & (lane < turned)[None, :]
        other = tl.load(source[:, None] + partner[None, :], mask=turns, other=0.0)
    return x, other


@triton.jit
def turned_heads(
    x: tl.tensor,
    other: tl.tensor,
    weight: tl.tensor,
    other_weight: tl.tensor,
    spread: tl.tensor,
    cosine: tl.tensor,
    sine: tl.tensor,
    epsilon: tl.constexpr,
    norm_offset: tl.constexpr,
    normed: tl.constexpr,
    width: tl.constexpr,
    turned: tl.constexpr,
) -> tl.tensor:
    """Heads x [n, lanes] with their partners, float32: normed, each "head" or by what is given as `spread` [n], and
    turned by their `angles`."""
    x = x.to(tl.float32)
    if normed == "head":
        spread = tl.rsqrt(tl.sum(x * x, 1) / width + epsilon)
    if normed != "":
        x = x * spread[:, None] * (weight.to(tl.float32) + norm_offset)
    if turned > 0:
        other = other.to(tl.float32)
        if normed != "":
            other = other * spread[:, None] * (other_weight.to(tl.float32) + norm_offset)
        x = tl.fma(other, sine, x * cosine)  # which product is rounded must not hang on the number of tokens
    return x


@triton.jit
def spreads(
    joint: tl.tensor,
    tokens: tl.constexpr,
    row_length: tl.constexpr,
    query_numbers: tl.constexpr,
    key_first: tl.constexpr,
    key_numbers: tl.constexpr,
    query_tile: tl.constexpr,
    key_tile: tl.constexpr,
    epsilon: tl.constexpr,
) -> tl.tuple:
    """Factors of the RMS norms of each token's queries and of its keys, one behind the other; several rows are on
    their way at once."""
    query, key = tl.arange(0, query_tile), tl.arange(0, key_tile)
    factors = ()
    for begin in tl.static_range(0, tokens, 4):
        found = ()
        for one in tl.static_range(begin, min(begin + 4, tokens)):
            source = joint + one * row_length
            found += (  # type: ignore[assignment]
                tl.load(source + query, mask=query < query_numbers, other=0.0),
                tl.load(source + key_first + key, mask=key < key_numbers, other=0.0),
            )
        for one in tl.static_range(0, min(4, tokens - begin)):
            x, y = found[2 * one].to(tl.float32), found[2 * one + 1].to(tl.float32)  # type: ignore[var-annotated]
            factors += (  # type: ignore[unreachable]
                tl.rsqrt(tl.sum(x * x, 0) / query_numbers + epsilon),
                tl.rsqrt(tl.sum(y * y, 0) / key_numbers + epsilon),
            )
    return factors


@triton.jit
def spread_of(factors: tl.tuple, token: tl.tensor, tokens: tl.constexpr, which: tl.constexpr) -> tl.tensor:
    """The factor of each `token` [n]."""
    factor = tl.zeros_like(token).to(tl.float32)
    for one in tl.static_range(tokens):
        factor = tl.where(token == one, factors[2 * one + which], factor)
    return factor
