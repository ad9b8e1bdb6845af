"""Machine code of attention and of the small sums of a layer: vectors of 16 lanes, whose order is fixed.

Keys lie in tiles of 16 positions, [width, 16] each, so that scores come out a lane to a position and nothing has to
be summed across; values lie row by row. A long text is gone through in chunks of CHUNK positions, each with a largest
score and sums of its own, which are put together in order: the bits of a token's result depend neither on how many
tokens are computed with it nor on the threads (the scheme is that of flash decoding, Dao et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from specdec_tui.backends.lean.compiled import builds
from specdec_tui.backends.lean.vectors import (
    FLOAT,
    I32,
    I64,
    LANES,
    Loop,
    chosen,
    every,
    fused,
    lane_sum,
    pick,
    splat,
    vector,
)

TILE = 16
CHUNK = 256
GROUP = 6
"""Queries that a key or value, once in a register, is multiplied with: their sums take 12 of 16 registers."""
SILU, GELU_TANH = 0, 1

# Rows of 16 that so many queries are multiplied with at once: what is left of the registers.
_AT_ONCE = {1: 4, 2: 2} if LANES == 8 else {1: 4, 2: 4} | dict.fromkeys(range(3, GROUP + 1), 2)

# Rows of 16 that `_in_steps` takes at a time.
_STEPS = 2

_FLOATS = ir.PointerType(FLOAT)


def _i64(value: int) -> Any:
    return ir.Constant(I64, value)


def _row(b: Any, pointer: Any, offset: Any, count: int = TILE) -> Any:
    found = b.load(b.bitcast(b.gep(pointer, [offset]), ir.PointerType(vector(FLOAT, count))))
    found.align = 4
    return found


def _put(b: Any, value: Any, pointer: Any, offset: Any) -> None:
    b.store(value, b.bitcast(b.gep(pointer, [offset]), ir.PointerType(value.type))).align = 4


def _tiles(b: Any, value: Any) -> list[Any]:
    """A vector's parts of 16 lanes."""
    return [pick(b, value, None, range(n, n + TILE)) for n in range(0, value.type.count, TILE)]


def _in_steps(
    b: Any, count: Any, carried: list[Any], act: Callable[[Any, int, list[Any]], list[Any]], steps: int = _STEPS
) -> list[Any]:
    """What is carried on through act(index, numbers, carried) for all of `count` numbers, a multiple of 16.

    Most go several rows of 16 at a time: while an operation waits for the one before it, those of other rows are done.
    """
    places = []
    for value in carried:
        with b.goto_entry_block():
            places.append(b.alloca(value.type))
        b.store(value, places[-1])

    def take(begin: Any, end: Any, step: int) -> None:
        loop = Loop(b, begin, end, step, [b.load(place) for place in places])
        for value, place in zip(loop.close(act(loop.index, step, loop.carried)), places, strict=True):
            b.store(value, place)

    step, whole = steps * TILE, _i64(0)
    if steps > 1:
        whole = b.mul(b.sdiv(count, _i64(step)), _i64(step))
        with b.if_then(b.icmp_signed(">", whole, _i64(0))):
            take(_i64(0), whole, step)
    with b.if_then(b.icmp_signed("<", whole, count)):
        take(whole, count, TILE)
    return [b.load(place) for place in places]


def _function(module: Any, name: str, kinds: list[Any]) -> tuple[Any, Any]:
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function, ir.IRBuilder(function.append_basic_block("entry"))


def _scores(module: Any, queries: int, tiles: int) -> Any:
    """void (queries, their stride, keys of the first tile, tiles (a multiple), width, out, its stride)."""
    name = f"scores_{queries}_{tiles}"
    if name in module.globals:
        return module.globals[name]
    function, b = _function(module, name, [_FLOATS, I64, _FLOATS, I64, I64, _FLOATS, I64])
    q, q_stride, keys, count, width, out, out_stride = function.args
    tile_size = b.mul(width, _i64(TILE))
    outer = Loop(b, _i64(0), count, tiles, [])
    starts = [b.gep(keys, [b.mul(b.add(outer.index, _i64(i)), tile_size)]) for i in range(tiles)]
    inner = Loop(b, _i64(0), width, 1, [every(FLOAT, TILE, 0.0)] * (queries * tiles))
    rows = [_row(b, start, b.mul(inner.index, _i64(TILE))) for start in starts]
    sums = list(inner.carried)
    for i in range(queries):
        number = b.load(b.gep(q, [b.add(b.mul(_i64(i), q_stride), inner.index)]))
        number.align = 4
        given = splat(b, number, TILE)
        for j in range(tiles):
            sums[i * tiles + j] = fused(b, given, rows[j], sums[i * tiles + j])
    sums = inner.close(sums)
    for i in range(queries):
        for j in range(tiles):
            place = b.add(b.mul(_i64(i), out_stride), b.mul(b.add(outer.index, _i64(j)), _i64(TILE)))
            _put(b, sums[i * tiles + j], out, place)
    outer.close([])
    b.ret_void()
    return function


