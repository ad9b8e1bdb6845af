"""Products with inputs in 8 bits, bit for bit as `lean.int8` documents them, on each path that this machine has."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
from numba import njit
from tiny_gguf import KIND

from specdec_tui.backends.lean import int8, vectors
from specdec_tui.backends.lean.int8_blocks import PATHS, PORTABLE
from specdec_tui.backends.lean.products import call_kernel

Array = np.ndarray[Any, Any]

K_SUPER = (KIND.Q4_K, KIND.Q5_K, KIND.Q6_K)
ALL = (KIND.Q4_0, KIND.Q4_1, KIND.Q5_0, KIND.Q5_1, KIND.Q8_0, *K_SUPER)
MINIMA = (KIND.Q4_1, KIND.Q5_1, KIND.Q4_K, KIND.Q5_K)
# Where a block's scales and least values lie, in bytes.
PLACES = {KIND.Q4_K: (0, 2), KIND.Q5_K: (0, 2), KIND.Q6_K: (208,), KIND.Q4_1: (0, 2), KIND.Q5_1: (0, 2)}
ROWS = 7  # whole steps of rows and some left over, for any number of tokens


@njit
def _call(address, tokens, held, row_bytes, x, x_stride, y, y_stride, begin, end, blocks):  # type: ignore[no-untyped-def]
    call_kernel(address, tokens, held, row_bytes, x, x_stride, y, y_stride, begin, end, blocks)


def rounded(x: Array, in_place: bool = False) -> Array:
    """Rows as the machine code rounds them: float32 [m, words]."""
    m, columns = x.shape
    words = int8.words_of(columns)
    y = np.full((m, max(words, columns)), 7, np.float32)
    y[:, :columns] = x
    source = y if in_place else np.ascontiguousarray(x)
    address = int8.kernel_of(int8.INT8).address
    _call(address, m, 0, 0, source.ctypes.data, source.shape[1], y.ctypes.data, y.shape[1], 0, columns, 0)
    return np.ascontiguousarray(y[:, :words])


def parts_of(x: Array, columns: int) -> tuple[Array, Array, Array]:
    """Of rounded rows: q int64 [m, blocks, 32], d and s float32 [m, blocks]."""
    m, blocks = len(x), columns // 32
    whole = x.view(np.int8).reshape(m, -1, int8.GROUP_BYTES)[:, :, :256].reshape(m, -1, 32)
    numbers = x.reshape(m, -1, int8.GROUP_BYTES // 4)[:, :, 64:].reshape(m, -1, 2, 8)
    assert not whole[:, blocks:].any() and not numbers.transpose(0, 2, 1, 3).reshape(m, 2, -1)[:, :, blocks:].any()
    d, s = numbers.transpose(2, 0, 1, 3).reshape(2, m, -1)[:, :, :blocks]
    return whole[:, :blocks].astype(np.int64), d, s


def expected_parts(x: Array) -> tuple[Array, Array, Array]:
    x = x.reshape(len(x), -1, 32)
    with np.errstate(all="ignore"):
        most = np.abs(x).max(-1)
        d = most / np.float32(127)
        finite = np.isfinite(most)
        used = finite & (d >= np.finfo(np.float32).tiny)
        q = np.where(used[..., None], np.rint(x / d[..., None]), 0)
        d = np.where(used, d, np.where(finite, 0, np.nan)).astype(np.float32)
    q = q.astype(np.int64)
    return q, d, d * q.sum(-1).astype(np.float32)


def inputs(dice: np.random.Generator, m: int, columns: int) -> Array:
    x = dice.standard_normal((m, columns)).astype(np.float32)
    x[0, :32] = 0
    x[1 % m, 32:64] = np.where(np.arange(len(x[0, 32:64])) % 2, -3, 3)  # 127 and −127 only
    return x


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("columns", [32, 256, 576, 544])
def test_inputs_are_rounded_by_blocks_of_32_as_documented(columns: int, in_place: bool) -> None:
    x = inputs(np.random.default_rng(columns), 6, columns)
    x[2, :32] *= np.float32(1e-38)  # its scale is no normal number
    x[3, :32] = [1, *[-1] * 15, *[0.5 / 127, 1.5 / 127, 2.5 / 127, -0.5 / 127] * 4]  # halves go to the even number
    x[4, 5], x[5, 9] = np.inf, np.nan
    x[5, 3] = -np.inf
    for got, meant in zip(parts_of(rounded(x, in_place), columns), expected_parts(x), strict=True):
        np.testing.assert_array_equal(got, meant)


def blocks_of(kind: Any, rows: int, columns: int, dice: np.random.Generator) -> Array:
    """Any bits but for the scales, which are finite."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    found = dice.integers(0, 256, (rows * columns // block, size), np.uint8)
    for place in PLACES.get(kind, (0,)):
        found[:, place : place + 2] = dice.normal(0, 0.01, len(found)).astype("<f2")[:, None].view(np.uint8)
    found[0, 2 if kind not in K_SUPER else 20 :] = 0x80  # of Q8_0 all −128
    return found


