"""Rows that a program's threads hold in their registers, times a few tokens, by a tensor core's own instructions, in
Triton: what is loaded goes there as it is, and no register is copied to another (`tensor_core`).

Loads have the shape [8, pieces, groups of eight rows or tokens, 32 columns]: so laid out, Triton's lane 4 · g + t has
eight columns of row g of each group, and warp p has piece p. Sums are float32 in pairs of registers that Triton takes
for half-precision numbers of that shape. A row's sums do not hang on the number of tokens. Imported only where there is
Triton.
"""

# ruff: noqa: RUF005 (Triton's tuples are added to)

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

from specdec_tui.backends.gpu import ptx, tensor_core
from specdec_tui.backends.gpu.held import STEP, arrived, lines_of, read_rows, rows_of

_FEW, _MANY = tl.constexpr(tensor_core.FEW), tl.constexpr(tensor_core.MANY)
_MOST_FEW = tl.constexpr(tensor_core.MOST_FEW)
_arriving = triton.constexpr_function(ptx.arriving)
_multiplying = triton.constexpr_function(tensor_core.multiplying)
_putting = triton.constexpr_function(tensor_core.putting)
_gap_of = triton.constexpr_function(tensor_core.gap_of)
_room_for_totals = triton.constexpr_function(tensor_core.room_for_totals)
_TOTALLING = tl.constexpr(tensor_core.totalling())
_adding = triton.constexpr_function(tensor_core.adding)
_room_for = triton.constexpr_function(tensor_core.room_for)
_sums_bytes = triton.constexpr_function(tensor_core.sums_bytes)
_MULTIPLYING, _PUTTING = tl.constexpr(tensor_core.MULTIPLYING), tl.constexpr(tensor_core.PUTTING)
_copies = triton.constexpr_function(tensor_core.copies)
_READ_FEW, _READING = tl.constexpr(tensor_core.reading_few()), tl.constexpr(tensor_core.READING)


@triton.jit
def _step(
    matrix: tl.tensor,
    row: tl.tensor,
    real: tl.tensor,
    columns: tl.constexpr,
    pieces: tl.constexpr,
    begin: tl.constexpr,
    whole: tl.constexpr = False,
) -> tl.tensor:
    """[8, pieces, groups, 32] of rows [8, 1, groups] of a matrix: 32 columns from `begin` on of each piece. `whole`:
    all rows are real."""
    share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
    within = begin + tl.arange(0, STEP)
    column = tl.arange(0, pieces)[:, None] * share + within[None, :]
    place = matrix + (row.to(tl.int64) * columns)[:, :, :, None] + column[None, :, None, :]
    if begin + STEP > share or pieces * share != columns:
        inside = ((within < share)[None, :] & (column < columns))[None, :, None, :]
        return tl.load(place, mask=real[:, :, :, None] & inside, other=0.0)
    elif whole:
        return tl.load(place)
    else:
        return tl.load(place, mask=real[:, :, :, None], other=0.0)


