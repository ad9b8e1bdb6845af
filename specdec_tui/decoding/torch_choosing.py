"""How tokens are chosen in a round on the device, by torch: on any device, for any sampler and rule."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec_tui.decoding.device_rules import Chance, Drafts
from specdec_tui.decoding.round_state import Plan, RoundState


class TorchChoosing:
    """See `round_state.Choosing`."""

    stamps = False

    def __init__(self, plan: Plan, state: RoundState) -> None:
        self._plan, self._state, self._rule = plan, state, plan.device_rule
        self._drawn = torch.zeros(plan.gamma if state.drafts else 0, plan.width, device=state.length.device)
        self.drawn_from: Sequence[Tensor] = [self._drawn] * (len(self._drawn) > 0 and not plan.sampler.is_greedy)
        self.scores = torch.zeros(0)

    @property
    def rows(self) -> Sequence[Tensor] | None:
        return list(self._drawn) or None

    def start(self) -> tuple[Tensor, Tensor]:
        return self._known(self._state.tail), self._state.length - 2

    def draft(self, index: int, logits: Tensor) -> tuple[Tensor, Tensor]:
        state = self._state
        row = logits if self._plan.sampler.is_greedy else self._plan.sampler.probabilities(logits, whole=True)
        position = state.length - state.prompt + index
        draft = self._rule.draw(row, self._uniforms(index, 1), state.noise, position)
        state.given[index : index + 1].copy_(draft)
        self._drawn[index].copy_(row)
        if len(state.kept_rows):
            state.kept_rows[:, index].index_copy_(0, state.slot, row[None])
        return self._known(draft), state.length + index

    def _known(self, ids: Tensor) -> Tensor:
        unknown = self._plan.drafter_ids < self._plan.width
        return torch.where(ids < self._plan.drafter_ids, ids, 0) if unknown else ids

    def block(self) -> tuple[Tensor, Tensor]:
        return self._state.block, self._state.length - 1

    def finish(self, logits: Tensor) -> None:
        plan, state, gamma = self._plan, self._state, self._plan.gamma
        ids = state.given.clone()
        most = (state.limit - state.length - 1).clamp(0, gamma)
        rows = self._drawn if len(self._drawn) else None
        count = torch.minimum(most, self._until_end(ids) if state.drafts else state.count)
        scores = logits if plan.sampler.is_greedy else plan.sampler.probabilities(logits, whole=True)
        drawn = count if rows is not None and self._rule.uniforms else torch.zeros_like(count)
        chance = Chance(self._uniforms(drawn, gamma + 1), state.noise, state.length - state.prompt)
        found = self._rule.verify(Drafts(ids, rows, count), scores, chance)
        if self._rule.uniforms:
            state.taken.add_(drawn + count + 1)
        score = scores.flatten().index_select(0, found.accepted * plan.width + found.emitted)
        started, drafted, verified = state.marks.split(1)
        if not state.drafts:
            drafted = started
        facts = torch.cat(
            (drafted - started, verified - drafted, found.accepted, found.emitted, count, found.sound, ids)
        )
        row = torch.cat((facts, score, found.numbers.flatten()))
        state.out.index_copy_(0, state.slot, row[None])
        if plan.steps > 1:
            state.kept.index_copy_(0, state.slot, scores[None])
        state.slot.add_(1).remainder_(plan.steps)
        last = state.block.index_select(0, found.accepted)  # the token before the emitted one
        torch.cat((last, found.emitted), out=state.tail)
        state.block[:1].copy_(found.emitted)
        state.length.add_(found.accepted).add_(1)
        self.scores = scores

    def _until_end(self, ids: Tensor) -> Tensor:
        """Drafts up to and with the first end token, int64 [1]: what follows could never be part of the text."""
        ended = (ids[:, None] == self._state.ends).any(1).long().cumsum(0)
        before = torch.cat((torch.zeros_like(ended[:1]), ended[:-1]))
        return (before == 0).sum(0, keepdim=True)

    def _uniforms(self, first: Tensor | int, count: int) -> Tensor:
        """Numbers of the stream [count] from `first` behind those used up; anything where the rule uses none."""
        state = self._state
        if not self._rule.uniforms:
            return state.chance
        return state.chance.index_select(0, state.taken + first + torch.arange(count, device=state.taken.device))
