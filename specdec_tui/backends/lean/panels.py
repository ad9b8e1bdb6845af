"""Machine code of products with many tokens: expanded rows, a slice of columns at a time.

A tile is ROWS rows by TOKENS tokens, whose sums stay in registers while its columns go by: each vector that is loaded
is multiplied several times (the scheme is that of Goto and van de Geijn, 2008, with lanes along the columns). The order
of a sum is that of `products`, lane by lane and in two rounds in turn, so that a token's bits do not tell how many were
computed with it: between two slices all lanes of a sum lie in memory.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from specdec_tui.backends.lean.compiled import builds
from specdec_tui.backends.lean.emit import block_of_zeros
from specdec_tui.backends.lean.vectors import (
    BYTES,
    FLOAT,
    I64,
    LANES,
    VECTOR,
    Loop,
    chosen,
    fused,
    hidden,
    lane_sum,
    pick,
)

ROWS, TOKENS = 4, 3
"""Of a tile: with 8 lanes its sums take 12 of 16 registers, and 12 multiplications 7 loads."""
SUMS = 2 * LANES
"""Numbers of a sum that is not at its end."""
# The two rounds one after the other where there are 16 registers.
_ROUNDS = ((0, 1),) if LANES == 16 else ((0,), (1,))

_FLOATS = ir.PointerType(FLOAT)


def _i64(value: int) -> Any:
    return ir.Constant(I64, value)


def _vector(b: Any, pointer: Any, offset: Any) -> Any:
    found = b.load(b.bitcast(b.gep(pointer, [offset]), ir.PointerType(VECTOR)))
    found.align = 4
    return found


def _put(b: Any, value: Any, pointer: Any, offset: Any) -> None:
    b.store(value, b.bitcast(b.gep(pointer, [offset]), ir.PointerType(value.type))).align = 4


def _eight(b: Any, value: Any) -> Any:
    """The upper half of 16 lanes added to the lower."""
    if value.type.count == 8:
        return value
    return b.fadd(pick(b, value, None, range(8)), pick(b, value, None, range(8, 16)))


def _sums_of_four(b: Any, one: list[Any], other: list[Any]) -> Any:
    """`lane_sum` of two times four vectors at once: <8 x float>."""
    one, other = ([_eight(b, value) for value in each] for each in (one, other))
    pairs = [
        b.fadd(pick(b, x, y, [0, 1, 2, 3, 8, 9, 10, 11]), pick(b, x, y, [4, 5, 6, 7, 12, 13, 14, 15]))
        for x, y in zip(one, other, strict=True)
    ]
    fours = [
        b.fadd(pick(b, x, y, [0, 1, 8, 9, 4, 5, 12, 13]), pick(b, x, y, [2, 3, 10, 11, 6, 7, 14, 15]))
        for x, y in (pairs[:2], pairs[2:])
    ]
    x, y = fours
    return b.fadd(pick(b, x, y, [0, 2, 8, 10, 4, 6, 12, 14]), pick(b, x, y, [1, 3, 9, 11, 5, 7, 13, 15]))


def _finish(b: Any, sums: list[list[Any]], y: Any, stride: Any) -> None:
    """sums [token][row]: whole ones of their lanes to y."""
    if len(sums[0]) == 1:
        for t, (value,) in enumerate(sums):
            b.store(lane_sum(b, value), b.gep(y, [b.mul(_i64(t), stride)]))
        return
    for t in range(0, len(sums), 2):
        both = _sums_of_four(b, sums[t], sums[min(t + 1, len(sums) - 1)])
        for half in range(min(2, len(sums) - t)):
            found = pick(b, both, None, range(4 * half, 4 * half + 4))
            _put(b, found, y, b.mul(_i64(t + half), stride))


def _panel(module: Any, rows: int, tokens: int) -> Any:
    """void (held, stride, groups, x, its stride, tiles, columns, sums, their stride, their step by tile, by group,
    y, its stride, begins, ends): each tile's tokens with all groups of rows.
    """
    name = f"panel_{rows}_{tokens}"
    if name in module.globals:
        return module.globals[name]
    kinds = [_FLOATS, I64, I64, _FLOATS, I64, I64, I64, _FLOATS, I64, I64, I64, _FLOATS, I64, I64, I64]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    (held, stride, groups, x, x_stride, tiles, columns, sums, sums_stride, of_tile, of_group, y, y_stride, begins,
     ends) = function.args  # fmt: skip
    b = ir.IRBuilder(function.append_basic_block("entry"))
    new, nothing = b.icmp_signed("!=", begins, _i64(0)), b.bitcast(block_of_zeros(b), _FLOATS)
    tile = Loop(b, _i64(0), tiles, 1, [])
    first = b.gep(x, [b.mul(tile.index, b.mul(x_stride, _i64(tokens)))])
    group = Loop(b, _i64(0), groups, 1, [])
    begin = b.gep(held, [b.mul(group.index, b.mul(stride, _i64(rows)))])
    starts = [b.gep(begin, [b.mul(_i64(r), stride)]) for r in range(rows)]
    texts = [b.gep(first, [b.mul(_i64(t), x_stride)]) for t in range(tokens)]
    lanes = b.add(b.mul(tile.index, of_tile), b.mul(group.index, of_group))
    lanes = b.bitcast(b.gep(sums, [b.mul(lanes, _i64(SUMS))]), BYTES)
    # What is stored there is loaded again: there are no registers to keep it in.
    lanes = b.bitcast(hidden(b, lanes), _FLOATS)
    places = [
        b.gep(lanes, [b.mul(b.add(b.mul(_i64(t), sums_stride), _i64(r)), _i64(SUMS))])
        for t in range(tokens)
        for r in range(rows)
    ]
    so_far = [b.select(new, nothing, place) for place in places]
    found: list[list[Any]] = []
    for part in _ROUNDS:
        loop = Loop(
            b, _i64(0), columns, SUMS, [_vector(b, place, _i64(LANES * turn)) for turn in part for place in so_far]
        )
        now = list(loop.carried)
        for n, turn in enumerate(part):
            column = b.add(loop.index, _i64(LANES * turn))
            given = [_vector(b, text, column) for text in texts]
            for r, start in enumerate(starts):
                weight = _vector(b, start, column)
                for t in range(tokens):
                    at = (n * tokens + t) * rows + r
                    now[at] = fused(b, weight, given[t], now[at])
        now = loop.close(now)
        found += [now[: len(places)], now[len(places) :]][: len(part)]
        if len(found) == 1:  # the other round's comes behind it
            for value, place in zip(now, places, strict=True):
                _put(b, value, place, _i64(0))
    with b.if_else(b.icmp_signed("!=", ends, _i64(0))) as (at_end, later):
        with at_end:
            if len(_ROUNDS) == 2:
                lanes = b.bitcast(hidden(b, b.bitcast(lanes, BYTES)), _FLOATS)
                found[0] = [
                    _vector(b, b.gep(lanes, [b.mul(b.add(b.mul(_i64(t), sums_stride), _i64(r)), _i64(SUMS))]), _i64(0))
                    for t in range(tokens)
                    for r in range(rows)
                ]
            whole = [b.fadd(one, other) for one, other in zip(*found, strict=True)]
            column = b.mul(group.index, _i64(rows))
            target = b.gep(y, [b.add(b.mul(tile.index, b.mul(y_stride, _i64(tokens))), column)])
            _finish(b, [whole[t * rows : (t + 1) * rows] for t in range(tokens)], target, y_stride)
        with later:
            for turn, values in enumerate(found):
                for value, place in zip(values, places, strict=True):
                    if turn or len(_ROUNDS) == 1:
                        _put(b, value, place, _i64(LANES * turn))
    group.close([])
    tile.close([])
    b.ret_void()
    return function


def _call(inputs: list[Any], rows: int, tokens: int, b: Any) -> None:
    b.call(_panel(b.module, rows, tokens), inputs)


@builds
def panel_of(
    typing_context: Any, rows: Any, tokens: Any, held: Any, stride: Any, groups: Any, x: Any, x_stride: Any,
    tiles: Any, columns: Any, sums: Any, sums_stride: Any, of_tile: Any, of_group: Any, y: Any, y_stride: Any,
    begins: Any, ends: Any,
) -> Any:  # fmt: skip
    """Go on with the sums of `groups` times ROWS rows (or one) by `tiles` times 1 to TOKENS tokens over a slice of
    columns, a multiple of SUMS.

    int64 all; held, x, sums, y addresses, strides in numbers. `begins`: sums are 0 before it; `ends`: y[t, r] are
    their results, else all lanes of sums are in memory [tokens, SUMS] behind it: `sums_stride` sums from a token to
    the next, `of_tile` and `of_group` from one tile and group to the next, 0 if they begin and end here.
    """

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        rows, tokens, *rest = given
        inputs = [b.inttoptr(value, _FLOATS) if i in (0, 3, 7, 11) else value for i, value in enumerate(rest)]
        number = b.add(b.mul(rows, _i64(8)), tokens)
        cases = {8 * r + t: partial(_call, inputs, r, t) for r in (1, ROWS) for t in range(1, TOKENS + 1)}
        chosen(b, number, cases)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 17), code
