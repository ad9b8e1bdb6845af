"""Rotations that depend on the length of a text, given to every token as transformers' `generate` gives them.

Dynamic NTK and longrope turn queries and keys by how far the present pass reaches. `generate` reads a
prompt in one pass and goes on token by token: a prompt is turned as a text of its own length, every
later token as in the text that ends with it, and keys stay as they were turned. Phi-3 and its kin also
forget their past at the switch and read all of it again. Whoever cuts a text into other passes (pieces
of a prompt, drafts to verify) has to turn them so too, or writes another text than `generate`.

Transformers keeps the last rotation inside the module, where it would reach other sequences of the
same model: here every pass begins and leaves it as it was loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_tui.backends.cache import RewindableCache, cache_argument
from specdec_tui.backends.model import ModelContext
from specdec_tui.backends.states import States


def depends_on_length(rope_type: str) -> bool:
    """Whether rotations of this type are others for longer texts."""
    return rope_type == "longrope" or "dynamic" in rope_type


def rope_types(module: nn.Module) -> dict[str | None, str]:
    """How a module turns queries and keys, by kind of layer; one entry for None where all are turned alike."""
    named = getattr(module, "rope_type", None)
    if isinstance(named, str):
        return {None: named}
    return {kind: name for kind, name in named.items() if isinstance(name, str)} if isinstance(named, dict) else {}


class LengthRotations:
    """The rotary modules of a loaded model whose rotations depend on the length of the text.

    `switch`: the longest text that is turned by the first rotation. `starts_over`: `generate` reads the whole
    text again where it grows longer than that.
    """

    def __init__(self, model: PreTrainedModel, modules: Sequence[nn.Module]) -> None:
        self._modules = modules
        kinds = [(module, kind) for module in modules for kind, name in rope_types(module).items()]
        self.switch = min(
            _switch(module, kind) for module, kind in kinds if depends_on_length(rope_types(module)[kind])
        )
        self.starts_over = _starts_over(model, self.switch)

    @staticmethod
    def of(model: PreTrainedModel) -> LengthRotations | None:
        """None for a model that turns a token alike in every text."""
        modules = [m for m in model.modules() if any(map(depends_on_length, rope_types(m).values()))]
        return LengthRotations(model, modules) if modules else None

    @contextmanager
    def turned(self, until: int) -> Iterator[None]:
        """Passes in here turn tokens before place `until` as in a text of that length, later ones as its last."""
        with ExitStack() as undo:
            for module in self._modules:
                own = module.__dict__.get("forward")  # a hook's, where accelerate has put one
                undo.callback(_refresh, module)
                undo.callback(_restore, module, own)
                module.forward = _turning(module, module.forward, until)
            yield

    def refresh(self) -> None:
        """Have all modules as they were loaded."""
        for module in self._modules:
            _refresh(module)


def _restore(module: nn.Module, own: Any) -> None:
    if own is None:
        del module.__dict__["forward"]
    else:
        module.forward = own


def _switch(module: nn.Module, kind: str | None) -> int:
    """The longest text that a module still turns by its first rotation."""
    if rope_types(module)[kind] != "longrope":
        return int(module.original_max_seq_len)  # type: ignore[arg-type]
    parameters = module.config.rope_parameters  # type: ignore[union-attr]
    return int((parameters if kind is None else parameters[kind])["original_max_position_embeddings"])  # type: ignore


def _refresh(module: nn.Module) -> None:
    """Undo what earlier texts have left in a rotary module, as transformers itself does at a short text."""
    for kind in rope_types(module):
        prefix = "" if kind is None else f"{kind}_"
        first = getattr(module, f"{prefix}original_inv_freq", None)
        if first is None:
            continue
        setattr(module, f"{prefix}inv_freq", first.detach().clone().to(getattr(module, f"{prefix}inv_freq").device))
        if hasattr(module, f"{prefix}max_seq_len_cached"):
            setattr(module, f"{prefix}max_seq_len_cached", module.original_max_seq_len)


def _turning(module: nn.Module, forward: Callable[..., Any], until: int) -> Callable[..., Any]:
    """A rotary module's forward [1, n] → cosines and sines [1, n, width], stretch by stretch of equal rotation.

    What a pass reaches to is the highest of its positions: a stretch is given the one it has to reach to
    besides, whose rotations are dropped.
    """

    def turn(x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        name, switch = rope_types(module)[layer_type], _switch(module, layer_type)
        extra = {} if layer_type is None else {"layer_type": layer_type}
        reaches = [max(place + 1, until) for place in position_ids.reshape(-1, position_ids.shape[-1])[0].tolist()]

        def rotation(reach: int) -> int:
            return 0 if reach <= switch else 1 if name == "longrope" else reach

        parts, begin = [], 0
        for _, group in groupby(reaches, rotation if depends_on_length(name) else lambda reach: 0):
            stretch = list(group)
            end = begin + len(stretch)
            places = position_ids[..., begin:end]
            last = torch.full_like(places[..., :1], stretch[-1] - 1)
            _refresh(module)
            parts.append(forward(x, torch.cat((places, last), -1), **extra))
            begin = end
        if isinstance(parts[0], Tensor):
            return torch.cat([part[..., :-1, :] for part in parts], -2)
        return tuple(torch.cat([each[..., :-1, :] for each in same], -2) for same in zip(*parts, strict=True))

    return turn


def _starts_over(model: PreTrainedModel, switch: int) -> bool:
    """Whether a model's own `generate` gives up its past where a text grows past `switch`: asked, not assumed."""
    name = cache_argument(type(model).forward)
    if name is None or getattr(model.config, "original_max_position_embeddings", None) is None:
        return False
    held = SimpleNamespace(get_seq_length=lambda *_: switch, is_compileable=False)
    ids = torch.zeros(1, switch + 1, dtype=torch.int64)
    try:
        inputs = model.prepare_inputs_for_generation(ids, use_cache=True, next_sequence_length=1, **{name: held})
    except Exception:  # a method of its own, made for caches of its own
        return False
    return inputs.get(name) is not held


