"""The weights of a step in any format, expanded in registers: what `products` multiplies.

Explicit vectors for two reasons: the order of all sums is fixed, so that packed and expanded weights, one token and
many, give the same bits; and the compiler's own vectorizing of 4- and 5-bit numbers is several times slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]

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
    in_order,
)
from specdec_tui.backends.lean.vectors import (
    BYTES,
    FLOAT,
    I8,
    I16,
    I32,
    I64,
    LANES,
    VECTOR,
    Builder,
    Pointer,
    Value,
    at,
    every,
    fused,
    halves,
    hidden,
    in_turn,
    load,
    pick,
    splat,
    vector,
)

# A byte is taken to the top of its word before it is converted: so it keeps its sign. The scale makes up for it.
_TOP = 2.0**-24


class Part(NamedTuple):
    """Bytes <32 x i8> of a unit, with signs, and what makes weights of them, scale · byte + offset: <8 x float>."""

    whole: Value
    scale: Value
    offset: Value | None = None


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


def six_bits(b: Builder, block: Pointer) -> tuple[Value, Value]:
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
    scales, minima = six_bits(b, block)
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


def _looked_up(b: Builder, scale: Value, offset: Value | None, first: float, raw: Value, high: bool) -> Value:
    """Sixteen weights scale · (first + n) + offset, by the four bits n of each of 16 bytes."""
    numbers = ir.Constant(VECTOR, [first + n for n in range(LANES)])
    table = b.fmul(scale, numbers) if offset is None else fused(b, scale, numbers, offset)
    words = b.zext(raw, vector(I32, LANES))
    words = b.lshr(words, every(I32, LANES, 4)) if high else words
    name = "llvm.x86.avx512.permvar.sf.512"
    known = b.module.globals.get(name) or ir.Function(b.module, ir.FunctionType(VECTOR, [VECTOR, words.type]), name)
    return b.call(known, [table, words])


def _in_order(b: Builder, kind: int, block: Pointer) -> Iterator[Value]:
    """A block's weights as they come, by 16: for AVX-512, which permutes by the low four bits of each lane."""
    bytes_ = vector(I8, 16)
    if kind == Q8_0:
        scale = splat(b, b.extract_element(_shorts(b, block, 0, 1), ir.Constant(I32, 0)), LANES)
        for begin in (2, 18):
            yield b.fmul(b.sitofp(b.sext(load(b, block, begin, bytes_), vector(I32, LANES)), VECTOR), scale)
        return
    if kind == Q4_K:
        numbers = _shorts(b, block, 0, 2)
        scales, minima = six_bits(b, block)
        scales = b.fmul(scales, _eight(b, numbers, 0))
        minima = b.fsub(every(FLOAT, 8, -0.0), b.fmul(minima, _eight(b, numbers, 1)))
        kept_scales, kept_minima = _kept(b, scales, minima)
        for part in range(8):
            scale, offset = (_from(b, kept, part, LANES) for kept in (kept_scales, kept_minima))
            for half in (0, 16):
                raw = load(b, block, 16 + 32 * (part // 2) + half, bytes_)
                yield _looked_up(b, scale, offset, 0.0, raw, part % 2 == 1)
        return
    numbers = _shorts(b, block, 0, 2 if kind == Q4_1 else 1)
    scale = pick(b, numbers, None, [0] * LANES)
    offset = pick(b, numbers, None, [1] * LANES) if kind == Q4_1 else None
    raw = load(b, block, 4 if kind == Q4_1 else 2, bytes_)
    for high in (False, True):
        yield _looked_up(b, scale, offset, 0.0 if kind == Q4_1 else -8.0, raw, high)


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
    if in_order(kind, LANES):
        yield from _in_order(b, kind, blocks[0])
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


def block_of_zeros(b: Builder) -> Pointer:
    """A block of any format whose weights are 0."""
    name = "block_of_zeros"
    zeros = b.module.globals.get(name)
    if zeros is None:
        kind_of_zeros = ir.ArrayType(I8, 256)
        zeros = ir.GlobalVariable(b.module, kind_of_zeros, name)
        zeros.linkage, zeros.global_constant, zeros.align = "internal", True, 64
        zeros.initializer = ir.Constant(kind_of_zeros, None)
    return b.bitcast(zeros, BYTES)


def blocks_of_rest(b: Builder, kind: int, row: Pointer, step: Value, count: Value) -> list[Pointer]:
    """Where those of the last step lie, of which some are beyond the row's `count`: a block of zeros for these."""
    nothing = block_of_zeros(b)
    each = blocks_of_step(kind, LANES)
    first = b.mul(step, ir.Constant(I64, each))
    return [
        b.select(b.icmp_signed("<", b.add(first, ir.Constant(I64, i)), count), block, nothing)
        for i, block in enumerate(blocks_at(b, kind, row, step))
    ]
