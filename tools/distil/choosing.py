"""From the target's logits: the next token of every row, and the top of the distribution to learn from."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 16
"""Columns whose maximum and sum stand for them in the first of two levels."""

GREEDY = 1e4
"""Inverse temperature from which a row takes the top token."""

KEEP_ALL = -math.inf
"""A cut that cuts nothing."""


def noise(batch: int, vocab: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Exponential variates for `choose` from the device's default generator: [batch, groups], [batch, GROUP]."""
    groups = torch.empty(batch, -(-vocab // GROUP), device=device).exponential_()
    return groups, torch.empty(batch, GROUP, device=device).exponential_()


def choose(
    logits: Tensor, inverse_temperature: Tensor, cut: Tensor, group_noise: Tensor, member_noise: Tensor, k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Sampled tokens [batch] int64, and the ids [batch, k] int64 and probabilities [batch, k] float32 of the top k.

    logits are [batch, vocab] float32; `inverse_temperature` [batch] acts on the sample only, the top k is
    that of temperature 1, exact, in falling order. A token is sampled only when its tempered
    log-probability is at most -`cut` [batch] under the top one. Full-vocabulary sorts and noise would
    cost more than the model: a group of 16 is drawn by its sum, then a member of it (argmax of p / Exp(1)
    draws from p at both levels), and the top k lies in the k groups of the largest maxima.
    """
    if logits.shape[1] % GROUP:
        logits = F.pad(logits, (0, -logits.shape[1] % GROUP), value=-math.inf)
    batch, vocab = logits.shape
    groups = logits.view(batch, vocab // GROUP, GROUP)
    maxima = groups.amax(-1)
    top = maxima.amax(-1, keepdim=True)
    inverse = inverse_temperature[:, None]
    floor = cut[:, None]

    shifted = groups - top[..., None]
    total = shifted.exp().sum((1, 2))
    tempered = shifted * inverse[..., None]
    sums = tempered.exp().masked_fill(tempered < floor[..., None], 0.0).sum(-1)
    drawn = (sums / group_noise.clamp_min(1e-20)).argmax(-1)
    members = groups.gather(1, drawn[:, None, None].expand(-1, 1, GROUP)).squeeze(1)
    members = (members - top) * inverse
    weights = members.exp().masked_fill(members < floor, 0.0)
    sampled = drawn * GROUP + (weights / member_noise.clamp_min(1e-20)).argmax(-1)

    k_groups = min(k, vocab // GROUP)
    best = maxima.topk(k_groups, sorted=False).indices
    candidates = groups.gather(1, best[..., None].expand(-1, -1, GROUP)).flatten(1)
    values, places = candidates.topk(k)
    ids = best.gather(1, places // GROUP) * GROUP + places % GROUP
    probabilities = (values - top).exp() / total[:, None]
    return torch.where(inverse_temperature >= GREEDY, ids[:, 0], sampled), ids, probabilities
