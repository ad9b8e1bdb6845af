"""CUDA graphs: a step of tensor operations becomes one launch, and the device's own clock is read in it.

A step that crosses to other cards becomes a launch for each stretch on one, with copies between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

import torch
from torch import Tensor

from specdec_tui.backends.cards import Card, recorded
from specdec_tui.backends.gpu import launches

_WARM_UPS = 2  # libraries choose kernels and take their workspaces when they are first used


@cache
def _side_stream(card: Card) -> torch.cuda.Stream:
    """The one that a card captures on: torch's own is of the first device, and libraries hold memory for each."""
    return torch.cuda.Stream(card.device)


def _stream(card: Card) -> torch.cuda.Stream:
    """The one that a card computes on."""
    return _side_stream(card) if card.number else torch.cuda.current_stream(card.device)


def capture(step: Callable[[], None], state: list[Tensor]) -> Callable[[], None]:
    """A function that repeats `step` without waiting. `state`, all that it changes for good, stays as it was.

    The step begins and ends on the first one's card; those of `state` that lie on others tell which it crosses to.
    RuntimeError when the step cannot be captured, because it waits for the device, say.
    """
    kept = [tensor.clone() for tensor in state]
    home = state[0].device
    _warm_up(step, [*{tensor.device for tensor in state} - {home}, home])
    with torch.cuda.device(home), _Recording(Card(home)) as recording, recorded(recording):
        step()
    for tensor, value in zip(state, kept, strict=True):
        tensor.copy_(value)
    return recording.play


def _warm_up(step: Callable[[], None], devices: list[torch.device]) -> None:
    """On the streams that are captured, of the last device as the current one."""
    streams = [(torch.cuda.current_stream(device), _side_stream(Card(device))) for device in devices]
    with ExitStack() as sides:
        for current, side in streams:
            side.wait_stream(current)
            sides.enter_context(torch.cuda.stream(side))
        for _ in range(_WARM_UPS):
            step()
    for current, side in streams:
        current.wait_stream(side)


class _Recording:
    """See `cards.Recording`: a graph for each stretch on a card, and what goes over between them."""

    def __init__(self, home: Card) -> None:
        self._card = home
        self._links: list[Callable[[], None]] = []
        self._pools: dict[Card, Any] = {}
        self._under_way = ExitStack()

    def __enter__(self) -> _Recording:
        self._begin(self._card)
        return self

    def __exit__(self, *error: Any) -> None:
        self._under_way.__exit__(*error)

    def _begin(self, card: Card) -> None:
        stream, graph = _side_stream(card), torch.cuda.CUDAGraph()
        with ExitStack() as begun:
            begun.enter_context(torch.cuda.device(card.device))
            # A capture that fails leaves its own stream the current one: the outer context takes the old one back.
            begun.enter_context(torch.cuda.stream(torch.cuda.current_stream()))
            pool = self._pools.setdefault(card, torch.cuda.graph_pool_handle())
            begun.enter_context(torch.cuda.graph(graph, pool=pool, stream=stream))
            self._under_way = begun.pop_all()
        self._card = card
        self._links.append(_Replay(card, graph) if card.number else graph.replay)

    def cross(self, here: Card, there: Card, given: Sequence[Tensor], into: Sequence[Tensor]) -> Sequence[Tensor]:
        assert here == self._card, "a step crosses from where it is"
        self._under_way.close()
        copies = into or [torch.empty_like(tensor, device=there.device) for tensor in given]
        self._links.append(_Crossing(here, there, list(zip(copies, given, strict=True))))
        self._begin(there)
        return copies

    @property
    def play(self) -> Callable[[], None]:
        """Repeats what was recorded."""
        links = tuple(self._links)

        def play() -> None:
            for link in links:
                link()

        return links[0] if len(links) == 1 else play


class _Replay:
    """A graph on the stream of a card that stands for another."""

    def __init__(self, card: Card, graph: torch.cuda.CUDAGraph) -> None:
        self._card, self._graph = card, graph

    def __call__(self) -> None:
        with torch.cuda.stream(_stream(self._card)):
            self._graph.replay()


class _Crossing:
    """Copies from a card to another, behind all that was asked of it and before what will be of the other."""

    def __init__(self, here: Card, there: Card, copies: list[tuple[Tensor, Tensor]]) -> None:
        self._here, self._there, self._copies = here, there, copies
        self._event = torch.cuda.Event()

    @torch.inference_mode()
    def __call__(self) -> None:
        there = _stream(self._there)
        self._event.record(_stream(self._here))
        there.wait_event(self._event)
        with torch.cuda.stream(there):
            for copy, tensor in self._copies:
                copy.copy_(tensor, non_blocking=True)


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
    with torch.cuda.device_of(place):  # Triton launches on the current device
        launches.store_time(place)
