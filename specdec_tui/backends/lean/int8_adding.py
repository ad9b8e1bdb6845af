"""The loop of integer multiply-adds that `machine` measures: those of products with rounded inputs, on registers.

It runs on one thread without the interpreter's lock, as those of `machine_kernels`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils

from specdec_tui.backends.lean.blocks import Q4_1
from specdec_tui.backends.lean.compiled import builds, keep_compiled
from specdec_tui.backends.lean.int8_blocks import AVX2, PORTABLE, VNNI, Weights
from specdec_tui.backends.lean.vectors import I8, I32, every, vector

SUMS = 12
"""Independent sums: enough to keep the multipliers at work, in no more registers than there are."""
WEIGHT = 3
COLUMNS = 32
"""Multiply-adds of a step of one sum."""
_WORDS = vector(I32, 8)


def _adding(path: int) -> Any:
    """steps -> int64, of sums <8 x i32> that begin with their numbers in every lane, from 1 on, all lanes together.

    A step adds to each sum that of `WEIGHT` with its own bytes, four to a lane: so no step can be left out.
    """

    @builds
    def adds(typing_context: Any, steps: Any) -> Any:
        def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
            held = [cgutils.alloca_once(b, _WORDS) for _ in range(SUMS)]
            for number, place in enumerate(held):
                b.store(every(I32, 8, number + 1), place)
            with cgutils.for_range(b, given[0]):
                for place in held:
                    value = b.load(place)
                    found = Weights(b, Q4_1, path, every(I8, COLUMNS, WEIGHT), None, 0).sums(
                        b, b.bitcast(value, vector(I8, COLUMNS))
                    )
                    b.store(b.add(value, found), place)
            total = ir.Constant(ir.IntType(64), 0)
            for place in held:
                for lane in range(8):
                    one = b.extract_element(b.load(place), ir.Constant(I32, lane))
                    total = b.add(total, b.sext(one, ir.IntType(64)))
            return total

        return types.int64(types.intp), code

    return adds


_vnni, _avx2, _portable = _adding(VNNI), _adding(AVX2), _adding(PORTABLE)


@njit(nogil=True)
def _add_vnni(steps: int) -> Any:
    return _vnni(steps)


@njit(nogil=True)
def _add_avx2(steps: int) -> Any:
    return _avx2(steps)


@njit(nogil=True)
def _add_portable(steps: int) -> Any:
    return _portable(steps)


ADDING = {VNNI: _add_vnni, AVX2: _add_avx2, PORTABLE: _add_portable}
"""By the way that a product makes its sums; those of `int8_blocks.PATHS` can be called."""

for function in ADDING.values():
    keep_compiled(function)
