"""Which products have their tokens come into shared memory all at once, see `ptx`."""

from __future__ import annotations

from torch import Tensor

from specdec_tui.backends.gpu.ptx import MOST_SHARED, asking, joined_bytes, joins, token_bytes
from specdec_tui.backends.gpu.tiles import HELD_STEP, Tile, share_of

_MOST_TOKENS = 8  # of a program: the narrow side of a tensor core's tile


def staging(x: Tensor, tokens: int, apart: int, tile: Tile, matrices: int) -> tuple[str, int]:
    """`asking` for x [., columns] and how many columns have room; nothing where rows are not held, numbers are not of
    half precision, or tokens find no room. `apart` above 0: as many tokens lie so many rows behind the first."""
    columns, rows = x.shape[-1], [*range(tokens), *(range(apart, apart + tokens) if apart else ())]
    if tile.columns or len(rows) > _MOST_TOKENS or x.element_size() != 2 or columns % 8 or x.data_ptr() % 16:
        return "", 0
    share = share_of(columns, tile.pieces)
    room = max(columns, share * (tile.pieces - 1) + -(-share // HELD_STEP) * HELD_STEP)
    count = max(16, matrices * tile.rows) // 4  # sums of a thread
    joined = joined_bytes(tile.warps, count) if joins(tile.warps, count) else 0
    if len(rows) * token_bytes(len(rows), room) > MOST_SHARED - joined:
        return "", 0
    return asking(rows, columns, tile.warps, room), room
