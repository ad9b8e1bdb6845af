"""Texts inside models whose layers keep a state: extended as their code allows it, and rewound exactly.

A state cannot be cut as keys and values are: it is copied behind each pass, and put back. Where a text
is taken back to a place within a pass, the tokens since the copy before it are read again: a pass more
where drafts are refused. Some models' code (Mamba, Jamba) reads several tokens only at the beginning of a text
and forgets the state else: then all but the first pass go token by token. Which is so, and whether
copies are all that a model keeps, is tried on the loaded model.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_tui.backends.cache import cache_argument, cache_with_states
from specdec_tui.backends.errors import is_out_of_memory
from specdec_tui.backends.states import Place, Snapshot, States, places_in

# Copies of a state that are kept: of every pass that ended in the last NEAR tokens, of some of those until FAR. The
# longest block of drafts is not as long as FAR, and what is rewound further is read again as a whole. That is up to 17
# copies, each of some tens of megabytes for a model of some billion weights.
NEAR, APART, FAR = 10, 8, 48

_TEXT, _KNOWN, _WRONG = (1, 3, 2, 4, 1, 0, 3, 2, 4), 5, (4, 0, 2, 1)  # ids that every vocabulary has
_LARGER = 8.0  # by which states are enlarged where it is looked for whether a pass heeds them


class Stateful(Protocol):
    """What is asked of a model here."""

    def forward(self, ids: Sequence[int], keep: int, cache: States | None = None) -> Tensor: ...

    def check_room(self, length: int) -> None: ...


class StateContext:
    """A sequence whose states are kept. `at_once`: only its first pass takes in more than one token."""

    recomputes = False

    def __init__(self, model: Stateful, states: States, at_once: bool) -> None:
        self._model, self._states, self.at_once = model, states, at_once
        self._text: list[int] = []
        self._snapshots: list[Snapshot] = []

    @property
    def length(self) -> int:
        return len(self._text)

    def extend(self, ids: Sequence[int], keep: int) -> Tensor:
        text = [*self._text, *ids]
        self._model.check_room(len(text))
        try:
            rows = self._read(text[self._states.length :], keep)
        except BaseException:
            self._back_to(len(self._text))
            raise
        self._text = text
        return rows

    def _read(self, unread: Sequence[int], keep: int) -> Tensor:
        if self.at_once and self._states.length:
            return torch.cat([self._pass([token], 1) for token in unread][-keep:])
        return self._pass(unread, keep)

    def _pass(self, ids: Sequence[int], keep: int) -> Tensor:
        logits = self._model.forward(ids, keep, self._states)
        self._snapshots = _thinned([*self._snapshots, self._states.snapshot()])
        return logits

    def rewind(self, length: int) -> None:
        """What is left since the last copy is read again at once, so that the next pass costs what its tokens cost.

        Not where no copy is left: all of the text is then read with what comes next.
        """
        del self._text[length:]
        if self._states.length <= len(self._text):
            return
        self._back_to(len(self._text))
        if self._snapshots and self._states.length < len(self._text):
            self.extend([], 1)

    def _back_to(self, length: int) -> None:
        while self._snapshots and self._snapshots[-1].length > length:
            self._snapshots.pop()
        self._states.restore(self._snapshots[-1] if self._snapshots else None)


def _thinned(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    end, kept = snapshots[-1].length, list[Snapshot]()
    for snapshot in snapshots:
        if not kept or snapshot.length >= min(end - NEAR, kept[-1].length + APART):
            kept.append(snapshot)
    while len(kept) > 1 and kept[1].length < end - FAR:
        del kept[0]
    return kept


@dataclass(frozen=True)
class Keeping:
    """How the states of a model are kept. `steps`: a token's logits depend on whether it has a pass of its own."""

    fresh: Callable[[int], States]
    at_once: bool
    steps: bool

    def context(self, model: Stateful, capacity: int) -> StateContext:
        return StateContext(model, self.fresh(capacity), self.at_once)


