"""What a recurrent model keeps of a text between passes, copied and put back, so that its text can be taken back.

Keys and values are rewound by a length; a state (of a recurrence, of a convolution) has no length, and
most passes change it in place. Transformers keeps states in the layers of its cache, in an object of
the model's own that is handed from pass to pass (RWKV), or in the modules themselves (RecurrentGemma).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from specdec_tui.backends.cache import RewindableLayer

Name = str | int
Place = tuple[nn.Module, str]
Table = dict[Name, Any]

_OF_KEYS_AND_VALUES = frozenset({*vars(RewindableLayer()), "keys", "values"})


@dataclass(frozen=True)
class Snapshot:
    """The states behind the first `length` tokens of a text, as tables of copies: none is ever changed."""

    length: int
    tables: tuple[Table, ...]

    def kinds(self) -> set[Name]:
        """The names under which there are numbers."""
        return {name for table in self.tables for name, value in table.items() if [*_numbers(value)]}

    def scaled(self, factor: float, kinds: set[Name]) -> Snapshot:
        """With the numbers of these kinds multiplied."""
        tables = tuple(copied(table) for table in self.tables)
        for table in tables:
            for name in kinds & table.keys():
                for numbers in _numbers(table[name]):
                    numbers.mul_(factor)
        return Snapshot(self.length, tables)


class States:
    """One text inside a model that keeps states. `length`: tokens it has read.

    `make` makes the cache that the model takes as `name`; without one, what a pass returns under that name is
    handed to the next. `places`: tensors that lie in modules of the model and belong to the text.
    """

    def __init__(self, name: str, make: Callable[[], Any] | None, places: Sequence[Place] = ()) -> None:
        self._name, self._make, self._places = name, make, places
        self._forget()

    def _forget(self) -> None:
        self.length = 0
        self._held = self._make() if self._make else None
        self._loose: list[Tensor | None] = [None] * len(self._places)

    def begin(self) -> dict[str, Any]:
        """Arguments of the next pass; the modules are as this text has left them."""
        for (module, name), tensor in zip(self._places, self._loose, strict=True):
            setattr(module, name, tensor)
        return {} if self._held is None else {self._name: self._held}

    def end(self, found: Mapping[str, Any], count: int) -> None:
        """A pass over `count` tokens is over, and returned this."""
        self._loose = [getattr(module, name) for module, name in self._places]
        if self._make is None:
            self._held = found[self._name]
        self.length += count

    def snapshot(self) -> Snapshot:
        loose: Table = dict(enumerate(copied(self._loose)))
        return Snapshot(self.length, (*(copied(_states_of(table)) for table in _tables(self._held)), loose))

    def restore(self, snapshot: Snapshot | None) -> None:
        """Be as when the snapshot was taken, or as new; keys and values are those of the same text."""
        if snapshot is None:
            self._forget()
            return
        *tables, loose = copied(snapshot.tables)
        self.length, self._loose = snapshot.length, list(loose.values())
        if isinstance(self._held, list):
            self._held = list(tables[0].values())
            return
        for table, saved in zip(_tables(self._held), tables, strict=True):
            table.update(saved)
        for layer in getattr(self._held, "layers", ()):
            if isinstance(layer, RewindableLayer):
                layer.length = min(layer.length, snapshot.length)


def _tables(held: Any) -> list[Table]:
    """Where an object keeps its states: the attributes of a cache's layers, else its own, or the items of a list."""
    if isinstance(held, list):
        return [dict(enumerate(held))]
    return [vars(part) for part in getattr(held, "layers", [held])]


def _states_of(table: Table) -> Table:
    return {name: value for name, value in table.items() if name not in _OF_KEYS_AND_VALUES}


def copied(value: Any) -> Any:
    """Tables, lists and tensors are copied; whatever else a state is kept with does not change with it."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, dict):
        return {name: copied(each) for name, each in value.items()}
    return type(value)(map(copied, value)) if type(value) in (list, tuple) else value


def _numbers(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _numbers(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _numbers(each)


def places_in(model: nn.Module) -> dict[Place, Tensor]:
    """The tensors that lie in a model's modules and are neither weights nor buffers."""
    return {
        (module, name): value
        for module in model.modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor)
    }
