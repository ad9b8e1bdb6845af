"""Proofs of the bits of products, for the tests and for machines that a subprocess is told to be."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import gguf
import numpy as np

from specdec_tui.backends.gguf.kinds import BF16, F16, F32, KINDS
from specdec_tui.backends.lean.blocks import HELD, PLAIN, order_of
from specdec_tui.backends.lean.layer_parts import COLUMNS, SLICE, WHOLE, aligned, room_of_products, times_many
from specdec_tui.backends.lean.products import kernel_of
from specdec_tui.backends.lean.vectors import FUSED, LANES, MOST_TOKENS
from specdec_tui.backends.lean.weights import Matrix

Array = np.ndarray[Any, Any]
FORMATS = sorted(HELD)
NAMES = [KINDS[kind].name for kind in FORMATS]
# Where the scales of a block lie, in bytes.
SCALES = {2: (0,), 3: (0, 2), 6: (0,), 7: (0, 2), 8: (0,), 12: (0, 2), 13: (0, 2), 14: (208,)}
# ±0, the least and the largest denormals, the largest numbers, infinities, numbers that are none.
EXTREME = np.array([0, 0x8000, 1, 0x8001, 0x3FF, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFC01], "<u2")
USUAL, HARD = "usual", "hard"


def random_rows(kind: int, rows: int, columns: int, scales: str, dice: np.random.Generator) -> Matrix:
    """Rows of random bits: finite ones with usual scales, or any, with extreme scales among them."""
    if kind in PLAIN:
        filled = -(-columns // 32) * 32
        if scales == HARD:
            data = dice.integers(0, 256, (rows, filled * KINDS[kind].size), np.uint8)
        else:
            numbers = dice.standard_normal((rows, filled)).astype(np.float32)
            data = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType(kind)).view(np.uint8)
        data = data.reshape(rows, filled, KINDS[kind].size)
        data[:, columns:] = 0
        return Matrix(kind, kind, columns, data.reshape(rows, -1))
    blocks = dice.integers(0, 256, (rows * columns // KINDS[kind].block, KINDS[kind].size), np.uint8)
    for place in SCALES[kind]:
        found = dice.uniform(-2, 2, len(blocks)).astype("<f2").view("<u2")
        if scales == HARD:
            found = np.where(dice.random(len(blocks)) < 0.7, dice.choice(EXTREME, len(blocks)), found).astype("<u2")
        blocks[:, place : place + 2] = found[:, None].view(np.uint8)
    return Matrix(kind, kind, columns, blocks.reshape(rows, -1))


def meant(matrix: Matrix) -> Array:
    """What the weights of a matrix mean, by the library of the format: float32 [rows, columns]."""
    with np.errstate(all="ignore"):
        if matrix.kind in PLAIN:
            halves = matrix.data.view({F32: "<f4", F16: "<f2", BF16: "<u2"}[matrix.kind])[:, : matrix.columns]
            return (halves.astype(np.uint32) << 16).view(np.float32) if matrix.kind == BF16 else halves.astype("<f4")
        found = gguf.quants.dequantize(matrix.data, gguf.GGMLQuantizationType(matrix.kind))
    return found.astype(np.float32).reshape(matrix.rows, matrix.columns)


def same_bits(found: Array, expected: Array) -> bool:
    """Whether two arrays of float32 are the same bit for bit, all numbers that are none being one."""
    nothing = np.isnan(found) & np.isnan(expected)
    return bool((nothing | (found.view(np.uint32) == expected.view(np.uint32))).all())


def laid_out(x: Array, matrix: Matrix) -> Array:
    """Inputs [tokens, columns] in the order of a matrix."""
    order = order_of(matrix.order, matrix.columns, LANES)
    found = np.zeros((len(x), len(order)), np.float32)
    found[:, order >= 0] = x[:, order[order >= 0]]
    return found


def product(matrix: Matrix, x: Array, begin: int = 0, end: int | None = None) -> Array:
    """[tokens, rows]: of the rows begin…end−1, what is not written stays 7. x is laid out."""
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 10)(kernel_of(matrix.kind).address)
    y = np.full((len(x), matrix.rows), 7, np.float32)
    end = matrix.rows if end is None else end
    held, given, out = matrix.data.ctypes.data, x.ctypes.data, y.ctypes.data
    call(len(x), held, matrix.row_bytes, given, x.shape[1], out, matrix.rows, begin, end, matrix.blocks)
    return y


def product_of_many(matrix: Matrix, x: Array, begin: int = 0, end: int | None = None) -> Array:
    """The same for more tokens than a product takes, as a pass over a prompt makes it."""
    y, kind = np.full((len(x), matrix.rows), 7, np.float32), KINDS[matrix.kind]
    room, end = aligned(room_of_products(x.shape[1], len(x))), matrix.rows if end is None else end
    held, given, out = matrix.data.ctypes.data, x.ctypes.data, y.ctypes.data
    told = (kernel_of(matrix.kind).address, held, matrix.row_bytes, matrix.blocks, kind.block, kind.size, x.shape[1])
    times_many(*told, given, x.shape[1], out, matrix.rows, len(x), begin, end, room)
    return y


def as_floats(matrix: Matrix) -> Matrix:
    """The same rows, expanded and laid out."""
    return Matrix(F32, matrix.order, matrix.columns, matrix.laid_out(0, matrix.rows).view(np.uint8))


def fused(x: Array, y: Array, z: Array) -> Array:
    """float32 of x · y + z rounded once: the sum is rounded to odd first (Boldo and Melquiond 2008)."""
    exact = x.astype(np.float64) * y
    total = exact + z
    back = total - exact
    error = (exact - (total - back)) + (z - back)
    bits = total.view(np.int64)
    off = (error != 0) & (bits % 2 == 0)
    outwards = (error > 0) == (total > 0)
    return np.where(off, bits + np.where(outwards, 1, -1), bits).view(np.float64).astype(np.float32)


def sums_in_order(rows: Array, x: Array, order: Array) -> Array:
    """[tokens, rows] in plain numpy: lanes, two rounds in turn, then the upper half to the lower."""
    there = order >= 0
    places = [np.where(there, given[:, order], np.float32(0)) for given in (rows, x)]
    found = np.empty((len(x), len(rows)), np.float32)
    for t in range(len(x)):
        sums = np.zeros((2, len(rows), LANES), np.float32)
        for turn, begin in enumerate(range(0, len(order), LANES)):
            weights, given = places[0][:, begin : begin + LANES], places[1][t, begin : begin + LANES]
            before = sums[turn % 2]
            sums[turn % 2] = fused(weights, given, before) if FUSED else weights * given + before
        total = sums[0] + sums[1]
        while total.shape[1] > 1:
            half = total.shape[1] // 2
            total = total[:, :half] + total[:, half:]
        found[t] = total[:, 0]
    return found


def columns_of(kind: int) -> tuple[int, ...]:
    """Whole steps, and those with a rest."""
    if kind in PLAIN:
        return (32, 160, 40, 33)
    block = KINDS[kind].block
    return (8 * block, 5 * block, block)


def inputs(tokens: int, columns: int, scales: str, dice: np.random.Generator) -> Array:
    found = dice.standard_normal((tokens, columns)).astype(np.float32)
    if scales == HARD:
        odd = np.array([0.0, -0.0, 1e-42, -1e-45, 3e38, np.inf, -np.inf, np.nan], np.float32)
        place = dice.random(found.shape) < 0.02
        found = np.where(place, dice.choice(odd, found.shape), found).astype(np.float32)
    return found


def prove_expansion(kind: int, scales: str, seed: int = 1) -> None:
    dice = np.random.default_rng(seed)
    for columns in columns_of(kind):
        matrix = random_rows(kind, 40, columns, scales, dice)
        assert same_bits(matrix.natural().numpy(), meant(matrix)), (KINDS[kind].name, columns, "expansion")


def prove_products(kind: int, scales: str, seed: int = 2) -> None:
    """Over packed rows and over expanded ones, for each number of tokens, and rows that begin and end anywhere."""
    dice = np.random.default_rng(seed)
    for columns in columns_of(kind):
        matrix = random_rows(kind, 7, columns, scales, dice)
        plain = as_floats(matrix)
        for tokens in range(1, MOST_TOKENS + 1):
            x = laid_out(inputs(tokens, columns, scales, dice), matrix)
            for begin, end in ((0, 7), (2, 6), (3, 4), (5, 5)):
                found, expected = product(matrix, x, begin, end), product(plain, x, begin, end)
                assert same_bits(found, expected), (KINDS[kind].name, columns, tokens, begin, end)
                assert (found[:, :begin] == 7).all() and (found[:, end:] == 7).all()
            each = np.concatenate([product(matrix, x[t : t + 1]) for t in range(tokens)])
            assert same_bits(product(matrix, x), each), (KINDS[kind].name, columns, tokens, "one by one")


def prove_many(kind: int, scales: str, seed: int = 4) -> None:
    """Products with many tokens, whole rows and slices of them, against those with one at a time."""
    dice = np.random.default_rng(seed)
    block = KINDS[kind].block
    for columns in (WHOLE // block * block, SLICE + max(block, 96), COLUMNS + max(block, 32), COLUMNS + SLICE + 256):
        matrix = random_rows(kind, 31, columns, scales, dice)
        for tokens in (17, 33):
            x = laid_out(inputs(tokens, columns, scales, dice), matrix)
            each = np.concatenate([product(matrix, x[t : t + 1]) for t in range(tokens)])
            assert same_bits(product_of_many(matrix, x), each), (KINDS[kind].name, columns, tokens, "many")
        found = product_of_many(matrix, x, 3, 29)
        assert same_bits(found[:, 3:29], each[:, 3:29]), (KINDS[kind].name, columns, "some rows")
        assert (found[:, :3] == 7).all() and (found[:, 29:] == 7).all()


def prove_order(kind: int, seed: int = 3) -> None:
    """Against sums in plain numpy over what the format's library makes of the rows."""
    dice = np.random.default_rng(seed)
    for columns in columns_of(kind):
        matrix = random_rows(kind, 5, columns, USUAL, dice)
        x = inputs(3, columns, USUAL, dice)
        expected = sums_in_order(meant(matrix), x, order_of(kind, columns, LANES))
        assert same_bits(product(matrix, laid_out(x, matrix)), expected), (KINDS[kind].name, columns, "order")


def prove_all(kind: int) -> None:
    for scales in (USUAL, HARD):
        prove_expansion(kind, scales)
        prove_products(kind, scales)
        prove_many(kind, scales)
    prove_order(kind)


if __name__ == "__main__":
    for kind in FORMATS:
        prove_all(kind)
    print(f"{LANES} lanes, fused {FUSED}: {len(FORMATS)} formats proved")
    sys.exit(0)
