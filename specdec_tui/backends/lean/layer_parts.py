"""The parts of a layer that one thread computes alone, compiled: see `decoder_pass` for what it is told."""

from __future__ import annotations

import numpy as np
from numba import njit

from specdec_tui.backends.lean.attention import TILE
from specdec_tui.backends.lean.blocks import F32, HELD, KINDS, Array
from specdec_tui.backends.lean.compiled import F1, F2, F3, F4, F5, FLOAT, I1, I3, INT, N2, apart
from specdec_tui.backends.lean.int8 import INT8, MOST_INT8_TOKENS
from specdec_tui.backends.lean.moves import spread
from specdec_tui.backends.lean.panels import ROWS, SUMS, TOKENS, panel_of
from specdec_tui.backends.lean.products import call_kernel
from specdec_tui.backends.lean.vectors import MOST_TOKENS

HEADS, KEY_HEADS, WIDTH, TURNED, PAIRED, INNER, ACTIVATION, POST_NORMS, HEAD_NORMS, PARTS, LONGEST = range(11)
"""Places in `sizes`: heads, key heads, width of a head, numbers of it that are turned, whether these are turned side
by side, inner width, activation, norms behind attention and MLP, norms of queries and keys, parts of a stage, numbers
that the longest row of inputs has room for."""
SIZES = 11
EPSILON, SCALE, SCORE_CAP, LOGIT_CAP, ADDED_SCALE, LOGIT_SCALE = range(6)
ADDRESS, FORMAT, ROW_BYTES, BLOCKS, ORDER, PLACES = range(6)
Q, K, V, OUTPUT, GATE, UP, DOWN = range(7)
SHORT = 16
"""Tokens up to which a pass is bound by memory, and attention is shared out by positions."""
WHOLE, SLICE, COLUMNS = 640, 512, 1536
"""For many tokens: places of a row that are multiplied in one go, or else a slice; those that are expanded at once."""
PANEL = 2 * ROWS
"""Rows whose slice stays in the first-level cache."""
ROWS_BYTES, TOKENS_BYTES = 144 << 10, 192 << 10
"""Of the second-level cache, for expanded rows and for inputs."""
_ROOM_OF_ROWS = max(PANEL * COLUMNS, ROWS_BYTES // 4)
_BLOCKS, _SIZES = np.ones(INT8, np.int64), np.ones(INT8, np.int64)
for _kind in HELD:
    _BLOCKS[_kind], _SIZES[_kind] = KINDS[_kind].block, KINDS[_kind].size


@njit(nogil=True)
def aligned(count: int) -> Array:
    """float32 [count], not filled, where a cache line begins: what lies across two of them is read twice."""
    room = np.empty(count + 16, np.float32)
    begin = (-room.ctypes.data) % 64 // 4
    return room[begin : begin + count]


@njit(nogil=True)
def _rows_at_once(places: int) -> int:
    return max(PANEL, ROWS_BYTES // (4 * min(places, COLUMNS)) // PANEL * PANEL)


@njit(nogil=True)
def _tokens_at_once(places: int, m: int) -> int:
    return min(m, max(TOKENS, TOKENS_BYTES // (4 * min(places, COLUMNS)) // TOKENS * TOKENS))


@njit(nogil=True)
def room_of_products(longest: int, m: int) -> int:
    """Numbers of the room that `times` needs."""
    if m <= SHORT:
        return 0
    rows = _rows_at_once(longest) if longest > COLUMNS else PANEL
    return _ROOM_OF_ROWS + SUMS * rows * m


@njit(nogil=True)
def _panel(
    held: int, columns: int, rows: int, x: int, x_stride: int, tokens: int, sums: int, of_token: int, apart: bool,
    y: int, y_stride: int, begins: bool, ends: bool,
) -> None:  # fmt: skip
    """`panel_of` for any number of rows and tokens; `apart`: each sum has a place of its own."""
    of_tile = TOKENS * of_token if apart else 0
    r = 0
    while r < rows:
        several = ROWS if rows - r >= ROWS else 1
        groups = (rows - r) // several
        t = 0
        while t < tokens:
            count = min(TOKENS, tokens - t)
            tiles = (tokens - t) // count
            place = t * of_token + r if apart else 0
            panel_of(
                several, count, held + 4 * r * columns, columns, groups, x + 4 * t * x_stride, x_stride, tiles, columns,
                sums + 4 * SUMS * place, of_token, of_tile, several if apart else 0, y + 4 * (t * y_stride + r),
                y_stride, begins, ends,
            )  # fmt: skip
            t += tiles * count
        r += groups * several


@njit(nogil=True)
def times_many(
    kernel: int, held: int, row_bytes: int, blocks: int, block: int, size: int, places: int, x: int, x_stride: int,
    y: int, y_stride: int, m: int, begin: int, end: int, room: Array,
) -> None:  # fmt: skip
    """`times` for many tokens; `block`: columns of a block, `size`: its bytes.

    Rows are expanded, COLUMNS of them at most, into the second-level cache, where the inputs of some tokens lie beside
    them. Of both, slices are multiplied from the first-level cache (`panels`).
    """
    rows, tokens = _rows_at_once(places), _tokens_at_once(places, m)
    slice_ = places if places <= WHOLE else SLICE
    laid_out = room.ctypes.data
    sums = laid_out + 4 * _ROOM_OF_ROWS
    for first in range(begin, end, rows):
        last = min(first + rows, end)
        for start in range(0, places, COLUMNS):
            stop = min(places, start + COLUMNS)
            for s in range(start, stop, slice_):
                columns, skipped = min(slice_, stop - s), s // block
                call_kernel(
                    kernel, 0, held + size * skipped, row_bytes, 0, 0, laid_out + 4 * (s - start) * (last - first),
                    columns, first, last, min(blocks - skipped, columns // block),
                )  # fmt: skip
            for t0 in range(0, m, tokens):
                t1 = min(m, t0 + tokens)
                for p in range(first, last, PANEL):
                    q = min(last, p + PANEL)
                    for s in range(start, stop, slice_):
                        columns = min(slice_, stop - s)
                        place, of_token, apart = 0, ROWS, False
                        if places > COLUMNS:
                            place, of_token, apart = t0 * rows + p - first, rows, True
                        elif places > slice_:
                            of_token, apart = PANEL, True
                        _panel(
                            laid_out + 4 * ((s - start) * (last - first) + (p - first) * columns), columns, q - p,
                            x + 4 * (t0 * x_stride + s), x_stride, t1 - t0, sums + 4 * SUMS * place, of_token, apart,
                            y + 4 * (t0 * y_stride + p), y_stride, s == 0, s + columns == places,
                        )  # fmt: skip


@apart(I1, I1, INT, INT, INT, INT, INT, INT, INT, F1)
def times(
    kernels: Array,
    matrix: Array,
    x: int,
    x_stride: int,
    y: int,
    y_stride: int,
    m: int,
    begin: int,
    end: int,
    room: Array,
) -> None:
    """y[t, r] = row r · x[t] for m tokens and the rows begin…end−1; x, y addresses, y's first column is row 0."""
    kernel, held, row_bytes, blocks = kernels[matrix[FORMAT]], matrix[ADDRESS], matrix[ROW_BYTES], matrix[BLOCKS]
    whole = matrix[FORMAT] >= INT8
    most = MOST_INT8_TOKENS if whole else MOST_TOKENS
    if m <= SHORT or whole:
        t = 0
        while t < m:
            left = m - t
            rounds = (left + most - 1) // most
            count = (left + rounds - 1) // rounds
            call_kernel(
                kernel, count, held, row_bytes, x + 4 * t * x_stride, x_stride, y + 4 * t * y_stride, y_stride,
                begin, end, blocks,
            )  # fmt: skip
            t += count
        return
    times_many(
        kernel, held, row_bytes, blocks, _BLOCKS[matrix[FORMAT]], _SIZES[matrix[FORMAT]], matrix[PLACES], x, x_stride,
        y, y_stride, m, begin, end, room,
    )  # fmt: skip


@apart(F2, F1, FLOAT, F2, I1, error_model="numpy")
def norm(x: Array, weight: Array, epsilon: float, y: Array, kernels: Array) -> None:
    """y[t] = x[t] · weight / √(mean of x[t]² + epsilon)."""
    m, n = x.shape
    square = np.empty(1, np.float32)
    whole = n // 32 * 32
    for t in range(m):
        row = x[t]
        square[0] = 0
        if whole:
            place = row.ctypes.data
            call_kernel(kernels[F32], 1, place, 0, place, 0, square.ctypes.data, 0, 0, 1, whole)
        total = square[0]
        for j in range(whole, n):
            total += row[j] * row[j]
        scale = np.float32(1) / np.sqrt(total / np.float32(n) + epsilon)
        for j in range(n):
            y[t, j] = row[j] * scale * weight[j]


@njit(nogil=True)
def round_rows(x: Array, columns: int, y: Array, kernels: Array) -> None:
    """Rows of float32 [m, ≥ columns] to the beginning of y's, by `int8`'s groups; y may be x."""
    call_kernel(
        kernels[INT8], x.shape[0], 0, 0, x.ctypes.data, x.shape[1], y.ctypes.data, y.shape[1], 0, columns, 0
    )  # fmt: skip


@apart(F2, INT, F3, I1, I1, N2, I1)
def lay_out(h: Array, first: int, inputs: Array, need: Array, lengths: Array, places: Array, kernels: Array) -> None:
    """Copies of h[first…] [m, hidden] in each of the orders that are needed; places without a column stay as they are.

    A length below 0 stands for so many columns that are rounded to 8 bits.
    """
    m, hidden = h.shape
    for n in range(need.shape[0]):
        o = need[n]
        if o < 0:
            break
        if lengths[o] < 0:
            round_rows(h[first:], -lengths[o], inputs[o, first:m], kernels)
            continue
        for t in range(first, m):
            spread(h[t].ctypes.data, places[o].ctypes.data, hidden, inputs[o, t].ctypes.data)


@njit(nogil=True)
def turn(head: Array, cosines: Array, sines: Array, turned: int, paired: int) -> None:
    """Rotate one head [width] in place by the angles of its position, [turned / 2]."""
    half = turned // 2
    if paired:
        for i in range(half):
            a, b = head[2 * i], head[2 * i + 1]
            head[2 * i] = a * cosines[i] - b * sines[i]
            head[2 * i + 1] = b * cosines[i] + a * sines[i]
    else:
        for i in range(half):
            a, b = head[i], head[half + i]
            head[i] = a * cosines[i] - b * sines[i]
            head[half + i] = b * cosines[i] + a * sines[i]


@apart(INT, INT, INT, I1, F1, I3, I1, F3, F2, F3, F2, F2, F2, F5, F4, F1, F1, INT, error_model="numpy")
def project_head(
    part: int, layer: int, begin: int, sizes: Array, numbers: Array, matrices: Array, kernels: Array, inputs: Array,
    bias: Array, head_norms: Array, cosines: Array, sines: Array, queries: Array, keys: Array, values: Array,
    y: Array, room: Array, asked: int,
) -> None:  # fmt: skip
    """One head of queries, keys or values: product, bias, norm, rotation, and where it belongs.

    Queries are those of the tokens from `asked` on.
    """
    heads, key_heads, width = sizes[HEADS], sizes[KEY_HEADS], sizes[WIDTH]
    which = Q if part < heads else (K if part < heads + key_heads else V)
    number = part - (0 if which == Q else (heads if which == K else heads + key_heads))
    from_ = asked if which == Q else 0
    m = queries.shape[0] - from_
    matrix = matrices[layer, which]
    x = inputs[matrix[ORDER], from_:]
    first = number * width
    # As if y had the columns of all heads.
    times(kernels, matrix, x.ctypes.data, x.shape[1], y.ctypes.data - 4 * first, width, m, first, first + width, room)
    found = y[: m * width].reshape(m, width)
    if bias.shape[1]:
        added = bias[layer, part * width : (part + 1) * width]
        for t in range(m):
            for j in range(width):
                found[t, j] += added[j]
    if which != V:
        if sizes[HEAD_NORMS]:
            norm(found, head_norms[layer, 0 if which == Q else 1], numbers[EPSILON], found, kernels)
        for t in range(m):
            place = begin + from_ + t
            turn(found[t], cosines[place], sines[place], sizes[TURNED], sizes[PAIRED])
    # Of these rows no place is counted from the end: numba need not ask.
    if which == Q:
        for t in range(m):
            row = queries[from_ + t, first : first + width]
            for j in range(width):
                row[j] = found[t, j]
    elif which == K:
        for t in range(m):
            tile, lane = keys[layer, number, (begin + t) // TILE], (begin + t) % TILE
            column = tile[:, lane]
            for j in range(width):
                column[j] = found[t, j]
    else:
        for t in range(m):
            row = values[layer, number, begin + t]
            for j in range(width):
                row[j] = found[t, j]


@apart(F2, F2, INT, INT, INT, I1, F1, F3, F2, I1, error_model="numpy")
def behind(
    x: Array,
    branch: Array,
    layer: int,
    which: int,
    first: int,
    sizes: Array,
    numbers: Array,
    norms: Array,
    h: Array,
    kernels: Array,
) -> None:
    """Add a branch, scaled, to x, and norm for what comes next, from token `first` on; `which`: 1 behind attention, 3
    behind the MLP of a layer."""
    x, branch, h = x[first:], branch[first:], h[first:]
    if sizes[POST_NORMS]:
        norm(branch, norms[layer, which], numbers[EPSILON], branch, kernels)
    for t in range(x.shape[0]):
        for j in range(x.shape[1]):
            x[t, j] += branch[t, j] * numbers[ADDED_SCALE]
    if which == 1:
        norm(x, norms[layer, 2], numbers[EPSILON], h, kernels)
    elif layer + 1 < norms.shape[0]:
        norm(x, norms[layer + 1, 0], numbers[EPSILON], h, kernels)
