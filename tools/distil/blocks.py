"""Quantize weights to the blocks of GGUF files, each block with the scales that lose least.

Layouts are ggml's (`ggml-common.h`); the search follows its `make_qx_quants` and `make_qkx2_quants`: start from several
ranges, round, and take the scale (and minimum) that least squares give for the rounded numbers. Errors are weighted
with the importance of each column, the mean square of what it is multiplied with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_RANGES = np.linspace(0.80, 1.10, 13)
"""Parts of a block's range that are tried: what lies beyond is clipped."""
_SUPER = 256
_AT_ONCE = 1 << 16  # weights, whose arrays stay near the processor


class _Fitted(NamedTuple):
    """Of n blocks: x ≈ scale · q + minimum, q [n, k] whole numbers, scale and minimum [n], weighted error [n]."""

    scale: Array
    minimum: Array
    q: Array
    error: Array


def quantize(form: str, weights: Array, importance: Array | None = None) -> Array:
    """uint8 [rows, bytes of a row] for float32 weights [rows, columns]; `importance` [columns] is above 0.

    `form` is one of `FORMS`; ValueError where the columns are no multiple of its block.
    """
    rows, columns = weights.shape
    block = FORMS[form].block
    if columns % block:
        raise ValueError(f"{form} has blocks of {block}, and the rows have {columns} columns")
    given = np.ones(columns, np.float32) if importance is None else importance
    weighted = np.broadcast_to(given.astype(np.float32), weights.shape).reshape(-1, block)
    blocks = weights.astype(np.float32).reshape(-1, block)
    cuts = [slice(begin, begin + _AT_ONCE // block) for begin in range(0, len(blocks), _AT_ONCE // block)]
    return np.concatenate([FORMS[form].pack(blocks[cut], weighted[cut]) for cut in cuts]).reshape(rows, -1)


def _half(x: Array) -> Array:
    """Rounded to float16, as float32."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def _over(x: Array, d: Array) -> Array:
    """x / d by rows, 0 where d is."""
    return np.divide(x, d[:, None], out=np.zeros_like(x), where=d[:, None] != 0)


def _by_scale(x: Array, w: Array, low: int, high: int, kept: Callable[[Array], Array] = _half) -> _Fitted:
    """Least x − d·q for q from low to high; `kept` is d as it is stored."""
    peak = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)[:, 0]
    best = _Fitted(np.zeros(len(x), np.float32), np.zeros(len(x), np.float32), np.zeros_like(x), (w * x * x).sum(1))
    for end in (low, high) if low and low != -high else (high,):
        for part in _RANGES:
            d = peak * np.float32(part) / end
            for _ in range(2):
                q = np.rint(_over(x, d)).clip(low, high)
                square = (w * q * q).sum(1)
                d = kept(np.divide((w * x * q).sum(1), square, out=np.zeros_like(square), where=square > 0))
            best = _better(best, x, w, d, np.zeros_like(d), low, high)
    return best


def _by_scale_and_minimum(
    x: Array, w: Array, top: int, below: bool = False, kept: Callable[[Array], Array] = _half
) -> _Fitted:
    """Least x − (d·q + m) for q from 0 to top; `below`: m is not above 0, as K blocks have it."""
    low, high = x.min(1), x.max(1)
    if below:
        low = np.minimum(low, 0)
    best = _Fitted(np.zeros(len(x), np.float32), np.zeros(len(x), np.float32), np.zeros_like(x), (w * x * x).sum(1))
    total, first = w.sum(1), (w * x).sum(1)
    for part in _RANGES:
        m = (low + high) / 2 - np.float32(part) * (high - low) / 2
        m = np.minimum(m, 0) if below else m
        d = np.float32(part) * (high - low) / top
        for _ in range(3):
            q = np.rint(_over(x - m[:, None], d)).clip(0, top)
            wq = w * q
            one, two, both = wq.sum(1), (wq * q).sum(1), (wq * x).sum(1)
            whole = total * two - one * one
            there = whole > 0
            m = np.divide(two * first - one * both, whole, out=m.copy(), where=there)
            d = np.divide(total * both - one * first, whole, out=d.copy(), where=there)
            if below:
                over = m > 0
                m = np.where(over, 0, m)
                d = np.where(over, np.divide(both, two, out=d.copy(), where=two > 0), d)
        best = _better(best, x, w, kept(d), kept(m), 0, top)
    return best


def _better(best: _Fitted, x: Array, w: Array, d: Array, m: Array, low: int, high: int) -> _Fitted:
    q = np.rint(_over(x - m[:, None], d)).clip(low, high)
    error = (w * (x - (d[:, None] * q + m[:, None])) ** 2).sum(1)
    won = error < best.error
    return _Fitted(
        np.where(won, d, best.scale),
        np.where(won, m, best.minimum),
        np.where(won[:, None], q, best.q),
        np.where(won, error, best.error),
    )


def _bytes_of_halves(*values: Array) -> Array:
    return np.stack(values, 1).astype("<f2").view(np.uint8)


def _nibbles(q: Array) -> Array:
    """uint8 [n, k / 2]: the first half of each row in the low bits, the second in the high ones."""
    low, high = np.split(q.astype(np.uint8) & 15, 2, axis=1)
    return low | (high << 4)


def _fifth_bits(q: Array) -> Array:
    return np.packbits(q.astype(np.uint8) >> 4, axis=1, bitorder="little")


def _q8_0(x: Array, w: Array) -> Array:
    found = _by_scale(x, w, -127, 127)
    return np.concatenate([_bytes_of_halves(found.scale), found.q.astype(np.int8).view(np.uint8)], 1)


def _q4_0(x: Array, w: Array) -> Array:
    found = _by_scale(x, w, -8, 7)
    return np.concatenate([_bytes_of_halves(found.scale), _nibbles(found.q + 8)], 1)


def _q5_0(x: Array, w: Array) -> Array:
    found = _by_scale(x, w, -16, 15)
    q = found.q + 16
    return np.concatenate([_bytes_of_halves(found.scale), _fifth_bits(q), _nibbles(q)], 1)


def _q4_1(x: Array, w: Array) -> Array:
    found = _by_scale_and_minimum(x, w, 15)
    return np.concatenate([_bytes_of_halves(found.scale, found.minimum), _nibbles(found.q)], 1)


def _q5_1(x: Array, w: Array) -> Array:
    found = _by_scale_and_minimum(x, w, 31)
    halves = _bytes_of_halves(found.scale, found.minimum)
    return np.concatenate([halves, _fifth_bits(found.q), _nibbles(found.q)], 1)


def _in_steps(values: Array, w: Array, top: int) -> tuple[Array, Array]:
    """Sub-blocks' scales [n, parts] ≥ 0 as d · s, s whole from 0 to top: d [n] of float16, and s."""
    found = _by_scale(values, w, 0, top)
    return found.scale, found.q


def _of_eight(x: Array, w: Array, top: int) -> tuple[Array, Array, Array, Array, Array]:
    """d, dmin, scales and mins [n, 8] of 6 bits, q [n, 256]: of Q4_K and Q5_K."""
    parts, weights = x.reshape(-1, 32), w.reshape(-1, 32)
    found = _by_scale_and_minimum(parts, weights, top, below=True, kept=lambda values: values)
    whole = weights.sum(1).reshape(-1, 8)
    d, scales = _in_steps(found.scale.reshape(-1, 8), whole, 63)
    dmin, mins = _in_steps(-found.minimum.reshape(-1, 8), whole, 63)
    # The minima once more, for scales as they are stored; then the numbers.
    step, m = (d[:, None] * scales).reshape(-1), (dmin[:, None] * mins).reshape(-1)
    q = np.rint(_over(parts + m[:, None], step)).clip(0, top)
    wanted = (weights * (step[:, None] * q - parts)).sum(1) / weights.sum(1)
    dmin, mins = _in_steps(np.maximum(wanted, 0).reshape(-1, 8), whole, 63)
    m = (dmin[:, None] * mins).reshape(-1)
    q = np.rint(_over(parts + m[:, None], step)).clip(0, top)
    return d, dmin, scales, mins, q.reshape(-1, _SUPER)


def _of_six_bits(scales: Array, mins: Array) -> Array:
    """uint8 [n, 12]: eight scales and eight mins, as `get_scale_min_k4` reads them."""
    s, m = scales.astype(np.uint8), mins.astype(np.uint8)
    top = np.concatenate([s[:, :4] | (s[:, 4:] >> 4 << 6), m[:, :4] | (m[:, 4:] >> 4 << 6)], 1)
    return np.concatenate([top, (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4], 1)


def _q4_k(x: Array, w: Array) -> Array:
    d, dmin, scales, mins, q = _of_eight(x, w, 15)
    numbers = _nibbles(q.reshape(-1, 64)).reshape(-1, 128)
    return np.concatenate([_bytes_of_halves(d, dmin), _of_six_bits(scales, mins), numbers], 1)


def _q5_k(x: Array, w: Array) -> Array:
    d, dmin, scales, mins, q = _of_eight(x, w, 31)
    fifth = np.packbits(q.reshape(-1, 8, 32).astype(np.uint8) >> 4, axis=1, bitorder="little").reshape(-1, 32)
    numbers = _nibbles(q.reshape(-1, 64)).reshape(-1, 128)
    return np.concatenate([_bytes_of_halves(d, dmin), _of_six_bits(scales, mins), fifth, numbers], 1)


def _q6_k(x: Array, w: Array) -> Array:
    parts, weights = x.reshape(-1, 16), w.reshape(-1, 16)
    found = _by_scale(parts, weights, -32, 31, kept=lambda values: values)
    whole = _by_scale(found.scale.reshape(-1, 16), weights.sum(1).reshape(-1, 16), -128, 127)
    step = (whole.scale[:, None] * whole.q).reshape(-1)
    q = np.rint(_over(parts, step)).clip(-32, 31) + 32
    halves = q.astype(np.uint8).reshape(-1, 2, 4, 32)  # half of the block, which 32 of it
    low = (halves[:, :, :2] & 15) | (halves[:, :, 2:] & 15) << 4
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    high = np.bitwise_or.reduce(halves >> 4 << shifts, axis=2)
    scales = whole.q.astype(np.int8).view(np.uint8)
    return np.concatenate([low.reshape(-1, 128), high.reshape(-1, 64), scales, _bytes_of_halves(whole.scale)], 1)


class Form(NamedTuple):
    """`block`: weights that share a scale; `pack`: uint8 [n, bytes] of n blocks and their weights' importance."""

    block: int
    pack: Callable[[Array, Array], Array]


FORMS = {
    "Q4_0": Form(32, _q4_0),
    "Q4_1": Form(32, _q4_1),
    "Q5_0": Form(32, _q5_0),
    "Q5_1": Form(32, _q5_1),
    "Q8_0": Form(32, _q8_0),
    "Q4_K": Form(_SUPER, _q4_k),
    "Q5_K": Form(_SUPER, _q5_k),
    "Q6_K": Form(_SUPER, _q6_k),
}
