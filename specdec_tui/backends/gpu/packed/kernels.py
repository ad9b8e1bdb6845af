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

from specdec_tui.backends.gpu.ending import behind_wait, joined, joined_both, loaded, stored
from specdec_tui.backends.gpu.held import arrived, ask
from specdec_tui.backends.gpu.multiplied import activated, capped
from specdec_tui.backends.gpu.packed.ending import asked_parts, factor_of_rows, factor_of_sums, leave_sums, row_of
from specdec_tui.backends.gpu.packed.loads import held_step, numbers_of, own_columns, scales_of
from specdec_tui.backends.gpu.packed.unpacked import ROWS


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
    shrunk: tl.constexpr,
) -> tl.tensor:
    """total [warps, ROWS, tokens] + scale · a step's product with x at its planes' columns + offset · the sum of x,
    which is made as small as the weights are."""
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
        ones = tl.full((one.shape[0], one.shape[1], one.shape[2]), shrunk, one.dtype)
        total += tl.dot(ones, first) * scales[1][:, :, None]
        if planes == 2:
            total += tl.dot(ones, second) * scales[3][:, :, None]
    return total


@triton.jit
def packed_product(
    x: tl.tensor,
    stream: tl.tensor,
    sums: tl.tensor,
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
    left: tl.tensor,
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
    shrunk: tl.constexpr,
    filling: tl.constexpr,
    asking: tl.constexpr,
    arriving: tl.constexpr,
    gated: tl.constexpr,
    normed: tl.constexpr,
    parts: tl.constexpr,
    epsilon: tl.constexpr,
    norm_offset: tl.constexpr,
    biased: tl.constexpr,
    activation: tl.constexpr,
    scale: tl.constexpr,
    cap: tl.constexpr,
    added: tl.constexpr,
    followed: tl.constexpr,
    summed: tl.constexpr,
    tile_tokens: tl.constexpr,
    warps: tl.constexpr,
    early: tl.constexpr,
    power_columns: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] = cap(scale · activation(x @ weights.T + bias)), or `added` to what y holds.

    x [tokens, columns], `gathered`: its columns come in the order `places` int32 [columns]. `normed`: x is a stream
    [tokens, columns] times the weights of its RMS norm, whose factor comes behind the product: by the stream's `sums`
    float32 [tokens, 1, parts], or where there are none by the `stream` itself. `followed`: z [tokens, rows] = y times
    the weights `norm` of its own; `summed`: sums of y are `left` [tokens, 1, row tiles], see `sums`. `gated`: y =
    activation(x @ gate.T) · (x @ up.T); the weights [2 · rows, columns] and bias [2 · rows] hold gate, then up, and
    rows is a multiple of ROWS. `shrunk`: what asm multiplies the codes' numbers by, a power of two.

    One program for ROWS rows and `tile_tokens` tokens; `early` steps are loaded before the kernel before has ended. By
    `asking` and `arriving` x comes into shared memory behind that, all of it at once, and is read from there.
    """
    chunk: tl.constexpr = planes * width
    chunks: tl.constexpr = (columns + chunk - 1) // chunk
    steps: tl.constexpr = (chunks + warps - 1) // warps
    staged: tl.constexpr = asking != ""
    own_code: tl.constexpr = asm != ""
    tile = tl.program_id(0)
    below = tile + rows // ROWS
    if overlap:
        gdc_launch_dependents()
    held: tl.tuple = ()
    kept: tl.tuple = ()
    found: tl.tuple = ()
    more: tl.tuple = ()
    for step in tl.static_range(min(early, steps)):
        held = held + (held_step(weight, tile, step, chunks, width, warps, asm),)
        if gated:
            kept = kept + (held_step(weight, below, step, chunks, width, warps, asm),)
            more = more + (scales_of(scales, offsets, below, step, columns, group, offset, planes, width, warps),)
        found = found + (scales_of(scales, offsets, tile, step, columns, group, offset, planes, width, warps),)
    lane = 0
    if filling != "":
        lane = tl.inline_asm_elementwise(filling, "=r,l", [tables.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1)
    row = tile * ROWS + tl.arange(0, ROWS)[None, :, None]
    real = tl.minimum(row, rows - 1)
    shift, lift, factor, own_scale, other_scale = 0.0, 0.0, 0.0, 1.0 / shrunk, 1.0 / shrunk
    if group >= columns and not offset:  # one for the whole row
        own_scale *= loaded(scales, row, own_code)
        if gated:
            other_scale *= loaded(scales, rows + row, own_code)
    if biased:
        shift = loaded(bias, real, own_code)
        if gated:
            lift = loaded(bias, rows + real, own_code)
    if followed:
        factor = loaded(norm, real, own_code) + norm_offset
    if overlap:
        gdc_wait()
    token = tl.program_id(1) * tile_tokens + tl.arange(0, tile_tokens)[None, None, :]
    place, inside = token * rows + row, (token < tokens) & (row < rows)
    # Asked for before the product, so that what comes behind it need not wait.
    ask(x, asking)
    before, own_row, asked = 0.0, 0.0, 0.0
    if normed and parts > 0:
        asked = asked_parts(sums, 0, tokens, parts, tile_tokens)
    elif normed:
        own_row = row_of(stream, tl.program_id(1) * tile_tokens, tokens, columns, power_columns)
    if added:
        before = loaded(y, tl.minimum(token, tokens - 1) * rows + real + behind_wait(own_code), own_code)
    shared = arrived(arriving)
    total = tl.zeros((warps, ROWS, tile_tokens), tl.float32)
    other = tl.zeros((warps, ROWS, tile_tokens), tl.float32)
    for step in tl.static_range(steps):
        if step + early < steps:
            held = held + (held_step(weight, tile, step + early, chunks, width, warps, asm),)
            found = found + (
                scales_of(scales, offsets, tile, step + early, columns, group, offset, planes, width, warps),
            )
            if gated:
                kept = kept + (held_step(weight, below, step + early, chunks, width, warps, asm),)
                more = more + (
                    scales_of(scales, offsets, below, step + early, columns, group, offset, planes, width, warps),
                )
        first = own_columns(
            x, places, shared, step * warps * chunk, chunk, tokens, columns, gathered, staged, width, warps, tile_tokens
        )
        second = first
        if planes == 2:
            second = own_columns(
                x, places, shared, step * warps * chunk + width, chunk, tokens, columns, gathered, staged, width, warps,
                tile_tokens,
            )  # fmt: skip
        one, two = numbers_of(
            x, held[step], lane, weight, numbers, tile, step, chunks, planes, straight, width, warps, asm
        )
        total = _added(total, one, two, first, second, found[step], columns, group, offset, planes, width, shrunk)
        if gated:
            one, two = numbers_of(
                x, kept[step], lane, weight, numbers, below, step, chunks, planes, straight, width, warps, asm
            )
            other = _added(other, one, two, first, second, more[step], columns, group, offset, planes, width, shrunk)
    spread, lifted = 1.0, 1.0
    if normed and parts > 0:
        spread = factor_of_sums(asked, sums, tokens, columns, parts, epsilon, tile_tokens)
    elif normed:
        spread = factor_of_rows(stream, own_row, tokens, columns, epsilon, tile_tokens, power_columns)
    if gated:
        result, lifted = joined_both(total, other, own_code)
    else:
        result = joined(total, own_code)
    result = activated(result * own_scale * spread + shift, activation)
    if gated:
        result = result * (lifted * other_scale * spread + lift)
    rounded = (capped(result * scale, cap) + before).to(y.dtype.element_ty).to(tl.float32)
    stored(y, place, rounded, inside, own_code)
    if followed:
        stored(z, place, rounded * factor, inside, own_code)
    if summed:
        leave_sums(left, rounded, inside, tokens, (rows + ROWS - 1) // ROWS, tile_tokens, own_code)
