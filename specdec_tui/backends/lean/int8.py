"""Products of packed rows with inputs rounded to 8 bits: integer sums over each block of 32 columns.

An input row is rounded by blocks of 32 columns: d = max |x| / 127 in float32, q = x / d to the nearest whole number,
ties to even, and s = d · Σq, rounded once. A block whose d is below the smallest normal float32 counts as zeros; one
with a number that is not finite has q = 0 and d = NaN, so that every product over it is NaN. Eight blocks make a
group of 320 bytes: 256 of q, eight d, eight s. Blocks behind the last column are zeros.

A product goes through the groups in order, and in a group through its blocks in order: of block b, lane i of eight
holds the whole number Σ q_weight · q over columns 4i…4i+3 (of Q6_K times the scale of its 16 columns), which is exact
in int32 and in float32, and sum = fma(it, d_weight · d, sum) adds it. Where a format has minima, sum = fma(m_weight,
s, sum) follows, one block to a lane. The last step adds the lanes, upper half to lower. That order is the same for any
number of rows and tokens, on any machine: which instructions make the integer sums (`PATHS`) changes no bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from specdec_tui.backends.lean import emit, vectors
from specdec_tui.backends.lean.blocks import KINDS, PLAIN, Q4_1, Q4_K, Q5_1, Q5_K, Q6_K
from specdec_tui.backends.lean.compiled import builds_for_constants, compiled_callback
from specdec_tui.backends.lean.int8_blocks import PATHS, Weights, numbers_of, of_32, of_256, scales_of
from specdec_tui.backends.lean.int8_rounding import BLOCK, GROUP_BYTES, GROUP_COLUMNS, WIDE, counted, i64, rounding
from specdec_tui.backends.lean.vectors import BYTES, FLOAT, I8, I64, Value, at, load, vector

INT8 = 64
"""Added to a format's number: products over it with rounded inputs. `INT8` itself: the rounding of inputs."""
MOST_INT8_TOKENS = 8
"""Tokens that share an unpacked block."""
_ROWS = {1: 4, 2: 2, 3: 2, 4: 2}


