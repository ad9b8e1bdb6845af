"""Machine code of attention and of the small sums of a layer: vectors of 16 lanes, whose order is fixed.

Keys lie in tiles of 16 positions, [width, 16] each, so that scores come out a lane to a position and nothing has to
be summed across; values lie row by row. A long text is gone through in chunks of CHUNK positions, each with a largest
score and sums of its own, which are put together in order: the bits of a token's result depend neither on how many
tokens are computed with it nor on the threads (the scheme is that of flash decoding, Dao et al. 2023).
"""

from __future__ import annotations

import platform
from functools import partial
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from specdec_tui.backends.lean.compiled import builds
from specdec_tui.backends.lean.vectors import FLOAT, I32, I64, Loop, chosen, every, fused, lane_sum, pick, splat, vector

TILE = 16
CHUNK = 256
GROUP = 4
"""Queries that go through keys and values together."""
SILU, GELU_TANH = 0, 1

_FLOATS = ir.PointerType(FLOAT)
_ROW = vector(FLOAT, TILE)
_INTS = vector(I32, TILE)


def _i64(value: int) -> Any:
    return ir.Constant(I64, value)


def _row(b: Any, pointer: Any, offset: Any) -> Any:
    found = b.load(b.bitcast(b.gep(pointer, [offset]), ir.PointerType(_ROW)))
    found.align = 4
    return found


def _put(b: Any, value: Any, pointer: Any, offset: Any) -> None:
    b.store(value, b.bitcast(b.gep(pointer, [offset]), ir.PointerType(_ROW))).align = 4


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
    """void (weights, their stride, values, positions, width (a multiple of 16 · groups), out, its stride)."""
    name = f"mix_{queries}_{groups}"
    if name in module.globals:
        return module.globals[name]
    function, b = _function(module, name, [_FLOATS, I64, _FLOATS, I64, I64, _FLOATS, I64, I64])
    weights, stride, values, count, width, out, out_stride, columns = function.args
    outer = Loop(b, _i64(0), columns, TILE * groups, [])
    inner = Loop(b, _i64(0), count, 1, [every(FLOAT, TILE, 0.0)] * (queries * groups))
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
    for i in range(queries):
        for j in range(groups):
            place = b.add(b.mul(_i64(i), out_stride), b.add(outer.index, _i64(TILE * j)))
            _put(b, sums[i * groups + j], out, place)
    outer.close([])
    b.ret_void()
    return function


def exponential(b: Any, x: Any) -> Any:
    """e^x to about one unit in the last place (the polynomial of Cephes' expf), for vectors; 0 below −87."""
    n = x.type.count

    def all_(value: float) -> Any:
        return every(FLOAT, n, value)

    low = b.fcmp_ordered("<", x, all_(-87.0))
    x = b.select(low, all_(-87.0), x)
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


