"""Several texts with one beginning in any model: in one pass where its contexts can, else in contexts of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch

from specdec_tui.backends.model import Branches, Branching, CausalModel, Copying, ModelContext
from specdec_tui.decoding.prompt import read_prompt


def branches_of(
    model: CausalModel,
    context: ModelContext,
    prompt: Sequence[int],
    width: int,
    capacity: int,
    use_cache: bool,
    cancelled: Callable[[], bool],
) -> Branches:
    """The texts that go on from a context, which has read the prompt. `Stopped`, when cancelled, while it is read."""
    found = context.branches() if isinstance(context, Branching) else None
    if found is not None:
        return found
    contexts = [context]
    for _ in range(1, width):
        another = model.open(use_cache=use_cache, capacity=capacity)
        if isinstance(another, Copying):
            another.take(context, 0)
        else:
            read_prompt(model, another, prompt, use_cache, cancelled)
        contexts.append(another)
    return SeparateBranches(contexts, prompt)


class SeparateBranches:
    """A context for each text. One that goes on where another was is copied or read again from where the two part."""

    def __init__(self, contexts: Sequence[ModelContext], prompt: Sequence[int]) -> None:
        self._contexts = list(contexts)
        self._held = [list(prompt) for _ in contexts]  # by each context
        self._places = [0] * len(contexts)  # of each text: which context has read it

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
        """See `model.Branches`."""
        texts = [[*self._held[self._places[parent]], token] for parent, token in zip(parents, tokens, strict=True)]
        free, places = set(range(len(self._contexts))), dict[int, int]()
        for index, parent in enumerate(parents):  # the first that goes on from a text goes on in its context
            if (place := self._places[parent]) in free:
                places[index] = place
                free.remove(place)
        for index, (parent, text) in enumerate(zip(parents, texts, strict=True)):
            if index not in places:
                places[index] = place = max(sorted(free), key=partial(self._known, text))
                free.remove(place)
                self._copy(self._places[parent], place)
        self._places = [places[index] for index in range(len(texts))]
        return torch.cat([self._read(place, text) for place, text in zip(self._places, texts, strict=True)])

    def _copy(self, source: int, place: int) -> None:
        """Have a context hold what another one holds, where contexts can copy."""
        context, held = self._contexts[place], self._held[source]
        if isinstance(context, Copying):
            context.take(self._contexts[source], self._known(held, place))
            self._held[place] = held

    def _known(self, text: Sequence[int], place: int) -> int:
        """How much of a text a context has read."""
        return _shared(self._held[place], text)

    def _read(self, place: int, text: list[int]) -> torch.Tensor:
        context, shared = self._contexts[place], self._known(text, place)
        if shared < context.length:
            context.rewind(shared)
        self._held[place] = text
        return context.extend(text[shared:], keep=1)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common at their beginning."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))
