"""A whole decoder pass as one compiled CPU function: any number of tokens, weights in any of the formats.

Decoding at batch size 1 is a race against memory: every weight is read once per pass, whether the pass holds one
token or a block of drafts. Here a row of weights is read once, expanded in registers and multiplied with all tokens
of the block; for many tokens (a prompt) some rows are expanded into the second-level cache and used from there. The
interpreter lock is free from the first layer to the logits.

A pass is a line of stages (seven a layer): projections to queries, keys and values, head by head; attention; its
output; the norm behind; gate and up; down; the norm behind. Threads take the parts of a stage one by one, and whoever
finishes the last part opens the next stage; the norms of a few tokens it does alone. So nobody waits for a thread that
has no processor at the moment and holds no part, and any number of threads, one after another too, come to the same
end. Which thread computes what changes no bit: all sums have one order (`emit`, `attention`).

The tables that tell shapes and places (all made by `model`), in the names used here:
`sizes` int64: see the constants of its places; `numbers` float32: epsilon, scale of scores, cap of scores, cap of
logits, scale of what a layer adds, scale of logits; `matrices` int64 [layers, 7, 6] and `head` int64 [6]: address,
format (+ `INT8` where inputs are rounded), bytes of a row, blocks of a row, order, places of a row, of q, k, v, output,
gate, up, down; `kernels` int64 [format]: addresses of `products.kernel_of` and `int8.kernel_of`; `lengths` int64
[orders]: places, or −columns where rows are rounded (`int8`); `places` int32 [orders, longest column]: place by column;
`needs` int64 [2 · layers + 1, orders]: which orders a normed input is laid out in, −1 for no more; `facts` int64
[layers, 2]: window (0: none) and which rotations; `norms` float32 [layers, 4, hidden]: before attention, behind it,
before the MLP, behind it; `head_norms` float32 [layers, 2, width]; `bias` float32 [layers, rows].
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numba import get_num_threads, njit, prange, types

from specdec_tui.backends.lean.atomics import atomic_add, atomic_read, breathe
from specdec_tui.backends.lean.attention import CHUNK, TILE, activate
from specdec_tui.backends.lean.attention_parts import MOST_QUERIES, attend_chunk, put_together, room_of_attention
from specdec_tui.backends.lean.blocks import Array
from specdec_tui.backends.lean.compiled import F1, F2, F3, F4, F5, I1, I2, I3, INT, N2, apart, keep_compiled
from specdec_tui.backends.lean.layer_parts import (
    ACTIVATION,
    DOWN,
    EPSILON,
    GATE,
    HEADS,
    INNER,
    KEY_HEADS,
    LOGIT_CAP,
    LOGIT_SCALE,
    LONGEST,
    ORDER,
    OUTPUT,
    PARTS,
    SHORT,
    UP,
    WIDTH,
    aligned,
    behind,
    lay_out,
    norm,
    project_head,
    room_of_products,
    round_rows,
    times,
)
from specdec_tui.backends.lean.moves import spread

STAGES = 7
COUNTER = 24
"""int64 of a stage's counters, each on a cache line of its own: parts taken, parts done, whether the next may begin."""
_SPINS = 4000
_TOKENS_OF_TILE = 16

_yield: Any = types.ExternalFunction("sched_yield", types.int32()) if sys.platform != "win32" else None


def most_threads() -> int:
    """Threads that `decoder_pass` can be given."""
    return int(get_num_threads())


if _yield is None:

    @njit(nogil=True)
    def _let_others() -> None:
        breathe()

else:

    @njit(nogil=True)
    def _let_others() -> None:
        _yield()


@njit(nogil=True)
def _take(counters: Array, stage: int) -> int:
    return atomic_add(counters.ctypes.data + 8 * COUNTER * stage, 1)


@njit(nogil=True)
def _finished(counters: Array, stage: int, parts: int) -> bool:
    """Whether this was the last part."""
    return atomic_add(counters.ctypes.data + 8 * (COUNTER * stage + 8), 1) + 1 == parts


@njit(nogil=True)
def _open(counters: Array, stage: int) -> None:
    atomic_add(counters.ctypes.data + 8 * (COUNTER * stage + 16), 1)


@njit(nogil=True)
def _wait(counters: Array, stage: int) -> None:
    place = counters.ctypes.data + 8 * (COUNTER * stage + 16)
    spins = 0
    while atomic_read(place) == 0:
        breathe()
        spins += 1
        if spins > _SPINS:
            _let_others()