def _softmax(module: Any) -> Any:
    """void (scores, how many (a multiple of 16), first that counts, end of these, scale, cap, out [2]).

    Scores become e^(score · scale − largest), 0 where they do not count; out is the largest and the sum. A cap c
    makes c · tanh(score · scale / c) of each before; 0 is none.
    """
    name = "softmax"
    if name in module.globals:
        return module.globals[name]
    function, b = _function(module, name, [_FLOATS, I64, I64, I64, FLOAT, FLOAT, _FLOATS])
    scores, count, begin, end, scale, cap, out = function.args
    places = ir.Constant(_INTS, list(range(TILE)))
    first, last = (splat(b, b.trunc(value, I32), TILE) for value in (begin, end))

    def counts(index: Any) -> Any:
        here = b.add(places, splat(b, b.trunc(index, I32), TILE))
        return b.and_(b.icmp_signed(">=", here, first), b.icmp_signed("<", here, last))

    capped, plain = b.append_basic_block("capped"), b.append_basic_block("plain")
    b.cbranch(b.fcmp_ordered("!=", cap, ir.Constant(FLOAT, 0.0)), capped, plain)
    b.position_at_end(capped)
    caps = splat(b, cap, TILE)
    twice = b.fdiv(every(FLOAT, TILE, 2.0), caps)
    loop = Loop(b, _i64(0), count, TILE, [])
    scaled = b.fmul(_row(b, scores, loop.index), splat(b, scale, TILE))
    grown = exponential(b, b.fmul(scaled, twice))
    share = b.fdiv(every(FLOAT, TILE, 2.0), b.fadd(grown, every(FLOAT, TILE, 1.0)))
    _put(b, b.fmul(caps, b.fsub(every(FLOAT, TILE, 1.0), share)), scores, loop.index)
    loop.close([])
    b.branch(plain)
    b.position_at_end(plain)
    factor = b.phi(FLOAT)
    factor.add_incoming(scale, function.entry_basic_block)
    factor.add_incoming(
        ir.Constant(FLOAT, 1.0), [block for block in function.blocks if block.name.startswith("after")][-1]
    )
    factors = splat(b, factor, TILE)
    lowest = every(FLOAT, TILE, float("-inf"))
    loop = Loop(b, _i64(0), count, TILE, [lowest])
    found = b.select(counts(loop.index), b.fmul(_row(b, scores, loop.index), factors), lowest)
    _put(b, found, scores, loop.index)
    # "not less" keeps a score that is no number.
    (best,) = loop.close([b.select(b.fcmp_ordered("<=", found, loop.carried[0]), loop.carried[0], found)])
    n = TILE
    while n > 1:
        n //= 2
        one, other = pick(b, best, None, range(n)), pick(b, best, None, range(n, 2 * n))
        best = b.select(b.fcmp_ordered("<=", one, other), other, one)
    largest = b.extract_element(best, ir.Constant(I32, 0))
    highest = splat(b, largest, TILE)
    loop = Loop(b, _i64(0), count, TILE, [every(FLOAT, TILE, 0.0)])
    power = exponential(b, b.fsub(_row(b, scores, loop.index), highest))
    power = b.select(counts(loop.index), power, every(FLOAT, TILE, 0.0))
    _put(b, power, scores, loop.index)
    (sums,) = loop.close([b.fadd(loop.carried[0], power)])
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
    loop = Loop(b, _i64(0), count, TILE, [])
    z = _row(b, gate, loop.index)
    turn = z
    if kind == GELU_TANH:  # half of 1 + tanh u is the logistic function of 2 u
        cube = b.fmul(b.fmul(z, z), z)
        turn = b.fmul(fused(b, cube, every(FLOAT, TILE, 0.044715), z), every(FLOAT, TILE, 2 * 0.7978845608028654))
    one = every(FLOAT, TILE, 1.0)
    share = b.fadd(one, exponential(b, b.fsub(every(FLOAT, TILE, -0.0), turn)))
    _put(b, b.fmul(b.fdiv(z, share), _row(b, up, loop.index)), gate, loop.index)
    loop.close([])
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
                at_once = {1: 4, 2: 2}.get(queries, 1)
                whole = b.mul(b.sdiv(tiles, _i64(at_once)), _i64(at_once))
                with b.if_then(b.icmp_signed(">", whole, _i64(0))):
                    b.call(_scores(b.module, queries, at_once), [q, q_stride, keys, whole, width, out, out_stride])
                if at_once > 1:
                    left = b.sub(tiles, whole)
                    with b.if_then(b.icmp_signed(">", left, _i64(0))):
                        place = b.mul(whole, b.mul(width, _i64(TILE)))
                        then = b.gep(out, [b.mul(whole, _i64(TILE))])
                        rest_keys = b.gep(keys, [place])
                        b.call(_scores(b.module, queries, 1), [q, q_stride, rest_keys, left, width, then, out_stride])

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
    """out[i] = Σ weights[i, position] · value for at most GROUP queries and a width that is a multiple of 16."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        many, *rest = given
        weights, stride, values, count, width, out, out_stride = _floats(b, rest, (0, 2, 5))

        def act(queries: int) -> Any:
            def go(b: Any) -> None:
                at_once = {1: 4, 2: 2}.get(queries, 1)
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
    """See `_softmax`; scores and out are addresses, scale and cap float32."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        b.call(_softmax(b.module), _floats(b, given, (0, 6)))
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


@builds
def atomic_add(typing_context: Any, address: Any, value: Any) -> Any:
    """Add to an int64 in memory that several threads use; what it was before."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        return b.atomic_rmw("add", b.inttoptr(given[0], ir.PointerType(I64)), given[1], "seq_cst")

    return types.int64(types.int64, types.int64), code


@builds
def atomic_read(typing_context: Any, address: Any) -> Any:
    """An int64 that another thread may be writing, and with it all that thread wrote before."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        return b.load_atomic(b.inttoptr(given[0], ir.PointerType(I64)), "acquire", 8)

    return types.int64(types.int64), code


@builds
def breathe(typing_context: Any) -> Any:
    """Tell the processor that this is a loop that waits."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        nothing, machine = ir.VoidType(), platform.machine().lower()
        if machine in ("x86_64", "amd64"):
            name, kinds, given = "llvm.x86.sse2.pause", [], []
        elif machine in ("arm64", "aarch64"):
            name, kinds, given = "llvm.aarch64.hint", [I32], [ir.Constant(I32, 1)]
        else:
            return context.get_dummy_value()
        known = b.module.globals.get(name) or ir.Function(b.module, ir.FunctionType(nothing, kinds), name)
        b.call(known, given)
        return context.get_dummy_value()

    return types.void(), code
