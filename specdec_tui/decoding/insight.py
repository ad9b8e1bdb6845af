"""What both models thought at each position of a round: for the eyes, so never inside the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from specdec_tui.decoding.records import Insight

MOST_ALTERNATIVES = 10
DIGITS = 5  # significant ones of a figure: a kept run has millions, and no eye tells more apart

Alternatives = tuple[tuple[int, float], ...]


def insights(target: torch.Tensor, drafter: Sequence[torch.Tensor | None], *, greedy: bool) -> list[Insight]:
    """One insight per row of the target's scores [n, V]; drafter rows may be fewer, or None.

    The figures are those of the processed distributions. Under greedy sampling these are one-hot
    and say nothing, so there the rows are logits and the plain softmax at temperature 1 is shown.
    """
    rows = _describe(target.softmax(-1) if greedy else target)
    found: list[Insight] = []
    for index, (entropy, top) in enumerate(rows):
        own = drafter[index] if index < len(drafter) else None
        if own is None:
            found.append(Insight(target_entropy=entropy, target_top=top))
        else:
            drafter_entropy, drafter_top = _describe(own[None].softmax(-1) if greedy else own[None])[0]
            found.append(Insight(entropy, drafter_entropy, top, drafter_top))
    return found


def with_residual(insight: Insight, rest: torch.Tensor) -> Insight:
    """An insight with the alternatives of the residual `rest` [V] (not yet normalised) of its place."""
    return replace(insight, residual_top=_alternatives((rest / rest.sum())[None])[0])


def _describe(p: torch.Tensor) -> list[tuple[float, Alternatives]]:
    entropies = [_rounded(entropy) for entropy in torch.special.entr(p).sum(-1).tolist()]
    return list(zip(entropies, _alternatives(p), strict=True))


def _alternatives(p: torch.Tensor) -> list[Alternatives]:
    values, ids = p.topk(min(MOST_ALTERNATIVES, p.shape[-1]))
    return [
        tuple((token, _rounded(value)) for token, value in zip(row_ids, row, strict=True) if value > 0)
        for row_ids, row in zip(ids.tolist(), values.tolist(), strict=True)
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
