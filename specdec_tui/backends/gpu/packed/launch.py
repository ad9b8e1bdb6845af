"""The kernels as functions of tensors. Imported only where there is Triton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specdec_tui.backends.gpu.own_code import by_code
from specdec_tui.backends.gpu.packed import kernels, unpacked
from specdec_tui.backends.gpu.packed.codes import FORMS, STRAIGHT, conversion, filling, shrunk
from specdec_tui.backends.gpu.packed.cuts import Cut, cut_of
from specdec_tui.backends.gpu.packed.packing import ROWS, Packed, power
from specdec_tui.backends.gpu.packed.staged import staging

MOST_TOKENS = 16  # of a program; more are several programs, which find the weights in the cache


@dataclass(frozen=True, slots=True)
class Normed:
    """`stream` [tokens, columns], whose RMS norm is meant by an x that is it times the norm's weights. `sums` float32
    [tokens, 1, parts] of its squares."""

    stream: Tensor
    epsilon: float
    sums: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Follow:
    """Where y goes besides: times the weights `norm` + `offset` of the next norm, to `z` [tokens, rows]."""

    norm: Tensor
    z: Tensor
    offset: float = 0.0


def _arguments(x: Tensor, normed: Normed | None, matrix: Packed, bias: Tensor | None, y: Tensor) -> tuple[Any, ...]:
    there = [part if part.numel() else matrix.weight for part in (matrix.offsets, matrix.tables, matrix.places)]
    return (
        x, normed.stream if normed else x, x if normed is None or normed.sums is None else normed.sums, matrix.weight,
        matrix.scales, there[0], matrix.numbers, *there[1:], matrix.weight if bias is None else bias, y,
    )  # fmt: skip


def _kind(matrix: Packed, device: torch.device, warps: int) -> tuple[Any, ...]:
    form = FORMS[matrix.form]
    asm = conversion(matrix.form, matrix.half) if by_code(device) else ""
    gathered, straight = matrix.places.numel() > 0, form.order == STRAIGHT
    kept = filling(warps) if asm and straight else ""
    smaller = shrunk(matrix.form, matrix.half) if asm else 1.0
    return (
        matrix.group, matrix.offsets.numel() > 0, gathered, form.planes, straight, matrix.width, asm, smaller, kept
    )  # fmt: skip


def product(
    x: Tensor,
    matrix: Packed,
    y: Tensor,
    *,
    normed: Normed | None = None,
    bias: Tensor | None = None,
    activation: str = "",
    scale: float = 1.0,
    cap: float = 0.0,
    added: bool = False,
    follow: Follow | None = None,
    left: Tensor | None = None,
    overlap: bool = False,
    cut: Cut | None = None,
) -> None:
    """y [tokens, rows] = cap(scale · activation(x @ weights.T + bias)), or `added` to it. x [tokens, columns].

    Sums of the squares of y's rows are `left`, float32 [tokens, 1, rows / ROWS rounded up]."""
    _launch(x, matrix, y, matrix.rows, False, normed, bias, activation, scale, cap, added, follow, left, overlap, cut)


def gated_product(
    x: Tensor,
    matrix: Packed,
    y: Tensor,
    activation: str,
    *,
    normed: Normed | None = None,
    bias: Tensor | None = None,
    overlap: bool = False,
    cut: Cut | None = None,
) -> None:
    """y [tokens, rows] = activation(x @ gate.T) · (x @ up.T); the matrix holds gate, then up. ValueError where these
    do not begin at a tile."""
    rows = matrix.rows // 2
    if rows % ROWS:
        raise ValueError(f"{rows} rows of a gate are no multiple of {ROWS}")
    _launch(x, matrix, y, rows, True, normed, bias, activation, 1.0, 0.0, False, None, None, overlap, cut)


def _launch(
    x: Tensor,
    matrix: Packed,
    y: Tensor,
    rows: int,
    gated: bool,
    normed: Normed | None,
    bias: Tensor | None,
    activation: str,
    scale: float,
    cap: float,
    added: bool,
    follow: Follow | None,
    left: Tensor | None,
    overlap: bool,
    cut: Cut | None,
) -> None:
    tokens, cut, sums = len(x), cut or cut_of(matrix, gated), normed.sums if normed else None
    tile = 8 if tokens <= 8 else MOST_TOKENS
    staged = staging(x, matrix, gated, cut) if by_code(x.device) else ("", "")
    kernels.packed_product[(-(-rows // ROWS), -(-tokens // tile))](
        *_arguments(x, normed, matrix, bias, y), follow.norm if follow else y, follow.z if follow else y,
        y if left is None else left, tokens, rows, matrix.columns, *_kind(matrix, x.device, cut.warps),
        *staged, gated, normed is not None, 0 if sums is None else sums.shape[-1],
        normed.epsilon if normed else 0.0, follow.offset if follow else 0.0, bias is not None, activation, scale, cap,
        added, follow is not None, left is not None, tile, cut.warps, cut.early, power(matrix.columns), overlap,
        num_warps=cut.warps, **({"launch_pdl": True} if overlap else {}),
        **({"maxnreg": cut.registers} if cut.registers and tile == 8 else {}),
    )  # fmt: skip


def unpack(matrix: Packed, dtype: torch.dtype) -> Tensor:
    """The weights [rows, columns] as numbers; columns in the matrix's own order."""
    form = FORMS[matrix.form]
    y = torch.empty(matrix.shape, dtype=dtype, device=matrix.weight.device)
    some = matrix.weight
    unpacked.unpack[(matrix.weight.shape[0], -(-matrix.columns // 128))](
        some, matrix.scales, matrix.offsets if matrix.offsets.numel() else some, matrix.numbers, y, *matrix.shape,
        matrix.group, matrix.offsets.numel() > 0, form.planes, form.order == STRAIGHT, matrix.width, 128,
    )  # fmt: skip
    return y
