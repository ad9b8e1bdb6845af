"""Where kernels have instructions of their own (`ptx`), and the shared memory that these declare."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache, partial
from typing import Any

import torch

_DECLARED, _MOST = 1, 8  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, …_MAX_DYNAMIC_SHARED_SIZE_BYTES
_OF_PROGRAM = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN


@cache
def by_code(device: torch.device) -> bool:
    """Whether a device has them: of compute capability 8.0 or newer."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    _allow_declared()
    return True


@cache
def _allow_declared() -> None:
    """Let each kernel have what its instructions declare beside what Triton takes.

    Triton asks the driver for more than 48 KB where it takes more by itself, and does not see what is declared: where
    only both together are more, the driver would not start the kernel.
    """
    with suppress(ImportError, OSError):
        from triton import knobs  # type: ignore[import-not-found]

        allow = partial(allow_both, ctypes.CDLL("libcuda.so.1"))
        if knobs.runtime.kernel_load_end_hook is None:
            knobs.runtime.kernel_load_end_hook = allow
        else:
            knobs.runtime.kernel_load_end_hook.add(allow)


def allow_both(driver: Any, module: int, function: int, *_: Any) -> None:
    """Of a kernel that was loaded: let it have all shared memory of a program that it does not declare."""
    declared, most, device = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    kernel = ctypes.c_void_p(function)
    driver.cuFuncGetAttribute(ctypes.byref(declared), _DECLARED, kernel)
    if declared.value:
        driver.cuCtxGetDevice(ctypes.byref(device))
        driver.cuDeviceGetAttribute(ctypes.byref(most), _OF_PROGRAM, device)
        driver.cuFuncSetAttribute(kernel, _MOST, most.value - declared.value)
