"""A whole decoder pass over a few tokens as one compiled CPU function (numba).

Decoding at batch size 1 is a race against memory: every weight is read once per pass, whether the
pass holds one token or a block of drafts. What lies between that and a model of tensor operations
is the overhead of a thousand small calls, products that use one thread for one token, and
products that lay the weights out anew for five. Here a row of weights is read once and multiplied
with all tokens of the block while it is in the first-level cache, on all threads, and the
interpreter lock is free from the first layer to the logits, so that nobody waits for anybody.

Sums are in float32. Weights are float32, or the upper halves of float32 numbers (bfloat16 bits).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

Array = npt.NDArray[Any]

# Sums may be reordered (that is what vectorizing is), but NaN and infinity keep their meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}


def builds(code: Any) -> Any:
    """An operation whose machine code is built by `code`; of no static type."""
    return intrinsic(code)


def most_threads() -> int:
    """Threads that `decoder_pass` can be given."""
    return int(get_num_threads())


@builds
def _widened(typing_context: Any, value: Any) -> Any:
    """A float32 as it is; 16 bits of a bfloat16 as the float32 they are the upper half of."""

    def same(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return arguments[0]

    def upper_half(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = builder.shl(builder.zext(arguments[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(word, ir.FloatType())

    return types.float32(value), (same if value == types.float32 else upper_half)


@builds
def _power_of_two(typing_context: Any, exponent: Any) -> Any:
    """2^exponent as float32, for int32 exponents from -126 to 127."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        biased = builder.add(arguments[0], ir.Constant(word, 127))
        return builder.bitcast(builder.shl(biased, ir.Constant(word, 23)), ir.FloatType())

    return types.float32(types.int32), code


