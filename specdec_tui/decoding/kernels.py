"""Distributions over a vocabulary as compiled CPU functions (numba): what the softmax and the draws need.

A row of logits is read twice at most, and nothing as long as it is written. `scaled` means
(logit − best logit) / temperature in float32, as `Sampler` has it, and a weight is its exponential, so that the best
token weighs 1; a weight below e^−87 is 0. Sums are in float64.

This module, and `kept_kernels`, is imported where it is used: numba is a native library, which may be missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from specdec_tui.backends.lean.compiled import keep_compiled

Array = npt.NDArray[Any]

# Sums may be reordered, which is what vectorizing them is.
SUM = {"reassoc", "contract", "nsz"}
PIECE = 1024  # ids of a partial sum
BLOCK = 128  # ids of which the best logit is kept
LEAST = np.float32(-87)
_NOTHING = np.float32(np.nan)
_ROUND, _ROUNDED = np.float32(12582912), np.int32(0x4B400000)  # 3 · 2^22, and its bits
# Of logits as whole numbers in the same order: those of the infinities.
_INFINITE, _NEVER = np.int32(0x7F800000), np.int32(-0x7F800001)


@njit(fastmath={"contract"})
def exp(x: Any) -> Any:
    """e^x for x <= 0, to about one unit in the last place; vectorizes. The polynomial is off by 2e-9 at most."""
    y = max(x, LEAST)
    turns = y * np.float32(1.44269504) + _ROUND  # the whole number is in its last bits
    n = turns - _ROUND
    r = y - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(0.00138368398)
    p = p * r + np.float32(0.00837481561)
    p = p * r + np.float32(0.0416682261)
    p = p * r + np.float32(0.166664198)
    p = p * r + np.float32(0.499999907)
    p = p * r + np.float32(1)
    p = p * r + np.float32(1)
    exponent = np.int32(np.float32(turns).view(np.int32) - _ROUNDED + np.int32(127))
    power = np.int32(exponent << np.int32(23)).view(np.float32)
    return p * power if x > LEAST else np.float32(0)


@njit
def _ordered(bits: Any) -> Any:
    """Whole numbers in the order of the float32 numbers of these bits, and back."""
    return np.int32(bits ^ np.int32(np.int32(bits >> np.int32(31)) & np.int32(0x7FFFFFFF)))


@njit
def _best_of(bits: Array, count: int) -> tuple[Any, Any]:
    best, worst = np.int32(-0x80000000), np.int32(0x7FFFFFFF)
    for i in range(count):
        key = _ordered(bits[i])
        best, worst = np.int32(max(best, key)), np.int32(min(worst, key))
    return best, worst


@njit
def peaks_of(logits: Array, peaks: Array) -> Any:
    """The best logit, and that of each block; NaN where some are no numbers or infinite, or all are −∞."""
    bits = logits.view(np.int32)
    best, worst = np.int32(-0x80000000), np.int32(0x7FFFFFFF)
    for block in range(len(peaks)):
        part = bits[block * BLOCK : block * BLOCK + BLOCK]
        high, low = _best_of(part, BLOCK) if len(part) == BLOCK else _best_of(part, len(part))
        peaks[block] = np.int32(_ordered(high)).view(np.float32)
        best, worst = np.int32(max(best, high)), np.int32(min(worst, low))
    return np.int32(_ordered(best)).view(np.float32) if worst >= _NEVER and _NEVER < best < _INFINITE else _NOTHING


@njit(fastmath=SUM)
def sum_of(weights: Array) -> float:
    total = 0.0
    for i in range(len(weights)):
        total += np.float64(weights[i])
    return total


@njit(fastmath={"contract"})
def weights_of(logits: Array, best: Any, inverse: Any, weights: Array) -> Array:
    """The weights of logits, in memory that is large enough. (Added up in the same loop they take twice as long.)"""
    for i in range(len(logits)):
        weights[i] = exp((logits[i] - best) * inverse)
    return weights[: len(logits)]


@njit
def inverse_of(temperature: Any) -> Any:
    return np.float32(1) / temperature


@njit(nogil=True)
def weigh(logits: Array, temperature: Any, sums: Array) -> tuple[float, float]:
    """The best of logits float32 [V], and the sum of all weights; of each `PIECE` ids that sum goes into `sums`.

    The best is NaN where the softmax is none.
    """
    peaks = np.empty((len(logits) + BLOCK - 1) // BLOCK, np.float32)
    best, inverse, memory = peaks_of(logits, peaks), inverse_of(temperature), np.empty(PIECE, np.float32)
    if best != best:
        return np.float64(best), 0.0
    total = 0.0
    for piece in range(len(sums)):
        begin = piece * PIECE
        sums[piece] = sum_of(weights_of(logits[begin : begin + PIECE], best, inverse, memory))
        total += sums[piece]
    return np.float64(best), total


@njit
def _piece_at(sums: Array, place: float) -> tuple[int, float]:
    """The first piece at whose end the running sum reaches `place`, and the sum before it."""
    before, last, before_last = 0.0, 0, 0.0
    for piece in range(len(sums)):
        if sums[piece] > 0:
            if before + sums[piece] >= place:
                return piece, before
            last, before_last = piece, before
        before += sums[piece]
    return last, before_last  # what rounding leaves behind the last


@njit
def _place_at(weights: Array, before: float, place: float) -> int:
    """The first index at which the running sum reaches `place`; never one of weight zero."""
    last = 0
    for i in range(len(weights)):
        if weights[i] > 0:
            before += weights[i]
            last = i
            if before >= place:
                break
    return last


@njit(nogil=True)
def draw(weights: Array, uniform: float) -> int:
    """An index drawn in proportion to weights [n] by inverting their running sum; −1 where none is above 0."""
    total = 0.0
    for i in range(len(weights)):
        total += np.float64(weights[i])
    return _place_at(weights, 0.0, total * (1.0 - uniform)) if total > 0 else -1


@njit(nogil=True)
def draw_whole(logits: Array, best: float, temperature: Any, sums: Array, uniform: float, without: int) -> int:
    """An id drawn by its weight, see `weigh`, of all but `without` (−1: of all); −1 where no other id has one."""
    top, inverse, memory = np.float32(best), inverse_of(temperature), np.empty(PIECE, np.float32)
    sums = sums.copy()
    if without >= 0:
        begin = without // PIECE * PIECE
        weights = weights_of(logits[begin : begin + PIECE], top, inverse, memory)
        weights[without - begin] = 0
        sums[without // PIECE] = sum_of(weights)
    total = sums.sum()
    if not total > 0:
        return -1
    place = total * (1.0 - uniform)
    piece, before = _piece_at(sums, place)
    begin = piece * PIECE
    weights = weights_of(logits[begin : begin + PIECE], top, inverse, memory)
    if begin <= without < begin + PIECE:
        weights[without - begin] = 0
    return begin + _place_at(weights, before, place)


@njit
def _rest(p: Array, q: Array, best: Any, other: Any, inverse: Any, a: Any, b: Any, rest: Array) -> Array:
    # Not contracted: of two that are the same nothing is left.
    for i in range(len(p)):
        rest[i] = max(exp((p[i] - best) * inverse) * a - exp((q[i] - other) * inverse) * b, np.float32(0))
    return rest[: len(p)]


@njit(nogil=True)
def rest_of_wholes(
    p: Array, p_best: float, p_share: float, q: Array, q_best: float, q_share: float, temperature: Any, uniform: float
) -> tuple[float, int]:
    """Of max(0, p_share · p's weights − q_share · q's): the sum, and an id drawn from it (−1: the sum is 0).

    p and q are logits float32 [V]; a negative `uniform` asks for the sum alone.
    """
    inverse, a, b = inverse_of(temperature), np.float32(p_share), np.float32(q_share)
    best, other, memory = np.float32(p_best), np.float32(q_best), np.empty(PIECE, np.float32)
    sums = np.empty((len(p) + PIECE - 1) // PIECE)
    for piece in range(len(sums)):
        begin, end = piece * PIECE, (piece + 1) * PIECE
        sums[piece] = sum_of(_rest(p[begin:end], q[begin:end], best, other, inverse, a, b, memory))
    total = sums.sum()
    if not total > 0 or uniform < 0:
        return total, -1
    place = total * (1.0 - uniform)
    piece, before = _piece_at(sums, place)
    begin, end = piece * PIECE, (piece + 1) * PIECE
    rest = _rest(p[begin:end], q[begin:end], best, other, inverse, a, b, memory)
    return total, begin + _place_at(rest, before, place)


@njit(nogil=True)
def rest_of_few(ids: Array, p: Array, other_ids: Array, q: Array, weight: float) -> Array:
    """max(0, weight · p − q) at the ids of p; both lists of ids are ascending."""
    rest = np.empty(len(ids), np.float32)
    share, j = np.float32(weight), 0
    for i in range(len(ids)):
        while j < len(other_ids) and other_ids[j] < ids[i]:
            j += 1
        taken = q[j] if j < len(other_ids) and other_ids[j] == ids[i] else np.float32(0)
        rest[i] = max(share * p[i] - taken, np.float32(0))
    return rest


@njit(fastmath=SUM)
def _surprise_of(logits: Array, best: Any, inverse: Any, weights: Array) -> float:
    """Σ weight · scaled; what weighs nothing counts nothing."""
    total = 0.0
    for i in range(len(weights)):
        total += np.float64(weights[i] * max((logits[i] - best) * inverse, LEAST))
    return total


@njit
def _highest(logits: Array, peaks: Array, ids: Array, values: Array) -> int:
    """Ids and logits of the highest, best first and of equal ones the lowest id first; how many there are."""
    count = 0
    for block in range(len(peaks)):
        if count == len(ids) and not peaks[block] > values[count - 1]:
            continue
        for token in range(block * BLOCK, min((block + 1) * BLOCK, len(logits))):
            value = logits[token]
            if count == len(ids):
                if not value > values[count - 1]:
                    continue
            else:
                count += 1
            at = count - 1
            while at > 0 and value > values[at - 1]:
                ids[at], values[at] = ids[at - 1], values[at - 1]
                at -= 1
            ids[at], values[at] = token, value
    return count


@njit(nogil=True)
def survey(logits: Array, temperature: Any, ids: Array, weights: Array) -> tuple[float, float, float, int]:
    """The best of logits float32 [V], the sum of all weights, the entropy in nats, and how many ids are filled in.

    `ids` int64 [n] and `weights` float32 [n]: those of the highest weights, best first, of equal logits the lowest id
    first. The best is NaN where the softmax is none.
    """
    peaks = np.empty((len(logits) + BLOCK - 1) // BLOCK, np.float32)
    best, inverse, memory = peaks_of(logits, peaks), inverse_of(temperature), np.empty(PIECE, np.float32)
    if best != best:
        return np.float64(best), 0.0, 0.0, 0
    total, surprise = 0.0, 0.0
    for begin in range(0, len(logits), PIECE):
        piece = logits[begin : begin + PIECE]
        own = weights_of(piece, best, inverse, memory)
        total += sum_of(own)
        surprise += _surprise_of(piece, best, inverse, own)
    count = _highest(logits, peaks, ids, weights)
    for i in range(count):
        weights[i] = exp((weights[i] - best) * inverse)
    return np.float64(best), total, np.log(total) - surprise / total, count


for _function in (weigh, draw, draw_whole, rest_of_wholes, rest_of_few, survey):
    keep_compiled(_function)
