"""Products of a few tokens with the matrices of a model, in Triton, which comes with torch's CUDA builds.

At batch size 1 a pass is bound by reading the weights, so every product reads each weight once for all tokens of the
block. Tokens fill one side of a tensor core's tile: a token's numbers are the same whether it comes alone or in a
block of drafts, since sums run over the columns one by one and never depend on how many tokens there are.

Arrays are contiguous, sizes are compile-time numbers, places in the text are read on the device. With `overlap`
(programmatic dependent launch, from compute capability 9.0 on) a kernel starts while the one before it still runs,
asks for its first weights, and waits for the other's end before it reads or writes anything else; every kernel of a
pass has to do so. Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.direct import asked_totals, both_at, direct_sums, totals_at
from specdec_tui.backends.gpu.ending import behind_wait, joined, joined_both, loaded, stored
from specdec_tui.backends.gpu.held import ask
from specdec_tui.backends.gpu.multiplied import activated, begun, capped, multiplied
from specdec_tui.backends.gpu.sums import (
    asked_slice,
    behind,
    first_parts,
    first_rows,
    norm_factors,
    spread_of_rows,
    store_part,
    store_slice,
    totals,
)


@triton.jit
def product(
    x: tl.tensor,
    stream: tl.tensor,
    sums: tl.tensor,
    lowered: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    source: tl.tensor,
    branch: tl.tensor,
    fresh: tl.tensor,
    norm: tl.tensor,
    z: tl.tensor,
    left: tl.tensor,
    other_y: tl.tensor,
    other_norm: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    normed: tl.constexpr,
    paired: tl.constexpr,
    apart: tl.constexpr,
    parts: tl.constexpr,
    epsilon: tl.constexpr,
    norm_offset: tl.constexpr,
    shrink: tl.constexpr,
    branch_scale: tl.constexpr,
    biased: tl.constexpr,
    activation: tl.constexpr,
    scale: tl.constexpr,
    cap: tl.constexpr,
    written: tl.constexpr,
    followed: tl.constexpr,
    twice: tl.constexpr,
    kinds: tl.constexpr,
    slice_columns: tl.constexpr,
    bound: tl.constexpr,
    other_x: tl.constexpr,
    y_length: tl.constexpr,
    other_length: tl.constexpr,
    pieces: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    early: tl.constexpr,
    early_last: tl.constexpr,
    ahead: tl.constexpr,
    power_columns: tl.constexpr,
    asking: tl.constexpr,
    room: tl.constexpr,
    direct: tl.constexpr,
    asm: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] = cap(scale · activation(x @ weight.T + bias)), or "added" to what y holds.

    x [tokens, columns], by way of shared memory where there is code for `asking`, with `room` columns each; rows of y
    lie `y_length` apart. `asm`: sums are joined and stored by instructions, see `ending`. Columns are cut into
    `pieces`, whose sums run side by side and are added up. One program for `tile_rows` rows, whose first `early`
    columns of each piece it loads before the kernel before has ended.

    What is meant by x may be a norm of the stream: x is then the stream times the norm's weights and `shrink`, which
    keeps it within half precision, and the norm's factor is found here and comes behind the product. `normed`: "rows",
    an RMS norm, from the rows of `stream` [tokens, columns]; "rms", from their `sums` [tokens, 1, parts] of squares;
    "layer", a layer norm, from `sums` [tokens, 2, parts] of numbers and squares: `lowered` [rows] float32 is weight @
    the norm's weights, and the norm's bias is part of `bias`.
    `paired`: a branch with a norm behind it is still to be added. x then is followed, `apart` rows behind it, by the
    same of the branch, to be multiplied by its factor (times `branch_scale`); sums [tokens, 4, parts] are of squares
    of the branch before its norm's weights, then of x², x · v, v², where `source` x and `branch` v [tokens, columns]
    are the stream and the branch with them. With `slice_columns` a program adds that many columns to what is `fresh`
    of the stream; `followed`: z = that times the weights of the next norm.

    Rows of the matrix from `bound` above 0 on, at which a program begins, go to other_y [tokens, rows - bound], whose
    rows lie `other_length` apart: they read what lies `other_x` rows behind x, and they alone go through `activation`.

    y may be the stream. "added" and `followed`: z [tokens, rows] = y times the weights `norm` of its own; `twice`: what
    lies `tokens` rows behind z is y times `other_norm`. "branch": y is a branch, times the weights of its norm at
    `branch`, and z that times `norm`; `source` is the stream it is for.
    `kinds`: 1, 2 or 4 of the sums named above are `left` [tokens, kinds, programs]. `direct`: see there; then
    `tile_tokens` of at most eight tokens are no more than a power of two.
    """
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    safe, real_row = tl.minimum(row, rows - 1), row < rows
    line, real_line = safe[None, :, None], real_row[None, :, None]
    real_tokens: tl.constexpr = tile_tokens // 2 if paired else tile_tokens
    sum_kinds: tl.constexpr = 4 if paired else 2 if normed == "layer" else 1 if normed == "rms" else 0
    if overlap:
        gdc_launch_dependents()
    # Weights do not depend on the kernel before.
    lower, shift, after, factor, other_factor = 0.0, 0.0, 0.0, 0.0, 0.0
    if biased:
        shift = loaded(bias, line, asm)
    if normed == "layer":
        lower = loaded(lowered, line, asm)
    if written == "branch":
        after = loaded(branch, line, asm) + norm_offset
    if written != "" and followed:
        factor = (loaded(norm, line, asm) + norm_offset) * shrink
    if twice:
        other_factor = (loaded(other_norm, line, asm) + norm_offset) * shrink
    first = begun(
        weight, safe, real_row, rows, columns, False, pieces, tile_rows, tile_columns, early, ahead, direct,
        overlap,
    )  # fmt: skip
    if other_x > 0 and tl.program_id(0) * tile_rows >= bound:
        x += other_x * columns
    ask(x, asking)
    token = tl.arange(0, real_tokens)[None, None, :]
    place, inside = token * y_length + row[None, :, None], (token < tokens) & real_line
    # What is needed last is asked for first: it comes while the product runs.
    before = 0.0
    if written == "added":
        before = loaded(y, tl.minimum(token, tokens - 1) * y_length + line + behind_wait(asm), asm)
    if written == "branch":
        before = loaded(source, tl.minimum(token, tokens - 1) * y_length + line + behind_wait(asm), asm)
    held: tl.tuple = ()
    if normed == "rows":
        one, two, three, four = first_rows(stream, tokens, columns, power_columns)
    elif sum_kinds > 0:
        if direct:
            held = asked_totals(sums, sum_kinds, tokens, parts, pieces)
        else:
            held = first_parts(sums, sum_kinds, tokens, parts)
    if slice_columns > 0:
        own, other, slice_factor = asked_slice(
            source, branch, norm, tokens, columns, followed, norm_offset, shrink, real_tokens, slice_columns
        )
    if direct:
        base, totals_place = direct_sums(
            first, x, weight, tokens, rows, columns, False, pieces, tile_rows, early, paired, apart, asking != "",
            room, tile_tokens, held, sum_kinds, parts,
        )  # fmt: skip
        result, branched = both_at(x, base, 0, tile_rows, real_tokens, paired, pieces, tile_rows, tile_tokens)
    else:
        result, branched = multiplied(
            first, x, weight, safe, real_row, tokens, rows, columns, False, pieces, tile_tokens, tile_rows,
            tile_columns, early, early_last, paired, apart,
        )  # fmt: skip
        if paired:
            result, branched = joined_both(result, branched, asm)
        else:
            result = joined(result, asm)
    if normed == "rows":
        factors = spread_of_rows(stream, one, two, three, four, tokens, columns, epsilon, tile_tokens, power_columns)
        result = result * factors[None, None, :]
    elif sum_kinds > 0:
        if direct:
            a, b, c, d = totals_at(totals_place, sum_kinds, tokens, real_tokens)
        else:
            a, b, c, d = totals(held, sums, sum_kinds, tokens, parts, real_tokens)
        spread, mean, share = norm_factors(a, b, c, d, columns, normed, paired, epsilon, branch_scale)
        result = behind(result, branched, lower, spread, mean, share, normed, paired, shrink)
        if slice_columns > 0:
            store_slice(
                own, other, slice_factor, share, fresh, z, tokens, columns, followed, real_tokens, slice_columns
            )  # fmt: skip
    result += shift
    if bound > 0 and activation != "":
        result = tl.where((row >= bound)[None, :, None], activated(result, activation), result)
    else:
        result = activated(result, activation)
    result = capped(result * scale, cap)
    if written == "added":
        result += before
    kind: tl.constexpr = y.dtype.element_ty
    rounded = result.to(kind).to(tl.float32)
    branch_number = tl.where(inside, rounded, 0.0)
    if written == "branch":
        rounded = (branch_number * after).to(kind).to(tl.float32)
    if bound > 0:
        stored(y, place, rounded, inside & (row < bound)[None, :, None], asm)
        other_place = token * other_length + row[None, :, None] - bound
        stored(other_y, other_place, rounded, inside & (row >= bound)[None, :, None], asm)
    else:
        stored(y, place, rounded, inside, asm)
    if written != "" and followed:
        stored(z, place, rounded * factor, inside, asm)
    if twice:
        stored(z, tokens * rows + place, rounded * other_factor, inside, asm)
    if kinds > 0:
        programs: tl.constexpr = (rows + tile_rows - 1) // tile_rows
        part, own_x = left + tl.program_id(0), tl.where(inside, rounded, 0.0).to(tl.float64)
        if kinds == 4:
            wide, v, own_x = branch_number.to(tl.float64), own_x, tl.where(inside, before, 0.0).to(tl.float64)
            store_part(part, wide * wide, 4, 0, tokens, programs, asm)
            store_part(part, own_x * own_x, 4, 1, tokens, programs, asm)
            store_part(part, own_x * v, 4, 2, tokens, programs, asm)
            store_part(part, v * v, 4, 3, tokens, programs, asm)
        else:
            if kinds == 2:
                store_part(part, own_x, 2, 0, tokens, programs, asm)
            store_part(part, own_x * own_x, kinds, kinds - 1, tokens, programs, asm)


