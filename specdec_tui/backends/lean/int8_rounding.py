"""Rows of float32 rounded to 8 bits by blocks of 32, as machine code: see `int8`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from specdec_tui.backends.lean import vectors
from specdec_tui.backends.lean.vectors import BYTES, FLOAT, I8, I32, I64, Value, at, every, load, pick, vector

GROUP_BYTES = 320
GROUP_COLUMNS = 256
BLOCK = 32
WIDE = vector(FLOAT, 8)


def i64(value: int) -> Value:
    return ir.Constant(I64, value)


class counted:
    """A loop of a builder: `with counted(b, begin, end, step) as number`."""

    def __init__(self, b: Any, begin: Value, end: Value, step: int) -> None:
        self._b, self._end, self._step = b, end, step
        before = b.block
        check, self._inner, self._left = (b.append_basic_block(name) for name in ("check", "inner", "left"))
        b.branch(check)
        b.position_at_end(check)
        self._number = b.phi(I64)
        self._number.add_incoming(begin, before)
        b.cbranch(b.icmp_signed("<", self._number, end), self._inner, self._left)
        self._check = check

    def __enter__(self) -> Value:
        self._b.position_at_end(self._inner)
        return self._number

    def __exit__(self, *_: object) -> None:
        following = self._b.add(self._number, i64(self._step))
        self._number.add_incoming(following, self._b.block)
        self._b.branch(self._check)
        self._b.position_at_end(self._left)


def rounding(module: Any) -> Any:
    """void (rows, x, its stride, y, its stride, columns): rows of float32 to groups of rounded ones; y may be x."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, BYTES, I64, BYTES, I64, I64]), "rounding")
    function.linkage = "internal"
    rows, x, x_stride, y, y_stride, columns = function.args
    b = ir.IRBuilder(function.append_basic_block("entry"))
    # A group's scales and sums wait until its last column was read: they may lie where it was.
    waiting = b.bitcast(b.alloca(FLOAT, 16), BYTES)
    blocks = b.sdiv(columns, i64(BLOCK))
    groups = b.sdiv(b.add(columns, i64(GROUP_COLUMNS - 1)), i64(GROUP_COLUMNS))
    with counted(b, i64(0), rows, 1) as row:
        source, target = (at(b, p, b.mul(row, b.mul(s, i64(4)))) for p, s in ((x, x_stride), (y, y_stride)))
        with counted(b, i64(0), groups, 1) as group:
            begin = at(b, target, b.mul(group, i64(GROUP_BYTES)))
            with counted(b, i64(0), i64(8), 1) as number:
                block = b.add(b.mul(group, i64(8)), number)
                place = at(b, begin, b.mul(number, i64(BLOCK)))
                scale, total = at(b, waiting, b.mul(number, i64(4))), at(b, waiting, b.mul(number, i64(4)))
                scale, total = (b.bitcast(p, ir.PointerType(FLOAT)) for p in (scale, at(b, total, 32)))
                with b.if_else(b.icmp_signed("<", block, blocks)) as (there, missing):
                    with there:
                        whole, d, s = _rounded(b, at(b, source, b.mul(block, i64(4 * BLOCK))))
                        _put(b, whole, place)
                        b.store(d, scale)
                        b.store(s, total)
                    with missing:
                        _put(b, every(I8, 32, 0), place)
                        b.store(ir.Constant(FLOAT, 0.0), scale)
                        b.store(ir.Constant(FLOAT, 0.0), total)
            for half in (0, 32):
                _put(b, load(b, waiting, half, WIDE, 4), at(b, begin, GROUP_COLUMNS + half))
    b.ret_void()
    return function


def _put(b: Any, value: Value, place: Value) -> None:
    stored = b.store(value, b.bitcast(place, ir.PointerType(value.type)))
    stored.align = 4


def _rounded(b: Any, source: Value) -> tuple[Value, Value, Value]:
    """q <32 x i8>, d and s of 32 numbers."""
    words = vector(I32, 32)
    x = load(b, source, 0, vector(FLOAT, 32), 4)
    most = b.and_(b.bitcast(x, words), every(I32, 32, 0x7FFFFFFF))
    while most.type.count > 1:
        count = most.type.count // 2
        low, high = pick(b, most, None, range(count)), pick(b, most, None, range(count, 2 * count))
        most = b.select(b.icmp_unsigned(">", low, high), low, high)
    bits = b.extract_element(most, ir.Constant(I32, 0))  # as whole numbers floats have their order, NaN the highest
    d = b.fdiv(b.bitcast(bits, FLOAT), ir.Constant(FLOAT, 127.0))
    finite = b.icmp_unsigned("<", bits, ir.Constant(I32, 0x7F800000))
    usable = b.and_(finite, b.icmp_unsigned(">=", b.bitcast(d, I32), ir.Constant(I32, 0x00800000)))
    d = b.select(usable, d, b.select(finite, ir.Constant(FLOAT, 0.0), ir.Constant(FLOAT, float("nan"))))
    # Adding 1.5 · 2²³ leaves the nearest whole number in the lowest bits.
    high = 12582912.0
    shifted = b.fadd(b.fdiv(x, vectors.splat(b, d, 32)), every(FLOAT, 32, high))
    whole = b.sub(b.bitcast(shifted, words), every(I32, 32, 0x4B400000))
    whole = b.select(vectors.splat(b, usable, 32), whole, every(I32, 32, 0))
    sums = whole
    while sums.type.count > 1:
        count = sums.type.count // 2
        sums = b.add(pick(b, sums, None, range(count)), pick(b, sums, None, range(count, 2 * count)))
    total = b.sitofp(b.extract_element(sums, ir.Constant(I32, 0)), FLOAT)
    return b.trunc(whole, vector(I8, 32)), d, b.fmul(d, total)