@builds
def _prefetch(typing_context: Any, array: Any, row: Any, column: Any) -> Any:
    """Ask for the cache line that holds array[row, column]; any address is allowed."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        held = context.make_array(kind)(context, builder, arguments[0])
        places = [
            context.cast(builder, a, t, types.intp) for a, t in zip(arguments[1:], signature.args[1:], strict=True)
        ]
        address = cgutils.get_item_pointer(context, builder, kind, held, places)
        word = ir.IntType(32)
        pointer = builder.bitcast(address, ir.PointerType(ir.IntType(8)))
        prefetch = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word]), "llvm.prefetch.p0"
        )
        builder.call(prefetch, [pointer] + [ir.Constant(word, n) for n in (0, 2, 1)])
        return context.get_dummy_value()

    return types.void(array, row, column), code


@njit(fastmath=_FAST, inline="always")
def _exp(x: Any) -> Any:
    """e^x to about one unit in the last place (the polynomial of Cephes' expf); vectorizes, unlike libm's."""
    x = min(max(x, np.float32(-87)), np.float32(88))
    turns = x * np.float32(1.44269504)
    n = np.int32(turns + (np.float32(0.5) if turns >= 0 else np.float32(-0.5)))
    f = np.float32(n)
    r = x - f * np.float32(0.693359375) + f * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    return (p * r * r + r + np.float32(1)) * _power_of_two(n)


# Two rows of weights with one to four tokens: each weight is widened once, each number of x is
# loaded once for two products, and there are sums enough to keep the multipliers busy.


@njit(fastmath=_FAST, inline="always")
def _one(v: Array, w: Array, x: Array, y: Array, t: int, r: int, n: int) -> None:
    a = b = np.float32(0)
    for j in range(n):
        x0 = x[t, j]
        a += _widened(v[j]) * x0
        b += _widened(w[j]) * x0
    y[t, r], y[t, r + 1] = a, b


@njit(fastmath=_FAST, inline="always")
def _two(v: Array, w: Array, x: Array, y: Array, t: int, r: int, n: int) -> None:
    a = b = c = d = np.float32(0)
    for j in range(n):
        p, q = _widened(v[j]), _widened(w[j])
        x0, x1 = x[t, j], x[t + 1, j]
        a += p * x0
        b += q * x0
        c += p * x1
        d += q * x1
    y[t, r], y[t, r + 1] = a, b
    y[t + 1, r], y[t + 1, r + 1] = c, d


@njit(fastmath=_FAST, inline="always")
def _three(v: Array, w: Array, x: Array, y: Array, t: int, r: int, n: int) -> None:
    a = b = c = d = e = f = np.float32(0)
    for j in range(n):
        p, q = _widened(v[j]), _widened(w[j])
        x0, x1, x2 = x[t, j], x[t + 1, j], x[t + 2, j]
        a += p * x0
        b += q * x0
        c += p * x1
        d += q * x1
        e += p * x2
        f += q * x2
    y[t, r], y[t, r + 1] = a, b
    y[t + 1, r], y[t + 1, r + 1] = c, d
    y[t + 2, r], y[t + 2, r + 1] = e, f


@njit(fastmath=_FAST, inline="always")
def _four(v: Array, w: Array, x: Array, y: Array, t: int, r: int, n: int) -> None:
    a = b = c = d = e = f = g = h = np.float32(0)
    for j in range(n):
        p, q = _widened(v[j]), _widened(w[j])
        x0, x1, x2, x3 = x[t, j], x[t + 1, j], x[t + 2, j], x[t + 3, j]
        a += p * x0
        b += q * x0
        c += p * x1
        d += q * x1
        e += p * x2
        f += q * x2
        g += p * x3
        h += q * x3
    y[t, r], y[t, r + 1] = a, b
    y[t + 1, r], y[t + 1, r + 1] = c, d
    y[t + 2, r], y[t + 2, r + 1] = e, f
    y[t + 3, r], y[t + 3, r + 1] = g, h


@njit(fastmath=_FAST)
def _product(w: Array, x: Array, y: Array, n: int, begin: int, end: int) -> None:
    """y[:, r] = x[:, :n] @ w[r, :n] for the rows of the pairs begin…end−1 (row 2 · pair and the next)."""
    m = x.shape[0]
    line = 64 // w.itemsize
    # Far enough for the memory to answer in time, near enough to stay in the second-level cache.
    ahead = 2 * max(1, 2304 // (w.itemsize * n))
    for pair in range(begin, end):
        r = 2 * pair
        first, second = w[r], w[r + 1]
        for j in range(0, n, line):
            _prefetch(w, r + ahead, j)
            if m <= 4:
                _prefetch(w, r + ahead + 1, j)
        t = 0
        while t < m:
            left = m - t
            if t and left <= 4:  # the other half of what comes next, so that it does not come in a burst
                for j in range(0, n, line):
                    _prefetch(w, r + ahead + 1, j)
            if left == 1:
                _one(first, second, x, y, t, r, n)
                t += 1
            elif left == 2 or left == 5:
                _two(first, second, x, y, t, r, n)
                t += 2
            elif left == 3 or left == 6:
                _three(first, second, x, y, t, r, n)
                t += 3
            else:
                _four(first, second, x, y, t, r, n)
                t += 4


@njit(fastmath=_FAST)
def _share(w: Array, x: Array, y: Array, part: int, parts: int) -> None:
    """y = x @ w.T for one of `parts` shares of the rows of w (an even number)."""
    pairs = w.shape[0] // 2
    _product(w, x, y, w.shape[1], pairs * part // parts, pairs * (part + 1) // parts)


@njit(fastmath=_FAST)
def _rms_norm(x: Array, weight: Array, epsilon: float, y: Array) -> None:
    n = x.shape[1]
    for t in range(x.shape[0]):
        total = np.float32(0)
        for j in range(n):
            total += x[t, j] * x[t, j]
        scale = np.float32(1) / np.sqrt(total / np.float32(n) + epsilon)
        for j in range(n):
            y[t, j] = x[t, j] * scale * weight[j]


@njit(fastmath=_FAST)
def _add(x: Array, y: Array) -> None:
    for t in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[t, j] += y[t, j]


@njit(fastmath=_FAST)
def _rotate(y: Array, cosines: Array, sines: Array, heads: int, width: int, begin: int) -> None:
    half = width // 2
    for t in range(y.shape[0]):
        for h in range(heads):
            first = h * width
            for i in range(half):
                a = y[t, first + i]
                b = y[t, first + half + i]
                c = cosines[begin + t, i]
                s = sines[begin + t, i]
                y[t, first + i] = a * c - b * s
                y[t, first + half + i] = b * c + a * s


@njit(fastmath=_FAST)
def _attend(queries: Array, keys: Array, values: Array, weights: Array, mixed: Array, begin: int, scale: float) -> None:
    """One query head of the tokens at `begin` and after it: queries and mixed [m, width].

    keys [capacity, width], values [width, capacity], weights [m, capacity] is scratch. Both
    products are the same as with a matrix of weights.
    """
    m, width = queries.shape
    end = begin + m
    _product(keys, queries, weights, width, 0, (end + 1) // 2)
    for t in range(m):
        held = begin + t + 1
        row = weights[t]
        highest = row[0]
        for i in range(held):
            highest = max(highest, row[i])
        total = np.float32(0)
        for i in range(held):
            row[i] = _exp((row[i] - highest) * scale)
            total += row[i]
        share = np.float32(1) / total
        for i in range(held):
            row[i] *= share
        for i in range(held, end):
            row[i] = np.float32(0)
    _product(values, weights, mixed, end, 0, width // 2)


class _Cache(FunctionCache):
    """Compiled code on disk that nothing depends on: what cannot be read is compiled again, and need not be kept."""

    def load_overload(self, *arguments: Any) -> Any:
        try:
            return super().load_overload(*arguments)
        except Exception:  # a damaged file: whatever unpickling makes of it
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *arguments: Any) -> None:
        with suppress(OSError):
            super().save_overload(*arguments)


@njit(parallel=True, nogil=True, fastmath=_FAST)
def decoder_pass(
    x: Array,
    qkv: Array,
    qkv_bias: Array,
    output: Array,
    gate_up: Array,
    down: Array,
    norms: Array,
    last_norm: Array,
    head: Array,
    keys: Array,
    values: Array,
    cosines: Array,
    sines: Array,
    begin: int,
    query_heads: int,
    epsilon: float,
    scale: float,
    threads: int,
    logits: Array,
) -> None:
    """Run m tokens at positions from `begin` on; the sizes of all matrices' rows are even.

    x [m, hidden] holds their embeddings and is overwritten. Weights, stacked by layer, float32 or
    uint16: qkv [layers, (heads + 2 · key heads) · width, hidden], output [layers, hidden, heads · width],
    gate_up [layers, 2 · inner, hidden], down [layers, hidden, inner], head [vocabulary, hidden]. float32:
    qkv_bias [layers, rows of qkv] or [0, 0], norms [layers, 2, hidden], last_norm [hidden], keys [layers, key
    heads, capacity, width] and values [layers, key heads, width, capacity] (written at begin…begin+m−1, the
    capacity even), cosines and sines [positions, width / 2], and the result, logits [keep, vocabulary] after
    each of the last `keep` tokens.
    """
    m, hidden = x.shape
    layers, key_heads, capacity, width = keys.shape
    wide = qkv.shape[1]
    inner = down.shape[2]
    per_key = query_heads // key_heads
    h = np.empty((m, hidden), np.float32)
    y = np.empty((m, wide), np.float32)
    mixed = np.empty((m, query_heads * width), np.float32)
    gate_and_up = np.empty((m, 2 * inner), np.float32)
    active = np.empty((m, inner), np.float32)
    query = np.empty((threads, m, width), np.float32)
    answer = np.empty((threads, m, width), np.float32)
    weights = np.empty((threads, m, capacity), np.float32)
    for layer in range(layers):
        _rms_norm(x, norms[layer, 0], epsilon, h)
        for p in prange(threads):
            _share(qkv[layer], h, y, p, threads)
        if qkv_bias.shape[0]:
            for t in range(m):
                for r in range(wide):
                    y[t, r] += qkv_bias[layer, r]
        _rotate(y, cosines, sines, query_heads + key_heads, width, begin)
        for t in range(m):
            for k in range(key_heads):
                for j in range(width):
                    keys[layer, k, begin + t, j] = y[t, (query_heads + k) * width + j]
                    values[layer, k, j, begin + t] = y[t, (query_heads + key_heads + k) * width + j]
        for p in prange(threads):
            for head_number in range(query_heads * p // threads, query_heads * (p + 1) // threads):
                k, first = head_number // per_key, head_number * width
                for t in range(m):
                    for j in range(width):
                        query[p, t, j] = y[t, first + j]
                _attend(query[p], keys[layer, k], values[layer, k], weights[p], answer[p], begin, scale)
                for t in range(m):
                    for j in range(width):
                        mixed[t, first + j] = answer[p, t, j]
        for p in prange(threads):
            _share(output[layer], mixed, h, p, threads)
        _add(x, h)
        _rms_norm(x, norms[layer, 1], epsilon, h)
        pairs = inner // 2
        for p in prange(threads):
            one, other = pairs * p // threads, pairs * (p + 1) // threads
            _product(gate_up[layer], h, gate_and_up, hidden, one, other)
            _product(gate_up[layer], h, gate_and_up, hidden, pairs + one, pairs + other)
            for t in range(m):
                for r in range(2 * one, 2 * other):
                    z = gate_and_up[t, r]
                    active[t, r] = z / (np.float32(1) + _exp(-z)) * gate_and_up[t, inner + r]
        for p in prange(threads):
            _share(down[layer], active, h, p, threads)
        _add(x, h)
    keep = logits.shape[0]
    tail = np.empty((keep, hidden), np.float32)
    _rms_norm(x[m - keep :], last_norm, epsilon, tail)
    for p in prange(threads):
        _share(head, tail, logits, p, threads)


def keep_compiled(function: Any) -> None:
    """Have the compiled code of a numba function on disk where there is a place for it."""
    with suppress(RuntimeError):  # nowhere to write
        function._cache = _Cache(function.py_func)


keep_compiled(decoder_pass)
