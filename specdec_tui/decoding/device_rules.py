"""The verification rules of `rules` as tensor programs without a branch, for rounds that stay on the device.

A round has room for γ drafts, of which the first `count` exist. What the host would decide is
decided here by masks; the arithmetic is that of `rules`, in the same precision and order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_tui.decoding.rules import ROUNDING
from specdec_tui.decoding.sampling import PositionNoise


@dataclass(frozen=True, slots=True)
class Drafts:
    """`ids` int64 [γ]; `rows` float32 [γ, V], the drafter's distributions (None: q is one-hot); `count` int64 [1]."""

    ids: Tensor
    rows: Tensor | None
    count: Tensor


@dataclass(frozen=True, slots=True)
class Chance:
    """What a round draws from: `uniforms` float64 [γ + 1], the noise of positions, and its own first `position` [1]."""

    uniforms: Tensor
    noise: PositionNoise
    position: Tensor


@dataclass(frozen=True, slots=True)
class DeviceVerdict:
    """`accepted` and `emitted` int64 [1]; `numbers` float64 [4, γ]: p, q, acceptance and draw of every draft
    (not a number where the rule has none); `sound` bool [1]: whether the token could be drawn at all."""

    accepted: Tensor
    emitted: Tensor
    numbers: Tensor
    sound: Tensor


Draw = Callable[[Tensor, Tensor, PositionNoise, Tensor], Tensor]
"""Draws an id [1] from scores [V] with a uniform float64 [1], the noise and the position int64 [1]."""
Verify = Callable[[Drafts, Tensor, Chance], DeviceVerdict]


@dataclass(frozen=True, slots=True)
class DeviceRule:
    """How drafts are drawn and judged; `uniforms`: whether a draw takes a number of the stream."""

    draw: Draw
    verify: Verify
    uniforms: bool


