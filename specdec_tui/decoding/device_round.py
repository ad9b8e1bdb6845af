"""A whole round as one tensor program: drafts, verification, rewinds and the new tail of the text.

Nothing in `DeviceRound.step` waits for the device or looks at a value, so the program can be
captured once and replayed: a round then costs one launch and one small copy to the host. The
sequences are rewound by what `length` says, and by nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from specdec_tui.backends.model import StaticSequence
from specdec_tui.decoding.device_rules import GREEDY, RULES, Chance, DeviceRule, Drafts
from specdec_tui.decoding.sampling import PositionNoise, Sampler

_FACTS = 7  # numbers of a round apart from those of its drafts

Fit = Callable[[Tensor], Tensor]


Mark = Callable[[Tensor], None]
"""Writes the time, in nanoseconds of any clock, into an int64 [1] when the device gets there."""


def host_mark(place: Tensor) -> None:
    """For a device that computes as it is told."""
    place.fill_(time.perf_counter_ns())


@dataclass(frozen=True)
class Plan:
    """What decides the program: a round of at most `gamma` drafts over a vocabulary of `width`.

    `steps` rounds are kept on the device before the host reads them. `fit` brings the drafter's logits [V'] to
    the target's vocabulary; ids from `drafter_ids` on are unknown to the drafter.
    """

    gamma: int
    width: int
    sampler: Sampler
    rule: str
    end_ids: tuple[int, ...]
    steps: int = 1
    fit: Fit | None = field(default=None, compare=False)
    drafter_ids: int = 0

    @property
    def device_rule(self) -> DeviceRule:
        return GREEDY if self.sampler.is_greedy else RULES[self.rule]


class RoundResult(NamedTuple):
    """One round as the host sees it. `numbers`: p, q, acceptance and draw of each draft, NaN for none."""

    draft_seconds: float
    verify_seconds: float
    drafts: list[int]
    accepted: int
    emitted: int
    score: float
    sound: bool
    numbers: list[list[float]]


class DeviceRound:
    """The program and its state. Texts have at least two tokens here: the prompt and the first answer's.

    `drafter` None: drafts come from the host through `give`, or there are none (γ = 0).
    """

    def __init__(
        self,
        target: StaticSequence,
        drafter: StaticSequence | None,
        plan: Plan,
        device: torch.device,
        mark: Mark = host_mark,
    ) -> None:
        self.plan, self.target, self.drafter = plan, target, drafter
        self._rule, self._mark = plan.device_rule, mark
        self._noise = PositionNoise(0, plan.width, device)
        self._length, self._limit, self._prompt, self._taken, self._count, self._slot = (
            torch.zeros(1, dtype=torch.int64, device=device) for _ in range(6)
        )
        self._tail = torch.zeros(2, dtype=torch.int64, device=device)
        self._given = torch.zeros(plan.gamma, dtype=torch.int64, device=device)
        self._chance = torch.zeros(self.uniforms, dtype=torch.float64, device=device)
        self._ends = torch.tensor(plan.end_ids, dtype=torch.int64, device=device)
        self._places = torch.arange(plan.gamma, device=device)
        self._out = torch.zeros(plan.steps, _FACTS + 5 * plan.gamma, dtype=torch.float64, device=device)
        self._host = torch.empty_like(self._out, device="cpu", pin_memory=device.type == "cuda")
        self._marks = torch.zeros(3, dtype=torch.int64, device=device)
        self._scores = torch.zeros(0)
        # Of several rounds, each is kept: the target's scores of all of them are asked for after the last.
        kept = (plan.steps, plan.gamma + 1, plan.width) if plan.steps > 1 else (0,)
        self._kept = torch.zeros(kept, dtype=torch.float32, device=device)
        self.rows: Tensor | None = None

    @property
    def state(self) -> list[Tensor]:
        """The tensors that a round changes for the next one."""
        return [self._length, self._tail, self._taken, self._slot]

    @property
    def uniforms(self) -> int:
        """Uniform numbers that a run may use up at most."""
        return (2 * self.plan.gamma + 1) * self.target.capacity if self._rule.uniforms else 0

    def uniforms_of(self, drafts: int) -> int:
        """Uniform numbers that a round with so many drafts has used up."""
        return ((1 + (self.drafter is not None)) * drafts + 1) if self._rule.uniforms else 0

    def begin(self, ids: Sequence[int], prompt_length: int, limit: int, uniforms: Sequence[float], seed: int) -> None:
        """Go on behind the text `ids`, of which both sequences hold all but the last; it may grow to `limit`."""
        self._length.fill_(len(ids))
        self._tail.copy_(torch.tensor(ids[-2:]))
        self._limit.fill_(limit)
        self._prompt.fill_(prompt_length)
        self._taken.zero_()
        self._slot.zero_()
        self._chance[: len(uniforms)].copy_(torch.tensor(uniforms, dtype=torch.float64))
        self._noise.restart(seed)

    def rewind_results(self) -> None:
        """Let the results of the next round be the first ones read."""
        self._slot.zero_()

    def give(self, drafts: Sequence[int]) -> None:
        """Drafts of the host for the next round, at most γ."""
        self._count.fill_(len(drafts))
        self._given[: len(drafts)].copy_(torch.tensor(drafts, dtype=torch.int64))

    @torch.inference_mode()
    def step(self) -> None:
        """One round. Its row of results goes to the next place of `steps`."""
        gamma, position = self.plan.gamma, self._length - self._prompt
        self._mark(self._marks[:1])
        most = (self._limit - self._length - 1).clamp(0, gamma)
        ids, rows = self._given, None
        if self.drafter is None:
            count = torch.minimum(most, self._count)
        else:
            ids, rows = self._draft(self.drafter, position)
            count = torch.minimum(most, self._until_end(ids))
        self._mark(self._marks[1:2])
        block = torch.cat((self._tail[1:], ids))
        logits = self.target.extend(block, self._length - 1, gamma + 1)
        self._mark(self._marks[2:])
        scores = logits if self.plan.sampler.is_greedy else self.plan.sampler.probabilities(logits, whole=True)
        drawn = count if rows is not None and self._rule.uniforms else torch.zeros_like(count)
        uniforms = self._uniforms(drawn, gamma + 1)
        found = self._rule.verify(Drafts(ids, rows, count), scores, Chance(uniforms, self._noise, position))
        if self._rule.uniforms:
            self._taken.add_(drawn + count + 1)
        score = scores.flatten().index_select(0, found.accepted * self.plan.width + found.emitted)
        facts = torch.cat((self._marks.diff(), found.accepted, found.emitted, count, found.sound, ids))
        row = torch.cat((facts, score, found.numbers.flatten()))
        self._out.index_copy_(0, self._slot, row[None])
        if self.plan.steps > 1:
            self._kept.index_copy_(0, self._slot, scores[None])
        self._slot.add_(1).remainder_(self.plan.steps)
        last = block.index_select(0, found.accepted)  # the token before the emitted one
        torch.cat((last, found.emitted), out=self._tail)
        self._length.add_(found.accepted).add_(1)
        self._scores, self.rows = scores, rows

    def _draft(self, drafter: StaticSequence, position: Tensor) -> tuple[Tensor, Tensor]:
        """γ drafts [γ] and their rows [γ, V]. The drafter reads the last two tokens: it may have missed the first."""
        plan, drafts, rows = self.plan, [], []
        feed, place, positions = self._tail, self._length - 2, position + self._places
        for index in range(plan.gamma):
            if plan.drafter_ids < plan.width:
                feed = torch.where(feed < plan.drafter_ids, feed, 0)
            logits = drafter.extend(feed, place, 1)[0]
            if plan.fit is not None:
                logits = plan.fit(logits)
            row = logits if plan.sampler.is_greedy else plan.sampler.probabilities(logits, whole=True)
            feed = self._rule.draw(row, self._uniforms(index, 1), self._noise, positions[index : index + 1])
            place = self._length + index
            drafts.append(feed)
            rows.append(row)
        return torch.cat(drafts), torch.stack(rows)

    def _until_end(self, ids: Tensor) -> Tensor:
        """Drafts up to and with the first end token, int64 [1]: what follows could never be part of the text."""
        ended = (ids[:, None] == self._ends).any(1).long().cumsum(0)
        before = torch.cat((torch.zeros_like(ended[:1]), ended[:-1]))
        return (before == 0).sum(0, keepdim=True)

    def _uniforms(self, first: Tensor | int, count: int) -> Tensor:
        """Numbers of the stream [count] from `first` behind those used up; anything where the rule uses none."""
        if not self._rule.uniforms:
            return self._chance
        return self._chance.index_select(0, self._taken + first + torch.arange(count, device=self._taken.device))

    def scores_of(self, index: int) -> Tensor:
        """The target's scores [γ+1, V] in the round read at this index; they hold until the next round is played."""
        return self._kept[index] if self.plan.steps > 1 else self._scores

    def read(self, rounds: int) -> list[RoundResult]:
        """The last `rounds` rounds, waiting for them."""
        gamma = self.plan.gamma
        self._host.copy_(self._out)
        found = []
        for drafting, verifying, accepted, emitted, count, sound, *rest in self._host[:rounds].tolist():
            n = int(count)
            drafts, score = [int(token) for token in rest[:n]], rest[gamma]
            numbers = [rest[gamma * (1 + kind) + 1 :][:n] for kind in range(4)]
            verdict = (int(accepted), int(emitted), score, bool(sound))
            found.append(RoundResult(drafting / 1e9, verifying / 1e9, drafts, *verdict, numbers))
        return found
