"""Machine code of products over rows of weights in any format, written for numba as LLVM vectors of fixed width.

Explicit vectors for two reasons: the order of all sums is fixed, so that packed and expanded weights, one token and
many, give the same bits; and the compiler's own vectorizing of 4- and 5-bit numbers is several times slower. The
vectors have 16 lanes where the machine has AVX-512 and 8 elsewhere (LLVM splits them where registers are shorter).
Without fused multiply-add (an x86 before Haswell) sums round twice: other bits, the same for both forms.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba.core import config

from specdec_tui.backends.lean.blocks import (
    BF16,
    F16,
    F32,
    KINDS,
    PLAIN,
    Q4_1,
    Q4_K,
    Q5_0,
    Q5_1,
    Q5_K,
    Q6_K,
    Q8_0,
    blocks_of_step,
)

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
# A byte is taken to the top of its word before it is converted: so it keeps its sign. The scale makes up for it.
_TOP = 2.0**-24
_AHEAD = 3072  # bytes, at least, that are asked for before they are needed

Pointer = Any  # values of llvmlite, which has no types of its own
Value = Any
Builder = Any


class Part(NamedTuple):
    """Bytes <32 x i8> of a unit, with signs, and what makes weights of them by word <8 x float>: scale · byte + offset."""

    whole: Value
    scale: Value
    offset: Value | None = None


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
    if not X86 or LANES != 8:
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


def _shorts(b: Builder, block: Pointer, offset: int, count: int) -> Value:
    """`count` 16-bit numbers at a place of a block, as float32."""
    return halves(b, load(b, block, offset, vector(I16, count), 2 if count == 1 else 1))


def _pairs(b: Builder, values: Value, one: int, other: int) -> Value:
    """Four lanes of one number, four of another."""
    return pick(b, values, None, [one] * 4 + [other] * 4)


def _eight(b: Builder, values: Value, place: int) -> Value:
    return pick(b, values, None, [place] * 8)


def _moved(b: Builder, raw: Value, up: int) -> Value:
    """Bytes shifted within their words: what comes from a neighbour is for the caller to mask."""
    words, by = vector(I32, 8), every(I32, 8, abs(up))
    moved = b.bitcast(raw, words)
    moved = b.shl(moved, by) if up > 0 else b.lshr(moved, by) if up < 0 else moved
    return b.bitcast(moved, raw.type)


def _kept(b: Builder, *values: Value) -> list[Pointer]:
    """Vectors put into memory, from where each of their numbers is had in all lanes without a shuffle."""
    found = []
    for value in values:
        with b.goto_entry_block():
            room = b.alloca(value.type)
            room.align = 32
        b.store(value, room).align = 32
        found.append(hidden(b, b.bitcast(room, ir.PointerType(FLOAT))))
    return found


def _from(b: Builder, room: Pointer, place: int, count: int = 8) -> Value:
    number = b.load(b.gep(room, [ir.Constant(I32, place)]))
    number.align = 4
    return splat(b, number, count)


def _two_blocks(b: Builder, kind: int, blocks: Sequence[Pointer]) -> Iterator[Part]:
    """Q4_0, Q4_1, Q5_0, Q5_1: a unit is two blocks of 32."""
    one, other = blocks
    has_minimum = kind in (Q4_1, Q5_1)
    count = 2 if has_minimum else 1
    numbers = pick(b, _shorts(b, one, 0, count), _shorts(b, other, 0, count), range(2 * count))
    scale = b.fmul(_pairs(b, numbers, 0, count), every(FLOAT, 8, _TOP))
    offset = _pairs(b, numbers, 1, 3) if has_minimum else None
    begin = 2 * count + (4 if kind in (Q5_0, Q5_1) else 0)
    raw = pick(b, load(b, one, begin, vector(I8, 16)), load(b, other, begin, vector(I8, 16)), range(32))
    low, high = b.and_(raw, every(I8, 32, 15)), b.lshr(raw, every(I8, 32, 4))
    if kind in (Q5_0, Q5_1):
        fifth = pick(b, load(b, one, 2 * count, vector(I8, 4)), load(b, other, 2 * count, vector(I8, 4)), range(8))
        masks = ir.Constant(vector(I8, 32), [1 << place % 8 for place in range(32)])

        def bits(first: int) -> Value:
            """16 where the fifth bit of a byte's number is set."""
            spread = pick(b, fifth, None, [first + place // 8 + (2 if place >= 16 else 0) for place in range(32)])
            there = b.icmp_unsigned("!=", b.and_(spread, masks), every(I8, 32, 0))
            return b.select(there, every(I8, 32, 16), every(I8, 32, 0))

        low, high = b.or_(low, bits(0)), b.or_(high, bits(2))
    if not has_minimum:
        middle = every(I8, 32, 16 if kind == Q5_0 else 8)
        low, high = b.sub(low, middle), b.sub(high, middle)
    yield Part(low, scale, offset)
    yield Part(high, scale, offset)


def _q8_0(b: Builder, blocks: Sequence[Pointer]) -> Iterator[Part]:
    scale = b.fmul(_eight(b, _shorts(b, blocks[0], 0, 1), 0), every(FLOAT, 8, _TOP))
    yield Part(load(b, blocks[0], 2, vector(I8, 32)), scale)


def _six_bits(b: Builder, block: Pointer) -> tuple[Value, Value]:
    """Scales and minima <8 x float> of a Q4_K or Q5_K block, before d and dmin: whole numbers of 6 bits."""
    first, second, third = (load(b, block, 4 + 4 * i, I32) for i in range(3))

    def word(value: Value, shift: int, mask: int) -> Value:
        return b.and_(b.lshr(value, ir.Constant(I32, shift)), ir.Constant(I32, mask))

    def joined(low: Value, high: Value) -> Value:
        whole = b.or_(b.zext(low, I64), b.shl(b.zext(high, I64), ir.Constant(I64, 32)))
        return b.uitofp(b.zext(b.bitcast(whole, vector(I8, 8)), vector(I32, 8)), vector(FLOAT, 8))

    four = ir.Constant(I32, 4)
    scales = joined(
        word(first, 0, 0x3F3F3F3F), b.or_(word(third, 0, 0x0F0F0F0F), b.shl(word(first, 6, 0x03030303), four))
    )
    minima = joined(
        word(second, 0, 0x3F3F3F3F), b.or_(word(third, 4, 0x0F0F0F0F), b.shl(word(second, 6, 0x03030303), four))
    )
    return scales, minima


def _k_nibbles(b: Builder, kind: int, block: Pointer) -> Iterator[list[Part]]:
    """Q4_K, Q5_K: four units of 64."""
    numbers = _shorts(b, block, 0, 2)
    scales, minima = _six_bits(b, block)
    scales = b.fmul(scales, b.fmul(_eight(b, numbers, 0), every(FLOAT, 8, _TOP)))
    minima = b.fsub(every(FLOAT, 8, -0.0), b.fmul(minima, _eight(b, numbers, 1)))
    kept_scales, kept_minima = _kept(b, scales, minima)
    begin, fifths = 16, None
    if kind == Q5_K:
        begin, fifths = 48, load(b, block, 16, vector(I8, 32))
    for unit in range(4):
        raw = load(b, block, begin + 32 * unit, vector(I8, 32))
        parts = [b.and_(raw, every(I8, 32, 15)), b.lshr(raw, every(I8, 32, 4))]
        if fifths is not None:
            bits = [b.and_(_moved(b, fifths, 4 - 2 * unit - half), every(I8, 32, 16)) for half in (0, 1)]
            parts = [b.or_(part, bit) for part, bit in zip(parts, bits, strict=True)]
        places = (2 * unit, 2 * unit + 1)
        yield [
            Part(part, _from(b, kept_scales, place), _from(b, kept_minima, place))
            for place, part in zip(places, parts, strict=True)
        ]


def _q6_k(b: Builder, block: Pointer) -> Iterator[list[Part]]:
    """Two units of 128."""
    d = _shorts(b, block, 208, 1)
    whole = b.sitofp(b.sext(load(b, block, 192, vector(I8, 16)), vector(I32, 16)), vector(FLOAT, 16))
    (room,) = _kept(b, b.fmul(whole, b.fmul(pick(b, d, None, [0] * 16), every(FLOAT, 16, _TOP))))
    for unit in range(2):
        low, high = (load(b, block, 64 * unit + 32 * i, vector(I8, 32)) for i in (0, 1))
        top = load(b, block, 128 + 32 * unit, vector(I8, 32))
        parts = []
        for place, source in enumerate((low, high, low, high)):
            four = b.and_(source, every(I8, 32, 15)) if place < 2 else b.lshr(source, every(I8, 32, 4))
            two = b.and_(_moved(b, top, 4 - 2 * place), every(I8, 32, 0x30))
            value = b.sub(b.or_(four, two), every(I8, 32, 32))
            first = 8 * unit + 2 * place
            both = pick(b, _from(b, room, first), _from(b, room, first + 1), [*range(4), *range(12, 16)])
            parts.append(Part(value, both))
        yield parts


def _units(b: Builder, kind: int, blocks: Sequence[Pointer]) -> Iterator[list[Part]]:
    if kind == Q8_0:
        for block in blocks:
            yield list(_q8_0(b, [block]))
    elif kind in (Q4_K, Q5_K):
        yield from _k_nibbles(b, kind, blocks[0])
    elif kind == Q6_K:
        yield from _q6_k(b, blocks[0])
    else:
        for first in range(0, len(blocks), 2):
            yield list(_two_blocks(b, kind, blocks[first : first + 2]))


def _joined(b: Builder, values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else pick(b, values[0], values[1], range(2 * values[0].type.count))


def _of_bytes(b: Builder, parts: Sequence[Part], several: bool) -> Iterator[Value]:
    """The weights of one part of each of the units that are taken together: four vectors."""
    words = b.bitcast(_joined(b, [part.whole for part in parts]), vector(I32, LANES))
    scale = _joined(b, [part.scale for part in parts])
    offsets = [part.offset for part in parts]
    offset = None if offsets[0] is None else _joined(b, offsets)
    for byte in range(4):
        words = in_turn(b, words) if several else words
        top = b.shl(words, every(I32, LANES, 24 - 8 * byte)) if byte < 3 else words
        top = b.and_(top, every(I32, LANES, 0xFF000000)) if byte else top
        value = b.sitofp(top, VECTOR)
        yield b.fmul(value, scale) if offset is None else fused(b, value, scale, offset)


def weights(b: Builder, kind: int, blocks: Sequence[Pointer], several: bool = False) -> Iterator[Value]:
    """The weights of a step as vectors <LANES x float>, in the order of `blocks.step_order`.

    `several`: registers are scarce, for the sums of several tokens.
    """
    if kind in PLAIN:
        for half in (0, 1):
            if kind == F32:
                yield load(b, blocks[0], 4 * LANES * half, VECTOR, 4)
                continue
            bits = load(b, blocks[0], 2 * LANES * half, vector(I16, LANES), 2)
            if kind == F16:
                yield halves(b, bits)
            else:
                assert kind == BF16
                wide = b.shl(b.zext(bits, vector(I32, LANES)), every(I32, LANES, 16))
                yield b.bitcast(wide, VECTOR)
        return
    waiting: list[list[Part]] = []
    for unit in _units(b, kind, blocks):
        waiting.append(unit)
        if len(waiting) == LANES // 8:
            for parts in zip(*waiting, strict=True):
                yield from _of_bytes(b, parts, several)
            waiting.clear()


def blocks_at(b: Builder, kind: int, row: Pointer, step: Value) -> list[Pointer]:
    """Where the blocks of a whole step lie."""
    count, size = blocks_of_step(kind, LANES), KINDS[kind].size
    first = b.gep(row, [b.mul(step, ir.Constant(I64, count * size))])
    if kind in PLAIN:
        return [first]
    return [at(b, first, size * i) for i in range(count)]


def blocks_of_rest(b: Builder, kind: int, row: Pointer, step: Value, count: Value) -> list[Pointer]:
    """Where those of the last step lie, of which some are beyond the row's `count`: a block of zeros for these."""
    name = "block_of_zeros"
    zeros = b.module.globals.get(name)
    if zeros is None:
        kind_of_zeros = ir.ArrayType(I8, 256)
        zeros = ir.GlobalVariable(b.module, kind_of_zeros, name)
        zeros.linkage, zeros.global_constant, zeros.align = "internal", True, 64
        zeros.initializer = ir.Constant(kind_of_zeros, None)
    nothing = b.bitcast(zeros, BYTES)
    each = blocks_of_step(kind, LANES)
    first = b.mul(step, ir.Constant(I64, each))
    return [
        b.select(b.icmp_signed("<", b.add(first, ir.Constant(I64, i)), count), block, nothing)
        for i, block in enumerate(blocks_at(b, kind, row, step))
    ]


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