def meant_by(blocks: Array, kind: Any, rows: int, scales: tuple[float, ...], **bytes_: int) -> Array:
    """Blocks as numbers [rows, columns] with other scales, and some bytes set."""
    changed = blocks.copy()
    for place, value in zip(PLACES.get(kind, (0,)), scales, strict=False):
        changed[:, place : place + 2] = np.array([value], "<f2").view(np.uint8)
    for name, value in bytes_.items():
        changed[:, int(name.split("_")[1]) : int(name.split("_")[2])] = value
    return gguf.quants.dequantize(changed, kind).reshape(rows, -1).astype(np.float64)


def taken_apart(blocks: Array, kind: Any, rows: int) -> tuple[Array, Array, Array]:
    """Whole numbers int64 [rows, blocks of 32, 32], scales and minima float32 [rows, blocks of 32]."""
    whole = meant_by(blocks, kind, rows, (1, 0)).reshape(rows, -1, 32)
    d = blocks[:, PLACES.get(kind, (0,))[0] :][:, :2].copy().view("<f2").astype(np.float32)
    d = np.repeat(d.reshape(rows, -1), 8 if kind in K_SUPER else 1, axis=1)
    least = np.zeros_like(d)
    if kind in (KIND.Q4_1, KIND.Q5_1):
        least = blocks[:, 2:4].copy().view("<f2").astype(np.float32).reshape(rows, -1)
    if kind in (KIND.Q4_K, KIND.Q5_K):
        ones = {"from_16_144": 0x11} if kind == KIND.Q4_K else {"from_16_48": 0, "from_48_176": 0x11}
        six = meant_by(blocks, kind, rows, (1, 0), **ones).reshape(rows, -1, 32)[:, :, 0]
        whole = np.divide(whole, six[..., None], out=np.zeros_like(whole), where=six[..., None] != 0)
        d = d * six.astype(np.float32)
        d_least = np.repeat(blocks[:, 2:4].copy().view("<f2").astype(np.float32).reshape(rows, -1), 8, axis=1)
        least = meant_by(blocks, kind, rows, (0, 1)).reshape(rows, -1, 32)[:, :, 0].astype(np.float32) * d_least
    assert (whole == np.rint(whole)).all()
    return whole.astype(np.int64), d, least


def fused(x: Array, y: Array, z: Array) -> Array:
    if not vectors.FUSED:
        return x * y + z
    return (x.astype(np.longdouble) * y + z).astype(np.float32)