def _inverted(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """As `sampling.draw_id`: the id [1], and whether the weights were finite."""
    running = weights.cumsum(-1, dtype=torch.float64)
    index = torch.searchsorted(running, running[-1:] * (1.0 - uniform))
    return index.clamp(max=weights.shape[-1] - 1), index < weights.shape[-1]


def draw_freely(scores: Tensor, uniform: Tensor, noise: PositionNoise, position: Tensor) -> Tensor:
    return _inverted(scores, uniform)[0]


def draw_coupled(scores: Tensor, uniform: Tensor, noise: PositionNoise, position: Tensor) -> Tensor:
    return (scores / noise.of(position)).argmax(-1, keepdim=True)


def draw_best(scores: Tensor, uniform: Tensor, noise: PositionNoise, position: Tensor) -> Tensor:
    return scores.argmax(-1, keepdim=True)


def _chosen(drafts: Drafts, scores: Tensor) -> tuple[Tensor, Tensor]:
    """p and q of the drafts, float64 [γ]."""
    p = scores[:-1].gather(1, drafts.ids[:, None])[:, 0].double()
    if drafts.rows is None:
        return p, torch.ones_like(p)
    return p, drafts.rows.gather(1, drafts.ids[:, None])[:, 0].double()


def _exists(drafts: Drafts) -> Tensor:
    return torch.arange(len(drafts.ids), device=drafts.ids.device) < drafts.count


def _leading(passed: Tensor) -> Tensor:
    """How many of bool [γ] in a row from the first, int64 [1]."""
    return passed.long().cumprod(0).sum(0, keepdim=True)


def _ratio(p: Tensor, q: Tensor) -> Tensor:
    return torch.where(q > 0, p / q, torch.ones_like(p))


def _residual(drafts: Drafts, scores: Tensor, accepted: Tensor, weight: Tensor | None = None) -> Tensor:
    """What the target still has to give after the draft at `accepted` was refused, float32 [V]."""
    p, place = scores.index_select(0, accepted)[0], accepted.clamp(max=len(drafts.ids) - 1)
    if drafts.rows is None:
        rest = p.scatter(0, drafts.ids.index_select(0, place), 0.0)
    else:
        own = p if weight is None else p * weight[0]
        rest = (own - drafts.rows.index_select(0, place)[0]).clamp_(min=0.0)
    return torch.where(rest.amax() > 0, rest, p)


def _emit(
    drafts: Drafts, scores: Tensor, accepted: Tensor, chance: Chance, weight: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The token behind the accepted drafts: of the residual, or a bonus."""
    row = scores.index_select(0, accepted)[0]
    if len(drafts.ids):
        row = torch.where(accepted < drafts.count, _residual(drafts, scores, accepted, weight), row)
    return _inverted(row, chance.uniforms.index_select(0, drafts.count))


def _tokenwise(drafts: Drafts, scores: Tensor, chance: Chance) -> tuple[Tensor, Tensor]:
    p, q = _chosen(drafts, scores)
    draws = chance.uniforms[: len(p)]
    accepted = _leading((draws * q < p) & _exists(drafts))
    used = torch.arange(len(p), device=p.device) <= accepted
    return accepted, torch.stack((p, q, _ratio(p, q).clamp(max=1.0), torch.where(used, draws, torch.nan)))


def verify_rejection(drafts: Drafts, scores: Tensor, chance: Chance) -> DeviceVerdict:
    accepted, numbers = _tokenwise(drafts, scores, chance)
    emitted, sound = _emit(drafts, scores, accepted, chance)
    return DeviceVerdict(accepted, emitted, numbers, sound)


def verify_skip_adjustment(drafts: Drafts, scores: Tensor, chance: Chance) -> DeviceVerdict:
    accepted, numbers = _tokenwise(drafts, scores, chance)
    row = scores.index_select(0, accepted)[0]
    emitted, sound = _inverted(row, chance.uniforms.index_select(0, drafts.count))
    return DeviceVerdict(accepted, emitted, numbers, sound)


def verify_block(drafts: Drafts, scores: Tensor, chance: Chance) -> DeviceVerdict:
    """As `rules.verify_block`; the test of the last existing draft is that of the end of a block."""
    p, q = _chosen(drafts, scores)
    most = len(p)
    weights = [torch.ones(1, dtype=p.dtype, device=p.device)]
    for i in range(most):
        factor = torch.where(
            q[i : i + 1] > 0, (weights[-1] * p[i : i + 1] / q[i : i + 1]).clamp(max=1.0), (p[i : i + 1] > 0).double()
        )
        weights.append(factor)
    joint = torch.cat(weights)  # [γ + 1]: the weight before each draft, and behind the last
    acceptance = joint[1:]
    if most > 1:
        if drafts.rows is None:
            spare = (joint[1:-1] * (1.0 - p[1:])).clamp(min=0.0)
        else:
            spare = torch.cat(
                [
                    (scores[i] * joint[i] - drafts.rows[i]).clamp_(min=0.0).sum(0, keepdim=True).double()
                    for i in range(1, most)
                ]
            )
        open_ended = torch.where(
            ~((spare <= ROUNDING) & (joint[1:-1] >= 1.0 - ROUNDING)),  # also for what is not a number
            spare / (spare + 1.0 - joint[1:-1]),
            torch.ones_like(spare),
        )
        inner = torch.arange(1, most, device=p.device) < drafts.count
        acceptance = torch.cat((torch.where(inner, open_ended, joint[1:-1]), joint[-1:]))
    draws = chance.uniforms[:most]
    places = torch.arange(1, most + 1, device=p.device)
    passed = (draws < acceptance) & _exists(drafts)
    accepted = torch.cat((torch.zeros_like(drafts.count), places * passed)).amax(0, keepdim=True)
    emitted, sound = _emit(drafts, scores, accepted, chance, joint.index_select(0, accepted))
    return DeviceVerdict(accepted, emitted, torch.stack((p, q, acceptance, draws)), sound)


def verify_coupled(drafts: Drafts, scores: Tensor, chance: Chance) -> DeviceVerdict:
    own = torch.cat(
        [draw_coupled(row, chance.uniforms, chance.noise, chance.position + i) for i, row in enumerate(scores)]
    )
    accepted = _leading((own[:-1] == drafts.ids) & _exists(drafts))
    p, q = _chosen(drafts, scores)
    none = torch.full_like(p, torch.nan)
    finite = scores.index_select(0, accepted).sum().isfinite()[None]  # rows behind a refused draft count for nothing
    return DeviceVerdict(accepted, own.index_select(0, accepted), torch.stack((p, q, none, none)), finite)


def verify_greedy(drafts: Drafts, scores: Tensor, chance: Chance) -> DeviceVerdict:
    best = scores.argmax(-1)
    same = best[:-1] == drafts.ids
    accepted = _leading(same & _exists(drafts))
    hits, none = same.double(), torch.full_like(same, torch.nan, dtype=torch.float64)
    numbers = torch.stack((hits, torch.ones_like(hits), hits, none))
    emitted = best.index_select(0, accepted)
    return DeviceVerdict(accepted, emitted, numbers, torch.ones_like(accepted, dtype=torch.bool))


GREEDY = DeviceRule(draw_best, verify_greedy, uniforms=False)
RULES = {
    "rejection": DeviceRule(draw_freely, verify_rejection, uniforms=True),
    "coupled": DeviceRule(draw_coupled, verify_coupled, uniforms=False),
    "block": DeviceRule(draw_freely, verify_block, uniforms=True),
    "skip-adjustment": DeviceRule(draw_freely, verify_skip_adjustment, uniforms=True),
}
