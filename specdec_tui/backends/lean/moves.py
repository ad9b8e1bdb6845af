"""Numbers to other places, as an operation of compiled code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from specdec_tui.backends.lean.compiled import builds
from specdec_tui.backends.lean.vectors import FLOAT, I32, I64, Loop


@builds
def spread(typing_context: Any, given: Any, places: Any, count: Any, out: Any) -> Any:
    """out[places[i]] = given[i] for a count of at least one; int64 all, the others addresses: float32, places int32.

    A loop of numba's over array indices takes several times as long: it asks of each whether it is below 0.
    """

    def code(context: Any, b: Any, signature: Any, found: Any) -> Any:
        floats, ints = ir.PointerType(FLOAT), ir.PointerType(I32)
        given, places, count, out = found
        given, places, out = (
            b.inttoptr(value, kind) for value, kind in ((given, floats), (places, ints), (out, floats))
        )
        loop = Loop(b, ir.Constant(I64, 0), count, 1, [])
        place = b.zext(b.load(b.gep(places, [loop.index])), I64)
        b.store(b.load(b.gep(given, [loop.index])), b.gep(out, [place]))
        loop.close([])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), code
