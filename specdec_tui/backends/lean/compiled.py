"""Compiled code on disk, so that a machine compiles once."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from llvmlite import binding  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys
from numba.extending import intrinsic

INT, FLOAT = types.int64, types.float32
N1, N2 = (types.Array(types.int32, n, "C") for n in (1, 2))
I1, I2, I3 = (types.Array(types.int64, n, "C") for n in (1, 2, 3))
F1, F2, F3, F4, F5 = (types.Array(types.float32, n, "C") for n in (1, 2, 3, 4, 5))
"""Types of what compiled functions are given: arrays of int32, int64 and float32, so many dimensions in C order."""

_APART: list[tuple[str, Any, tuple[Any, ...]]] = []


def builds(code: Any) -> Any:
    """An operation whose machine code is built by `code`; of no static type."""
    return intrinsic(code)


def builds_for_constants(code: Any) -> Any:
    """The same, of which a constant's value is told where one is given."""
    return intrinsic(prefer_literal=True)(code)


class _Files(IndexDataCacheFile):
    """Numba's files, of which each says itself what its code is.

    Files go by numbers that an index gives, which is written before them, and by any process: where the disk is full,
    a process is killed or two write at once, a number may lead to the code of another function or of other sources.
    """

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._source_stamp, key, data))

    def load(self, key: Any) -> Any:
        """What `save` was given; None where it is not there."""
        found = super().load(key)
        return found[2] if found is not None and found[:2] == (self._source_stamp, key) else None


class _Cache(FunctionCache):
    """Compiled code on disk that nothing depends on: what cannot be read is compiled again, and need not be kept.

    It is of one state of all files of its folder: numba looks at the one file that a function is in.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, _stamp_of(function))

    def load_overload(self, signature: Any, target: Any) -> Any:
        """As numba's own, which before makes ready to compile: half a second, and of no use to what is compiled."""
        try:
            rtsys.initialize(target)  # what compiled code calls
            found = None
            with self._guard_against_spurious_io_errors():
                found = self._load_overload(signature, target)
            return found
        except Exception:  # a damaged file: whatever unpickling makes of it
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *arguments: Any) -> None:
        with suppress(OSError):
            super().save_overload(*arguments)


def _stamp_of(function: Callable[..., Any]) -> str:
    """Of one state of all sources beside that of a function. OSError."""
    folder = Path(inspect.getfile(function)).parent
    stamps = [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.glob("*.py"))]
    return hashlib.sha256(repr(stamps).encode()).hexdigest()


def keep_compiled(function: Any) -> None:
    """Have the compiled code of a numba function on disk where there is a place for it."""
    with suppress(RuntimeError, OSError):  # nowhere to write
        function._cache = _Cache(function.py_func)


def compiled_callback(function: Callable[..., None], signature: Any) -> Any:
    """A C callback of a Python function, from the disk where it is kept; `.address` is where its code lies."""
    found: Any = CFunc(function, (signature.args, signature.return_type), locals={}, options={"nopython": True})
    with suppress(RuntimeError, OSError):
        found._cache = _Cache(function)
    found.compile()
    return found


def apart(*kinds: Any, **options: Any) -> Callable[[Callable[..., None]], Any]:
    """A function that is compiled by itself, for arguments of these types, and called by its name from compiled code.

    Functions of numba's own hold a copy of all that they call, which is optimized and turned into machine code again
    in each of them: a tower of calls takes several times as long as its parts do. `options` are those of `njit`.
    What it calls is defined before it, and nothing is compiled that calls it before `link_apart`: an unknown name ends
    the process.
    """

    def decorated(function: Callable[..., None]) -> Any:
        name = f"{function.__module__}.{function.__name__}"
        alone: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **options}
        compiled = njit(nogil=True, **alone)(function)
        keep_compiled(compiled)
        _APART.append((name, compiled, kinds))
        signature = types.void(*kinds)

        def call(typing_context: Any, *given: Any) -> Any:
            def code(context: Any, b: Any, signature: Any, given: Any) -> Any:
                kind = context.call_conv.get_function_type(types.void, kinds)
                callee = cgutils.get_or_insert_function(b.module, kind, name)
                status, _ = context.call_conv.call_function(b, callee, types.void, kinds, given)
                with cgutils.if_unlikely(b, status.is_error):
                    context.call_conv.return_status_propagate(b, status)
                return context.get_dummy_value()

            return signature, code

        names = ["typing_context", *inspect.signature(function).parameters]
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__name__ = function.__name__
        return builds(call)

    return decorated


def link_apart() -> None:
    """Have every function that is `apart` compiled, or read from the disk, and known by its name."""
    while _APART:
        name, function, kinds = _APART[0]
        function.compile(kinds)
        found = function.overloads[kinds]
        binding.add_symbol(name, found.library.get_pointer_to_function(found.fndesc.llvm_func_name))
        _APART.pop(0)
