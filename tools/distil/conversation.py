"""Who speaks in every row of a batch, and which tokens are forced: all on the device, without a branch.

Rows start together: the tokens of a row's opening are fed while its position is inside of it, so nothing
is padded. At the end of a turn the template's own tokens are forced, so that every row stays a
well-formed conversation; an answer that does not end is ended, a user's turn after half as many tokens.
Only operations that a CUDA graph can capture: `masked_fill` and not `where` with a number, which may copy
that number from the host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from distil.choosing import GREEDY, KEEP_ALL
from distil.openings import ANSWER, RAW, USER, USER_TEMPERATURE, Opening

CUT = math.log(0.02)
"""Tokens under 2 % of the top probability are not sampled: a row that wandered off teaches little."""

_MOST_FORCED = 48  # ids of a scripted turn with the template around it
_NO_QUEUE = _MOST_FORCED


def _inverse(temperature: float) -> float:
    return 1.0 / temperature if temperature > 1.0 / GREEDY else GREEDY


class Conversation:
    """State of `batch` rows; `restart` fills the same tensors again, so a captured graph keeps its addresses."""

    def __init__(self, batch: int, opening_length: int, end_id: int, answer_limit: int, device: torch.device) -> None:
        self.end_id, self.answer_limit = end_id, answer_limit

        def whole(*size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.long, device=device)

        self._opening, self._opening_length = whole(batch, opening_length), whole(batch)
        self._follow, self._follow_length = whole(batch, 3, _MOST_FORCED), whole(batch, 3)
        self._follow_role = whole(batch, 3)
        self._role, self._which, self._queue, self._age, self._answers = (whole(batch) for _ in range(5))
        self._inverse = torch.zeros(batch, device=device)
        self._cut = torch.zeros(batch, device=device)

    def restart(self, openings: Sequence[Opening]) -> Tensor:
        """Begin new rows; returns their first tokens [batch]."""

        def fill(tensor: Tensor, rows: list[list[int]]) -> None:
            width = tensor.shape[-1]
            if any(len(row) > width for row in rows):
                raise ValueError("an opening or a follow-up is too long")
            padded = [row + [0] * (width - len(row)) for row in rows]
            tensor.copy_(torch.tensor(padded).view(tensor.shape))

        fill(self._opening, [list(each.ids) for each in openings])
        fill(self._follow, [list(ids) for each in openings for ids in each.follow])
        fill(self._follow_role, [list(each.follow_role) for each in openings])
        fill(self._follow_length, [[len(ids) for ids in each.follow] for each in openings])
        self._opening_length.copy_(torch.tensor([len(each.ids) for each in openings]))
        self._role.copy_(torch.tensor([each.role for each in openings]))
        self._inverse.copy_(torch.tensor([_inverse(each.temperature) for each in openings]))
        self._cut.copy_(torch.tensor([CUT if each.cut else KEEP_ALL for each in openings]))
        self._which.zero_()
        self._queue.fill_(_NO_QUEUE)
        self._age.zero_()
        self._answers.zero_()
        return self._opening[:, 0]

    def sampling(self) -> tuple[Tensor, Tensor]:
        """Inverse temperatures and cuts, both [batch], for the next token of every row."""
        user = self._role == USER
        return self._inverse.masked_fill(user, 1.0 / USER_TEMPERATURE), self._cut.masked_fill(user, CUT)

    def advance(self, sampled: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens [batch] at position + 1, and whether each is an answer's own token (bool, [batch]).

        sampled is [batch]; position is [1] and counts the tokens fed so far, less one.
        """
        after = position + 1
        in_opening = after < self._opening_length
        opening = self._opening.index_select(1, after.clamp_max(self._opening.shape[1] - 1)).squeeze(1)
        which = self._which[:, None]
        queue_length = self._follow_length.gather(1, which).squeeze(1)
        queued = (self._queue < queue_length) & ~in_opening
        place = self._queue.clamp_max(_MOST_FORCED - 1)[:, None, None]
        follow = self._follow.gather(1, which[:, :, None].expand(-1, -1, _MOST_FORCED)).gather(2, place).flatten()

        free = ~in_opening & ~queued
        answering = self._role == ANSWER
        user = self._role == USER
        overdue = (answering & (self._age >= self.answer_limit)) | (user & (self._age >= self.answer_limit // 2))
        token = sampled.masked_fill(overdue, self.end_id)
        token = torch.where(in_opening, opening, torch.where(queued, follow, token))
        of_answer = free & ~user

        ended = free & (self._role != RAW) & (token == self.end_id)
        self._queue.add_(queued)
        arrived = queued & (self._queue == queue_length)
        next_role = self._follow_role.gather(1, which).squeeze(1)
        next_which = self._answers.clamp_max(1).masked_fill(~answering, 2)
        self._answers.add_(ended & answering)
        self._age.add_(free).masked_fill_(ended, 0)
        self._role.copy_(torch.where(arrived, next_role, self._role))
        self._which.copy_(torch.where(ended, next_which, self._which))
        self._queue.masked_fill_(ended, 0)
        return token, of_answer
