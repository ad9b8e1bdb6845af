"""What both models thought at each position of a round: for the eyes, so never inside the clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import exp, isnan
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from specdec_tui.backends.answering import Told
from specdec_tui.decoding.chances import MOST_ALTERNATIVES
from specdec_tui.decoding.records import Insight
from specdec_tui.decoding.rows import Few, Rest, Row, Scores, Whole, dense, in_memory, surveyor

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
    found: list[Insight] = []
    for index, row in enumerate(target):
        own, wanted = drafter[index] if index < len(drafter) else None, named[index] if index < len(named) else ()
        entropy, top = _describe(row, wanted, greedy)
        if own is None:
            found.append(Insight(target_entropy=entropy, target_top=top))
        else:
            found.append(_with_drafter(Insight(entropy, target_top=top), own, wanted, greedy))
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
    return _with_drafter(Insight(target_top=top), drafter, named, greedy)


def with_residual(insight: Insight, rest: Row | Rest, named: Sequence[int] = ()) -> Insight:
    """An insight with the alternatives of the residual `rest` [V] (not yet normalised) of its place."""
    if isinstance(rest, Few):
        total = float(rest.chances.sum(dtype=np.float64))
        return replace(insight, residual_top=_of_few(replace(rest, chances=rest.chances / total), named)[1])
    row = dense(rest)
    return replace(insight, residual_top=_of_chances(row / row.sum(), named)[1])


def _with_drafter(insight: Insight, row: Row, named: Sequence[int], greedy: bool) -> Insight:
    entropy, top = _describe(row, named, greedy)
    return replace(insight, drafter_entropy=entropy, drafter_top=top)


def _describe(row: Row, named: Sequence[int], greedy: bool) -> tuple[float | None, Alternatives]:
    """The entropy, and the alternatives; under greedy sampling `row` holds logits."""
    if isinstance(row, Few):
        return _of_few(row, named)
    if isinstance(row, Whole):
        return _of_logits(row.logits, row.temperature, named, row.kernels) or _of_chances(row.dense(), named)
    found = surveyor() if greedy and row.is_cpu else None
    known = None if found is None else _of_logits(in_memory(row), np.float32(1), named, found)
    return known or _of_chances(row.softmax(-1) if greedy else row, named)


def _of_chances(p: torch.Tensor, named: Sequence[int]) -> tuple[float | None, Alternatives]:
    """Of probabilities [V]."""
    entropy = float(torch.special.entr(p).sum(-1))
    values, ids = p.topk(min(MOST_ALTERNATIVES, len(p)))
    top = zip(ids.tolist(), values.tolist(), strict=True)
    # A drafter may have fewer ids than the target.
    listed = _listed(top, named, lambda token: float(p[token]) if token < len(p) else 0.0)
    return None if isnan(entropy) else _rounded(entropy), listed


def _of_few(row: Few, named: Sequence[int]) -> tuple[float | None, Alternatives]:
    chances = row.chances.astype(np.float64)
    some = chances[chances > 0]
    best = np.argsort(-row.chances, kind="stable")[:MOST_ALTERNATIVES]
    top = zip(row.ids[best].tolist(), chances[best].tolist(), strict=True)
    return _rounded(max(0.0, -float(some @ np.log(some)))), _listed(top, named, row.__getitem__)


def _of_logits(
    logits: npt.NDArray[Any], temperature: np.float32, named: Sequence[int], kernels: ModuleType
) -> tuple[float | None, Alternatives] | None:
    """Of the softmax of logits [V] at a temperature; None where it is none."""
    ids, weights = np.empty(MOST_ALTERNATIVES, np.int64), np.empty(MOST_ALTERNATIVES, np.float32)
    best, total, entropy, count = kernels.survey(logits, temperature, ids, weights)
    if isnan(best):
        return None
    top = [(token, weight / total) for token, weight in zip(ids.tolist(), weights.tolist(), strict=True)][:count]

    def chance(token: int) -> float:
        return exp((float(logits[token]) - best) / float(temperature)) / total if token < len(logits) else 0.0

    return _rounded(max(0.0, entropy)), _listed(top, named, chance)


def _listed(top: Iterable[tuple[int, float]], named: Sequence[int], chance: Callable[[int], float]) -> Alternatives:
    """What of the most probable has a chance, and behind them those of `named` that are not among them."""
    found = [(token, value) for token, value in top if value > 0]
    if len(found) == MOST_ALTERNATIVES:  # else what is not listed has no chance
        listed = {token for token, _ in found}
        found += [(token, chance(token)) for token in sorted(set(named) - listed)]
    return tuple((token, _rounded(value)) for token, value in found)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