@triton.jit
def gated_product(
    x: tl.tensor,
    stream: tl.tensor,
    sums: tl.tensor,
    lowered: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    source: tl.tensor,
    branch: tl.tensor,
    fresh: tl.tensor,
    norm: tl.tensor,
    z: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    normed: tl.constexpr,
    paired: tl.constexpr,
    apart: tl.constexpr,
    parts: tl.constexpr,
    epsilon: tl.constexpr,
    norm_offset: tl.constexpr,
    shrink: tl.constexpr,
    branch_scale: tl.constexpr,
    biased: tl.constexpr,
    activation: tl.constexpr,
    followed: tl.constexpr,
    slice_columns: tl.constexpr,
    y_length: tl.constexpr,
    pieces: tl.constexpr,
    tile_tokens: tl.constexpr,
    tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
    early: tl.constexpr,
    early_last: tl.constexpr,
    ahead: tl.constexpr,
    power_columns: tl.constexpr,
    asking: tl.constexpr,
    room: tl.constexpr,
    direct: tl.constexpr,
    asm: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """y [tokens, rows] = activation(x @ gate.T) · (x @ up.T); weight [2 · rows, columns] holds gate, then up.

    All else as in `product`; bias and lowered [2 · rows].
    """
    both_lines = tl.arange(0, 2 * tile_rows)  # of gate, then of up
    own_row = tl.program_id(0) * tile_rows + both_lines % tile_rows
    safe, real_row = tl.minimum(own_row, rows - 1) + both_lines // tile_rows * rows, own_row < rows
    real_tokens: tl.constexpr = tile_tokens // 2 if paired else tile_tokens
    sum_kinds: tl.constexpr = 4 if paired else 2 if normed == "layer" else 1 if normed == "rms" else 0
    if overlap:
        gdc_launch_dependents()
    lower, shift, lower_up, shift_up = 0.0, 0.0, 0.0, 0.0
    own_line = tl.minimum(tl.program_id(0) * tile_rows + tl.arange(0, tile_rows), rows - 1)[None, :, None]
    line = own_line if direct else safe[None, :, None]
    if biased:
        shift = loaded(bias, line, asm)
        if direct:
            shift_up = loaded(bias, rows + line, asm)
    if normed == "layer":
        lower = loaded(lowered, line, asm)
        if direct:
            lower_up = loaded(lowered, rows + line, asm)
    first = begun(
        weight, safe, real_row, rows, columns, True, pieces, 2 * tile_rows, tile_columns, early, ahead, direct,
        overlap,
    )  # fmt: skip
    ask(x, asking)
    held: tl.tuple = ()
    if normed == "rows":
        one, two, three, four = first_rows(stream, tokens, columns, power_columns)
    elif sum_kinds > 0:
        if direct:
            held = asked_totals(sums, sum_kinds, tokens, parts, pieces)
        else:
            held = first_parts(sums, sum_kinds, tokens, parts)
    if slice_columns > 0:
        own, other, factor = asked_slice(
            source, branch, norm, tokens, columns, followed, norm_offset, shrink, real_tokens, slice_columns
        )
    if direct:
        base, totals_place = direct_sums(
            first, x, weight, tokens, rows, columns, True, pieces, 2 * tile_rows, early, paired, apart, asking != "",
            room, tile_tokens, held, sum_kinds, parts,
        )  # fmt: skip
        result, branched = both_at(x, base, 0, tile_rows, real_tokens, paired, pieces, 2 * tile_rows, tile_tokens)
        up, up_branched = both_at(
            x, base, tile_rows, tile_rows, real_tokens, paired, pieces, 2 * tile_rows, tile_tokens
        )
    else:
        result, branched = multiplied(
            first, x, weight, safe, real_row, tokens, rows, columns, True, pieces, tile_tokens, 2 * tile_rows,
            tile_columns, early, early_last, paired, apart,
        )  # fmt: skip
        if paired:
            result, branched = joined_both(result, branched, asm)
        else:
            result = joined(result, asm)
    if normed == "rows":
        factors = spread_of_rows(stream, one, two, three, four, tokens, columns, epsilon, tile_tokens, power_columns)
        result = result * factors[None, None, :]
        if direct:
            up = up * factors[None, None, :]
    elif sum_kinds > 0:
        if direct:
            a, b, c, d = totals_at(totals_place, sum_kinds, tokens, real_tokens)
        else:
            a, b, c, d = totals(held, sums, sum_kinds, tokens, parts, real_tokens)
        spread, mean, share = norm_factors(a, b, c, d, columns, normed, paired, epsilon, branch_scale)
        result = behind(result, branched, lower, spread, mean, share, normed, paired, shrink)
        if direct:
            up = behind(up, up_branched, lower_up, spread, mean, share, normed, paired, shrink)
        if slice_columns > 0:
            store_slice(
                own, other, factor, share, fresh, z, tokens, columns, followed, real_tokens, slice_columns
            )  # fmt: skip
    result += shift
    if direct:
        gate, up = result, up + shift_up
    else:
        both = tl.reshape(result, (result.shape[0], 2, tile_rows, real_tokens))
        gate, up = tl.split(tl.permute(both, (0, 2, 3, 1)))
    row = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)[None, :, None]
    token = tl.arange(0, real_tokens)[None, None, :]
    inside = (row < rows) & (token < tokens)
    stored(y, token * y_length + row, activated(gate, activation) * up, inside, asm)