def _mix(module: Any, queries: int, groups: int) -> Any:
    """void (weights, their stride, values, positions, width, out, its stride, columns (a multiple of 16 · groups))."""
    name = f"mix_{queries}_{groups}"
    if name in module.globals:
        return module.globals[name]
    function, b = _function(module, name, [_FLOATS, I64, _FLOATS, I64, I64, _FLOATS, I64, I64])
    weights, stride, values, count, width, out, out_stride, columns = function.args
    outer = Loop(b, _i64(0), columns, TILE * groups, [])
    spots = [
        b.add(b.mul(_i64(i), out_stride), b.add(outer.index, _i64(TILE * j)))
        for i in range(queries)
        for j in range(groups)
    ]
    inner = Loop(b, _i64(0), count, 1, [_row(b, out, spot) for spot in spots])
    start = b.add(b.mul(inner.index, width), outer.index)
    rows = [_row(b, values, b.add(start, _i64(TILE * j))) for j in range(groups)]
    sums = list(inner.carried)
    for i in range(queries):
        number = b.load(b.gep(weights, [b.add(b.mul(_i64(i), stride), inner.index)]))
        number.align = 4
        given = splat(b, number, TILE)
        for j in range(groups):
            sums[i * groups + j] = fused(b, given, rows[j], sums[i * groups + j])
    sums = inner.close(sums)
    for value, spot in zip(sums, spots, strict=True):
        _put(b, value, out, spot)
    outer.close([])
    b.ret_void()
    return function


