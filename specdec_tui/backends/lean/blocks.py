"""The forms in which weights lie in memory, and the order in which a product goes through the columns of each.

The block formats are those of GGUF files (ggml's `ggml-common.h`), by their numbers there. A weight of a block is
d · q, or d · q + m, with a whole number q of a few bits: the product is exact in float32 for all formats here, and
adding the minimum rounds once. So weights can be expanded in registers, and every product over a row is bit for bit
that over the expanded float32 row, if only the sums are made in the same order.

That order is one for each format: a product sums in `lanes` lanes, two rounds of them in turn, and goes through the
columns as they come out of the registers (see `emit`). Rows that were expanded are laid out in it, and so is what
they are multiplied with.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from specdec_tui.backends.gguf.kinds import BF16, F16, F32, KINDS

Array = npt.NDArray[Any]

Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K = 2, 3, 6, 7, 8, 12, 13, 14
PLAIN = frozenset((F32, F16, BF16))
"""Formats of numbers that stand alone."""
HELD = PLAIN | {Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K}
"""All that a product can be made over."""
TABLES = frozenset((Q4_0, Q4_1, Q4_K))
"""Formats of 16 values a block, which a machine with AVX-512 looks up instead of computing each."""
PADDING = 32
"""Columns of plain numbers are a multiple of this in memory of our own."""


def in_order(kind: int, lanes: int) -> bool:
    """Whether columns are multiplied as they come."""
    return kind in PLAIN or (lanes == 16 and (kind in TABLES or kind == Q8_0))


def blocks_of_step(kind: int, lanes: int) -> int:
    """Blocks that a product takes at once; of plain numbers, columns."""
    if kind in PLAIN:
        return 2 * lanes
    if KINDS[kind].block == 256 or in_order(kind, lanes):
        return 1
    return (lanes // 8) * (1 if kind == Q8_0 else 2)


@cache
def step_order(kind: int, lanes: int) -> tuple[int, ...]:
    """The columns of one step in the order in which they are multiplied."""
    if in_order(kind, lanes):
        return tuple(range(2 * lanes if kind in PLAIN else KINDS[kind].block))
    # Units of eight words of four bytes: byte by byte, a word to a lane.
    units = [[[4 * lane + byte for lane in range(8)] for byte in range(4)]]
    if kind in (Q4_0, Q4_1, Q5_0, Q5_1):  # two blocks in a unit, low halves of bytes before high ones
        low = [[32 * (lane // 4) + 4 * (lane % 4) + byte for lane in range(8)] for byte in range(4)]
        units = [low + [[column + 16 for column in vector] for vector in low]]
    elif kind in (Q4_K, Q5_K):
        units = [[[64 * u + half + c for c in v] for half in (0, 32) for v in units[0]] for u in range(4)]
    elif kind == Q6_K:
        units = [[[128 * u + part + c for c in v] for part in (0, 32, 64, 96) for v in units[0]] for u in range(2)]
    count = len(units)
    if count == 1:
        width = KINDS[kind].block * (1 if kind == Q8_0 else 2)
        units = [[[width * u + c for c in v] for v in units[0]] for u in range(lanes // 8)]
    together = lanes // 8
    return tuple(
        column
        for first in range(0, len(units), together)
        for vectors in zip(*units[first : first + together], strict=True)
        for vector in vectors
        for column in vector
    )


@cache
def order_of(kind: int, columns: int, lanes: int) -> Array:
    """int32 [places]: which column of a row is multiplied at each place; −1 where there is none (a step's rest)."""
    step = np.array(step_order(kind, lanes))
    count = -(-columns // len(step))
    if kind in PLAIN:
        count = -(-columns // PADDING) * PADDING // len(step)
    places = (np.arange(count)[:, None] * len(step) + step).reshape(-1)
    order: Array = np.where(places < columns, places, -1).astype(np.int32)
    order.flags.writeable = False
    return order


@cache
def places_of(kind: int, columns: int, lanes: int) -> Array:
    """intp [columns]: at which place of `order_of` each column is multiplied."""
    order = order_of(kind, columns, lanes)
    there = np.flatnonzero(order >= 0)
    places: Array = np.empty(columns, np.intp)
    places[order[there]] = there
    places.flags.writeable = False
    return places
