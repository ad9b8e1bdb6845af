"""Which products go directly from registers to a tensor core, and have their tokens come into shared memory all at
once, see `direct` and `ptx`."""

from __future__ import annotations

from torch import Tensor

from specdec_tui.backends.gpu.own_code import by_code
from specdec_tui.backends.gpu.ptx import MOST_SHARED, asking, token_bytes
from specdec_tui.backends.gpu.tensor_core import MOST_FEW, gap_of, sums_bytes, totals_bytes
from specdec_tui.backends.gpu.tiles import HELD_STEP, Tile, share_of

_MOST_SUMS = 2 * MOST_FEW  # of tokens that are staged: four kinds of four, or two of eight


def staging(x: Tensor, tokens: int, apart: int, tile: Tile, matrices: int) -> tuple[str, int]:
    """`asking` for x [., columns] and how many columns have room; nothing where rows are not held, numbers are not of
    half precision, or tokens find no room. `apart` above 0: as many tokens lie so many rows behind the first."""
    columns, rows = x.shape[-1], [*range(tokens), *(range(apart, apart + tokens) if apart else ())]
    if tile.columns or len(rows) > MOST_FEW or x.element_size() != 2 or columns % 8 or x.data_ptr() % 16:
        return "", 0
    share = share_of(columns, tile.pieces)
    room = max(columns, share * (tile.pieces - 1) + -(-share // HELD_STEP) * HELD_STEP)
    gap = gap_of(room)
    beside = sums_bytes(tile.pieces, matrices * tile.rows, len(rows)) + totals_bytes(_MOST_SUMS)
    if len(rows) * token_bytes(len(rows), room, gap) > MOST_SHARED - beside:
        return "", 0
    return asking(rows, columns, tile.warps, room, gap), room


def directly(x: Tensor, weight: Tensor, tile: Tile) -> bool:
    """Whether rows that are held are multiplied by a tensor core's own instructions: each warp has a piece, and lanes
    load eight columns at once."""
    aligned = x.shape[-1] % 8 == x.data_ptr() % 16 == weight.data_ptr() % 16 == 0
    return aligned and not tile.columns and tile.pieces == tile.warps and weight.element_size() == 2


def way(x: Tensor, weight: Tensor, tokens: int, paired: bool, tile: Tile, matrices: int) -> tuple[str, int, bool, bool]:
    """How tokens come to shared memory, with how many columns; whether rows are multiplied `directly`; and whether sums
    are joined by instructions of our own. `paired`: x [2, ., columns] holds tokens of the stream, then of a branch."""
    if not by_code(x.device):
        return "", 0, False, False
    if not directly(x, weight, tile):
        return "", 0, False, True
    return *staging(x, tokens, x.stride(0) // x.shape[-1] if paired else 0, tile, matrices), True, True
