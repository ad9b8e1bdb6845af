"""Triton's interpreter, where the environment asks for it (TRITON_INTERPRET=1): kernels in NumPy on a CPU, slowly."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

GPU = torch.cuda.is_available()


def need_triton() -> None:
    """Skip the test file that asks where there is nothing to run kernels."""
    pytest.importorskip("triton", reason="needs Triton")
    if GPU:
        return
    if os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)
    import triton.language as tl  # type: ignore[import-not-found]
    from triton.runtime import interpreter  # type: ignore[import-not-found]

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        # NumPy 2.4 makes no number of an array of one, which triton 3.6 asks for at each range.
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched

    def dotted(builder: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
        product = np.matmul(a.data, b.data, dtype=np.float64) + d.data
        return interpreter.TensorHandle(product.astype(d.data.dtype), d.dtype.scalar)

    # NumPy adds up products of tiles of other sizes in another order, a tensor core does not.
    interpreter.InterpreterBuilder.create_dot = dotted
    # It looks for what to replace in `triton.language` at each call of a function within a kernel: once is enough.
    replace, replaced = interpreter._patch_lang, set()

    def once(function: Any) -> Any:
        seen = frozenset(id(value) for value in function.__globals__.values() if value is tl or value is tl.core)
        if seen not in replaced:
            replace(function)
            replaced.add(seen)
        return interpreter._LangPatchScope()

    interpreter._patch_lang = once
