"""Memory in large pages."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from contextlib import suppress

import torch
from torch import Tensor

PAGE = 1 << 21


def roomy(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """A new tensor, on Linux in pages of 2 MB: a pass that reads it all then waits less for addresses."""
    if not sys.platform.startswith("linux"):
        return torch.empty(*shape, dtype=dtype)
    size = torch.Size(shape).numel() * dtype.itemsize
    memory = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without such pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    raw = torch.frombuffer(memory, dtype=torch.uint8)
    begin = -raw.data_ptr() % PAGE
    return raw[begin : begin + size].view(dtype).view(*shape)
