"""What the chances of a token mean, raw or processed, in words that screen and reports share. No torch here.

Processed is what a run draws from: after temperature, top-k and top-p; under greedy sampling one-hot.
Raw is the plain softmax. The figures of an `Insight` are processed, but raw under greedy sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from specdec_tui.decoding.records import Status, Token

MOST_ALTERNATIVES = 10
Top = Sequence[tuple[int, float]]

_NO_ENTROPY = 0.0005  # nats; below it raw and one-hot are the same to three digits


def is_greedy(tokens: Sequence[Token]) -> bool:
    """Whether the round of these tokens was greedy, as its figures tell: p and q one-hot, its insight raw.

    A distribution that gives one token everything has no entropy, and a draft that is judged without a
    draw was compared. False where nothing tells, as for a target so sure that raw and processed agree.
    """
    for token in tokens:
        seen = token.insight
        if seen is not None and (
            (token.p == 1.0 and (seen.target_entropy or 0.0) >= _NO_ENTROPY)
            or (token.q == 1.0 and (seen.drafter_entropy or 0.0) >= _NO_ENTROPY)
        ):
            return True
    first = tokens[0] if tokens else None
    return (
        first is not None
        and first.status in (Status.ACCEPTED, Status.REJECTED)
        and first.draw is None
        and first.acceptance is not None
        and first.acceptance == first.p in (0.0, 1.0)
    )


def known(top: Top, token: int) -> tuple[float, bool]:
    """A token's probability by a list of alternatives; False: it is not listed, and its probability at most that."""
    listed = dict(top)
    if token in listed:
        return listed[token], True
    return (0.0, True) if len(top) < MOST_ALTERNATIVES else (top[MOST_ALTERNATIVES - 1][1], False)


def chances(token: Token, greedy: bool) -> list[str]:
    """p and q of a token, each with what it is: `raw p 0.553 → greedy 1`, or `processed p 0.312, q 0.7`."""
    seen = token.insight
    tops: tuple[Top, Top] = ((), ()) if seen is None else (seen.target_top, seen.drafter_top)
    told = []
    for name, value, top in zip("pq", (token.p, token.q), tops, strict=True):
        if value is None or not isfinite(value):
            continue
        if not greedy:
            told.append(f"{name} {in_digits(value)}")
        elif not top:
            told.append(f"greedy {name} {value:g}")
        else:
            raw, exact = known(top, token.id)
            told.append(f"raw {name} {'' if exact else 'below '}{in_digits(raw)} → greedy {value:g}")
    return told if greedy or not told else [f"processed {', '.join(told)}"]


def joint_weights(p: Sequence[float], q: Sequence[float]) -> list[float]:
    """Of a block of drafts with these probabilities: its joint weight before the first of them, and behind each.

    Sun et al. 2024 (arXiv 2403.10444): w = min(1, w·p/q), beginning with 1.
    """
    weights = [1.0]
    for p_x, q_x in zip(p, q, strict=True):
        # This way round a p that is no number weighs nothing.
        weights.append(max(0.0, min(weights[-1] * p_x / q_x, 1.0)) if q_x > 0 else float(p_x > 0))
    return weights


def was_judged(token: Token) -> bool:
    """Whether a rule has decided on it; behind a refused draft only a rule with draws for whole blocks has."""
    return token.status is not Status.UNVERIFIED or token.draw is not None


def judgement(token: Token, greedy: bool) -> list[str]:
    """The chance of acceptance, and the uniform number that decided; what there was instead where there was none."""
    chance, draw, fate = token.acceptance, token.draw, token.status
    judged = fate in (Status.ACCEPTED, Status.REJECTED)
    if not was_judged(token):
        return ["its p and q are for a text with the refused draft in it"] if token.p is not None else []
    if judged and greedy:
        return [f"greedy: the target's best token is {'this one' if fate is Status.ACCEPTED else 'another one'}"]
    if judged and chance is None and token.p is not None:
        return ["a draft is kept when the target's own draw is the same"]
    if chance is None:
        return []
    if draw is None:
        return [f"{_chance_of(token)} = {in_digits(chance)}"]
    shown = next((n for n in (2, 3, 4, 5) if f"{draw:.{n}f}" != f"{chance:.{n}f}" and _tells(chance, n)), 6)
    below = draw < chance
    match fate:
        case Status.ACCEPTED:
            word = "accepted" if below else "kept by a later draft"
        case Status.REJECTED:
            word = "rejected"
        case _:
            word = "not passed"
    return [
        f"accept with {_chance_of(token)} = {in_digits(chance, shown)}",
        f"draw {in_digits(draw, shown)} {'<' if below else '≥'} {in_digits(chance, shown)}: {word}",
    ]


def has_joint_chance(token: Token) -> bool:
    """Whether the chance is another one than that of the token alone, as under the block rule."""
    p, q, chance = token.p, token.q, token.acceptance
    if chance is None or p is None or q is None:
        return False
    return abs(chance - (min(1.0, p / q) if q > 0 else 1.0)) > 0.001


def _chance_of(token: Token) -> str:
    return "its block's chance" if has_joint_chance(token) else "min(1, p/q)"


def kind(greedy: bool) -> str:
    """What the entropies and alternatives of a round are."""
    return "raw" if greedy else "processed"


def _tells(value: float, digits: int) -> bool:
    """Whether so many decimals show that a value is not quite 1."""
    return value >= 1 or value < 1 - 0.5 / 10**digits


def in_digits(value: float, digits: int = 3) -> str:
    """So many decimals, never rounded to 0 or 1: these are for what is exactly that."""
    least = 0.5 / 10**digits
    if value in (0.0, 1.0):
        return f"{value:g}"
    if not _tells(value, digits):
        return f">{1 - 1 / 10**digits:.{digits}f}"
    return f"{value:.{digits}f}" if value >= least else f"{value:.1e}"