def exponential(b: Any, x: Any, positive: bool = True) -> Any:
    """e^x to about one unit in the last place (the polynomial of Cephes' expf), for vectors; 0 below −87.

    `positive`: numbers above 0 are there.
    """
    n = x.type.count

    def all_(value: float) -> Any:
        return every(FLOAT, n, value)

    low = b.fcmp_ordered("<", x, all_(-87.0))
    x = b.select(low, all_(-87.0), x)
    if positive:
        x = b.select(b.fcmp_ordered(">", x, all_(88.0)), all_(88.0), x)
    magic = 12582912.0  # adding it rounds to whole numbers
    shifted = b.fadd(b.fmul(x, all_(1.44269504)), all_(magic))
    turns = b.fsub(shifted, all_(magic))
    r = fused(b, turns, all_(-0.693359375), x)
    r = fused(b, turns, all_(2.12194440e-4), r)
    p = all_(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = fused(b, p, r, all_(factor))
    p = fused(b, p, b.fmul(r, r), b.fadd(r, all_(1.0)))
    whole = b.sub(b.bitcast(shifted, vector(I32, n)), every(I32, n, 0x4B400000))
    power = b.bitcast(b.shl(b.add(whole, every(I32, n, 127)), every(I32, n, 23)), vector(FLOAT, n))
    return b.select(low, all_(0.0), b.fmul(p, power))


def _soft_cap(module: Any) -> Any:
    """void (scores, how many (a multiple of 16), scale, cap c): c · tanh(score · scale / c) of each."""
    name = "soft_cap"
    if name in module.globals:
        return module.globals[name]
    function, b = _function(module, name, [_FLOATS, I64, FLOAT, FLOAT])
    scores, count, scale, cap = function.args

    def cap_them(index: Any, n: int, _: list[Any]) -> list[Any]:
        scaled = b.fmul(_row(b, scores, index, n), splat(b, scale, n))
        grown = exponential(b, b.fmul(scaled, b.fdiv(every(FLOAT, n, 2.0), splat(b, cap, n))))
        share = b.fdiv(every(FLOAT, n, 2.0), b.fadd(grown, every(FLOAT, n, 1.0)))
        _put(b, b.fmul(splat(b, cap, n), b.fsub(every(FLOAT, n, 1.0), share)), scores, index)
        return []

    _in_steps(b, count, [], cap_them)
    b.ret_void()
    return function


def _softmax(module: Any, whole: bool) -> Any:
    """void (scores, how many (a multiple of 16), first that counts, end of these, scale, out [2]).

    Scores become e^(score · scale − largest), 0 where they do not count; out is the largest and the sum. `whole`: all
    of them count, as most often.
    """
    name = "softmax_whole" if whole else "softmax"
    if name in module.globals:
        return module.globals[name]
    function, b = _function(module, name, [_FLOATS, I64, I64, I64, FLOAT, _FLOATS])
    scores, count, begin, end, scale, out = function.args
    ends = [b.trunc(value, I32) for value in (begin, end)]

    def counting(value: Any, index: Any, otherwise: float) -> Any:
        if whole:
            return value
        n = value.type.count
        here = b.add(ir.Constant(vector(I32, n), list(range(n))), splat(b, b.trunc(index, I32), n))
        first, last = (splat(b, place, n) for place in ends)
        counts = b.and_(b.icmp_signed(">=", here, first), b.icmp_signed("<", here, last))
        return b.select(counts, value, every(FLOAT, n, otherwise))

    def scale_them(index: Any, n: int, carried: list[Any]) -> list[Any]:
        found = counting(b.fmul(_row(b, scores, index, n), splat(b, scale, n)), index, float("-inf"))
        _put(b, found, scores, index)
        best = carried[0]
        for row in _tiles(b, found):  # "not less" keeps a score that is no number
            best = b.select(b.fcmp_ordered("<=", row, best), best, row)
        return [best]

    def raise_them(index: Any, n: int, carried: list[Any]) -> list[Any]:
        power = exponential(b, b.fsub(_row(b, scores, index, n), splat(b, largest, n)), positive=False)
        power = counting(power, index, 0.0)
        _put(b, power, scores, index)
        (sums,) = carried
        for row in _tiles(b, power):
            sums = b.fadd(sums, row)
        return [sums]

    steps = _STEPS if whole else 1
    (best,) = _in_steps(b, count, [every(FLOAT, TILE, float("-inf"))], scale_them, steps)
    for n in (8, 4, 2, 1):
        one, other = pick(b, best, None, range(n)), pick(b, best, None, range(n, 2 * n))
        best = b.select(b.fcmp_ordered("<=", one, other), other, one)
    largest = b.extract_element(best, ir.Constant(I32, 0))
    (sums,) = _in_steps(b, count, [every(FLOAT, TILE, 0.0)], raise_them, steps)
    b.store(largest, out)
    b.store(lane_sum(b, sums), b.gep(out, [_i64(1)]))
    b.ret_void()
    return function


def _activation(module: Any, kind: int) -> Any:
    """void (gate, up, how many (a multiple of 16)): gate = activation(gate) · up."""
    name = f"activation_{kind}"
    if name in module.globals:
        return module.globals[name]
    function, b = _function(module, name, [_FLOATS, _FLOATS, I64])
    gate, up, count = function.args

    def activate_them(index: Any, n: int, _: list[Any]) -> list[Any]:
        z = _row(b, gate, index, n)
        turn = z
        if kind == GELU_TANH:  # half of 1 + tanh u is the logistic function of 2 u
            cube = b.fmul(b.fmul(z, z), z)
            turn = b.fmul(fused(b, cube, every(FLOAT, n, 0.044715), z), every(FLOAT, n, 2 * 0.7978845608028654))
        share = b.fadd(every(FLOAT, n, 1.0), exponential(b, b.fsub(every(FLOAT, n, -0.0), turn)))
        _put(b, b.fmul(b.fdiv(z, share), _row(b, up, index, n)), gate, index)
        return []

    _in_steps(b, count, [], activate_them)
    b.ret_void()
    return function


def _act(inputs: list[Any], kind: int, b: Any) -> None:
    b.call(_activation(b.module, kind), inputs)


def _floats(b: Any, given: Any, places: tuple[int, ...]) -> list[Any]:
    return [b.inttoptr(value, _FLOATS) if i in places else value for i, value in enumerate(given)]


@builds
def scores_of(
    typing_context: Any, many: Any, q: Any, q_stride: Any, keys: Any, tiles: Any, width: Any, out: Any, out_stride: Any
) -> Any:
    """out[i, 16 · tile + lane] = q[i] · key for at most GROUP queries; int64 all, q, keys and out addresses."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        many, *rest = given
        q, q_stride, keys, tiles, width, out, out_stride = _floats(b, rest, (0, 2, 5))

        def act(queries: int) -> Any:
            def go(b: Any) -> None:
                at_once = _AT_ONCE.get(queries, 1)
                whole = b.mul(b.sdiv(tiles, _i64(at_once)), _i64(at_once))
                with b.if_then(b.icmp_signed(">", whole, _i64(0))):
                    b.call(_scores(b.module, queries, at_once), [q, q_stride, keys, whole, width, out, out_stride])
                if at_once > 1:
                    left = b.sub(tiles, whole)
                    with b.if_then(b.icmp_signed(">", left, _i64(0))):
                        place = b.mul(whole, b.mul(width, _i64(TILE)))
                        then = b.gep(out, [b.mul(whole, _i64(TILE))])
                        inputs = [q, q_stride, b.gep(keys, [place]), left, width, then, out_stride]
                        b.call(_scores(b.module, queries, 1), inputs)

            return go

        chosen(b, many, {queries: act(queries) for queries in range(1, GROUP + 1)})
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), code


@builds
def mix_of(
    typing_context: Any,
    many: Any,
    weights: Any,
    stride: Any,
    values: Any,
    count: Any,
    width: Any,
    out: Any,
    out_stride: Any,
) -> Any:
    """out[i] += Σ weights[i, position] · value for at most GROUP queries and a width that is a multiple of 16."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        many, *rest = given
        weights, stride, values, count, width, out, out_stride = _floats(b, rest, (0, 2, 5))

        def act(queries: int) -> Any:
            def go(b: Any) -> None:
                at_once = _AT_ONCE.get(queries, 1)
                step = TILE * at_once
                whole = b.mul(b.sdiv(width, _i64(step)), _i64(step))
                inputs = [weights, stride, values, count, width, out, out_stride]
                with b.if_then(b.icmp_signed(">", whole, _i64(0))):
                    b.call(_mix(b.module, queries, at_once), [*inputs, whole])
                if at_once > 1:
                    left = b.sub(width, whole)
                    with b.if_then(b.icmp_signed(">", left, _i64(0))):
                        inputs[2], inputs[5] = b.gep(values, [whole]), b.gep(out, [whole])
                        b.call(_mix(b.module, queries, 1), [*inputs, left])

            return go

        chosen(b, many, {queries: act(queries) for queries in range(1, GROUP + 1)})
        return context.get_dummy_value()

    return types.void(*[types.int64] * 8), code


@builds
def softmax_of(
    typing_context: Any, scores: Any, count: Any, begin: Any, end: Any, scale: Any, cap: Any, out: Any
) -> Any:
    """`_soft_cap` where the cap is not 0, then `_softmax`; scores and out are addresses, scale and cap float32."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        scores, count, begin, end, scale, cap, out = _floats(b, given, (0, 6))
        capped = b.fcmp_ordered("!=", cap, ir.Constant(FLOAT, 0.0))
        with b.if_then(capped):
            b.call(_soft_cap(b.module), [scores, count, scale, cap])
        inputs = [scores, count, begin, end, b.select(capped, ir.Constant(FLOAT, 1.0), scale), out]
        all_count = b.and_(b.icmp_signed("<=", begin, _i64(0)), b.icmp_signed(">=", end, count))
        with b.if_else(all_count) as branches:
            for branch, whole in zip(branches, (True, False), strict=True):
                with branch:
                    b.call(_softmax(b.module, whole), inputs)
        return context.get_dummy_value()

    ints, floats = types.int64, types.float32
    return types.void(ints, ints, ints, ints, floats, floats, ints), code


@builds
def activate(typing_context: Any, kind: Any, gate: Any, up: Any, count: Any) -> Any:
    """gate = activation(gate) · up, in place, over a multiple of 16 numbers; int64 all, gate and up addresses."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        kind, *rest = given
        inputs = _floats(b, rest, (0, 1))
        cases = {n: partial(_act, inputs, n) for n in (SILU, GELU_TANH)}
        chosen(b, kind, cases)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), code