def keeping(model: PreTrainedModel, run: Stateful, exact: bool) -> Keeping | None:
    """How a loaded model's states can be kept, tried by passes of `run`; None where they cannot.

    `exact`: rounding is that of float32.
    """
    forward = type(model).forward
    ways: list[tuple[str, Callable[[int], Any] | None]] = []
    if (name := cache_argument(forward)) is not None:
        ways = [(name, partial(cache_with_states, model.config)), (name, None)]
    if "state" in inspect.signature(forward).parameters:
        ways.append(("state", None))
    theirs: Tensor | None = None
    for name, _ in ways:  # over the cache that the model makes for itself, as `generate` goes on with a text
        with _refusals():
            theirs = _stepped(run, States(name, None))
            break
    for way in ways:
        with _refusals():
            found = _tried(run, partial(_opened, *way, _places(model, run, way)), theirs, exact)
            if found is not None:
                return found
    return None


@contextmanager
def _refusals() -> Iterator[None]:
    """A model's code that is not made for what it is given raises in any way; only a want of memory is passed on."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error):
            raise


def _stepped(run: Stateful, states: States) -> Tensor:
    run.forward(_TEXT[:_KNOWN], 1, states)
    return torch.cat([run.forward([token], 1, states) for token in _TEXT[_KNOWN:]])


def _opened(name: str, make: Callable[[int], Any] | None, places: Sequence[Place], capacity: int) -> States:
    return States(name, None if make is None else partial(make, capacity), places)


def _places(model: PreTrainedModel, run: Stateful, way: tuple[str, Callable[[int], Any] | None]) -> list[Place]:
    """Where in a model's modules reading puts tensors."""
    before = places_in(model)
    run.forward(_TEXT[:_KNOWN], 1, _opened(*way, (), 0))
    return [place for place, tensor in places_in(model).items() if before.get(place) is not tensor]


def _tried(run: Stateful, way: Callable[[int], States], theirs: Tensor | None, exact: bool) -> Keeping | None:
    """Read, take back and read again, token by token and as a block, with copies that were put back.

    `theirs`: the same rows, token by token, as the model itself goes on with a text, where that is to be had.
    """
    known, rest = _TEXT[:_KNOWN], _TEXT[_KNOWN:]
    states = way(0)

    def stepped(begin: Snapshot, ids: Sequence[int]) -> Tensor:
        states.restore(begin)
        return torch.cat([run.forward([token], 1, states) for token in ids])

    def block(begin: Snapshot, ids: Sequence[int]) -> Tensor:
        states.restore(begin)
        rows = run.forward(ids, len(ids), states)
        return torch.cat([rows, run.forward([_WRONG[0]], 1, states)])  # what it leaves behind counts as well

    expected = run.forward(_TEXT, len(rest))
    run.forward(known, 1, states)
    begin = states.snapshot()
    kinds = begin.kinds()
    if not kinds:
        return None
    single = stepped(begin, rest)
    stepped(begin, _WRONG)
    scale = max(1.0, expected.abs().max().item())
    if _differ(stepped(begin, rest), single) > 1e-4 * scale:
        return None
    apart = _differ(single, expected)
    if theirs is not None and _differ(single, theirs) > 1e-4 * scale:
        return None
    if apart > (1e-3 if exact and theirs is None else 0.3) * scale:
        return None
    # Whether a block heeds the states: these are enlarged, and each kind of them must tell.
    large = begin.scaled(_LARGER, kinds)
    wanted = stepped(large, (*rest, _WRONG[0]))
    effects = [_on_average(wanted, stepped(large.scaled(0.0, {kind}), (*rest, _WRONG[0]))) for kind in kinds]
    at_once = block(large, rest)
    heeded = all(_on_average(at_once, wanted) <= effect / 4 for effect in effects if effect > 0)
    if exact:
        heeded = heeded and _differ(at_once, wanted) <= 1e-4 * max(1.0, wanted.abs().max().item())
    block(large, _WRONG)
    heeded = heeded and _differ(block(large, rest), at_once) <= 1e-4 * scale
    return Keeping(way, not heeded, exact and apart > 1e-4 * scale)


def _differ(one: Tensor, other: Tensor) -> float:
    difference = (one - other).abs().max().item()
    return difference if difference == difference else torch.inf


def _on_average(one: Tensor, other: Tensor) -> float:
    """A lost state shows in all rows; where rounding sends a token to another expert, a few of them differ by much."""
    difference = (one - other).square().mean().sqrt().item()
    return difference if difference == difference else torch.inf
