"""What threads of one pass tell each other through memory, as operations of compiled code."""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from specdec_tui.backends.lean.compiled import builds
from specdec_tui.backends.lean.vectors import I32, I64


@builds
def atomic_add(typing_context: Any, address: Any, value: Any) -> Any:
    """Add to an int64 in memory that several threads use; what it was before."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        return b.atomic_rmw("add", b.inttoptr(given[0], ir.PointerType(I64)), given[1], "seq_cst")

    return types.int64(types.int64, types.int64), code


@builds
def atomic_read(typing_context: Any, address: Any) -> Any:
    """An int64 that another thread may be writing, and with it all that thread wrote before."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        return b.load_atomic(b.inttoptr(given[0], ir.PointerType(I64)), "acquire", 8)

    return types.int64(types.int64), code


@builds
def breathe(typing_context: Any) -> Any:
    """Tell the processor that this is a loop that waits."""

    def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
        nothing, machine = ir.VoidType(), platform.machine().lower()
        if machine in ("x86_64", "amd64"):
            name, kinds, given = "llvm.x86.sse2.pause", [], []
        elif machine in ("arm64", "aarch64"):
            name, kinds, given = "llvm.aarch64.hint", [I32], [ir.Constant(I32, 1)]
        else:
            return context.get_dummy_value()
        known = b.module.globals.get(name) or ir.Function(b.module, ir.FunctionType(nothing, kinds), name)
        b.call(known, given)
        return context.get_dummy_value()

    return types.void(), code
