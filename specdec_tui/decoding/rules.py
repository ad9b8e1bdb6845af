"""Verification rules: which drafts the target keeps, and which token follows them.

`rejection` is Leviathan et al. 2023 (arXiv 2211.17192) and Chen et al. 2023 (arXiv 2302.01318),
`block` is Sun et al. 2024 (arXiv 2403.10444), `coupled` draws both models with the same Gumbel
noise. `skip-adjustment` leaves out the correction of the residual and is biased on purpose.
Under greedy sampling all four are the same comparison of ids, and all are exact.

Here "scores" are rows over the target's vocabulary: processed probabilities when sampling,
logits when greedy. A drafter's row is None where it has no distribution (n-gram, look-up): then
q is one-hot at the draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from specdec_tui.decoding.chances import joint_weights
from specdec_tui.decoding.rows import Few, Rest, Row, Scores, Whole, dense
from specdec_tui.decoding.sampling import Dice, Sampler, best_id, best_ids, draw_id

ROUNDING = 1e-5
"""A share of probability that is no difference between two models: between passes that are cut differently, logits in
float32 were up to 6e-5 apart."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a round's drafts.

    `accepted` drafts stay, then comes `emitted` (None only when no bonus was asked for). The
    lists have one entry per draft, or are empty where the rule needs no such numbers; `acceptance`
    and `draws` hold None for a draft without one. Under `block` a draft may be kept although its
    own draw failed, because a later one held.
    """

    accepted: int
    emitted: int | None
    p: list[float] = field(default_factory=list)
    q: list[float] = field(default_factory=list)
    acceptance: list[float | None] = field(default_factory=list)
    draws: list[float | None] = field(default_factory=list)


Rows = Sequence[Row | None]
Draw = Callable[[Row, int, Dice], int]
Verify = Callable[[list[int], Rows, Scores, int, Dice, bool], Verdict]


@dataclass(frozen=True, slots=True)
class Rule:
    """A verification rule.

    `draw(scores [V], position, dice)` draws one token as the target or the drafter would alone.
    `verify(drafts, drafter rows, target scores [drafts+1, V], position, dice, bonus)` judges a
    round whose first draft is at `position`; `bonus` asks for a token behind a full acceptance.
    `weight(p, q)` is what p weighs in the residual behind accepted drafts of these probabilities;
    None where a correction is drawn from no residual.
    """

    draw: Draw
    verify: Verify
    lossless: bool = True
    weight: Callable[[list[float], list[float]], float] | None = None


def chosen(drafts: list[int], q: Rows, p: Scores) -> tuple[list[float], list[float]]:
    """p and q of the drafts themselves, read from the device at once."""
    if not isinstance(p, torch.Tensor):
        own = [1.0 if row is None else float(row[draft]) for row, draft in zip(q, drafts, strict=True)]
        return [float(row[draft]) for row, draft in zip(p, drafts, strict=False)], own
    index = torch.tensor(drafts, device=p.device)
    p_chosen = p[: len(drafts)].gather(1, index[:, None])[:, 0]
    known = [torch.as_tensor(row[draft]) for row, draft in zip(q, drafts, strict=True) if row is not None]
    if not known:
        return p_chosen.tolist(), [1.0] * len(drafts)
    values = torch.cat((p_chosen, torch.stack(known).to(p.device))).tolist()
    rest = iter(values[len(drafts) :])
    return values[: len(drafts)], [1.0 if row is None else next(rest) for row in q]


def residual(p: Row, q: Row | None, draft: int, weight: float = 1.0) -> Row | Rest:
    """What the target still has to give after `draft` was refused: max(0, weight·p − q), unnormalised [V].

    Where rounding leaves nothing of it, p and q are the same and p stands in.
    """
    if isinstance(p, Few) and (q is None or isinstance(q, Few)):
        return p.rest(q, draft, weight)
    if isinstance(p, Whole) and (q is None or isinstance(q, Whole)):
        return p.rest(q, draft, weight)
    p, q = dense(p), None if q is None else dense(q)
    if q is None:
        rest = p.clone()
        rest[draft] = 0.0
    else:
        rest = (p * weight - q.to(p.device)).clamp_(min=0.0)
    return rest if float(rest.amax()) > 0 else p


def leading_acceptances(p: list[float], q: list[float], draws: list[float]) -> int:
    """How many drafts in a row pass draw · q < p, that is with probability min(1, p/q) each."""
    for index, (p_x, q_x, draw) in enumerate(zip(p, q, draws, strict=True)):
        if not draw * q_x < p_x:
            return index
    return len(p)


def draw_freely(scores: Row, position: int, dice: Dice) -> int:
    return draw_id(scores, dice.uniform())


def draw_coupled(scores: Row, position: int, dice: Dice) -> int:
    """argmax(p / e) with the noise of the position: the same for whoever draws there."""
    if not isinstance(scores, torch.Tensor):
        return scores.draw_with(dice.noise, position)
    return best_id(scores / dice.noise.at(position).to(scores.device))


def draw_best(scores: Row, position: int, dice: Dice) -> int:
    return best_id(dense(scores))


def verify_rejection(drafts: list[int], q: Rows, p: Scores, position: int, dice: Dice, bonus: bool) -> Verdict:
    accepted, numbers = _judge_tokenwise(drafts, q, p, dice)
    emitted: int | None = None
    if accepted < len(drafts):
        emitted = draw_id(residual(p[accepted], q[accepted], drafts[accepted]), dice.uniform())
    elif bonus:
        emitted = draw_id(p[accepted], dice.uniform())
    return Verdict(accepted, emitted, *numbers)


def verify_skip_adjustment(drafts: list[int], q: Rows, p: Scores, position: int, dice: Dice, bonus: bool) -> Verdict:
    accepted, numbers = _judge_tokenwise(drafts, q, p, dice)
    wanted = bonus or accepted < len(drafts)
    return Verdict(accepted, draw_id(p[accepted], dice.uniform()) if wanted else None, *numbers)


Numbers = tuple[list[float], list[float], list[float | None], list[float | None]]


def _judge_tokenwise(drafts: list[int], q: Rows, p: Scores, dice: Dice) -> tuple[int, Numbers]:
    p_chosen, q_chosen = chosen(drafts, q, p)
    draws = dice.uniforms(len(drafts))
    accepted = leading_acceptances(p_chosen, q_chosen, draws)
    acceptance: list[float | None] = [
        min(1.0, p_x / q_x) if q_x > 0 else 1.0 for p_x, q_x in zip(p_chosen, q_chosen, strict=True)
    ]
    return accepted, (p_chosen, q_chosen, acceptance, _used(draws, accepted + 1))


def verify_block(drafts: list[int], q: Rows, p: Scores, position: int, dice: Dice, bonus: bool) -> Verdict:
    """Algorithm 2 of Sun et al.: the longest prefix that passes its own joint test is kept.

    A proposal may end early (an end token, an unknown n-gram context): that is a leaf of the tree
    of possible proposals, and the last draft of it takes the test of the last draft of a block.
    """
    p_chosen, q_chosen = chosen(drafts, q, p)
    weights = joint_weights(p_chosen, q_chosen)
    acceptance = [
        # With nothing spare and full weight both models agree from here: later tests decide. What rounding leaves of
        # either is no ratio.
        spare / (spare + 1.0 - weight) if spare > ROUNDING or weight < 1.0 - ROUNDING else 1.0
        for spare, weight in zip(_spare_mass(q, p, p_chosen, weights), weights[1:-1], strict=True)
    ]
    acceptance.append(weights[-1])
    draws = dice.uniforms(len(drafts))
    passed = [i for i, (draw, chance) in enumerate(zip(draws, acceptance, strict=True), 1) if draw < chance]
    accepted = passed[-1] if passed else 0
    emitted: int | None = None
    if accepted < len(drafts):
        rest = residual(p[accepted], q[accepted], drafts[accepted], weights[accepted])
        emitted = draw_id(rest, dice.uniform())
    elif bonus:
        emitted = draw_id(p[accepted], dice.uniform())
    return Verdict(accepted, emitted, p_chosen, q_chosen, [*acceptance], _used(draws, len(draws)))


def _spare_mass(q: Rows, p: Scores, p_chosen: list[float], weights: list[float]) -> list[float]:
    """Σ max(0, weight·p − q) behind each draft but the last, read from the device at once."""
    sums = [_spare(p[i], row, weights[i]) for i, row in enumerate(q) if i > 0 and row is not None]
    known = iter(torch.stack(sums).tolist() if sums else ())
    return [max(0.0, weights[i] * (1.0 - p_chosen[i])) if q[i] is None else next(known) for i in range(1, len(q))]


def _spare(p: Row, q: Row, weight: float) -> torch.Tensor:
    if isinstance(p, Few) and isinstance(q, Few):
        return torch.tensor(p.spare(q, weight))
    if isinstance(p, Whole) and isinstance(q, Whole):
        return torch.tensor(p.spare(q, weight))
    own = dense(p)
    return (own * weight - dense(q).to(own.device)).clamp_(min=0.0).sum()


def verify_coupled(drafts: list[int], q: Rows, p: Scores, position: int, dice: Dice, bonus: bool) -> Verdict:
    """Draw as the target alone would, position by position; a draft is kept when it is that draw."""
    for index, draft in enumerate(drafts):
        own = draw_coupled(p[index], position + index, dice)
        if own != draft:
            return Verdict(index, own)
    return Verdict(len(drafts), draw_coupled(p[len(drafts)], position + len(drafts), dice) if bonus else None)


def verify_greedy(drafts: list[int], q: Rows, p: Scores, position: int, dice: Dice, bonus: bool) -> Verdict:
    """Both distributions are one-hot: a draft is kept when it is the target's best id."""
    best = best_ids(dense(p))
    hits = [float(own == draft) for own, draft in zip(best, drafts, strict=False)]
    accepted = hits.index(0.0) if 0.0 in hits else len(hits)
    emitted = best[accepted] if bonus or accepted < len(drafts) else None
    return Verdict(accepted, emitted, hits, [1.0] * len(drafts), [*hits], [None] * len(drafts))


def _used(draws: list[float], count: int) -> list[float | None]:
    return [draw if index < count else None for index, draw in enumerate(draws)]


GREEDY = Rule(draw_best, verify_greedy)
RULES = {
    "rejection": Rule(draw_freely, verify_rejection, weight=lambda p, q: 1.0),
    "coupled": Rule(draw_coupled, verify_coupled),
    "block": Rule(draw_freely, verify_block, weight=lambda p, q: joint_weights(p, q)[-1]),
    "skip-adjustment": Rule(draw_freely, verify_skip_adjustment, lossless=False),
}


def rule_for(name: str, sampler: Sampler) -> Rule:
    """The rule of that name, or the comparison that all of them are under greedy sampling."""
    return GREEDY if sampler.is_greedy else RULES[name]
