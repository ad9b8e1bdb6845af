"""Packed blocks as whole numbers of 8 bits with their scales, and integer sums of them with rounded inputs (`int8`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]

from specdec_tui.backends.lean import emit, vectors
from specdec_tui.backends.lean.blocks import Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0
from specdec_tui.backends.lean.vectors import FEATURES, FLOAT, I8, I16, I32, Value, every, load, pick, vector

AVX2, VNNI, PORTABLE = range(3)
_SIGNED = frozenset((Q4_0, Q5_0, Q8_0, Q6_K))
_MINIMA = frozenset((Q4_1, Q5_1, Q4_K, Q5_K))


def _paths() -> tuple[int, ...]:
    if "avx2" not in FEATURES or "fma" not in FEATURES:
        return (PORTABLE,)
    vnni = {"avx512vnni", "avx512vl"} <= FEATURES or "avxvnni" in FEATURES
    return (VNNI, AVX2, PORTABLE) if vnni else (AVX2, PORTABLE)


PATHS = _paths()
"""Ways to make the integer sums on this machine, the fastest first."""


def _named(b: Any, name: str, result: Any, given: Sequence[Value]) -> Value:
    known = b.module.globals.get(name)
    kind = ir.FunctionType(result, [value.type for value in given])
    return b.call(known or ir.Function(b.module, kind, name), given)


class Scales(NamedTuple):
    """Of a group's eight blocks, <8 x float>; `of_16`: whole numbers <16 x i8> of Q6_K, two to a block."""

    weights: Value
    minima: Value | None = None
    of_16: Value | None = None


def numbers_of(b: Any, blocks: Sequence[Value], offset: int) -> Value:
    """<8 x float> of the 16-bit floats at a place of eight blocks."""
    value = ir.Constant(vector(I16, 8), ir.Undefined)
    for lane, block in enumerate(blocks):
        value = b.insert_element(value, load(b, block, offset, I16, 2), ir.Constant(I32, lane))
    return vectors.halves(b, value)


def scales_of(b: Any, kind: int, blocks: Sequence[Value]) -> Scales:
    if kind in (Q4_K, Q5_K):
        d = vectors.halves(b, load(b, blocks[0], 0, vector(I16, 2), 2))
        scales, minima = emit.six_bits(b, blocks[0])
        least = b.fmul(minima, pick(b, d, None, [1] * 8))
        return Scales(b.fmul(scales, pick(b, d, None, [0] * 8)), b.fsub(every(FLOAT, 8, -0.0), least))
    if kind == Q6_K:
        d = vectors.halves(b, load(b, blocks[0], 208, vector(I16, 1), 2))
        return Scales(pick(b, d, None, [0] * 8), None, load(b, blocks[0], 192, vector(I8, 16)))
    return Scales(numbers_of(b, blocks, 0))


def _nibbles(b: Any, raw: Value) -> Value:
    """<32 x i8> of 16 bytes: their low halves, then their high ones."""
    high = b.bitcast(b.lshr(b.bitcast(raw, vector(I16, 8)), every(I16, 8, 4)), vector(I8, 16))
    return b.and_(pick(b, raw, high, range(32)), every(I8, 32, 15))