class Forwarding(Protocol):
    """What is asked of a model here."""

    def forward(self, ids: Sequence[int], keep: int, cache: RewindableCache | States | None = None) -> Tensor: ...

    def check_room(self, length: int) -> None: ...


@dataclass(frozen=True)
class Turned:
    """A model whose passes all turn the tokens before place `until` as in a text of that length."""

    model: Forwarding
    rotations: LengthRotations
    until: int

    def forward(self, ids: Sequence[int], keep: int, cache: RewindableCache | States | None = None) -> Tensor:
        with self.rotations.turned(self.until):
            return self.model.forward(ids, keep, cache)

    def check_room(self, length: int) -> None:
        self.model.check_room(length)


class LengthContext:
    """A sequence with the logits that `generate` has at each of its places, however it is cut into passes.

    What it is extended by first is the prompt, unless `expect` has told how long that will be. `open_part(until)`
    opens a context whose passes are turned so; it is read again from its beginning where the rotation changes.
    `recomputes` and `at_once` are those of such contexts.
    """

    def __init__(
        self,
        rotations: LengthRotations,
        open_part: Callable[[int], ModelContext],
        recomputes: bool,
        at_once: bool = False,
    ) -> None:
        self._rotations, self._open_part = rotations, open_part
        self.recomputes, self.at_once = recomputes, at_once
        self._ids: list[int] = []
        self._prompt = 0
        self._parts: dict[int, ModelContext] = {}

    @property
    def length(self) -> int:
        return len(self._ids)

    def expect(self, length: int) -> None:
        """See `model.Expecting`."""
        if not self._ids:
            self._prompt = length

    def extend(self, ids: Sequence[int], keep: int) -> Tensor:
        text, prompt = [*self._ids, *ids], self._prompt
        self._prompt = prompt or len(text)
        stretches = self._stretches(len(text) - keep + 1, len(text))
        self._parts = {until: self._parts.get(until) or self._open_part(until) for until, _, _ in stretches}
        rows = []
        try:
            for until, first, last in stretches:
                part = self._parts[until]
                rows.append(part.extend(text[part.length : last], last - first + 1))
        except BaseException:
            self._prompt = prompt
            self._rewind_parts(len(self._ids))
            raise
        self._ids = text
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def _stretches(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """Which rotation rules the rows behind texts of `first` to `last` tokens: (until, first, last) of each."""
        switch, prompt = self._rotations.switch, self._prompt
        if not self._rotations.starts_over:
            return [(prompt if prompt > switch else 0, first, last)]
        if first > switch or prompt > switch:
            return [(switch + 1, first, last)]
        if last <= switch:
            return [(0, first, last)]
        return [(0, first, switch), (switch + 1, switch + 1, last)]

    def rewind(self, length: int) -> None:
        del self._ids[length:]
        self._prompt = min(self._prompt, length)  # a part that was read as of a longer prompt is read again
        self._rewind_parts(length)

    def _rewind_parts(self, length: int) -> None:
        for part in self._parts.values():
            if part.length > length:
                part.rewind(length)
