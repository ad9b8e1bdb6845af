"""CUDA graphs: a step of tensor operations becomes one launch, and the device's own clock is read in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from specdec_tui.backends.gpu import launches

_WARM_UPS = 2  # libraries choose kernels and take their workspaces when they are first used


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """The one that a device captures on: torch's own is of the first device, and libraries hold memory for each."""
    return torch.cuda.Stream(device)


def capture(step: Callable[[], None], state: list[Tensor]) -> Callable[[], None]:
    """A function that repeats `step` by one launch. `state`, all that the step changes for good, stays as it was.

    RuntimeError when the step cannot be captured, because it waits for the device, say.
    """
    kept = [tensor.clone() for tensor in state]
    with torch.cuda.device(state[0].device):
        side = _side_stream(torch.cuda.current_device())
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # A capture that fails leaves its own stream the current one: the outer context takes the old one back.
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, stream=side):
            step()
    for tensor, value in zip(state, kept, strict=True):
        tensor.copy_(value)
    return graph.replay


class Stretch:
    """See `device_round.Stretch`: by events of the stream that is current on the device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def begin(self) -> None:
        self._begin.record(torch.cuda.current_stream(self._device))

    def end(self) -> None:
        self._end.record(torch.cuda.current_stream(self._device))

    def seconds(self) -> float:
        self._end.synchronize()
        return self._begin.elapsed_time(self._end) / 1000


def mark(place: Tensor) -> None:
    """Write the device's clock, in nanoseconds, into an int64 [1] when the stream gets there.

    RuntimeError where there is no Triton: without that clock a round's parts cannot be told.
    """
    if launches.kernels() is None:
        raise RuntimeError("the GPU's clock is read with Triton, which is not installed")
    launches.store_time(place)
