"""Attention of some tokens' queries, compiled: the part of a layer whose work grows with the text.

Queries of the heads that share a key head go through keys and values together, a piece at a time that stays in the
first-level cache, and GROUP of them with each key or value in a register. A query's own sums are made position by
position in a row, whoever goes beside it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from specdec_tui.backends.lean.attention import CHUNK, GROUP, TILE, mix_of, scores_of, softmax_of
from specdec_tui.backends.lean.blocks import Array
from specdec_tui.backends.lean.compiled import F1, F2, F3, F4, F5, I1, INT, N1, apart
from specdec_tui.backends.lean.layer_parts import HEADS, KEY_HEADS, SCALE, SCORE_CAP, WIDTH
from specdec_tui.backends.lean.moves import spread

MOST_QUERIES = 16 * GROUP
"""Queries that go through a piece of keys or values together; their scores lie in the second-level cache."""
PIECE_BYTES = 16 << 10
"""Of the first-level cache, for keys or values."""


@njit(nogil=True)
def room_of_attention(width: int, wide: int) -> int:
    """Numbers of the room that `attend_chunk` needs."""
    return MOST_QUERIES * (width + wide + CHUNK) + 2


@njit(nogil=True)
def _reach(first: int, several: int, one: int, two: int, start: int, window: int) -> tuple[int, int]:
    """Places of the chunk from position `start` that queries one…two attend to: whole tiles before, and their end.

    Queries are those of `several` heads for the tokens at positions first, first + 1, …. None if low is not below high.
    """
    low = max(0, first + one // several + 1 - window - start) if window else 0
    return low // TILE * TILE, min(CHUNK, first + two // several + 1 - start)


@apart(*[INT] * 10, I1, F1, F2, F5, F4, F3, F3, F4, F1)
def attend_chunk(
    chunk: int, layer: int, begin: int, head: int, several: int, first: int, last: int, token0: int, head0: int,
    window: int, sizes: Array, numbers: Array, queries: Array, keys: Array, values: Array, best: Array, total: Array,
    mixed: Array, room: Array,
) -> None:  # fmt: skip
    """Queries of heads head…head+several−1 (of one key head) and tokens first…last−1 over one chunk of positions.

    Writes best, total [tokens, heads, chunks] and mixed [tokens, heads, chunks, room of a value], in which `token0` and
    `head0` come first; a total of 0: none counted.
    """
    heads, key_heads, width, wide = sizes[HEADS], sizes[KEY_HEADS], sizes[WIDTH], values.shape[3]
    key_head, start = head // (heads // key_heads), chunk * CHUNK
    asked = room[: MOST_QUERIES * width]
    scores = room[MOST_QUERIES * width : MOST_QUERIES * (width + CHUNK)]
    answer = room[MOST_QUERIES * (width + CHUNK) : MOST_QUERIES * (width + wide + CHUNK)]
    told = room[MOST_QUERIES * (width + wide + CHUNK) : MOST_QUERIES * (width + wide + CHUNK) + 2]
    every = several * (last - first)
    for done in range(0, every, MOST_QUERIES):
        count = min(MOST_QUERIES, every - done)
        lowest, highest = _reach(begin + first, several, done, done + count - 1, start, window)
        if lowest >= highest:
            for i in range(count):
                t, h = first + (done + i) // several, head + (done + i) % several
                total[t - token0, h - head0, chunk] = np.float32(0)
            continue
        piece = CHUNK
        if count > GROUP:
            piece = max(TILE, PIECE_BYTES // (4 * wide) // TILE * TILE)
        for i in range(count):
            t, h = first + (done + i) // several, head + (done + i) % several
            one, row = asked[i * width : (i + 1) * width], queries[t, h * width : (h + 1) * width]
            for j in range(width):
                one[j] = row[j]
        for j in range(count * wide):
            answer[j] = np.float32(0)
        for p in range(lowest // piece * piece, highest, piece):
            for g in range(0, count, GROUP):
                many = min(GROUP, count - g)
                low, high = _reach(begin + first, several, done + g, done + g + many - 1, start, window)
                low, high = max(low, p), min(high, p + piece)
                if low < high:
                    held = keys[layer, key_head, (start + low) // TILE :]
                    scores_of(
                        many, asked[g * width :].ctypes.data, width, held.ctypes.data, (high - low + TILE - 1) // TILE,
                        width, scores[g * CHUNK + low :].ctypes.data, CHUNK,
                    )  # fmt: skip
        for i in range(count):
            t, h = first + (done + i) // several, head + (done + i) % several
            g = i // GROUP * GROUP
            many = min(GROUP, count - g)
            low, high = _reach(begin + first, several, done + g, done + g + many - 1, start, window)
            end = min(CHUNK, begin + t + 1 - start) - low
            from_ = (max(0, begin + t + 1 - window - start) if window else 0) - low
            if end <= max(0, from_):
                total[t - token0, h - head0, chunk] = np.float32(0)
                for j in range(low, high):
                    scores[i * CHUNK + j] = np.float32(0)
                continue
            softmax_of(
                scores[i * CHUNK + low :].ctypes.data, (high - low + TILE - 1) // TILE * TILE, from_, end,
                numbers[SCALE], numbers[SCORE_CAP], told.ctypes.data,
            )  # fmt: skip
            best[t - token0, h - head0, chunk], total[t - token0, h - head0, chunk] = told[0], told[1]
        for p in range(lowest // piece * piece, highest, piece):
            for g in range(0, count, GROUP):
                many = min(GROUP, count - g)
                low, high = _reach(begin + first, several, done + g, done + g + many - 1, start, window)
                low, high = max(low, p), min(high, p + piece)
                if low < high:
                    mix_of(
                        many, scores[g * CHUNK + low :].ctypes.data, CHUNK,
                        values[layer, key_head, start + low].ctypes.data, high - low, wide,
                        answer[g * wide :].ctypes.data, wide,
                    )  # fmt: skip
        for i in range(count):
            t, h = first + (done + i) // several, head + (done + i) % several
            one, row = answer[i * wide : (i + 1) * wide], mixed[t - token0, h - head0, chunk]
            for j in range(wide):
                row[j] = one[j]


@apart(INT, INT, INT, INT, INT, INT, F3, F3, F4, N1, F2, error_model="numpy")
def put_together(
    t: int, head: int, token0: int, head0: int, chunks: int, width: int, best: Array, total: Array, mixed: Array,
    place: Array, out: Array,
) -> None:  # fmt: skip
    """The result of a head for a token, of its chunks in order, to where the next product wants each number."""
    best, total, mixed = (
        best[t - token0, head - head0],
        total[t - token0, head - head0],
        mixed[t - token0, head - head0],
    )
    highest, first = np.float32(0), -1
    for c in range(chunks):
        if total[c] != 0 and (first < 0 or not best[c] <= highest):
            highest = best[c]
            first = c if first < 0 else first
    sums = mixed[first]
    share = np.float32(np.exp(best[first] - highest))
    whole = share * total[first]
    for j in range(sums.shape[0]):
        sums[j] *= share
    for c in range(first + 1, chunks):
        if total[c] != 0:
            share = np.float32(np.exp(best[c] - highest))
            whole += share * total[c]
            more = mixed[c]
            for j in range(sums.shape[0]):
                sums[j] += share * more[j]
    for j in range(sums.shape[0]):
        sums[j] /= whole
    spread(sums.ctypes.data, place[head * width :].ctypes.data, width, out[t].ctypes.data)