def expected(blocks: Array, kind: Any, rows: int, x: Array) -> Array:
    """y [m, rows], float32, in the documented order."""
    whole, scales, least = taken_apart(blocks, kind, rows)
    q, d, s = parts_of(x, 32 * whole.shape[1])
    found = np.empty((len(x), rows), np.float32)
    for t in range(len(x)):
        lanes = (whole * q[t]).reshape(rows, -1, 8, 4).sum(-1).astype(np.float32)
        sums = np.zeros((rows, 8), np.float32)
        for first in range(0, whole.shape[1], 8):
            last = min(first + 8, whole.shape[1])
            for n in range(first, last):
                sums = fused(lanes[:, n], (scales[:, n] * d[t, n])[:, None], sums)
            if kind in MINIMA:
                minima, totals = np.zeros((rows, 8), np.float32), np.zeros(8, np.float32)
                minima[:, : last - first], totals[: last - first] = least[:, first:last], s[t, first:last]
                sums = fused(minima, totals, sums)
        for half in (4, 2, 1):
            sums = sums[:, :half] + sums[:, half : 2 * half]
        found[t] = sums[:, 0]
    return found


def products(kind: Any, path: int, columns: int, *, x: Array | None = None) -> tuple[list[Array], Array]:
    """What the kernels say for 1, 2, … tokens, and what is expected of all."""
    dice = np.random.default_rng(int(kind) + columns)
    blocks = blocks_of(kind, ROWS, columns, dice)
    given = rounded(inputs(dice, int8.MOST_INT8_TOKENS, columns) if x is None else x)
    row_bytes, found = blocks.size // ROWS, []
    for m in range(1, int8.MOST_INT8_TOKENS + 1):
        y = np.full((m, ROWS + 1), np.nan, np.float32)
        address = int8.kernel_of(int(kind), path).address
        count = len(blocks) // ROWS
        held, texts = blocks.ctypes.data, given.ctypes.data
        _call(address, m, held, row_bytes, texts, given.shape[1], y.ctypes.data, ROWS + 1, 0, ROWS, count)
        assert np.isnan(y[:, ROWS]).all()
        found.append(y[:, :ROWS])
    return found, expected(blocks, kind, ROWS, given)


def check(kind: Any, path: int) -> None:
    for columns in (256, 512) if kind in K_SUPER else (32, 256, 576, 416):
        found, meant = products(kind, path, columns)
        for y in found:
            np.testing.assert_array_equal(y.view(np.int32), meant[: len(y)].view(np.int32))


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.large] * (kind in (KIND.Q4_0, KIND.Q5_1, KIND.Q5_K))) for kind in ALL],
    ids=lambda kind: kind.name,
)
def test_sums_are_those_of_whole_numbers_for_any_number_of_tokens(kind: Any) -> None:
    check(kind, PATHS[0])


@pytest.mark.large
@pytest.mark.parametrize("path", list(PATHS[1:]) or [PORTABLE])
@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_other_instructions_change_no_bit(kind: Any, path: int) -> None:
    check(kind, path)


def test_an_input_that_is_no_number_makes_no_number() -> None:
    x = np.ones((int8.MOST_INT8_TOKENS, 64), np.float32)
    x[1, 40], x[2, 3] = np.nan, np.inf
    found, _ = products(KIND.Q8_0, PATHS[0], 64, x=x)
    assert np.isnan(found[2][1:]).all() and np.isfinite(found[2][0]).all()


@pytest.mark.parametrize("fault", ["weight", "order", "scale"])
def test_a_planted_fault_is_seen(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = taken_apart

    def wrong(blocks: Array, kind: Any, rows: int) -> tuple[Array, Array, Array]:
        q, d, least = (part.copy() for part in whole(blocks, kind, rows))
        if fault == "weight":
            q[0, 0, 0] += 1
        elif fault == "scale":
            d[:, 0] = np.nextafter(d[:, 0], np.float32(1))
        else:
            q, d, least = q[:, ::-1], d[:, ::-1], least[:, ::-1]
        return q, d, least

    monkeypatch.setitem(globals(), "taken_apart", wrong)
    with pytest.raises(AssertionError):
        check(KIND.Q4_1, PATHS[0])
