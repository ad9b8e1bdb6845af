"""What both models thought at each position of a round: for the eyes, so never inside the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, isnan

import torch

from specdec_tui.backends.answering import Told
from specdec_tui.decoding.chances import MOST_ALTERNATIVES
from specdec_tui.decoding.records import Insight
from specdec_tui.decoding.rows import Rest, Row, Scores, dense

DIGITS = 5  # significant ones of a figure: a kept run has millions, and no eye tells more apart

Alternatives = tuple[tuple[int, float], ...]


def insights(
    target: Scores, drafter: Sequence[Row | None], named: Sequence[Sequence[int]] = (), *, greedy: bool
) -> list[Insight]:
    """One insight per row of the target's scores [n, V]; drafter rows may be fewer, or None.

    The figures are those of the processed distributions. Under greedy sampling these are one-hot
    and say nothing, so there the rows are logits and the plain softmax at temperature 1 is shown.
    The ids `named` for a row are among its alternatives even where others are more probable.
    """
    scores = dense(target)
    rows = _describe(scores.softmax(-1) if greedy else scores, named)
    found: list[Insight] = []
    for index, (entropy, top) in enumerate(rows):
        own = drafter[index] if index < len(drafter) else None
        if own is None:
            found.append(Insight(target_entropy=entropy, target_top=top))
        else:
            row = dense(own)[None].softmax(-1) if greedy else dense(own)[None]
            drafter_entropy, drafter_top = _describe(row, named[index : index + 1])[0]
            found.append(Insight(entropy, drafter_entropy, top, drafter_top))
    return found


def of_told(told: Told | None, drafter: Row | None, named: Sequence[int], *, greedy: bool) -> Insight:
    """An insight of a place of which the best alternatives alone are known, or (None) nothing: no entropy of it.

    Of fewer alternatives than are listed none is: a list that is short says that nothing else has a chance.
    """
    top: Alternatives = ()
    if told is not None and len(told.ids) >= MOST_ALTERNATIVES:
        known, best = told.known, told.ids[:MOST_ALTERNATIVES]
        more = sorted(token for token in set(named) - set(best) if token in known)
        top = tuple((token, _rounded(exp(known[token]))) for token in (*best, *more))
    if drafter is None:
        return Insight(target_top=top)
    row = dense(drafter)[None].softmax(-1) if greedy else dense(drafter)[None]
    entropy, drafter_top = _describe(row, [named])[0]
    return Insight(None, entropy, top, drafter_top)


def with_residual(insight: Insight, rest: Row | Rest, named: Sequence[int] = ()) -> Insight:
    """An insight with the alternatives of the residual `rest` [V] (not yet normalised) of its place."""
    row = dense(rest)
    return replace(insight, residual_top=_alternatives((row / row.sum())[None], [named])[0])


def _describe(p: torch.Tensor, named: Sequence[Sequence[int]]) -> list[tuple[float | None, Alternatives]]:
    entropies = [None if isnan(each) else _rounded(each) for each in torch.special.entr(p).sum(-1).tolist()]
    return list(zip(entropies, _alternatives(p, named), strict=True))


def _alternatives(p: torch.Tensor, named: Sequence[Sequence[int]]) -> list[Alternatives]:
    values, ids = p.topk(min(MOST_ALTERNATIVES, p.shape[-1]))
    found = []
    for row, (row_ids, row_values) in enumerate(zip(ids.tolist(), values.tolist(), strict=True)):
        top = [(token, value) for token, value in zip(row_ids, row_values, strict=True) if value > 0]
        if len(top) == MOST_ALTERNATIVES:  # else what is not listed has no chance
            missing = sorted(set(named[row] if row < len(named) else ()) - set(row_ids))
            # A drafter may have fewer ids than the target.
            top += [(token, float(p[row, token]) if token < p.shape[-1] else 0.0) for token in missing]
        found.append(tuple((token, _rounded(value)) for token, value in top))
    return found


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