@triton.jit
def begun_directly(
    weight: tl.tensor,
    rows: tl.constexpr,
    columns: tl.constexpr,
    gated: tl.constexpr,
    pieces: tl.constexpr,
    lines: tl.constexpr,
    early: tl.constexpr,
) -> tl.tuple:
    """The first columns of the program's rows: a tuple of `_step`."""
    row, real = rows_of(rows, lines, gated)
    held: tl.tuple = ()
    for begin in tl.static_range(0, early, STEP):
        held = held + (_step(weight, row, real, columns, pieces, begin, rows % (lines // (1 + gated)) == 0),)
    return held


@triton.jit
def _own(
    x: tl.tensor,
    address: tl.tensor,
    begin: tl.constexpr,
    tile: tl.constexpr,
    tokens: tl.constexpr,
    count: tl.constexpr,
    columns: tl.constexpr,
    pieces: tl.constexpr,
    paired: tl.constexpr,
    apart: tl.constexpr,
    asked: tl.constexpr,
) -> tl.tensor:
    """[8, pieces, 1, 32]: what a step has of a tile of tokens, by way of shared memory where they were `asked` for."""
    line = lines_of(8)
    if count <= _MOST_FEW:
        line = tile * _FEW + line % _FEW
    else:
        line += tile * _MANY
    row, real = read_rows(line, tokens, paired, apart)
    if asked:
        # Nothing is loaded by this: Triton gives what is read the layout of what would be.
        like = _step(x, row, row < 0, columns, pieces, 0)
        return tl.inline_asm_elementwise(
            _READ_FEW, _READING, [address + 2 * begin, like], dtype=like.dtype, is_pure=True, pack=8
        )
    else:
        return _step(x, row, real, columns, pieces, begin)


@triton.jit
def direct_sums(
    held: tl.tuple,
    x: tl.tensor,
    weight: tl.tensor,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    gated: tl.constexpr,
    pieces: tl.constexpr,
    lines: tl.constexpr,
    early: tl.constexpr,
    paired: tl.constexpr,
    apart: tl.constexpr,
    asked: tl.constexpr,
    room: tl.constexpr,
    count: tl.constexpr,
    parts_of_sums: tl.tuple,
    kinds: tl.constexpr,
    parts: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Where the sums over all columns of a program's rows lie in shared memory when this has ended, for `sums_at`: of
    `count` tokens, twice as many of stream and branch by turns where they are `paired`. `early` columns of each piece
    are held at any time: a step that was multiplied makes room for another. And where the totals of what was asked for
    lie, `kinds` above 0, see `put_totals`."""
    share: tl.constexpr = (columns + pieces * 16 - 1) // (pieces * 16) * 16
    few: tl.constexpr = count <= _MOST_FEW
    tile_size: tl.constexpr = _FEW if few else _MANY
    tiles: tl.constexpr = (count + tile_size - 1) // tile_size
    whole: tl.constexpr = rows % (lines // (1 + gated)) == 0
    half: tl.constexpr = x.dtype.element_ty
    multiply: tl.constexpr = _multiplying("bf16" if half == tl.bfloat16 else "f16", count, asked)
    row, real = rows_of(rows, lines, gated)
    address: tl.tuple = ()
    totals: tl.tuple = ()
    for tile in tl.static_range(tiles):
        if asked:
            address = address + (arrived(_arriving(tokens, room, share, STEP, paired, few, _gap_of(room), tile)),)
        totals = totals + (tl.zeros((8, pieces, lines // 8, STEP), half),)
    for begin in tl.static_range(0, share, STEP):
        w = held[begin // STEP]
        if begin + early < share:
            held = held + (_step(weight, row, real, columns, pieces, begin + early, whole),)
        more: tl.tuple = ()
        for tile in tl.static_range(tiles):
            own = _own(
                x, address[tile] if asked else 0, begin, tile, tokens, count, columns, pieces, paired, apart, asked
            )
            total = tl.inline_asm_elementwise(
                multiply, _MULTIPLYING, [w, tl.broadcast_to(own, w.shape), totals[tile]], dtype=w.dtype, is_pure=True,
                pack=8,
            )  # fmt: skip
            more = more + (total,)
        totals = more
    norm_sums = 0
    if kinds > 0:
        norm_sums = put_totals(parts_of_sums, kinds, tokens, parts, pieces)
    base = tl.inline_asm_elementwise(
        _room_for(_sums_bytes(pieces, lines, count)), "=r,r", [0], dtype=tl.int32, is_pure=False, pack=1
    )
    place = base + 32 * tl.arange(0, lines // 8)[None, None, :, None]
    final = base + 4 * _MANY * lines * pieces
    for tile in tl.static_range(tiles):
        at_tile = place + (4 * _MANY * lines * tile if few else 0)
        tl.inline_asm_elementwise(
            _putting(lines, count), _PUTTING, [totals[tile], tl.broadcast_to(at_tile, totals[tile].shape)],
            dtype=x.dtype.element_ty, is_pure=False, pack=8,
        )  # fmt: skip
        if not few:
            _meet()
            found = _added_at(x, base, 0, lines, _MANY, 1, 0, pieces, lines, count)
            at = tl.arange(0, _MANY)[None, None, :] * lines + tl.arange(0, lines)[None, :, None]
            tl.inline_asm_elementwise(
                "st.shared.f32 [$1], $2; mov.u32 $0, 0;", "=r,r,f", [final + 4 * (tile * _MANY * lines + at), found],
                dtype=tl.int32, is_pure=False, pack=1,
            )  # fmt: skip
            _meet()
    if few:
        _meet()
    return base if few else final, norm_sums


@triton.jit
def _meet() -> None:
    tl.inline_asm_elementwise("bar.sync 0; mov.u32 $0, 0;", "=r,r", [0], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def _added_at(
    x: tl.tensor,
    base: tl.tensor,
    first: tl.constexpr,
    rows: tl.constexpr,
    tokens: tl.constexpr,
    apart: tl.constexpr,
    which: tl.constexpr,
    pieces: tl.constexpr,
    lines: tl.constexpr,
    count: tl.constexpr,
) -> tl.tensor:
    """[copies, rows, tokens] float32: the sums over pieces of x's products with rows `first` on of a program's `lines`,
    and of every `apart`-th of `count` tokens from `which` on. There are as many copies as threads have room for."""
    copies: tl.constexpr = _copies(pieces, rows, tokens)
    row, token = tl.arange(0, rows)[None, :, None], tl.arange(0, tokens)[None, None, :] * apart + which
    if count <= _MOST_FEW:
        token = token // _FEW * _MANY + token % _FEW
    address = base + 4 * (token * lines + first + row) + 0 * tl.arange(0, copies)[:, None, None]
    # Nothing is loaded by this: Triton then has rows that follow each other in threads that do, a token's in a warp.
    numbers = x.to(tl.pointer_type(tl.float32), bitcast=True)
    like = tl.load(numbers + row + 0 * address, mask=address < 0, other=0.0)
    return tl.inline_asm_elementwise(
        _adding(pieces, lines, count), "=f,r,f", [address, like], dtype=tl.float32, is_pure=False, pack=1
    )


@triton.jit
def sums_at(
    x: tl.tensor,
    base: tl.tensor,
    first: tl.constexpr,
    rows: tl.constexpr,
    tokens: tl.constexpr,
    apart: tl.constexpr,
    which: tl.constexpr,
    pieces: tl.constexpr,
    lines: tl.constexpr,
    count: tl.constexpr,
) -> tl.tensor:
    """See `_added_at`; of more than few tokens pieces are added up already."""
    return _added_at(x, base, first, rows, tokens, apart, which, pieces if count <= _MOST_FEW else 1, lines, count)


@triton.jit
def both_at(
    x: tl.tensor,
    base: tl.tensor,
    first: tl.constexpr,
    rows: tl.constexpr,
    tokens: tl.constexpr,
    paired: tl.constexpr,
    pieces: tl.constexpr,
    lines: tl.constexpr,
    count: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Those of the stream and of its branch where these are `paired`; else the same twice."""
    if paired:
        one = sums_at(x, base, first, rows, tokens, 2, 0, pieces, lines, count)
        return one, sums_at(x, base, first, rows, tokens, 2, 1, pieces, lines, count)
    else:
        one = sums_at(x, base, first, rows, tokens, 1, 0, pieces, lines, count)
        return one, one


@triton.jit
def asked_totals(
    sums: tl.tensor, kinds: tl.constexpr, tokens: tl.constexpr, parts: tl.constexpr, warps: tl.constexpr
) -> tl.tuple:
    """The parts of sums [tokens, kinds, parts], each sum's for the lanes of one warp, asked for before they are needed:
    tensors [32 · warps] float32."""
    thread = tl.arange(0, 32 * warps)
    found: tl.tuple = ()
    for begin in tl.static_range(0, tokens * kinds, warps):
        which = begin + thread // 32
        for part in tl.static_range(0, parts, 32):
            lane = part + thread % 32
            inside = (which < tokens * kinds) & (lane < parts)
            found = found + (tl.load(sums + which * parts + lane, mask=inside, other=0.0),)
    return found


@triton.jit
def put_totals(
    found: tl.tuple, kinds: tl.constexpr, tokens: tl.constexpr, parts: tl.constexpr, warps: tl.constexpr
) -> tl.tensor:
    """Where the totals of `asked_totals` lie in shared memory when threads have met, for `totals_at`."""
    count: tl.constexpr = tokens * kinds
    base = tl.inline_asm_elementwise(_room_for_totals(4 * count), "=r,r", [0], dtype=tl.int32, is_pure=False, pack=1)
    each: tl.constexpr = (parts + 31) // 32
    for turn in tl.static_range((count + warps - 1) // warps):
        total = found[turn * each]
        for part in tl.static_range(1, each):
            total += found[turn * each + part]
        which = turn * warps + tl.arange(0, 32 * warps) // 32
        address = tl.where(which < count, base + 4 * which, 0)
        tl.inline_asm_elementwise(
            _TOTALLING, "=r,f,r", [total, address], dtype=tl.int32, is_pure=False, pack=1
        )  # fmt: skip
    return base


@triton.jit
def _total_at(
    place: tl.tensor, kind: tl.constexpr, kinds: tl.constexpr, tokens: tl.constexpr, tile_tokens: tl.constexpr
) -> tl.tensor:
    token = tl.minimum(tl.arange(0, tile_tokens), tokens - 1)
    address = place + 4 * (token * kinds + kind)
    return tl.inline_asm_elementwise(
        "ld.shared.f32 $0, [$1];", "=f,r", [address], dtype=tl.float32, is_pure=False, pack=1
    )


@triton.jit
def totals_at(
    place: tl.tensor, kinds: tl.constexpr, tokens: tl.constexpr, tile_tokens: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """The sums of each token of up to four kinds, [tile_tokens] float32 each; the last kind's where there are fewer."""
    one = _total_at(place, 0, kinds, tokens, tile_tokens)
    two, three, four = one, one, one
    if kinds > 1:
        two = _total_at(place, 1, kinds, tokens, tile_tokens)
    if kinds > 2:
        three = _total_at(place, 2, kinds, tokens, tile_tokens)
        four = _total_at(place, 3, kinds, tokens, tile_tokens)
    return one, two, three, four
