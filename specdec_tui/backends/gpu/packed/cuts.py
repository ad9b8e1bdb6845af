"""How the work of a packed product is cut. Plain Python."""

from __future__ import annotations

from dataclasses import dataclass

from specdec_tui.backends.gpu.packed.codes import FORMS, SPREAD, STRAIGHT
from specdec_tui.backends.gpu.packed.packing import Packed, power


@dataclass(frozen=True, slots=True)
class Cut:
    """`warps` of a program, which decide in what order sums are added; `early` steps are loaded ahead. `registers` of a
    thread at most; 0: as many as it likes. `staged`: x is read from shared memory where that is possible (`staged`)."""

    warps: int
    early: int
    registers: int = 0
    staged: bool = False


_REGISTERS = 128  # of a thread, so that four programs of four warps find room on a multiprocessor


def cut_of(matrix: Packed, gated: bool) -> Cut:
    """By the matrix's shape and form alone: a token's numbers are the same however many there are.

    Warps and steps were measured on an H200 over the matrices of a model with 3 billion weights: what counts is that
    all programs of a product run at once, and have asked for all that they read.
    """
    chunks, form = matrix.weight.shape[1], FORMS[matrix.form]
    table = form.order == STRAIGHT
    if gated:
        early = 6 if form.bits == 8 else 2 if table else 3
        return Cut(min(4, power(chunks)), early, _REGISTERS)
    if form.order == SPREAD and stageable(matrix, 8):
        return Cut(8, 8, staged=True)
    if chunks <= 32:
        return Cut(min(4, power(chunks)), 8, _REGISTERS if table else 0)
    return Cut(8, 4 if table else 8, _REGISTERS if table else 0)


def stageable(matrix: Packed, warps: int) -> bool:
    """Whether each step of so many warps has all its columns, and these are x's own."""
    chunk = FORMS[matrix.form].planes * matrix.width
    return matrix.columns % (warps * chunk) == 0 and not matrix.places.numel()
