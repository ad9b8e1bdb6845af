"""What becomes of drafts where the target is on a server that tells the best alternatives of a place.

Where these decide the distribution that the run draws from (`partial.distribution`), a draft is judged by the rejection
rule as on any target. Where they do not, the server draws a token at every place of the round itself, and a draft is
kept when it is that token: with probability p(x), and what stands in its place otherwise is a draw from p without x.
Which of the two it is at a place depends on the text before it alone, so both may come up in a round and the text is
distributed as the target's. (Were a whole round judged in one way or the other, by what its last places tell, drafts
would decide how they themselves are judged.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, nan

import torch

from specdec_tui.backends.answering import AnsweringModel, Drawing, Told
from specdec_tui.backends.errors import NotDone
from specdec_tui.decoding.drafters import Proposal
from specdec_tui.decoding.partial import distribution
from specdec_tui.decoding.rules import RULES, Verdict, residual
from specdec_tui.decoding.sampling import Dice, Sampler, draw_id

LEAST_TEMPERATURE = 0.01
"""vLLM raises a lower one to this, without a word."""
_NAMES = {"banned": "bad words", "biases": "logit bias", "min_length": "min_new_tokens"}


def refuse(target: AnsweringModel, rule: str, sampler: Sampler, controls: Sequence[str], drafts: bool) -> None:
    """NotDone, with the reason, for what cannot be done exactly where only alternatives are told.

    Without `drafts` the server writes by itself, and all is its own draw.
    """
    if controls:
        names = ", ".join(_NAMES.get(name, name).replace("_", " ") for name in controls)
        raise NotDone(f"{names}: they change whole distributions, which a server does not tell: turn them off")
    if sampler.is_greedy:
        return
    if rule == "coupled":
        raise NotDone("the coupled rule needs whole distributions, which a server does not tell: use rejection")
    if drafts and not draws_there(target, sampler):
        return
    if drafts and rule != "rejection":
        raise NotDone(
            f"the {rule} rule needs all that a draw can give, which {target.alternatives} alternatives do not tell: "
            "use rejection, or a top-k below that"
        )
    if sampler.temperature < LEAST_TEMPERATURE:
        raise NotDone(f"servers draw at a temperature of {LEAST_TEMPERATURE:g} at least: use that, or greedy")
    if sampler.uses_typical_p:
        raise NotDone("no server draws by typical-p: turn it off")
    if sampler.uses_min_p and sampler.uses_top_p:
        raise NotDone("servers draw by min-p before top-p, not behind it: use one of them")
    if reason := target.refusal(drawing_of(sampler)):
        raise NotDone(reason)


def draws_there(target: AnsweringModel, sampler: Sampler) -> bool:
    """Whether alternatives may not decide a draw, so that the server has to draw too."""
    is_told = sampler.uses_top_k and sampler.top_k < target.alternatives
    is_whole = is_told or target.alternatives >= target.vocab_size
    return not sampler.is_greedy and not (is_whole and target.tells_plainly)


def drawing_of(sampler: Sampler) -> Drawing:
    """What the server is told to draw by."""
    if sampler.is_greedy:
        return Drawing()
    top_k, top_p = sampler.top_k if sampler.uses_top_k else 0, sampler.top_p if sampler.uses_top_p else 1.0
    return Drawing(sampler.temperature, top_k, top_p, sampler.min_p)


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """What is known of one place of a round: what the server tells, and the processed distribution [V] if it follows.

    Of a greedy run there is none: its tokens are the server's own.
    """

    told: Told
    row: torch.Tensor | None

    @property
    def is_decided(self) -> bool:
        return self.row is not None or self.told.drawn is not None

    def token(self, sampler: Sampler, dice: Dice) -> int:
        """The target's own token there."""
        return self.drawn(sampler) if self.row is None else draw_id(self.row, dice.uniform())

    def drawn(self, sampler: Sampler) -> int:
        """The server's own."""
        if self.told.drawn is not None:
            return self.told.drawn
        if not sampler.is_greedy:
            raise ValueError("the server drew no token where its alternatives do not tell enough")
        return self.told.ids[0]

    def probability(self, token: int, sampler: Sampler) -> float:
        """The processed probability of a token; NaN where it is not known."""
        if sampler.is_greedy:
            return float(self.drawn(sampler) == token)
        if self.row is not None:
            return float(self.row[token])
        value = self.told.known.get(token) if is_plain(sampler) else None
        return nan if value is None else exp(value)


def is_plain(sampler: Sampler) -> bool:
    """Whether what is drawn from is the plain softmax, of which a server tells."""
    return not sampler.is_greedy and sampler.temperature == 1 and not sampler.narrows


def places(told: Sequence[Told], sampler: Sampler, target: AnsweringModel) -> list[Place]:
    """The places of a round."""
    if sampler.is_greedy or not target.tells_plainly:
        return [Place(one, None) for one in told]
    return [Place(one, distribution(one, sampler, target.vocab_size)) for one in told]


def scores_of(places: Sequence[Place], sampler: Sampler, width: int) -> torch.Tensor:
    """Scores [n, width] for who keeps the best tokens of a place: what is not known has no chance in them."""
    greedy = sampler.is_greedy
    found = torch.full((len(places), width), -torch.inf if greedy else 0.0)
    for index, place in enumerate(places):
        if place.row is not None:
            found[index] = place.row
        else:
            values = torch.tensor(place.told.logprobs)
            found[index, list(place.told.ids)] = values if greedy else values.exp()
    return found


def verify(
    rule: str, proposal: Proposal, places: Sequence[Place], position: int, sampler: Sampler, dice: Dice, bonus: bool
) -> Verdict:
    """What becomes of the drafts of a round. `places`: [drafts + 1]; numbers that are not known are NaN, or None."""
    rows = [place.row for place in places if place.row is not None]
    if proposal.ids and rule != "rejection" and not sampler.is_greedy:
        # `refuse` has seen to it that all are known.
        return RULES[rule].verify(proposal.ids, proposal.rows, torch.stack(rows), position, dice, bonus)
    p: list[float] = []
    q: list[float] = []
    chances: list[float | None] = []
    draws: list[float | None] = []
    accepted, emitted = len(proposal.ids), None
    for index, (draft, own, place) in enumerate(zip(proposal.ids, proposal.rows, places, strict=False)):
        is_judged = accepted == len(proposal.ids)
        p_x, q_x = place.probability(draft, sampler), 1.0 if own is None or sampler.is_greedy else float(own[draft])
        chance, draw = None, None
        if place.row is None:
            token = place.drawn(sampler)
            is_kept = token == draft
            chance = p_x if sampler.is_greedy else None
        else:
            chance = min(1.0, p_x / q_x) if q_x > 0 else 1.0
            draw = dice.uniform() if is_judged else None
            is_kept = draw is not None and draw * q_x < p_x
            if is_judged and not is_kept:
                token = draw_id(residual(place.row, own, draft), dice.uniform())
        if is_judged and not is_kept:
            accepted, emitted = index, token
        p, q, chances, draws = [*p, p_x], [*q, q_x], [*chances, chance], [*draws, draw]
    if accepted == len(proposal.ids) and (bonus or not proposal.ids):
        emitted = places[accepted].token(sampler, dice)
    return Verdict(accepted, emitted, p, q, chances, draws)
