"""Processed distributions as a run on a CPU holds them: what is kept of a vocabulary, never a list of all of it.

A `Row` is a distribution over V ids: a tensor [V], as on every other device, or one of the classes here, which say the
same of it in a few microseconds (`kernels`). All of them answer `row[id]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from threading import local
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specdec_tui.decoding.sampling import PositionNoise, Sampler, best_id

Array = npt.NDArray[Any]
_HELD = local()


@cache
def kernels() -> ModuleType | None:
    """The compiled functions; None where this machine cannot compile any."""
    from specdec_tui.backends.lean.fit import why_not

    if why_not():
        return None
    try:
        from specdec_tui.decoding import kernels as found

        logits = np.zeros(2, np.float32)
        for processor in ("multinomial", "topk"):  # now, and not while a clock runs
            row = _row(found, Sampler(processor, top_k=1), logits)
            row.rest(row, 0).draw(0.5)
            row.rest(None, 0).draw(0.5)
            row.spare(row, 1.0)
    except Exception:  # a compiler is a native library, which may fail in many ways
        return None
    return found


@cache
def surveyor() -> ModuleType | None:
    """The same where nothing is drawn and only `survey` is called: what draws takes longer to compile."""
    from specdec_tui.backends.lean.fit import why_not

    if why_not():
        return None
    try:
        from specdec_tui.decoding import kernels as found

        found.survey(np.zeros(2, np.float32), np.float32(1), np.zeros(1, np.int64), np.zeros(1, np.float32))
    except Exception:  # as above
        return None
    return found


def get_ready(*, draws: bool, insight: bool) -> None:
    """Have what a run needs compiled: now, and not while its clock runs."""
    if draws:
        kernels()
    if insight:
        surveyor()


@dataclass(frozen=True, slots=True, eq=False)
class Few:
    """A distribution, or something in proportion to one, of which some ids alone have a part.

    `ids` int32 [n], ascending; `chances` float32 [n].
    """

    ids: Array
    chances: Array
    width: int
    kernels: ModuleType

    def __getitem__(self, token: int) -> float:
        place = int(self.ids.searchsorted(token))
        return float(self.chances[place]) if place < len(self.ids) and self.ids[place] == token else 0.0

    def draw(self, uniform: float) -> int:
        """As `sampling.draw_id`."""
        return int(self.ids[self.kernels.draw(self.chances, uniform)])

    def draw_with(self, noise: PositionNoise, position: int) -> int:
        """As `rules.draw_coupled`; only the noise of what may be drawn is made."""
        own = noise.of_ids(torch.tensor([position]), torch.from_numpy(self.ids).long())
        return int(self.ids[best_id(torch.from_numpy(self.chances) / own)])

    def rest(self, q: Few | None, draft: int, weight: float = 1.0) -> Few:
        """As `rules.residual`."""
        if q is None:
            chances = np.where(self.ids == draft, np.float32(0), self.chances)
        else:
            chances = self.kernels.rest_of_few(self.ids, self.chances, q.ids, q.chances, weight)
        return Few(self.ids, chances, self.width, self.kernels) if chances.any() else self

    def spare(self, q: Few, weight: float) -> float:
        """Σ max(0, weight · p − q)."""
        return float(self.kernels.rest_of_few(self.ids, self.chances, q.ids, q.chances, weight).sum())

    def dense(self) -> torch.Tensor:
        """Float32 [V]."""
        row = torch.zeros(self.width)
        row[torch.from_numpy(self.ids).long()] = torch.from_numpy(self.chances)
        return row


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """The softmax of logits float32 [V] at a temperature: it is worked out where it is asked for.

    `best` is the best logit, `total` the sum of all weights e^((logit − best) / temperature) and `sums` that of each
    piece of the vocabulary.
    """

    logits: Array
    temperature: np.float32
    best: float
    total: float
    sums: Array
    kernels: ModuleType

    def __getitem__(self, token: int) -> float:
        return math.exp((float(self.logits[token]) - self.best) / float(self.temperature)) / self.total

    def draw(self, uniform: float) -> int:
        """As `sampling.draw_id`."""
        return self._drawn(uniform, -1)

    def draw_with(self, noise: PositionNoise, position: int) -> int:
        """As `rules.draw_coupled`."""
        return best_id(self.dense() / noise.at(position))

    def rest(self, q: Whole | None, draft: int, weight: float = 1.0) -> Rest:
        """As `rules.residual`."""
        return Rest(self, q, draft, weight)

    def spare(self, q: Whole, weight: float) -> float:
        """Σ max(0, weight · p − q)."""
        return self._beyond(q, weight, -1.0)[0]

    def dense(self) -> torch.Tensor:
        """Float32 [V]."""
        return Sampler("multinomial", float(self.temperature)).probabilities(torch.from_numpy(self.logits))

    def _drawn(self, uniform: float, without: int) -> int:
        how = (self.logits, self.best, self.temperature, self.sums, uniform, without)
        return int(self.kernels.draw_whole(*how))

    def _beyond(self, q: Whole, weight: float, uniform: float) -> tuple[float, int]:
        own, other = (self.logits, self.best, weight / self.total), (q.logits, q.best, 1 / q.total)
        total, token = self.kernels.rest_of_wholes(*own, *other, self.temperature, uniform)
        return float(total), int(token)


@dataclass(frozen=True, slots=True, eq=False)
class Rest:
    """What p still has to give after `draft` was refused, in proportion: max(0, weight · p − q); q None is one-hot."""

    p: Whole
    q: Whole | None
    draft: int
    weight: float

    def draw(self, uniform: float) -> int:
        """As `sampling.draw_id`; where nothing is left, from p."""
        if self.q is None:
            token = self.p._drawn(uniform, self.draft)
        else:
            token = self.p._beyond(self.q, self.weight, uniform)[1]
        return self.p.draw(uniform) if token < 0 else token

    def dense(self) -> torch.Tensor:
        """Float32 [V]."""
        rest = self.p.dense()
        if self.q is None:
            rest[self.draft] = 0.0
        else:
            rest.mul_(self.weight).sub_(self.q.dense()).clamp_(min=0.0)
        return rest if float(rest.amax()) > 0 else self.p.dense()


Row = torch.Tensor | Few | Whole
Scores = torch.Tensor | Sequence[Row]


def processed(sampler: Sampler, logits: torch.Tensor) -> Scores:
    """The processed distributions of logits [n, V] of a run that is not greedy; a tensor [n, V] on other devices."""
    found = kernels() if logits.is_cpu else None
    if found is None:
        return sampler.probabilities(logits)
    rows = [_row(found, sampler, row) for row in in_memory(logits)]
    # Where logits are no numbers, neither are chances: those who read them tell.
    return [sampler.probabilities(logits[i]) if row is None else row for i, row in enumerate(rows)]


def processed_row(sampler: Sampler, logits: torch.Tensor) -> Row:
    """As `processed`, of logits [V]."""
    found = kernels() if logits.is_cpu else None
    row: Row | None = None if found is None else _row(found, sampler, in_memory(logits))
    return sampler.probabilities(logits) if row is None else row


def in_memory(logits: torch.Tensor) -> Array:
    """Logits of a CPU as an array of float32, each row in one piece; their own memory where they are that."""
    plain = logits.dtype is torch.float32 and not logits.requires_grad and logits.is_contiguous()
    array: Array = (logits if plain else logits.detach().float().contiguous()).numpy()
    return array


def _row(found: ModuleType, sampler: Sampler, logits: Array) -> Any:
    """None where some logit is not a number or infinite, or all are −∞."""
    temperature, kept = _numbers(sampler)
    if kept:
        from specdec_tui.decoding import kept_kernels

        narrow: Any = kept_kernels.narrow
        values, other = memory(len(logits))
        ids, chances = narrow(logits, temperature, *kept, values, other.view(np.int32))
        return Few(ids, chances, len(logits), found) if len(ids) else None
    sums = np.empty(-(-len(logits) // found.PIECE))
    best, total = found.weigh(logits, temperature, sums)
    return None if math.isnan(best) else Whole(logits, temperature, best, total, sums, found)


@lru_cache(maxsize=64)
def _numbers(sampler: Sampler) -> tuple[np.float32, tuple[Any, ...]]:
    """The temperature, and what `kernels.narrow` is told; nothing for a sampler that keeps everything."""
    kept = (
        sampler.top_k if sampler.uses_top_k else 0,
        float(sampler.top_p) if sampler.uses_top_p else 1.0,
        np.float32(math.log(sampler.min_p) if sampler.uses_min_p else -math.inf),
        float(sampler.typical_p) if sampler.uses_typical_p else 1.0,
    )
    return np.float32(sampler.divisor), kept if sampler.narrows else ()


def memory(width: int) -> tuple[Array, Array]:
    """Two arrays float32 [width] of this thread's own: to ask the system for such takes longer than to fill them."""
    held: tuple[Array, Array] | None = getattr(_HELD, "memory", None)
    if held is None or len(held[0]) != width:
        held = _HELD.memory = (np.empty(width, np.float32), np.empty(width, np.float32))
    return held


def dense(rows: Row | Rest | Scores) -> torch.Tensor:
    """A row, or rows, as a tensor [V] or [n, V]."""
    if isinstance(rows, torch.Tensor):
        return rows
    return rows.dense() if isinstance(rows, Few | Whole | Rest) else torch.stack([dense(row) for row in rows])
