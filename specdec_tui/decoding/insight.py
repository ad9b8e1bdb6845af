"""What both models thought at each position of a round: for the eyes, so never inside the clock."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from specdec_tui.decoding.records import Insight

MOST_ALTERNATIVES = 10


def insights(target: torch.Tensor, drafter: Sequence[torch.Tensor | None], *, greedy: bool) -> list[Insight]:
    """One insight per row of the target's scores [n, V]; drafter rows may be fewer, or None.

    The figures are those of the processed distributions. Under greedy sampling these are one-hot
    and say nothing, so there the rows are logits and the plain softmax at temperature 1 is shown.
    """
    rows = _describe(target, greedy)
    found: list[Insight] = []
    for index, (entropy, top) in enumerate(rows):
        own = drafter[index] if index < len(drafter) else None
        if own is None:
            found.append(Insight(target_entropy=entropy, target_top=top))
        else:
            drafter_entropy, drafter_top = _describe(own[None], greedy)[0]
            found.append(Insight(entropy, drafter_entropy, top, drafter_top))
    return found


def _describe(scores: torch.Tensor, greedy: bool) -> list[tuple[float, tuple[tuple[int, float], ...]]]:
    p = scores.softmax(-1) if greedy else scores
    entropies = torch.special.entr(p).sum(-1).tolist()
    values, ids = p.topk(min(MOST_ALTERNATIVES, p.shape[-1]))
    tops = [
        tuple((token, value) for token, value in zip(row_ids, row, strict=True) if value > 0)
        for row_ids, row in zip(ids.tolist(), values.tolist(), strict=True)
    ]
    return list(zip(entropies, tops, strict=True))