def of_32(b: Any, kind: int, block: Value) -> Value:
    if kind == Q8_0:
        return load(b, block, 2, vector(I8, 32))
    begin = 4 if kind in _MINIMA else 2
    five = kind in (Q5_0, Q5_1)
    value = _nibbles(b, load(b, block, begin + 4 * five, vector(I8, 16)))
    if five:
        bits = pick(b, load(b, block, begin, vector(I8, 4)), None, [place // 8 for place in range(32)])
        masks = ir.Constant(vector(I8, 32), [1 << place % 8 for place in range(32)])
        there = b.icmp_unsigned("!=", b.and_(bits, masks), every(I8, 32, 0))
        value = b.or_(value, b.select(there, every(I8, 32, 16), every(I8, 32, 0)))
    return value if kind in _MINIMA else b.sub(value, every(I8, 32, 16 if five else 8))


def _part(b: Any, raw: Value, shift: int, mask: int) -> Value:
    """Some bits of each of 32 bytes, moved down (up where `shift` is negative)."""
    words = b.bitcast(raw, vector(I16, 16))
    if shift:
        words = (b.lshr if shift > 0 else b.shl)(words, every(I16, 16, abs(shift)))
    return b.and_(b.bitcast(words, vector(I8, 32)), every(I8, 32, mask))


def of_256(b: Any, kind: int, block: Value, number: int) -> Value:
    """The 32 weights of one of the eight parts of a block of 256."""
    if kind == Q6_K:
        unit, place = divmod(number, 4)
        source = load(b, block, 64 * unit + 32 * (place % 2), vector(I8, 32))
        top = load(b, block, 128 + 32 * unit, vector(I8, 32))
        value = b.or_(_part(b, source, 4 * (place // 2), 15), _part(b, top, 2 * place - 4, 48))
        return b.sub(value, every(I8, 32, 32))
    raw = load(b, block, (16 if kind == Q4_K else 48) + 32 * (number // 2), vector(I8, 32))
    value = _part(b, raw, 4 * (number % 2), 15)
    if kind == Q5_K:
        value = b.or_(value, _part(b, load(b, block, 16, vector(I8, 32)), number - 4, 16))
    return value


class Weights:
    """The 32 whole numbers of a block in the shape that a path multiplies."""

    def __init__(self, b: Any, kind: int, path: int, whole: Value, of_16: Value | None, number: int) -> None:
        self._path, self._whole, self._size = path, whole, whole
        self._signed = kind in _SIGNED
        if self._signed and path != PORTABLE:
            name = "llvm.abs.v32i8"
            kind_of = ir.FunctionType(whole.type, [whole.type, ir.IntType(1)])
            known = b.module.globals.get(name) or ir.Function(b.module, kind_of, name)
            self._size = b.call(known, [whole, ir.Constant(ir.IntType(1), 0)])  # of −128 the bits of 128
        self._pairs: Value = every(I16, 16, 1)
        self._lanes: Value | None = None
        if of_16 is not None:
            if path == AVX2:
                self._pairs = b.sext(pick(b, of_16, None, [2 * number] * 8 + [2 * number + 1] * 8), vector(I16, 16))
            else:
                self._lanes = b.sext(pick(b, of_16, None, [2 * number] * 4 + [2 * number + 1] * 4), vector(I32, 8))

    def sums(self, b: Any, x: Value) -> Value:
        """<8 x i32>: of four columns each."""
        if self._path == PORTABLE:
            found = self._widened(b, x)
        else:
            if self._signed:
                x = _named(b, "llvm.x86.avx2.psign.b", x.type, [x, self._whole])
            if self._path == AVX2:
                # Two products of at most 128 · 127 each fit 16 bits.
                two = _named(b, "llvm.x86.avx2.pmadd.ub.sw", vector(I16, 16), [self._size, x])
                return _named(b, "llvm.x86.avx2.pmadd.wd", vector(I32, 8), [two, self._pairs])
            found = self._at_once(b, x)
        return found if self._lanes is None else b.mul(found, self._lanes)

    def _at_once(self, b: Any, x: Value) -> Value:
        words = vector(I32, 8)
        given = [every(I32, 8, 0), b.bitcast(self._size, words), b.bitcast(x, words)]
        return _named(b, "llvm.x86.avx512.vpdpbusd.256", words, given)

    def _widened(self, b: Any, x: Value) -> Value:
        products = b.mul(b.sext(self._whole, vector(I16, 32)), b.sext(x, vector(I16, 32)))
        wide = b.sext(products, vector(I32, 32))
        for count in (32, 16):
            even, odd = (pick(b, wide, None, range(first, count, 2)) for first in (0, 1))
            wide = b.add(even, odd)
        return wide
