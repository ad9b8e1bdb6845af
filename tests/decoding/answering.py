"""A tiny model as a server has it: it tells its best alternatives, and draws by itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

import torch
from tiny_models import FunctionModel
from truth import process

from specdec_tui.backends.answering import Answered, Drawing, Told
from specdec_tui.backends.model import ModelContext
from specdec_tui.decoding.sampling import Sampler


class AnsweringTable:
    """`model` on a server. `same_chance`: all draws of a call have the same one, as where a seed is sent with it."""

    def __init__(
        self, model: FunctionModel, alternatives: int, *, draws: bool = True, same_chance: bool = False
    ) -> None:
        self.model, self.alternatives, self._draws, self._same = model, alternatives, draws, same_chance
        self.vocab_size, self.context_length, self.device = model.vocab_size, model.context_length, model.device
        self.tells_plainly, self.added_latency = True, 0.0
        self.round_trip, self.asked, self.begun, self.checked = 0.25, list[tuple[int, bool]](), 0, 0
        self.row = model.row
        self.faults: list[Exception | None] = []
        self._chance = random.Random(5)

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> ModelContext:
        raise ValueError("it has none")

    def synchronize(self) -> None:
        pass

    def refusal(self, drawing: Drawing) -> str:
        return "" if self._draws else "its draws are not independent"

    def close(self) -> None:
        pass

    def ping(self, cancelled: Callable[[], bool]) -> float:
        return self.round_trip

    def begin(self, added_latency: float, cancelled: Callable[[], bool]) -> None:
        self.begun += 1

    def check(self, cancelled: Callable[[], bool], *, anyway: bool = False) -> None:
        self.checked += 1

    def notices(self) -> tuple[str, ...]:
        return ()

    def reference(
        self, prompt_ids: Sequence[int], ids: Sequence[int], cancelled: Callable[[], bool]
    ) -> Iterator[torch.Tensor]:
        text = [*prompt_ids, *ids]
        return (self.row(text[:end]) for end in range(len(prompt_ids), len(text)))

    def ask(
        self,
        text: Sequence[int],
        drafts: Sequence[int],
        drawing: Drawing,
        alternatives: int,
        draws: bool,
        cancelled: Callable[[], bool],
    ) -> Answered:
        self._fail()
        self.asked.append((len(drafts), draws))
        chance = self._chance.random()
        told = []
        for place in range(len(drafts) + 1):
            whole, is_last = [*text, *drafts[:place]], place == len(drafts)
            drawn = self._drawn(whole, drawing, chance if self._same else None) if draws or is_last else None
            told.append(self._told(whole, alternatives, drawn, drafts[place : place + 1]))
        return Answered(tuple(told), 0.125)

    def stream(
        self, text: Sequence[int], drawing: Drawing, alternatives: int, most: int, cancelled: Callable[[], bool]
    ) -> Iterator[tuple[float, tuple[Told, ...]]]:
        grown = list(text)
        for index in range(most):
            self._fail()
            drawn = self._drawn(grown, drawing, None)
            yield float(index), (self._told(grown, alternatives, drawn, ()),)
            grown.append(drawn)

    def _fail(self) -> None:
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault

    def _drawn(self, text: list[int], drawing: Drawing, chance: float | None) -> int:
        logits = self.row(text).tolist()
        if not drawing.temperature:
            return max(range(len(logits)), key=lambda token: logits[token])
        kind = "topknucleus" if drawing.top_k else "nucleus"
        sampler = Sampler(kind, drawing.temperature, drawing.top_k, drawing.top_p, drawing.min_p)
        left = self._chance.random() if chance is None else chance
        weights = process(logits, sampler)
        for token, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return token
        return max(range(len(weights)), key=lambda token: weights[token])

    def _told(self, text: list[int], alternatives: int, drawn: int | None, known: Sequence[int]) -> Told:
        values = self.row(text).double().log_softmax(-1).tolist()
        order = sorted(range(len(values)), key=lambda token: (-values[token], token))
        best, rest = order[:alternatives], order[alternatives:]
        others = tuple((token, values[token]) for token in rest if token in (*known, drawn))
        return Told(tuple(best), tuple(values[token] for token in best), drawn, others)


def with_mass(row: Sequence[float], count: int) -> Told:
    """The `count` best of a distribution."""
    values = torch.tensor(row, dtype=torch.float64).log()
    order = values.argsort(descending=True, stable=True)[:count]
    return Told(tuple(order.tolist()), tuple(values[order].tolist()))