def words_of(columns: int) -> int:
    """Words of four bytes that a rounded row takes."""
    return -(-columns // GROUP_COLUMNS) * GROUP_BYTES // 4


class _Group:
    """One step of a product: eight blocks of several rows with several tokens."""

    def __init__(self, b: Any, kind: int, path: int, scratch: Value, sums: Sequence[Value]) -> None:
        self._b, self._kind, self._path, self._scratch, self._sums = b, kind, path, scratch, sums

    def emit(self, rows: Sequence[Sequence[Value]], texts: Sequence[Value], ends: Callable[[int], None] | None) -> None:
        """`rows`: pointers to their blocks; `texts`: to the group of each token. `ends` is called before each block
        but the first, where some may be missing, and begins what comes next."""
        b = self._b
        scales = [scales_of(b, self._kind, blocks) for blocks in rows]
        for r, scale in enumerate(scales):
            for t, text in enumerate(texts):
                both = b.fmul(scale.weights, load(b, text, GROUP_COLUMNS, WIDE, 4))
                b.store(both, b.gep(self._scratch, [i64(r * len(texts) + t)]))
        # From memory a number comes to all lanes for nothing.
        kept = b.bitcast(vectors.hidden(b, self._scratch), BYTES)
        for number in range(8):
            if number and ends is not None:
                ends(number)
            for r, blocks in enumerate(rows):
                if self._kind in (Q4_K, Q5_K, Q6_K):
                    whole = of_256(b, self._kind, blocks[0], number)
                else:
                    whole = of_32(b, self._kind, blocks[number])
                weights = Weights(b, self._kind, self._path, whole, scales[r].of_16, number)
                for t, text in enumerate(texts):
                    place = r * len(texts) + t
                    found = weights.sums(b, load(b, text, BLOCK * number, vector(I8, 32)))
                    both = load(b, kept, 32 * place + 4 * number, FLOAT, 4)
                    self._add(place, b.sitofp(found, WIDE), vectors.splat(b, both, 8))
        if ends is not None:
            ends(8)
        for r, blocks in enumerate(rows):
            minima = numbers_of(b, blocks, 2) if self._kind in (Q4_1, Q5_1) else scales[r].minima
            if minima is not None:
                for t, text in enumerate(texts):
                    self._add(r * len(texts) + t, minima, load(b, text, GROUP_COLUMNS + 32, WIDE, 4))

    def _add(self, place: int, one: Value, other: Value) -> None:
        b, held = self._b, self._sums[place]
        b.store(vectors.fused(b, one, other, b.load(held)), held)


def _product(module: Any, kind: int, path: int, tokens: int, rows: int) -> Any:
    """void (weights, bytes of a row, x, its stride, y, its stride, first row, end, blocks of a row).

    y[t, r] = row r · x[t], for a number of rows that is a multiple of `rows`. Strides are in words of four bytes.
    """
    name = f"product_int8_{KINDS[kind].name}_{path}_{tokens}_{rows}"
    if name in module.globals:
        return module.globals[name]
    kinds = [BYTES, I64, BYTES, I64, ir.PointerType(FLOAT), I64, I64, I64, I64]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    held, row_bytes, x, x_stride, y, y_stride, begin, end, blocks = function.args
    size, together = KINDS[kind].size, GROUP_COLUMNS // KINDS[kind].block
    b = ir.IRBuilder(function.append_basic_block("entry"))
    scratch = b.alloca(WIDE, rows * tokens)
    sums = [b.alloca(WIDE) for _ in range(rows * tokens)]
    ahead = vectors.distance(b, row_bytes, rows)
    groups, over = b.sdiv(blocks, i64(together)), b.srem(blocks, i64(together))
    texts = [at(b, x, b.mul(i64(4 * t), x_stride)) for t in range(tokens)]

    def step(group: Value, ends: Callable[[int], None] | None) -> None:
        found = []
        for r in range(rows):
            first = at(b, starts[r], b.mul(group, i64(together * size)))
            places = [at(b, first, size * n) for n in range(together)]
            if ends is None:
                vectors.ask_for(b, first, together * size, ahead)
            else:
                places = list(_or_zeros(b, places, over))
            found.append(places)
        offset = b.mul(group, i64(GROUP_BYTES))
        _Group(b, kind, path, scratch, sums).emit(found, [at(b, text, offset) for text in texts], ends)

    with counted(b, begin, end, rows) as row:
        starts = [at(b, held, b.mul(b.add(row, i64(r)), row_bytes)) for r in range(rows)]
        for place in sums:
            b.store(ir.Constant(WIDE, [0.0] * 8), place)
        with counted(b, i64(0), groups, 1) as group:
            step(group, None)
        if together > 1:
            with b.if_then(b.icmp_signed(">", over, i64(0))):
                behind = b.append_basic_block("behind")

                def ends(number: int) -> None:
                    if number == 8:
                        b.branch(behind)
                        b.position_at_end(behind)
                        return
                    more = b.append_basic_block("more")
                    b.cbranch(b.icmp_signed(">", over, i64(number)), more, behind)
                    b.position_at_end(more)

                step(groups, ends)
        for r in range(rows):
            for t in range(tokens):
                place = b.gep(y, [b.add(b.mul(i64(t), y_stride), b.add(row, i64(r)))])
                b.store(vectors.lane_sum(b, b.load(sums[r * tokens + t])), place)
    b.ret_void()
    return function


def _or_zeros(b: Any, places: Sequence[Value], count: Value) -> Iterator[Value]:
    """Blocks, and one of zeros for those that are missing."""
    nothing = emit.block_of_zeros(b)
    for number, place in enumerate(places):
        yield b.select(b.icmp_signed("<", i64(number), count), place, nothing)


@builds_for_constants
def _of_kind(
    typing_context: Any, number: Any, tokens: Any, held: Any, row_bytes: Any, x: Any, x_stride: Any, y: Any,
    y_stride: Any, begin: Any, end: Any, blocks: Any,
) -> Any:  # fmt: skip
    """What `kernel_of` compiles; the number, kind + 256 · path, is a constant."""
    if not isinstance(number, types.IntegerLiteral):
        return None
    path, kind = divmod(number.literal_value, 256)

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        many, held, row_bytes, x, x_stride, y, y_stride, begin, end, blocks = given[1:]
        held, x, y = (b.inttoptr(value, BYTES) for value in (held, x, y))
        if kind == INT8:
            b.call(rounding(b.module), [many, x, x_stride, y, y_stride, end])
            return context.get_dummy_value()
        inputs = [held, row_bytes, x, x_stride, b.bitcast(y, ir.PointerType(FLOAT)), y_stride]

        def of_tokens(count: int) -> Callable[[Any], None]:
            def act(b: Any) -> None:
                rows = _ROWS.get(count, 1)
                whole = b.sub(end, b.srem(b.sub(end, begin), i64(rows)))
                b.call(_product(b.module, kind, path, count, rows), [*inputs, begin, whole, blocks])
                if rows > 1:
                    b.call(_product(b.module, kind, path, count, 1), [*inputs, whole, end, blocks])

            return act

        vectors.chosen(b, many, {count: of_tokens(count) for count in range(1, MOST_INT8_TOKENS + 1)})
        return context.get_dummy_value()

    return types.void(number, *[types.int64] * 10), code


@cache
def kernel_of(kind: int, path: int = PATHS[0]) -> Any:
    """Compiled code for a packed format, called as `products.kernel_of` is: y[t, r] = row r · x[t] for 1 to
    MOST_INT8_TOKENS tokens, x rounded.

    Of `INT8`: (rows, -, -, x, its stride, y, its stride, -, columns, -) rounds rows of float32; y may be x.
    """
    assert kind == INT8 or kind not in PLAIN
    number = kind + 256 * path

    def run(tokens, held, row_bytes, x, x_stride, y, y_stride, begin, end, blocks):  # type: ignore[no-untyped-def]
        _of_kind(number, tokens, held, row_bytes, x, x_stride, y, y_stride, begin, end, blocks)

    return compiled_callback(run, types.void(*[types.int64] * 10))