@njit(nogil=True)
def _norm_parts(
    counters: Array, stage: int, x: Array, branch: Array, layer: int, which: int, first: int, sizes: Array,
    numbers: Array, norms: Array, h: Array, inputs: Array, need: Array, lengths: Array, places: Array, kernels: Array,
) -> None:  # fmt: skip
    """A stage of its own where there are many tokens: `behind` and `lay_out`, some tokens at a time."""
    m = x.shape[0]
    parts = (m - first + _TOKENS_OF_TILE - 1) // _TOKENS_OF_TILE
    while True:
        part = _take(counters, stage)
        if part >= parts:
            break
        one = first + part * _TOKENS_OF_TILE
        last = min(m, one + _TOKENS_OF_TILE)
        behind(x[:last], branch[:last], layer, which, one, sizes, numbers, norms, h[:last], kernels)
        lay_out(h[:last], one, inputs, need, lengths, places, kernels)
        if _finished(counters, stage, parts):
            _open(counters, stage)
    _wait(counters, stage)


@apart(
    F2, INT, I1, F1, I3, I1, I1, I1, N2, I2, I2, F3, F3, F1, F2, F5, F4, F3, F3, F2, F2, F3, F2, F3, F3, F4, I1, F2,
    error_model="numpy",
)  # fmt: skip
def _work(
    x: Array, begin: int, sizes: Array, numbers: Array, matrices: Array, head: Array, kernels: Array, lengths: Array,
    places: Array, needs: Array, facts: Array, norms: Array, head_norms: Array, last_norm: Array,
    bias: Array, keys: Array, values: Array, cosines: Array, sines: Array, h: Array, branch: Array, inputs: Array,
    queries: Array, best: Array, total: Array, mixed: Array, counters: Array, logits: Array,
) -> None:  # fmt: skip
    """What each thread does: parts of the stages, as long as there are any."""
    m, hidden = x.shape
    layers, heads, key_heads, width, inner = (
        matrices.shape[0], sizes[HEADS], sizes[KEY_HEADS], sizes[WIDTH], sizes[INNER],
    )  # fmt: skip
    per_key = heads // key_heads
    longest = inputs.shape[2]
    chunks = (begin + m + CHUNK - 1) // CHUNK
    size = max(2 * longest, room_of_products(longest, m), room_of_attention(width, values.shape[3]))
    room = aligned(size)
    most = max(TILE, (inner // sizes[PARTS] + TILE - 1) // TILE * TILE)
    y = aligned(m * max(width, 2 * most))
    # Of a tile's tokens, for many: what chunks of positions come to.
    tokens = 0 if m <= SHORT else max(_TOKENS_OF_TILE, MOST_QUERIES // per_key)
    own_best = np.empty((tokens, per_key, chunks), np.float32)
    own_total = np.empty((tokens, per_key, chunks), np.float32)
    own_mixed = np.empty((tokens, per_key, chunks, values.shape[3]), np.float32)
    for layer in range(layers):
        window, turns = facts[layer, 0], facts[layer, 1]
        # What comes behind the last layer's keys and values is wanted of the last tokens only.
        skip = m - logits.shape[0] if layer == layers - 1 else 0
        n = m - skip
        stage = STAGES * layer
        parts = heads + 2 * key_heads
        while True:
            part = _take(counters, stage)
            if part >= parts:
                break
            project_head(
                part, layer, begin, sizes, numbers, matrices, kernels, inputs, bias, head_norms, cosines[turns],
                sines[turns], queries, keys, values, y, room, skip,
            )  # fmt: skip
            if _finished(counters, stage, parts):
                _open(counters, stage)
        _wait(counters, stage)
        if n == 0:
            return

        stage += 1
        matrix = matrices[layer, OUTPUT]
        target, place = inputs[matrix[ORDER]], places[matrix[ORDER]]
        several, tile, tiles = per_key, n, 1
        if n <= SHORT:
            if key_heads * chunks < 4 * sizes[PARTS] // 8:
                several = 1
            parts = heads // several * chunks
        else:
            fair = n * key_heads * 2 // sizes[PARTS] // _TOKENS_OF_TILE * _TOKENS_OF_TILE
            tile = max(_TOKENS_OF_TILE, min(MOST_QUERIES // per_key, fair))
            if key_heads * ((n + tile - 1) // tile) < 4 * sizes[PARTS] // 8:
                several, tile = 1, _TOKENS_OF_TILE
            tiles = (n + tile - 1) // tile
            parts = heads // several * tiles
        groups = heads // several
        while True:
            part = _take(counters, stage)
            if part >= parts:
                break
            if n <= SHORT:
                one = part % groups * several
                attend_chunk(
                    part // groups, layer, begin, one, several, skip, m, skip, 0, window, sizes, numbers, queries, keys,
                    values, best, total, mixed, room,
                )  # fmt: skip
            else:
                # The last tiles of a head have most to do, so they come first.
                one = part // tiles * several
                first = skip + (tiles - 1 - part % tiles) * tile
                last = min(m, first + tile)
                reach = (begin + last + CHUNK - 1) // CHUNK
                for chunk in range(reach):
                    attend_chunk(
                        chunk, layer, begin, one, several, first, last, first, one, window, sizes, numbers, queries,
                        keys, values, own_best, own_total, own_mixed, room,
                    )  # fmt: skip
                for t in range(first, last):
                    for other in range(one, one + several):
                        put_together(
                            t, other, first, one, reach, width, own_best, own_total, own_mixed, place, target
                        )  # fmt: skip
            if _finished(counters, stage, parts):
                if n <= SHORT:
                    for t in range(skip, m):
                        for other in range(heads):
                            put_together(t, other, skip, 0, chunks, width, best, total, mixed, place, target)
                if lengths[matrix[ORDER]] < 0:
                    round_rows(target[skip:], -lengths[matrix[ORDER]], target[skip:], kernels)
                _open(counters, stage)
        _wait(counters, stage)

        stage += 1
        rows = max(TILE, (hidden // sizes[PARTS] + TILE - 1) // TILE * TILE)
        parts = (hidden + rows - 1) // rows
        while True:
            part = _take(counters, stage)
            if part >= parts:
                break
            times(
                kernels, matrix, target[skip:].ctypes.data, longest, branch[skip:].ctypes.data, hidden, n,
                part * rows, min(hidden, (part + 1) * rows), room,
            )  # fmt: skip
            if _finished(counters, stage, parts):
                if n <= SHORT:
                    behind(x, branch, layer, 1, skip, sizes, numbers, norms, h, kernels)
                    lay_out(h, skip, inputs, needs[2 * layer + 1], lengths, places, kernels)
                _open(counters, stage)
        _wait(counters, stage)

        stage += 1
        if n > SHORT:
            _norm_parts(
                counters, stage, x, branch, layer, 1, skip, sizes, numbers, norms, h, inputs, needs[2 * layer + 1],
                lengths, places, kernels,
            )  # fmt: skip
        stage += 1
        matrix = matrices[layer, DOWN]
        target, place = inputs[matrix[ORDER]], places[matrix[ORDER]]
        parts = (inner + most - 1) // most
        gate, up = matrices[layer, GATE], matrices[layer, UP]
        while True:
            part = _take(counters, stage)
            if part >= parts:
                break
            first, last = part * most, min(inner, (part + 1) * most)
            times(
                kernels, gate, inputs[gate[ORDER], skip:].ctypes.data, longest, y.ctypes.data - 4 * first, most, n,
                first, last, room,
            )  # fmt: skip
            beside = y.ctypes.data + 4 * n * most
            times(
                kernels, up, inputs[up[ORDER], skip:].ctypes.data, longest, beside - 4 * first, most, n, first, last,
                room,
            )  # fmt: skip
            activate(sizes[ACTIVATION], y.ctypes.data, beside, n * most)
            for t in range(n):
                spread(
                    y.ctypes.data + 4 * t * most, place[first:].ctypes.data, last - first, target[skip + t].ctypes.data
                )  # fmt: skip
            if _finished(counters, stage, parts):
                if lengths[matrix[ORDER]] < 0:
                    round_rows(target[skip:], -lengths[matrix[ORDER]], target[skip:], kernels)
                _open(counters, stage)
        _wait(counters, stage)

        stage += 1
        parts = (hidden + rows - 1) // rows
        while True:
            part = _take(counters, stage)
            if part >= parts:
                break
            times(
                kernels, matrix, target[skip:].ctypes.data, longest, branch[skip:].ctypes.data, hidden, n,
                part * rows, min(hidden, (part + 1) * rows), room,
            )  # fmt: skip
            if _finished(counters, stage, parts):
                if layer + 1 == layers:
                    behind(x, branch, layer, 3, skip, sizes, numbers, norms, h, kernels)
                    keep = logits.shape[0]
                    norm(x[m - keep :], last_norm, numbers[EPSILON], h[:keep], kernels)
                    lay_out(h[:keep], 0, inputs, needs[2 * layers], lengths, places, kernels)
                elif n <= SHORT:
                    behind(x, branch, layer, 3, 0, sizes, numbers, norms, h, kernels)
                    lay_out(h, 0, inputs, needs[2 * layer + 2], lengths, places, kernels)
                _open(counters, stage)
        _wait(counters, stage)

        stage += 1
        if n > SHORT and layer + 1 < layers:
            _norm_parts(
                counters, stage, x, branch, layer, 3, 0, sizes, numbers, norms, h, inputs, needs[2 * layer + 2],
                lengths, places, kernels,
            )  # fmt: skip

    stage = STAGES * layers
    keep, vocabulary = logits.shape
    rows = max(TILE, (vocabulary // (8 * sizes[PARTS]) + TILE - 1) // TILE * TILE)
    parts = (vocabulary + rows - 1) // rows
    cap, scale = numbers[LOGIT_CAP], numbers[LOGIT_SCALE]
    while True:
        part = _take(counters, stage)
        if part >= parts:
            break
        first, last = part * rows, min(vocabulary, (part + 1) * rows)
        times(
            kernels, head, inputs[head[ORDER]].ctypes.data, longest, logits.ctypes.data, vocabulary, keep, first, last,
            room,
        )  # fmt: skip
        if scale != 1:
            for t in range(keep):
                for r in range(first, last):
                    logits[t, r] *= scale
        if cap:
            for t in range(keep):
                for r in range(first, last):
                    logits[t, r] = np.tanh(logits[t, r] / cap) * cap
        if _finished(counters, stage, parts):
            _open(counters, stage)
    _wait(counters, stage)


@njit(parallel=True, nogil=True, error_model="numpy")
def decoder_pass(
    x: Array, begin: int, threads: int, sizes: Array, numbers: Array, matrices: Array, head: Array, kernels: Array,
    lengths: Array, places: Array, needs: Array, facts: Array, norms: Array, head_norms: Array,
    last_norm: Array, bias: Array, keys: Array, values: Array, cosines: Array, sines: Array, logits: Array,
) -> None:  # fmt: skip
    """Run m tokens at positions from `begin` on.

    x [m, hidden], float32, holds their embeddings and is overwritten. keys [layers, key heads, capacity / 16, width,
    16] and values [layers, key heads, capacity, width filled up with 0 to a multiple of 16] are written at
    begin…begin+m−1, the capacity a multiple of CHUNK; cosines and sines [kinds, positions, turned / 2]. The result:
    logits [keep, vocabulary] after each of the
    last `keep` tokens. For the rest see the module.
    """
    m, hidden = x.shape
    layers, heads, width = matrices.shape[0], sizes[HEADS], sizes[WIDTH]
    chunks = (begin + m + CHUNK - 1) // CHUNK
    counters = np.zeros(COUNTER * (STAGES * layers + 1), np.int64)
    inputs = aligned(lengths.shape[0] * m * sizes[LONGEST]).reshape(lengths.shape[0], m, sizes[LONGEST])
    inputs[:] = 0
    h = np.empty((m, hidden), np.float32)
    branch = np.empty((m, hidden), np.float32)
    queries = np.empty((m, heads * width), np.float32)
    few = min(m, SHORT)
    best = np.empty((few, heads, chunks), np.float32)
    total = np.empty((few, heads, chunks), np.float32)
    mixed = np.empty((few, heads, chunks, values.shape[3]), np.float32)
    norm(x, norms[0, 0], numbers[EPSILON], h, kernels)
    lay_out(h, 0, inputs, needs[0], lengths, places, kernels)
    for _ in prange(threads):
        _work(
            x, begin, sizes, numbers, matrices, head, kernels, lengths, places, needs, facts, norms,
            head_norms, last_norm, bias, keys, values, cosines, sines, h, branch, inputs, queries, best, total, mixed,
            counters, logits,
        )  # fmt: skip


keep_compiled(decoder_pass)
