"""Compiled code on disk, so that a machine compiles once."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.extending import intrinsic


def builds(code: Any) -> Any:
    """An operation whose machine code is built by `code`; of no static type."""
    return intrinsic(code)


def builds_for_constants(code: Any) -> Any:
    """The same, of which a constant's value is told where one is given."""
    return intrinsic(prefer_literal=True)(code)


class _Cache(FunctionCache):
    """Compiled code on disk that nothing depends on: what cannot be read is compiled again, and need not be kept.

    It is of one state of all files of its folder: numba looks at the one file that a function is in.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        folder = Path(inspect.getfile(function)).parent
        stamps = [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.glob("*.py"))]
        self._cache_file._source_stamp = hashlib.sha256(repr(stamps).encode()).hexdigest()

    def load_overload(self, *arguments: Any) -> Any:
        try:
            return super().load_overload(*arguments)
        except Exception:  # a damaged file: whatever unpickling makes of it
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, *arguments: Any) -> None:
        with suppress(OSError):
            super().save_overload(*arguments)


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
