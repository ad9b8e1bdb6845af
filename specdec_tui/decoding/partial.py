"""The distribution a run draws from, where only its most probable tokens are known.

A server tells the best alternatives of a place with their log-probabilities. That decides the processed distribution
exactly where what the sampler keeps lies within them; where it may reach beyond, nothing is made up: there is None.
"""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import torch

from specdec_tui.backends.answering import Told
from specdec_tui.decoding.sampling import Sampler

_ROUNDING = 1e-5  # of a sum of probabilities that were told in float32


def distribution(told: Told, sampler: Sampler, width: int) -> torch.Tensor | None:
    """The processed distribution [width], float32, of a sampler that is not greedy; None where it is not certain."""
    values = torch.tensor(told.logprobs, dtype=torch.float64)
    scaled = (values - values[0]) / max(sampler.temperature, torch.finfo(torch.float32).tiny)
    kept: int | None
    if len(told.ids) >= width:
        kept = len(told.ids)
    elif sampler.uses_top_k:
        kept = _tied(scaled, sampler.top_k - 1) if sampler.top_k < len(told.ids) else None
    elif sampler.uses_top_p:
        kept = _kept_of_mass(values, scaled, sampler, width)
        sampler = replace(sampler, processor="multinomial")
    elif sampler.uses_min_p and float(scaled[-1]) < log(sampler.min_p):
        kept = len(told.ids)  # more than are kept, so the sampler sees its own edge
    else:
        kept = None
    if kept is None:
        return None
    row = torch.full((width,), -torch.inf)
    row[list(told.ids[:kept])] = values[:kept].float()
    return sampler.probabilities(row[None])[0]


def _tied(scaled: torch.Tensor, last: int) -> int | None:
    """How many are as good as the one at index `last`; None where more may be that are not known."""
    count = int((scaled >= scaled[last]).sum())
    return count if count < len(scaled) else None


def _kept_of_mass(values: torch.Tensor, scaled: torch.Tensor, sampler: Sampler, width: int) -> int | None:
    """How many the smallest set of probability `top_p` holds; None where what is not known may change that."""
    running = scaled.exp().cumsum(0)
    ends = []
    for rest in _rest(values, sampler.temperature, width):
        wanted = sampler.top_p * (float(running[-1]) + rest)
        if float(running[-1]) < wanted:
            return None
        ends.append(_tied(scaled, int((running < wanted).sum())))
    return ends[0] if ends[0] == ends[1] else None


def _rest(values: torch.Tensor, temperature: float, width: int) -> tuple[float, float]:
    """Between what the weights of all other tokens add up to, in units of the best one's.

    A token of probability x weighs x^(1/T). All m others together have probability r, and none has more than the
    least known one, P. The sum of such powers lies between that of r spread evenly, m·(r/m)^a, and that of r in as few
    tokens as can hold it, r/P of P each: r·P^(a−1), with a = 1/T; which is the larger depends on whether a is above 1.
    """
    power, best, others = 1 / temperature, exp(float(values[0])), width - len(values)
    least = exp(float(values[-1]))
    found = []
    for share in (-_ROUNDING, _ROUNDING):
        rest = min(max(0.0, 1 - float(values.exp().sum()) + share), others * least)
        found += [others * (rest / others / best) ** power, rest / best * (least / best) ** (power - 1)]
    return min(found), max(found)
