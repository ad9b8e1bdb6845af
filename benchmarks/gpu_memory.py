"""What a way to pass through a model takes of a GPU's memory beyond the model's weights, in allocated bytes."""

from __future__ import annotations

import gc
from typing import Any

import torch


class Memory:
    """Counts from the moment it is made: all that is allocated by then, the weights, is not counted."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._cuda = device, device.type == "cuda"
        if self._cuda:
            emptied(device)
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)

    @property
    def peak(self) -> int | None:
        """The most that was allocated at any time since; None without a GPU."""
        return torch.cuda.max_memory_allocated(self._device) - self._before if self._cuda else None

    @property
    def held(self) -> int | None:
        """What is taken now: allocated, or of a graph's pool, whose free parts are the graph's too."""
        if not self._cuda:
            return None
        torch.cuda.synchronize(self._device)
        gc.collect()
        index = self._device.index if self._device.index is not None else torch.cuda.current_device()
        own = [each for each in torch.cuda.memory_snapshot() if each["device"] == index]
        return taken(own) - self._before


def taken(segments: list[dict[str, Any]]) -> int:
    """Bytes of the allocator's segments that are allocated, or belong to a graph."""
    return sum(
        each["total_size"] if tuple(each.get("segment_pool_id", (0, 0))) != (0, 0) else each["allocated_size"]
        for each in segments
    )


def emptied(device: torch.device) -> None:
    """Give up all that nothing uses, the work space of libraries too: each way asks for its own."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
