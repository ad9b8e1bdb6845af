"""The stream of a decoder between its products, in Triton; see `products` for what all kernels keep to."""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import (  # type: ignore[import-not-found]
    gdc_launch_dependents,
    gdc_wait,
    globaltimer,
)


@triton.jit
def store_time(place: tl.tensor, overlap: tl.constexpr) -> None:
    """The GPU's clock in nanoseconds, as int64."""
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    tl.store(place, globaltimer())


@triton.jit
def embed(
    ids: tl.tensor,
    begin: tl.tensor,
    table: tl.tensor,
    places: tl.tensor,
    x: tl.tensor,
    norm: tl.tensor,
    z: tl.tensor,
    left: tl.tensor,
    branch: tl.tensor,
    weighted: tl.tensor,
    other_norm: tl.tensor,
    scale: tl.constexpr,
    placed: tl.constexpr,
    first_place: tl.constexpr,
    last_place: tl.constexpr,
    followed: tl.constexpr,
    twice: tl.constexpr,
    norm_offset: tl.constexpr,
    shrink: tl.constexpr,
    kinds: tl.constexpr,
    parts: tl.constexpr,
    columns: tl.constexpr,
    tile_columns: tl.constexpr,
    tile_parts: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """x [tokens, columns] = scale · table[ids], and where `placed` + places[first_place + begin + 0, 1, …]; one program
    for a token.

    ids int64 [tokens], begin int64 [1]; `followed`: z = x times `shrink` and the weights `norm` of the norm that
    follows; `twice`: what lies as many rows behind z as there are programs is that with `other_norm`. Behind
    `last_place` only drafts that are too many are written: they take its. `kinds` of sums are `left` [tokens, kinds,
    parts], as in `products.product`, all in the first part. Where these are 4 there is no branch yet: `branch` and, if
    `followed`, `weighted` [tokens, columns] are zeros.
    """
    if overlap:
        gdc_launch_dependents()
    token, column = tl.program_id(0), tl.arange(0, tile_columns)
    inside = column < columns
    row = tl.load(ids + token)
    value = tl.load(table + row * columns + column, mask=inside, other=0.0).to(tl.float32) * scale
    if placed:
        value = value.to(x.dtype.element_ty).to(tl.float32)
        place = tl.minimum(tl.load(begin) + token + first_place, last_place)
        value += tl.load(places + place * columns + column, mask=inside, other=0.0).to(tl.float32)
    rounded = value.to(x.dtype.element_ty)
    tl.store(x + token * columns + column, rounded, mask=inside)
    if followed:
        factor = (tl.load(norm + column, mask=inside, other=0.0).to(tl.float32) + norm_offset) * shrink
        tl.store(z + token * columns + column, (rounded.to(tl.float32) * factor).to(z.dtype.element_ty), mask=inside)
    if twice:
        factor = (tl.load(other_norm + column, mask=inside, other=0.0).to(tl.float32) + norm_offset) * shrink
        more = z + (tl.num_programs(0) + token) * columns + column
        tl.store(more, (rounded.to(tl.float32) * factor).to(z.dtype.element_ty), mask=inside)
    if kinds > 0:
        part, wide = tl.arange(0, tile_parts), rounded.to(tl.float32)
        squares = tl.sum(wide * wide, 0)
        for kind in tl.static_range(kinds):
            total = squares * 0.0
            if kind == 1 or kinds == 1:
                total = squares
            elif kinds == 2:
                total = tl.sum(wide, 0)
            place = left + (token * kinds + kind) * parts + part
            tl.store(place, tl.where(part == 0, total, 0.0), mask=part < parts)
    if kinds == 4:
        tl.store(branch + token * columns + column, rounded * 0.0, mask=inside)
        if followed:
            tl.store(weighted + token * columns + column, rounded * 0.0, mask=inside)


@triton.jit
def _normed(
    value: tl.tensor,
    norm: tl.tensor,
    bias: tl.tensor,
    column: tl.tensor,
    columns: tl.constexpr,
    centred: tl.constexpr,
    biased: tl.constexpr,
    epsilon: tl.constexpr,
    norm_offset: tl.constexpr,
) -> tl.tensor:
    """The RMS norm of float32 numbers, or where `centred` their layer norm."""
    inside = column < columns
    if centred:
        value = tl.where(inside, value - tl.sum(value, 0) / columns, 0.0)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / columns + epsilon)
    value = value * (tl.load(norm + column, mask=inside, other=0.0).to(tl.float32) + norm_offset)
    if biased:
        value += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    return value


@triton.jit
def normalize(
    x: tl.tensor,
    branch: tl.tensor,
    after: tl.tensor,
    after_bias: tl.tensor,
    norm: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    second: tl.tensor,
    second_bias: tl.tensor,
    z: tl.tensor,
    first: tl.constexpr,
    columns: tl.constexpr,
    centred: tl.constexpr,
    epsilon: tl.constexpr,
    norm_offset: tl.constexpr,
    scale: tl.constexpr,
    branched: tl.constexpr,
    normed: tl.constexpr,
    twice: tl.constexpr,
    after_biased: tl.constexpr,
    biased: tl.constexpr,
    second_biased: tl.constexpr,
    tile_columns: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """One program for a token from `first` on of x [tokens, columns].

    `branched`: x += scale · norm of `branch` [tokens, columns] with weights `after`. `normed`: y [tokens - first,
    columns] = norm of x with weights `norm`; `twice`: z the same with weights `second`. `centred`: layer norms.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    column = tl.arange(0, tile_columns)
    inside = column < columns
    place = (first + tl.program_id(0)) * columns + column
    value = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if branched:
        added = tl.load(branch + place, mask=inside, other=0.0).to(tl.float32)
        added = _normed(added, after, after_bias, column, columns, centred, after_biased, epsilon, norm_offset)
        value += added * scale
        tl.store(x + place, value.to(x.dtype.element_ty), mask=inside)
        value = value.to(x.dtype.element_ty).to(tl.float32)
    target = tl.program_id(0) * columns + column
    if normed:
        own = _normed(value, norm, bias, column, columns, centred, biased, epsilon, norm_offset)
        tl.store(y + target, own.to(y.dtype.element_ty), mask=inside)
    if twice:
        own = _normed(value, second, second_bias, column, columns, centred, second_biased, epsilon, norm_offset)
        tl.store(z + target, own.to(z.dtype.element_ty), mask=inside)
