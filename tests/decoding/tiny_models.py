"""Tiny models for the decoding tests: exact, fast, and small enough to enumerate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from specdec_tui.decoding.drafters import Drafter
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.records import PrefillDone, Record, RoundVerified, RunEnded
from specdec_tui.decoding.sampling import Sampler

GREEDY = Sampler("greedy")


class FunctionContext:
    """The tokens of a `FunctionModel`; refuses what a real cache would have to refuse."""

    recomputes = False

    def __init__(self, model: FunctionModel) -> None:
        self.model = model
        self.ids: list[int] = []

    @property
    def length(self) -> int:
        return len(self.ids)

    def extend(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        assert 0 < keep <= len(ids)
        assert all(0 <= token < self.model.vocab_size for token in ids), "an id without an embedding"
        limit = self.model.context_length
        if limit is not None and len(self.ids) + len(ids) > limit:
            raise ValueError("past the context length")
        self.ids += ids
        self.model.calls.append(len(ids))
        ends = range(len(self.ids) - keep + 1, len(self.ids) + 1)
        return torch.stack([self.model.row(self.ids[:end]) for end in ends])

    def rewind(self, length: int) -> None:
        assert 0 <= length <= len(self.ids)
        del self.ids[length:]


class FunctionModel:
    """A model that is any function from the text to a row of logits."""

    def __init__(
        self, vocab_size: int, row: Callable[[list[int]], torch.Tensor], context_length: int | None = None
    ) -> None:
        self.vocab_size = vocab_size
        self.row = row
        self.context_length = context_length
        self.device = torch.device("cpu")
        self.calls: list[int] = []
        self.synchronized = 0

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> FunctionContext:
        return FunctionContext(self)

    def synchronize(self) -> None:
        self.synchronized += 1


def table_model(
    seed: int,
    vocab_size: int,
    *,
    reach: int = 2,
    spread: float = 2.0,
    like: FunctionModel | None = None,
    rare: int | None = None,
) -> FunctionModel:
    """Random logits of the last `reach` tokens; `like` mixes in another model's, `rare` is an unlikely id."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(*[vocab_size] * reach, vocab_size, generator=generator) * spread
    if rare is not None:
        table[..., rare] -= 1.5
    rows: dict[tuple[int, ...], torch.Tensor] = {}

    def row(ids: list[int]) -> torch.Tensor:
        key = tuple(([0] * reach + ids)[-reach:])
        if key not in rows:
            rows[key] = table[key] if like is None else 0.5 * table[key] + like.row(ids)
        return rows[key]

    return FunctionModel(vocab_size, row)


def scripted_model(script: Sequence[int], vocab_size: int = 16, prompt_length: int = 1, **extra: Any) -> FunctionModel:
    """Says `script` after a prompt of `prompt_length` tokens, whatever the tokens are, then zeros."""

    def row(ids: list[int]) -> torch.Tensor:
        place = len(ids) - prompt_length
        said = script[place] if 0 <= place < len(script) else 0
        logits = torch.zeros(vocab_size)
        logits[said] = 9.0
        return logits

    return FunctionModel(vocab_size, row, **extra)


def emitted(records: Sequence[Record]) -> list[int]:
    """The new tokens of a run."""
    found: list[int] = []
    for record in records:
        if isinstance(record, PrefillDone) and record.token is not None:
            found.append(record.token.id)
        elif isinstance(record, RoundVerified):
            found += [token.id for token in record.new_tokens]
    return found


def run(target: FunctionModel, prompt: Sequence[int], drafter: Drafter | None = None, **settings: Any) -> list[Record]:
    """All records of a run, greedy unless told otherwise."""
    return list(run_lazily(target, prompt, drafter, **settings))


def run_lazily(
    target: FunctionModel, prompt: Sequence[int], drafter: Drafter | None = None, **settings: Any
) -> Iterator[Record]:
    settings = {"strategy": "tested", "sampler": GREEDY} | settings
    return decode(target, prompt, drafter=drafter, **settings)


def rounds(records: Sequence[Record]) -> list[RoundVerified]:
    return [record for record in records if isinstance(record, RoundVerified)]


def ended(records: Sequence[Record]) -> RunEnded:
    assert isinstance(records[-1], RunEnded)
    return records[-1]
