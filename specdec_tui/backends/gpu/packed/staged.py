"""Which packed products read their tokens from shared memory (`ptx`)."""

from __future__ import annotations

from torch import Tensor

from specdec_tui.backends.gpu.packed.codes import FORMS, taken
from specdec_tui.backends.gpu.packed.cuts import Cut, stageable
from specdec_tui.backends.gpu.packed.packing import Packed
from specdec_tui.backends.gpu.ptx import MOST_SHARED, arriving, asking, token_bytes

_TOKENS = 8  # of a program, at most


def staging(x: Tensor, matrix: Packed, gated: bool, cut: Cut) -> tuple[str, str]:
    """`asking` and `arriving` for x [tokens, columns]; empty where the cut does not say so, x finds no room, or steps
    go beyond it."""
    (tokens, columns), form = x.shape, FORMS[matrix.form]
    if not cut.staged or not stageable(matrix, cut.warps) or tokens > _TOKENS or x.data_ptr() % 16:
        return "", ""
    if tokens * token_bytes(tokens, columns) > MOST_SHARED - taken(matrix.form, cut.warps, 1 + gated):
        return "", ""
    arrive = arriving(tokens, columns, form.planes * matrix.width, matrix.width)
    return asking(range(tokens), columns, cut.warps), arrive
