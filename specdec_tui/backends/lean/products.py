"""Products of rows of weights with a few tokens, and rows laid out as float32: what `emit` is put together to."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from specdec_tui.backends.lean import emit
from specdec_tui.backends.lean.blocks import F32, KINDS, PLAIN, Q6_K, blocks_of_step, step_order
from specdec_tui.backends.lean.compiled import builds, builds_for_constants, compiled_callback
from specdec_tui.backends.lean.vectors import (
    BYTES,
    FLOAT,
    I64,
    LANES,
    MOST_TOKENS,
    VECTOR,
    ask_for,
    chosen,
    distance,
    fused,
    in_turn,
    lane_sum,
)

_FLOATS = ir.PointerType(FLOAT)
# Rows that are summed at once: one token alone leaves the multipliers waiting for its sums.
_ROWS = {1: 2}
# Of weights that need no expanding there is room for the sums of more.
_ROWS_OF_FLOATS = {1: 2, 2: 2, 3: 2}


def _rows_of(kind: int, tokens: int) -> int:
    if kind == Q6_K:  # takes most registers to expand
        return 1
    return (_ROWS_OF_FLOATS if kind == F32 else _ROWS).get(tokens, 1)


def _i64(value: int) -> Any:
    return ir.Constant(I64, value)


def _product(module: Any, kind: int, tokens: int, rows: int) -> Any:
    """void (weights, bytes of a row, x, its stride, y, its stride, first row, end, blocks of a row).

    y[t, r] = row r · x[t], for a number of rows that is a multiple of `rows`. x is laid out as `blocks.order_of`.
    """
    name = f"product_{KINDS[kind].name}_{tokens}_{rows}"
    if name in module.globals:
        return module.globals[name]
    kinds = [BYTES, I64, _FLOATS, I64, _FLOATS, I64, I64, I64, I64]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    held, row_bytes, x, x_stride, y, y_stride, begin, end, blocks = function.args
    entry, of_rows, check, inner, rest_check, rest, done, left = (
        function.append_basic_block(n)
        for n in ("entry", "rows", "check", "inner", "rest_check", "rest", "done", "left")
    )
    each, columns = blocks_of_step(kind, LANES), len(step_order(kind, LANES))
    b = ir.IRBuilder(entry)
    steps = b.sdiv(blocks, _i64(each))
    over = b.srem(blocks, _i64(each))
    ahead = distance(b, row_bytes, rows)
    b.cbranch(b.icmp_signed("<", begin, end), of_rows, left)

    b = ir.IRBuilder(of_rows)
    row = b.phi(I64)
    row.add_incoming(begin, entry)
    starts = [b.gep(held, [b.mul(b.add(row, _i64(i)), row_bytes)]) for i in range(rows)]
    texts = [b.gep(x, [b.mul(_i64(t), x_stride)]) for t in range(tokens)]
    zero, several = ir.Constant(VECTOR, [0.0] * LANES), tokens > 1
    b.branch(check)

    b = ir.IRBuilder(check)
    b.cbranch(b.icmp_signed(">", steps, _i64(0)), inner, rest_check)

    def sums(b: Any, step: Any, pointers: list[list[Any]], held_sums: list[Any]) -> list[Any]:
        """Sums [row, token, 2] after one more step."""
        found = list(held_sums)
        column = b.mul(step, _i64(columns))
        places = [b.gep(text, [column]) for text in texts]
        of_rows = [emit.weights(b, kind, of_row, several) for of_row in pointers]
        for index, each in enumerate(zip(*of_rows, strict=True)):
            for t in range(tokens):
                given = b.load(b.bitcast(b.gep(places[t], [_i64(LANES * index)]), ir.PointerType(VECTOR)))
                given.align = 4
                for r, weight in enumerate(each):
                    at = (r * tokens + t) * 2 + index % 2
                    found[at] = fused(b, weight, given, found[at])
            if several and kind not in PLAIN:
                for at in range(index % 2, len(found), 2):
                    found[at] = in_turn(b, found[at])
        return found

    b = ir.IRBuilder(inner)
    step = b.phi(I64)
    step.add_incoming(_i64(0), check)
    before = [b.phi(VECTOR) for _ in range(2 * rows * tokens)]
    for value in before:
        value.add_incoming(zero, check)
    pointers = [emit.blocks_at(b, kind, start, step) for start in starts]
    for of_row in pointers:
        ask_for(b, of_row[0], each * KINDS[kind].size, ahead)
    after = sums(b, step, pointers, before)
    following = b.add(step, _i64(1))
    step.add_incoming(following, inner)
    for value, found in zip(before, after, strict=True):
        value.add_incoming(found, inner)
    b.cbranch(b.icmp_signed("<", following, steps), inner, rest_check)

    b = ir.IRBuilder(rest_check)
    so_far = [b.phi(VECTOR) for _ in before]
    for value, found in zip(so_far, after, strict=True):
        value.add_incoming(zero, check)
        value.add_incoming(found, inner)
    if kind in PLAIN or each == 1:
        b.branch(done)
    else:
        b.cbranch(b.icmp_signed(">", over, _i64(0)), rest, done)

    b = ir.IRBuilder(rest)
    if kind in PLAIN or each == 1:
        b.unreachable()
        last = None
    else:
        pointers = [emit.blocks_of_rest(b, kind, start, steps, blocks) for start in starts]
        last = sums(b, steps, pointers, so_far)
        b.branch(done)

    b = ir.IRBuilder(done)
    whole = so_far
    if last is not None:
        whole = [b.phi(VECTOR) for _ in before]
        for value, one, other in zip(whole, so_far, last, strict=True):
            value.add_incoming(one, rest_check)
            value.add_incoming(other, rest)
    for r in range(rows):
        for t in range(tokens):
            first, second = whole[(r * tokens + t) * 2 : (r * tokens + t) * 2 + 2]
            place = b.add(b.mul(_i64(t), y_stride), b.add(row, _i64(r)))
            b.store(lane_sum(b, b.fadd(first, second)), b.gep(y, [place]))
    next_row = b.add(row, _i64(rows))
    row.add_incoming(next_row, done)
    b.cbranch(b.icmp_signed("<", next_row, end), of_rows, left)
    ir.IRBuilder(left).ret_void()
    return function


def _expansion(module: Any, kind: int) -> Any:
    """void (weights, bytes of a row, out, its stride, first row, end, blocks): rows as float32 in the order of sums."""
    name = f"expansion_{KINDS[kind].name}"
    if name in module.globals:
        return module.globals[name]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [BYTES, I64, _FLOATS, I64, I64, I64, I64]), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    held, row_bytes, out, stride, begin, end, blocks = function.args
    each, columns = blocks_of_step(kind, LANES), len(step_order(kind, LANES))
    entry, of_rows, inner, next_, left = (
        function.append_basic_block(n) for n in ("entry", "rows", "inner", "next", "left")
    )
    b = ir.IRBuilder(entry)
    steps = b.sdiv(b.add(blocks, _i64(each - 1)), _i64(each))
    b.cbranch(b.icmp_signed("<", begin, end), of_rows, left)
    b = ir.IRBuilder(of_rows)
    row = b.phi(I64)
    row.add_incoming(begin, entry)
    start = b.gep(held, [b.mul(row, row_bytes)])
    target = b.gep(out, [b.mul(b.sub(row, begin), stride)])
    b.branch(inner)
    b = ir.IRBuilder(inner)
    step = b.phi(I64)
    step.add_incoming(_i64(0), of_rows)
    pointers = (
        emit.blocks_at(b, kind, start, step)
        if kind in PLAIN or each == 1
        else emit.blocks_of_rest(b, kind, start, step, blocks)
    )
    for index, value in enumerate(emit.weights(b, kind, pointers)):
        place = b.gep(target, [b.add(b.mul(step, _i64(columns)), _i64(LANES * index))])
        stored = b.store(value, b.bitcast(place, ir.PointerType(VECTOR)))
        stored.align = 4
    following = b.add(step, _i64(1))
    step.add_incoming(following, inner)
    b.cbranch(b.icmp_signed("<", following, steps), inner, next_)
    b = ir.IRBuilder(next_)
    next_row = b.add(row, _i64(1))
    row.add_incoming(next_row, next_)
    b.cbranch(b.icmp_signed("<", next_row, end), of_rows, left)
    ir.IRBuilder(left).ret_void()
    return function


@builds_for_constants
def _of_kind(
    typing_context: Any,
    kind: Any,
    tokens: Any,
    held: Any,
    row_bytes: Any,
    x: Any,
    x_stride: Any,
    y: Any,
    y_stride: Any,
    begin: Any,
    end: Any,
    blocks: Any,
) -> Any:
    """What `kernel_of` compiles; the kind is a constant."""
    if not isinstance(kind, types.IntegerLiteral):
        return None
    number = kind.literal_value

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        many, held, row_bytes, x, x_stride, y, y_stride, begin, end, blocks = given[1:]
        held, x, y = b.inttoptr(held, BYTES), b.inttoptr(x, _FLOATS), b.inttoptr(y, _FLOATS)

        def of_tokens(count: int) -> Callable[[Any], None]:
            def act(b: Any) -> None:
                rows = _rows_of(number, count)
                whole = b.sub(end, b.srem(b.sub(end, begin), _i64(rows)))
                inputs = [held, row_bytes, x, x_stride, y, y_stride]
                b.call(_product(b.module, number, count, rows), [*inputs, begin, whole, blocks])
                if rows > 1:
                    b.call(_product(b.module, number, count, 1), [*inputs, whole, end, blocks])

            return act

        def expand(b: Any) -> None:
            b.call(_expansion(b.module, number), [held, row_bytes, y, y_stride, begin, end, blocks])

        chosen(b, many, {0: expand} | {count: of_tokens(count) for count in range(1, MOST_TOKENS + 1)})
        return context.get_dummy_value()

    return types.void(kind, *[types.int64] * 10), code


@cache
def kernel_of(kind: int) -> Any:
    """Compiled code for weights of one format, from the disk where it is kept: `.address` is that of a function

    void (tokens, weights, bytes of a row, x, its stride, y, its stride, first row, end, blocks of a row), all int64,
    of which weights, x and y are addresses. For 1 to MOST_TOKENS tokens y[t, r] = row r · x[t]; for 0 tokens
    y[r − first] = row r as float32 in the order of sums.
    """

    def run(tokens, held, row_bytes, x, x_stride, y, y_stride, begin, end, blocks):  # type: ignore[no-untyped-def]
        _of_kind(kind, tokens, held, row_bytes, x, x_stride, y, y_stride, begin, end, blocks)

    return compiled_callback(run, types.void(*[types.int64] * 10))


@builds
def call_kernel(
    typing_context: Any,
    address: Any,
    tokens: Any,
    held: Any,
    row_bytes: Any,
    x: Any,
    x_stride: Any,
    y: Any,
    y_stride: Any,
    begin: Any,
    end: Any,
    blocks: Any,
) -> Any:
    """Call what `kernel_of` gave the address of, from compiled code."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [I64] * 10)
        b.call(b.inttoptr(given[0], ir.PointerType(kind)), given[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 11), code
