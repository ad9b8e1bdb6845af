"""What top-k, top-p, min-p and typical-p keep of a vocabulary, as a compiled CPU function (numba).

Words are those of `kernels`. No set is found by sorting a vocabulary: a bound below which nothing is kept comes from
the best logits of blocks of it, or from the mass above it, and among what lies above a histogram finds the edge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from specdec_tui.backends.lean.compiled import keep_compiled
from specdec_tui.decoding.kernels import BLOCK, LEAST, PIECE, SUM, exp, inverse_of, peaks_of, sum_of, weights_of

Array = npt.NDArray[Any]

_BINS = 256
_FEW = 32  # to be sorted plainly
_FAR = np.float32(-1e38)  # as good as −∞, and a number


@njit(fastmath=SUM)
def _moment(logits: Array, best: Any, inverse: Any, weights: Array) -> float:
    """The sum of weights times scaled logits."""
    total = 0.0
    for i in range(len(logits)):
        total += np.float64(weights[i]) * np.float64(max((logits[i] - best) * inverse, LEAST))
    return total


@njit
def _edge_of_few(keys: Array, weights: Array, count: int, running: float, target: float) -> Any:
    """As `_edge`, by sorting; the first `count` of both are put in order."""
    for i in range(1, count):
        key, weight, j = keys[i], weights[i], i
        while j > 0 and keys[j - 1] < key:
            keys[j], weights[j] = keys[j - 1], weights[j - 1]
            j -= 1
        keys[j], weights[j] = key, weight
    for i in range(count):
        running += weights[i]
        if running >= target:
            return keys[i]
    return keys[count - 1]


@njit
def _edge(keys: Array, weights: Array, count: int, target: float) -> Any:
    """The highest key such that what has it or a higher one weighs `target` in all; the least one where nothing does.

    Keys are finite float32, `count` (at least one) of them; weights float64. What lies in the interval of the edge is
    parted into ever finer ones.
    """
    running = 0.0
    left, left_weights, bins = np.empty(count, np.float32), np.empty(count), np.empty(_BINS)
    for i in range(count):
        left[i], left_weights[i] = keys[i], weights[i]
    while count > _FEW:
        high = low = left[0]
        for i in range(count):
            high, low = max(high, left[i]), min(low, left[i])
        if high == low:
            return low
        top, scale = np.float64(high), (_BINS - 0.5) / (np.float64(high) - np.float64(low))
        for i in range(_BINS):
            bins[i] = 0.0
        for i in range(count):
            bins[int((top - np.float64(left[i])) * scale)] += left_weights[i]
        chosen = 0
        while chosen < _BINS - 1 and running + bins[chosen] < target:
            running += bins[chosen]
            chosen += 1
        kept = 0
        for i in range(count):
            if int((top - np.float64(left[i])) * scale) == chosen:
                left[kept], left_weights[kept] = left[i], left_weights[i]
                kept += 1
        count = kept
    return _edge_of_few(left, left_weights, count, running, target)


@njit
def _scaled(logit: Any, best: Any, temperature: Any) -> Any:
    return (logit - best) / temperature


@njit
def _above(logits: Array, peaks: Array, best: Any, temperature: Any, cut: Any, values: Array, ids: Array) -> int:
    """All that is finite and scaled at least `cut`: its scaled values and ids, ascending; how many they are."""
    count = 0
    for block in range(len(peaks)):
        if _scaled(peaks[block], best, temperature) >= cut:
            for i in range(block * BLOCK, min(block * BLOCK + BLOCK, len(logits))):
                value = _scaled(logits[i], best, temperature)
                if value >= cut and value > -np.inf:
                    values[count], ids[count] = value, i
                    count += 1
    return count


@njit
def _bound_of_count(peaks: Array, best: Any, temperature: Any, top_k: int) -> Any:
    """A scaled value that the edge of top-k is not below: so many blocks have a token that is as good."""
    if top_k > len(peaks):
        return np.float32(-np.inf)
    found, weights = np.empty(len(peaks), np.float32), np.empty(len(peaks))
    for block in range(len(peaks)):
        weights[block] = 1.0
        found[block] = max(_scaled(peaks[block], best, temperature), _FAR)
    edge = _edge(found, weights, len(peaks), np.float64(top_k))
    return edge if edge > _FAR else np.float32(-np.inf)


@njit
def _holding(
    logits: Array,
    peaks: Array,
    best: Any,
    temperature: Any,
    highest: float,
    mass: float,
    total: float,
    values: Array,
    ids: Array,
) -> int:
    """As `_above`, by a cut of at most `highest`, of so many that they hold the share `mass` of `total`.

    At last by one that cannot leave out too much: all tokens that weigh less than an even share of what may be left
    out are no more than that together.
    """
    lowest = min(np.log((1.0 - mass) * total / len(logits)) - 1e-3, highest)
    cut = -2.0
    while True:
        cut = max(cut * 1.5, lowest)
        count = _above(logits, peaks, best, temperature, np.float32(min(cut, highest)), values, ids)
        if cut == lowest:
            return count
        held = 0.0
        for i in range(count):
            held += np.float64(exp(values[i]))
        if held > mass * total:
            return count


@njit
def _typical(ids: Array, chances: Array, count: int, entropy: Any, mass: float) -> int:
    """Of so many chances above 0 the typical ones, see `sampling.typical`, normalised again, at the front: how many."""
    keys, weights = np.empty(count, np.float32), np.empty(count)
    for i in range(count):
        keys[i] = -abs(-np.log(chances[i]) - entropy)
        weights[i] = chances[i]
    edge, total, kept = _edge(keys, weights, count, mass), 0.0, 0
    for i in range(count):
        if keys[i] >= edge:
            ids[kept], chances[kept] = ids[i], chances[i]
            total += weights[i]
            kept += 1
    for i in range(kept):
        chances[i] = np.float32(np.float64(chances[i]) / total)
    return kept


@njit(nogil=True)
def narrow(
    logits: Array,
    temperature: Any,
    top_k: int,
    top_p: float,
    least: Any,
    typical_p: float,
    values: Array,
    ids: Array,
) -> tuple[Array, Array]:
    """What a `Sampler` keeps of logits float32 [V]: ids int32 [n], ascending, and their probabilities float32 [n].

    `top_k` 0 and `top_p`, `typical_p` 1 keep everything, as does `least` −∞, the least scaled value that min-p
    keeps. Tokens whose weight rounds to 0 are left out. Nothing (n is 0) where the softmax is none. `values` float32
    and `ids` int32, [V] or more, are memory that is written.
    """
    width = len(logits)
    peaks = np.empty((width + BLOCK - 1) // BLOCK, np.float32)
    best, inverse, total, moment = peaks_of(logits, peaks), inverse_of(temperature), 0.0, 0.0
    if best != best:
        return np.empty(0, np.int32), np.empty(0, np.float32)
    is_first = top_k == 0 and top_p == 1.0 and least == -np.inf  # typical-p, of all tokens
    if is_first or (top_k == 0 and top_p < 1.0):
        memory = np.empty(PIECE, np.float32)
        for begin in range(0, width, PIECE):
            piece = logits[begin : begin + PIECE]
            weights_there = weights_of(piece, best, inverse, memory)
            total += sum_of(weights_there)
            if is_first:
                moment += _moment(piece, best, inverse, weights_there)
    if is_first:
        # Those above a cut have the mass, and none of them is further from the entropy than the best, or the cut: what
        # is below a cut that is further than the best is further than all of them.
        further = 2 * moment / total - 1e-2
        count = _holding(logits, peaks, best, temperature, further, typical_p, total, values, ids)
    elif top_k == 0 and top_p < 1.0:
        count = _holding(logits, peaks, best, temperature, 0.0, top_p, total, values, ids)
    else:
        cut = _bound_of_count(peaks, best, temperature, top_k) if top_k else least
        count = _above(logits, peaks, best, temperature, cut, values, ids)
    edge, weights = np.float32(-np.inf), np.empty(count)
    if 0 < top_k < count:
        for i in range(count):
            weights[i] = 1.0
        edge = _edge(values, weights, count, np.float64(top_k))
    kept = 0
    for i in range(count):
        if values[i] >= edge:
            values[kept], ids[kept] = values[i], ids[i]
            kept += 1
    held = 0.0
    for i in range(kept):
        weights[i] = exp(values[i])
        held += weights[i]
    if top_p < 1.0:
        edge = max(edge, _edge(values, weights, kept, top_p * (held if top_k else total)))
    edge = max(edge, least)
    if not is_first:
        total, moment = 0.0, 0.0
    count = 0
    for i in range(kept):
        if values[i] >= edge and weights[i] > 0:
            ids[count], weights[count] = ids[i], weights[i]
            if not is_first:
                total += weights[i]
                moment += weights[i] * values[i]
            count += 1
    for i in range(count):
        values[i] = np.float32(weights[i] / total)
    if typical_p < 1.0:
        count = _typical(ids, values, count, np.float32(np.log(total) - moment / total), typical_p)
    kept_ids, chances = np.empty(count, np.int32), np.empty(count, np.float32)
    for i in range(count):
        kept_ids[i], chances[i] = ids[i], values[i]
    return kept_ids, chances


keep_compiled(narrow)
