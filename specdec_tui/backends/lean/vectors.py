"""LLVM vectors of fixed width for numba: the lanes of this machine, and what formats and sums are made of.

The vectors have 16 lanes where the machine has AVX-512 and 8 elsewhere (LLVM splits them where registers are shorter).
Without fused multiply-add (an x86 before Haswell) sums round twice: other bits, the same for all forms of weights.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba.core import config

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
FLOAT, HALF = ir.FloatType(), ir.HalfType()
BYTES = ir.PointerType(I8)


def _features() -> frozenset[str]:
    """Of the processor, or those that numba was told to compile for."""
    told: str | None = getattr(config, "CPU_FEATURES", None)
    if told is not None:
        return frozenset(name[1:] for name in told.split(",") if name.startswith("+"))
    return frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)


FEATURES = _features()
X86 = platform.machine().lower() in ("x86_64", "amd64")
LANES = 16 if "avx512f" in FEATURES and "avx512bw" in FEATURES else 8
FUSED = "fma" in FEATURES or "avx512f" in FEATURES or platform.machine().lower() in ("arm64", "aarch64")
# Tokens that share an expanded weight: their sums have to stay in registers (16 of 8 lanes, 32 of 16).
MOST_TOKENS = 10 if LANES == 16 else 5
VECTOR = ir.VectorType(FLOAT, LANES)
_AHEAD = 3072  # bytes, at least, that are asked for before they are needed

Pointer = Any  # values of llvmlite, which has no types of its own
Value = Any
Builder = Any


def vector(kind: Any, count: int) -> Any:
    return ir.VectorType(kind, count)


def every(kind: Any, count: int, value: float) -> Any:
    return ir.Constant(vector(kind, count), [value] * count)


def at(b: Builder, pointer: Pointer, offset: Any) -> Pointer:
    return b.gep(pointer, [ir.Constant(I64, offset) if isinstance(offset, int) else offset])


def load(b: Builder, pointer: Pointer, offset: Any, kind: Any, align: int = 1) -> Value:
    found = b.load(b.bitcast(at(b, pointer, offset), ir.PointerType(kind)))
    found.align = align
    return found


def pick(b: Builder, one: Value, other: Value | None, places: Sequence[int]) -> Value:
    """Elements of two vectors by their places."""
    rest = ir.Constant(one.type, ir.Undefined) if other is None else other
    return b.shuffle_vector(one, rest, ir.Constant(vector(I32, len(places)), list(places)))


def splat(b: Builder, value: Value, count: int) -> Value:
    one = b.insert_element(ir.Constant(vector(value.type, count), ir.Undefined), value, ir.Constant(I32, 0))
    return pick(b, one, None, [0] * count)


def fused(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """x · y + z, rounded once where the machine can."""
    if not FUSED:
        return b.fadd(b.fmul(x, y), z)
    name = f"llvm.fma.v{x.type.count}f32"
    known = b.module.globals.get(name)
    return b.call(known or ir.Function(b.module, ir.FunctionType(x.type, [x.type] * 3), name), [x, y, z])


if X86:
    llvm.initialize_native_asmparser()


def in_turn(b: Builder, value: Value) -> Value:
    """The value, which LLVM then computes in the place where it is written and not with a dozen others at once: there
    are 16 registers, and what is ordered for speed by the compiler is spilled to memory. The processor orders anew."""
    if LANES != 8 or "avx" not in FEATURES:
        return value
    kind = ir.FunctionType(value.type, [value.type])
    return b.call(ir.InlineAsm(kind, "", "=x,0", side_effect=True), [value])


def hidden(b: Builder, pointer: Pointer) -> Pointer:
    """A pointer of which LLVM does not know that it is this one: what was stored is loaded, not shuffled instead."""
    if not X86:
        return pointer
    kind = ir.FunctionType(pointer.type, [pointer.type])
    return b.call(ir.InlineAsm(kind, "", "=r,0", side_effect=True), [pointer])


def lane_sum(b: Builder, value: Value) -> Value:
    """Of all lanes: the upper half to the lower until one is left."""
    count = value.type.count
    while count > 1:
        count //= 2
        value = b.fadd(pick(b, value, None, range(count)), pick(b, value, None, range(count, 2 * count)))
    return b.extract_element(value, ir.Constant(I32, 0))


def halves(b: Builder, bits: Value) -> Value:
    """float32 of a vector of 16-bit numbers, given as <n x i16>."""
    count = bits.type.count
    if "f16c" in FEATURES or platform.machine().lower() not in ("x86_64", "amd64", "i386", "i686"):
        return b.fpext(b.bitcast(bits, vector(HALF, count)), vector(FLOAT, count))
    words = vector(I32, count)
    wide = b.zext(bits, words)
    rest = b.shl(b.and_(wide, every(I32, count, 0x7FFF)), every(I32, count, 13))
    # Exact for all but infinity and NaN, whose exponent stays the highest.
    small = b.bitcast(b.fmul(b.bitcast(rest, vector(FLOAT, count)), every(FLOAT, count, 2.0**112)), words)
    huge = b.icmp_unsigned(">=", rest, every(I32, count, 0x0F800000))
    value = b.select(huge, b.or_(rest, every(I32, count, 0x7F800000)), small)
    sign = b.shl(b.and_(wide, every(I32, count, 0x8000)), every(I32, count, 16))
    return b.bitcast(b.or_(value, sign), vector(FLOAT, count))


def distance(b: Builder, row_bytes: Value, rows: int) -> Value:
    """How far ahead memory is asked for, in bytes: whole steps of `rows` rows, which are read side by side."""
    step = b.mul(row_bytes, ir.Constant(I64, rows))
    some = b.select(b.icmp_signed(">", step, ir.Constant(I64, 0)), step, ir.Constant(I64, _AHEAD))
    return b.mul(some, b.add(b.sdiv(ir.Constant(I64, _AHEAD - 1), some), ir.Constant(I64, 1)))


def ask_for(b: Builder, pointer: Pointer, size: int, ahead: Value) -> None:
    """Have the memory send what lies `ahead` of so many bytes."""
    name = "llvm.prefetch.p0"
    known = b.module.globals.get(name) or ir.Function(
        b.module, ir.FunctionType(ir.VoidType(), [BYTES, I32, I32, I32]), name
    )
    there = at(b, pointer, ahead)
    for line in range(0, size, 64):
        b.call(known, [at(b, there, line)] + [ir.Constant(I32, n) for n in (0, 3, 1)])


def chosen(b: Builder, value: Value, cases: Mapping[int, Callable[[Builder], Any]]) -> None:
    """Do what one of several numbers stands for; nothing for another number."""
    after = b.append_basic_block("after")
    switch = b.switch(value, after)
    for number, act in cases.items():
        block = b.append_basic_block(f"case_{number}")
        switch.add_case(ir.Constant(value.type, number), block)
        b.position_at_end(block)
        act(b)
        b.branch(after)
    b.position_at_end(after)


class Loop:
    """`for index in range(begin, end, step)` with values that are carried on; at least one turn is made."""

    def __init__(self, b: Builder, begin: Value, end: Value, step: int, carried: list[Value]) -> None:
        self._b, self._end, self._step = b, end, step
        before, self._block = b.block, b.append_basic_block("turn")
        b.branch(self._block)
        b.position_at_end(self._block)
        self.index = b.phi(I64)
        self.index.add_incoming(begin, before)
        self.carried = [b.phi(value.type) for value in carried]
        for phi, value in zip(self.carried, carried, strict=True):
            phi.add_incoming(value, before)

    def close(self, carried: list[Value]) -> list[Value]:
        b = self._b
        after = b.append_basic_block("after")
        following = b.add(self.index, ir.Constant(I64, self._step))
        self.index.add_incoming(following, b.block)
        for phi, value in zip(self.carried, carried, strict=True):
            phi.add_incoming(value, b.block)
        b.cbranch(b.icmp_signed("<", following, self._end), self._block, after)
        b.position_at_end(after)
        return carried
