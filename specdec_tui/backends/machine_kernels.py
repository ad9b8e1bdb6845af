"""The two loops that `machine` measures, compiled by numba: reading, and multiply-adds on registers.

Each runs on one thread without the interpreter's lock; several at once are threads of Python's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils

from specdec_tui.backends.lean.blocks import Array
from specdec_tui.backends.lean.compiled import builds, keep_compiled

SUMS = 10
"""Independent sums, each of so many lanes as there are: enough to keep two multipliers of a latency of four or five
cycles at work, and with the two factors no more than there are registers."""


@njit(nogil=True, fastmath=True)
def read(words: Array, begin: int, end: int) -> Any:
    """The sum of `words` [n], int64, from `begin` up to `end`: multiples of 8, so that each line is read once."""
    total = np.int64(0)
    for place in range(begin, end):
        total += words[place]
    return total


def _adding(lanes: int) -> Any:
    """steps -> float32 that depends on steps · SUMS · lanes multiply-adds, all of them in registers."""

    @builds
    def adds(typing_context: Any, steps: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            vector = ir.VectorType(ir.FloatType(), lanes)
            factor = ir.Constant(vector, [ir.Constant(ir.FloatType(), 0.5)] * lanes)
            add = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{lanes}f32"
            )
            held = [cgutils.alloca_once(builder, vector) for _ in range(SUMS)]
            for number, place in enumerate(held):
                builder.store(ir.Constant(vector, [ir.Constant(ir.FloatType(), float(number + 1))] * lanes), place)
            with cgutils.for_range(builder, arguments[0]):
                for place in held:
                    builder.store(builder.call(add, [builder.load(place), factor, factor]), place)
            whole = builder.load(held[0])
            for place in held[1:]:
                whole = builder.fadd(whole, builder.load(place))
            total = builder.extract_element(whole, ir.Constant(ir.IntType(32), 0))
            for lane in range(1, lanes):
                total = builder.fadd(total, builder.extract_element(whole, ir.Constant(ir.IntType(32), lane)))
            return total

        return types.float32(types.intp), code

    return adds


_adds_16, _adds_8 = _adding(16), _adding(8)


@njit(nogil=True)
def _add_16(steps: int) -> Any:
    return _adds_16(steps)


@njit(nogil=True)
def _add_8(steps: int) -> Any:
    return _adds_8(steps)


ADDING = {16: _add_16, 8: _add_8}
"""By lanes: sixteen are a register where there is AVX-512, eight where there is AVX2."""

for function in (read, *ADDING.values()):
    keep_compiled(function)
