"""What a round on the device is made for, and what it reads and leaves: tensors that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from specdec_tui.decoding.device_rules import GREEDY, RULES, DeviceRule
from specdec_tui.decoding.sampling import PositionNoise, Sampler

FACTS = 7  # numbers of a round apart from those of its drafts

Fit = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Plan:
    """What decides the program: a round of at most `gamma` drafts over a vocabulary of `width`.

    The host reads up to `steps` rounds at once. `fit` brings the drafter's logits [V'] to
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


class RoundState:
    """The tensors of a round, int64 [1] where nothing else is said.

    What a round changes for the next one lies in `now`: `length` of the text; numbers of the stream `chance` float64
    already `taken`; the `slot` of `out` float64 [steps, 7 + 5γ] for the results; `tail` [2], the last tokens of the
    text; `block` [γ + 1], the last one and the drafts, of which the host gave `count`, both in `from_host`; `places`
    [γ + 2], those from the tail's first on. `limit`: what the text may grow to; `prompt`: its length.
    `marks` [3]: when a round began, and when its drafts, if a model makes any, and the target's pass ended, in
    nanoseconds. `drafts`: whether a model drafts in the round; `capacity` of the text. Of several rounds read at once
    `kept` [steps, γ + 1, V] has the target's scores and `kept_rows` [steps, γ, V] the drafter's, by the slot:
    4 (2γ + 1) V bytes a round. `judges` and `draws`: whether the target's part of a round, and the drafter's, is done
    by this state: each has its own where they are on different cards.
    """

    def __init__(
        self, plan: Plan, drafts: bool, capacity: int, device: torch.device, *, judges: bool = True, draws: bool = True
    ) -> None:
        def whole(size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.int64, device=device)

        self.drafts, self.noise = drafts, PositionNoise(0, plan.width, device)
        sizes = (1, 1, 1, 2, plan.gamma + 2, plan.gamma + 2)
        self.now = whole(sum(sizes))
        self.length, self.taken, self.slot, self.tail, self.from_host, self.places = self.now.split(sizes)
        self.block, self.count = self.from_host.split((plan.gamma + 1, 1))
        self.limit, self.prompt, self.marks = whole(1), whole(1), whole(3)
        self.ends = torch.tensor(plan.end_ids, dtype=torch.int64, device=device)
        self.uniforms = (2 * plan.gamma + 1) * capacity if plan.device_rule.uniforms else 0
        self.chance = torch.zeros(self.uniforms, dtype=torch.float64, device=device)
        self.out = torch.zeros(plan.steps, FACTS + 5 * plan.gamma, dtype=torch.float64, device=device)
        several = plan.steps if plan.steps > 1 else 0
        self.kept = torch.zeros(several if judges else 0, plan.gamma + 1, plan.width, device=device)
        self.kept_rows = torch.zeros(several if drafts and draws else 0, plan.gamma, plan.width, device=device)

    @property
    def given(self) -> Tensor:
        """The drafts [γ]."""
        return self.block[1:]

    def begin(self, ids: Sequence[int], prompt_length: int, limit: int, uniforms: Sequence[float], seed: int) -> None:
        """Go on behind the text `ids`; see `DeviceRound.begin`."""
        self.length.fill_(len(ids))
        self.tail.copy_(torch.tensor(ids[-2:]))
        self.block[:1].copy_(self.tail[1:])
        self.places.copy_(torch.arange(len(self.places)) + (len(ids) - 2))
        self.limit.fill_(limit)
        self.prompt.fill_(prompt_length)
        self.taken.zero_()
        self.slot.zero_()
        self.chance[: len(uniforms)].copy_(torch.tensor(uniforms, dtype=torch.float64))
        self.noise.restart(seed)


class Choosing(Protocol):
    """How tokens are chosen between the passes of a round. Nothing here waits for the device.

    `stamps`: whether it writes the marks when drafts, if a model made any, and the target's pass had ended.
    `scores` [γ + 1, V] of the target and `rows` [V] of the drafter, None without one, are those of the last round.
    `drawn_from`: what drafts were drawn from, [γ, V], where judging them asks for that, else nothing. Where another
    one judges on another card it has it, and what is `now` in the state, from this one.
    """

    stamps: bool
    scores: Tensor
    drawn_from: Sequence[Tensor]

    @property
    def rows(self) -> Sequence[Tensor] | None: ...

    def start(self) -> tuple[Tensor, Tensor]:
        """What the drafter reads first, the last two tokens: it may have missed the first. And their place."""
        ...

    def draft(self, index: int, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Draw a draft from its logits [V]: what the drafter reads then, int64 [1], and its place."""
        ...

    def block(self) -> tuple[Tensor, Tensor]:
        """What the target reads, int64 [γ + 1], and its place."""
        ...

    def finish(self, logits: Tensor) -> None:
        """Judge the drafts by the target's logits [γ + 1, V]; write the results and the state of the next round."""
        ...
