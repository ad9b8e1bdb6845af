"""Cards that a CPU stands for: memory of each apart, and streams that run as late as they may."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from specdec_tui.backends.cards import Card, recorded
from specdec_tui.backends.model import StaticSequence, nothing

HERE, THERE = Card(torch.device("cpu")), Card(torch.device("cpu"), 1)


class Table:
    """A sequence whose logits follow from a token and its place alone."""

    capacity = 64

    def __init__(self, card: Card, seed: int, width: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.card = card
        self._table, self._places = (torch.randn(n, width, generator=generator) for n in (width, 8))

    def prefill(self, ids: Tensor, between: Callable[[], None] = nothing) -> Tensor:
        raise NotImplementedError

    def extend(self, ids: Tensor, begin: Tensor, keep: int) -> Tensor:
        places = begin + torch.arange(len(ids), device=ids.device)
        return (2 * self._table[ids] + self._places[places % 8])[-keep:]


class On:
    """A sequence on another card than it says."""

    def __init__(self, card: Card, sequence: StaticSequence) -> None:
        self.card, self._sequence, self.capacity = card, sequence, sequence.capacity

    def prefill(self, ids: Tensor, between: Callable[[], None] = nothing) -> Tensor:
        return self._sequence.prefill(ids, between)

    def extend(self, ids: Tensor, begin: Tensor, keep: int) -> Tensor:
        return self._sequence.extend(ids, begin, keep)


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    for value in tree_leaves(values):
        if isinstance(value, Tensor) and value.numel() and value.dim():
            yield value.untyped_storage()


class Carried:
    """See `cards.Recording`: a step whose copies are really made, and counted; it ends on the card where it began.

    `lost`: the places, among all tensors that a step takes over, of those whose copies are left out.
    """

    def __init__(self, *lost: int) -> None:
        self._lost, self._taken = lost, 0
        self._way: list[Card] = []
        self.crossings = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        self._taken, self._way = 0, []
        with recorded(self):
            yield
        assert self._way[:1] == self._way[-1:], "a step comes back"

    def cross(self, here: Card, there: Card, given: Sequence[Tensor], into: Sequence[Tensor]) -> Sequence[Tensor]:
        self.crossings += 1
        assert self._way[-1:] in ([], [here]), "a step crosses from where it is"
        self._way += [there] if self._way else [here, there]
        copies = into or [torch.zeros_like(tensor) for tensor in given]
        for copy, tensor in zip(copies, given, strict=True):
            if self._taken not in self._lost:
                copy.copy_(tensor)
            self._taken += 1
        return copies


class Apart(Carried, TorchDispatchMode):
    """A step that fails where an operation takes memory of two cards, as it would on real ones.

    Memory is of the card that it is first used on.
    """

    def __init__(self) -> None:
        Carried.__init__(self)
        TorchDispatchMode.__init__(self)
        self._cards: dict[int, tuple[Card, torch.UntypedStorage]] = {}  # which must not be given to others

    @contextmanager
    def step(self) -> Iterator[None]:
        with self, super().step():
            yield

    def owned(self, card: Card, values: Any) -> None:
        for storage in _storages(values):
            known, _ = self._cards.setdefault(storage._cdata, (card, storage))
            assert known == card, f"memory of {known} on {card}"

    def used(self, values: Any) -> None:
        """All at once by one card."""
        known = {self._cards[key][0] for key in (each._cdata for each in _storages(values)) if key in self._cards}
        assert len(known) < 2, "memory of two cards in one operation"
        for card in known:
            self.owned(card, values)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.used((args, kwargs, found))
        return found

    def cross(self, here: Card, there: Card, given: Sequence[Tensor], into: Sequence[Tensor]) -> Sequence[Tensor]:
        with torch.utils._python_dispatch._disable_current_modes():
            copies = super().cross(here, there, given, into)
        self.owned(here, list(given))
        self.owned(there, list(copies))
        return copies


class LateCuda:
    """`torch.cuda` as `cuda_graphs` uses it, whose streams run what they were given only at `run`, the youngest first.

    Operations of a step are noted as a graph while it is captured; what a replay or a copy between graphs asks for
    goes to the current stream. `deaf`: streams that do not wait for events.
    """

    def __init__(self, deaf: bool = False) -> None:
        self.deaf, self._playing = deaf, False
        self.streams: list[_Stream] = []
        self.captures, self.capturing = 0, False
        self._current = [_Stream(self)]
        cuda = SimpleNamespace(
            Stream=lambda device: _Stream(self),
            current_stream=lambda device=None: self._current[-1],
            stream=self._stream,
            device=self._device,
            graph=self._graph,
            CUDAGraph=lambda: _Graph(self),
            graph_pool_handle=object,
            Event=_Event,
        )
        self.torch = SimpleNamespace(cuda=cuda, empty_like=torch.zeros_like)

    @contextmanager
    def _device(self, device: torch.device) -> Iterator[None]:
        yield

    @contextmanager
    def _stream(self, stream: _Stream) -> Iterator[None]:
        self._current.append(stream)
        try:
            if self._playing:
                with _Noted(stream.ask, runs=False):
                    yield
            else:
                yield
        finally:
            self._current.pop()

    @contextmanager
    def _graph(self, graph: _Graph, pool: object, stream: _Stream) -> Iterator[None]:
        assert not self.capturing
        self.captures, self.capturing = self.captures + 1, True
        try:
            with _Noted(graph.operations.append, runs=True):
                yield
        finally:
            self.capturing = False

    @contextmanager
    def playing(self) -> Iterator[None]:
        self._playing = True
        yield
        self._playing = False

    @torch.inference_mode()
    def run(self) -> None:
        """All that was asked for."""
        while any(stream.asked for stream in self.streams):
            able = [stream for stream in reversed(self.streams) if stream.able]
            assert able, "streams that wait for each other"
            able[0].asked.popleft()()


class _Event:
    def __init__(self) -> None:
        self.mark: list[bool] = []

    def record(self, stream: _Stream) -> None:
        mark = self.mark = [False]
        stream.ask(lambda: mark.__setitem__(0, True))


class _Wait:
    def __init__(self, mark: list[bool]) -> None:
        self.mark = mark

    def __call__(self) -> None:
        assert self.mark[0]


class _Stream:
    def __init__(self, cuda: LateCuda) -> None:
        self._cuda, self.asked = cuda, deque[Callable[[], Any]]()
        cuda.streams.append(self)

    def ask(self, work: Callable[[], Any]) -> None:
        self.asked.append(work)

    @property
    def able(self) -> bool:
        return bool(self.asked) and not (isinstance(self.asked[0], _Wait) and not self.asked[0].mark[0])

    def wait_event(self, event: _Event) -> None:
        if not self._cuda.deaf:
            self.ask(_Wait(event.mark))

    def wait_stream(self, stream: _Stream) -> None:
        """Where nothing is played all is done at once."""


class _Graph:
    def __init__(self, cuda: LateCuda) -> None:
        self._cuda, self.operations = cuda, list[Callable[[], Any]]()

    def replay(self) -> None:
        stream = self._cuda.torch.cuda.current_stream()
        for operation in self.operations:
            stream.ask(operation)


class _Noted(TorchDispatchMode):
    """Operations are noted, to be done again in the same memory; `runs`: and done."""

    def __init__(self, note: Callable[[Callable[[], Any]], None], runs: bool) -> None:
        super().__init__()
        self._note, self._runs = note, runs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self._runs:
            self._note(lambda: func(*args, **kwargs))
            return args[0]
        found = func(*args, **kwargs)
        given = {storage._cdata for storage in _storages((args, kwargs))}
        outs = [out for out in tree_leaves(found) if isinstance(out, Tensor)]
        if any(storage._cdata in given for storage in _storages(found)):  # a view, or in place
            if func._schema.is_mutable:
                self._note(lambda: func(*args, **kwargs))
        elif outs:

            def again() -> None:
                for out, fresh in zip(outs, tree_leaves(func(*args, **kwargs)), strict=True):
                    out.copy_(fresh)

            self._note(again)
        return found
