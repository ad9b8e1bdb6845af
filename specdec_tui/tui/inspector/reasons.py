"""Why a token has its fate, in sentences: what both models gave it, the rule with its numbers, what came of it.

No widget here, and no number that the record has not: each rule of `decoding/rules.py` has words of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from specdec_tui.decoding.chances import in_digits, known, was_judged
from specdec_tui.decoding.records import Origin, PrefillDone, Status, Token
from specdec_tui.tui.inspector.look import Look, name_of
from specdec_tui.tui.tokens.chips import clip
from specdec_tui.tui.tokens.style import GLYPHS

_MOST_OF_A_NAME = 24  # cells
_SAME = 1e-3  # two figures of one chance differ by less: what was recorded is rounded
NOISE = "argmax(log p + g_t)"
RESIDUAL = "norm(max(0, p − q))"


@dataclass(frozen=True, slots=True)
class Why:
    """`given` by the models, the `rule` with its numbers, `so` what came of it: a sentence each, or empty.

    `chance` and `draw`: what the draft is accepted with, and the uniform number that decided; None where there is none.
    """

    given: str
    rule: str
    so: str = ""
    chance: float | None = None
    draw: float | None = None


def why(look: Look) -> Why:
    """The reasons of the token that is looked at."""
    token = look.token
    if look.searches:
        return _of_a_search(look)
    if look.served and not isinstance(look.record, PrefillDone):
        return _of_a_server(look)
    match token.status:
        case Status.PENDING:
            given = "" if token.q is None else f"The drafter gave it {_share(token.q)}."
            return Why(given, "pending: the target has not judged it yet")
        case Status.UNVERIFIED if not was_judged(token):
            return _never_judged(look)
        case Status.ACCEPTED | Status.REJECTED | Status.UNVERIFIED:
            return _judged(look, token)
        case Status.RESAMPLED if (draft := look.drafted) is not None:
            return _judged(look, draft)
        case _:
            return _own(look)


def _of_a_search(look: Look) -> Why:
    p = look.token.p
    given = "" if p is None else f"The {look.model} gave it {_share(p)}."
    if look.token.status is Status.PENDING:
        return Why(given, "pending: in the best text so far; another may still win")
    return Why(given, "settled: every text that can still win has it")


def _of_a_server(look: Look) -> Why:
    """Of its drafts it told those that it kept."""
    untold = getattr(look.record, "untold", 0)
    match look.token.status:
        case Status.ACCEPTED:
            return Why("", "accepted: a draft of the server's own that it kept")
        case Status.RESAMPLED:
            return Why("", "resampled: the server's token in the place of a draft that it refused, and did not tell")
        case Status.SAMPLED if untold is None:
            return Why("", "sampled: not told whether the server had drafts here that it refused")
        case Status.PENDING:
            return Why("", "pending: a draft of the server's own")
    return _own(look)


def _never_judged(look: Look) -> Why:
    q = look.token.q
    given = "" if q is None or look.greedy else f"The drafter gave it {_share(q)}."
    if look.is_sure and not look.greedy:
        given = "The drafter is sure of its draft (q = 1)."
    so = "its p and q are for a text with the refused draft in it" if look.token.p is not None else ""
    return Why(given, "unverified: a draft before it was refused, so it was never judged", so)


def _own(look: Look) -> Why:
    """A token of the target's own, in the place of no draft."""
    token = look.token
    first = isinstance(look.record, PrefillDone)
    kept = len(look.drafts)
    if token.status is Status.BONUS:
        drafts = "the draft was" if kept == 1 else f"all {kept} drafts were"
        rule = f"bonus: {drafts} kept, so the same pass gives a token more"
    elif token.status is Status.RESAMPLED:
        rule = "resampled: the target's token instead of the refused draft"
    elif first:
        rule = f"sampled: {_of_what_it_comes(look.origin)}"
    else:
        rule = "sampled: no draft in this round, a plain step"
    return Why(_given(look, token), rule, f"so: {_how_drawn(look)}")


def _of_what_it_comes(origin: Origin | None) -> str:
    """What was read before the first token of a run; of a what-if a part of another text too."""
    if origin is None or not origin.given:
        return "the first token comes of the prompt alone"
    kept = f"{origin.position:,} kept token{'' if origin.position == 1 else 's'}"
    parts = [kept] if origin.position else []
    parts += [] if origin.token is None else ["the one that was put there"]
    return f"its first own token comes of {', '.join(['the prompt', *parts[:-1]])} and {parts[-1]}"


def _how_drawn(look: Look) -> str:
    if look.greedy:
        return f"the {look.model}'s arg-max: greedy draws nothing"
    if look.manner.rule == "coupled":
        return f"drawn from p with the noise of its place: {NOISE}"
    return "drawn from p"


def _judged(look: Look, draft: Token) -> Why:
    """A draft that the rule has decided on, or the token that was drawn in its place."""
    words = _given(look, draft)
    if draft is not look.token:
        of = f"Of the draft {_named(look, draft)}: {words[:1].lower()}{words[1:]}"
        words = of if words else f"In the place of the draft {_named(look, draft)}."
    if look.greedy:
        return _greedy(look, draft, words)
    if draft.acceptance is None:
        return _coupled(look, draft, words) if look.manner.rule == "coupled" else _without_chance(look, draft, words)
    if look.manner.rule == "block":
        return _block(look, draft, words)
    rule, coin = _accept_with(look, draft, "min(1, p/q)")
    if draft.status is Status.ACCEPTED:
        so = "kept, as is every draft that the target gives no less than the drafter" if _is_certain(draft) else "kept"
    else:
        so = _replaced(look, _from_itself(look) if look.manner.rule == "skip-adjustment" else _from_residual(look))
    return Why(words, rule, f"so: {so}", draft.acceptance, coin)


def _given(look: Look, token: Token) -> str:
    """What the models gave a token."""
    if look.greedy:
        return _raw(look, token)
    p, q = (None if value is None or not isfinite(value) else _share(value) for value in (token.p, token.q))
    if p is None:
        return ""
    if token is look.drafted and look.is_sure:
        return f"The drafter is sure of its draft (q = 1), the {look.model} gave it {p}."
    if token is look.drafted and q is not None:
        return f"The drafter gave it {q}, the {look.model} {p}."
    return f"The {look.model} gave it {p}."


def _raw(look: Look, token: Token) -> str:
    """The plain softmax of a token: greedy figures are 0 and 1 and say nothing."""
    seen = token.insight
    told: list[str] = []
    for model, top in () if seen is None else (("drafter", seen.drafter_top), (look.model, seen.target_top)):
        if top:
            share, exact = known(top, token.id)
            told.append(f"the {model}{'' if told else ' gave it'} {'' if exact else 'below '}{_share(share)}")
    return f"Raw, {', '.join(told)}." if told else ""


def _accept_with(look: Look, draft: Token, formula: str) -> tuple[str, float | None]:
    """The chance with its formula where that is what it is, the draw, and the verdict; the draw again."""
    chance, draw = draft.acceptance or 0.0, draft.draw
    fate = draft.status.value
    by_formula = _min_ratio(draft)
    if formula == "min(1, p/q)" and by_formula is not None and abs(by_formula - chance) > _SAME:
        formula = "the chance that was recorded"  # of a rule that is not the one that the run names
    if draw is None:
        return f"accept with {formula} = {in_digits(chance)}: {fate}", None
    of_chance, of_draw = _told_apart(chance, draw)
    if (draft.status is Status.ACCEPTED) != (draw < chance) and look.manner.rule != "block":
        fate += ", which this rule would not do"
    return f"accept with {formula} = {of_chance} — the coin fell at {of_draw}: {fate}", draw


def _min_ratio(draft: Token) -> float | None:
    if draft.p is None or draft.q is None:
        return None
    return min(1.0, draft.p / draft.q) if draft.q > 0 else 1.0


def _is_certain(draft: Token) -> bool:
    return draft.acceptance == 1.0


def _told_apart(chance: float, draw: float) -> tuple[str, str]:
    """Both with digits enough that they do not look equal."""
    for digits in (2, 3, 4, 5):
        if f"{draw:.{digits}f}" != f"{chance:.{digits}f}":
            break
    else:
        digits = 6
    return in_digits(chance, max(digits, 2 if chance >= 0.1 else 3)), in_digits(draw, digits)


def _coupled(look: Look, draft: Token, words: str) -> Why:
    rule = f"coupled: both draw with the same noise g_t, {NOISE}; the target's own draw is "
    if draft.status is Status.ACCEPTED:
        return Why(words, rule + "the same: accepted", "so: kept, it is what the target alone would have written")
    own = look.drawn
    rule += f"{'another one' if own is None else _named(look, own)}: {draft.status.value}"
    return Why(words, rule, "so: the target's own draw stands here; nothing is drawn anew")


def _without_chance(look: Look, draft: Token, words: str) -> Why:
    so = "so: kept" if draft.status is Status.ACCEPTED else _so_replaced(look)
    if look.by_calls:
        own = draft if draft.status is Status.ACCEPTED else look.drawn
        drew = "this one" if own is draft else "another one" if own is None else _named(look, own)
        rule = "its alternatives do not decide a draw here, so the server drew itself, with its own chance: a draft is "
        return Why(words, f"{rule}kept when it is that token; it drew {drew}", so)
    return Why(words, f"{draft.status.value}: the chance was not recorded", so)


def _so_replaced(look: Look) -> str:
    drawn = look.drawn
    return "" if drawn is None or drawn is look.token else f"so: replaced by {_named(look, drawn)}"


def _greedy(look: Look, draft: Token, words: str) -> Why:
    own = draft if draft.status is Status.ACCEPTED else look.drawn if draft.status is Status.REJECTED else None
    rule = "greedy: only the arg-max counts, the most likely token; the target's is "
    if draft.status is Status.ACCEPTED:
        return Why(words, f"{rule}this one: accepted", "so: kept, it is what the target alone would have written")
    rule += f"{'another one' if own is None else _named(look, own)}, so this one is {draft.status.value}"
    return Why(words, rule, "so: the target's arg-max stands here; nothing is drawn")


def _block(look: Look, draft: Token, words: str) -> Why:
    """Algorithm 2 of Sun et al.: the longest block that passes its joint test is kept."""
    drafts = look.drafts
    index = drafts.index(draft)
    weight = look.weights[index + 1]
    known_weight = all(one.p is not None and one.q is not None for one in drafts[: index + 1])
    if index == len(drafts) - 1:
        formula = "the joint weight w of the block"
    else:
        formula = "the joint chance of the block up to here"
    rule, coin = _accept_with(look, draft, formula)
    rule = rule.removesuffix(f": {draft.status.value}")
    passed = coin is not None and coin < (draft.acceptance or 0.0)
    rule = f"block: {rule}{': passed' if passed else ': not passed' if coin is not None else ''}"
    if known_weight:
        told = "w = min(1, w·p/q) over its drafts" if index else "w = min(1, p/q)"
        rule += f"; {told} = {in_digits(weight)}"
    if draft.status is Status.ACCEPTED:
        so = "so: accepted, the longest block that passes is kept"
        so = so if passed or coin is None else "so: accepted all the same, for a longer block passed"
    elif draft.status is Status.REJECTED:
        so = f"so: rejected, no longer block passed; {_replaced(look, _from_residual(look))}"
    else:
        so = "so: unverified: behind the refused draft, and its own test failed too"
    return Why(words, rule, so, draft.acceptance, coin)


def _replaced(look: Look, how: str) -> str:
    """What came in the place of a refused draft."""
    drawn = look.drawn
    if drawn is look.token:
        return f"this one was {how}{_of_the_residual(look, drawn)}"
    whom = "" if drawn is None else f" by {_named(look, drawn)}"
    return f"replaced{whom}, {how}"


def _of_the_residual(look: Look, drawn: Token) -> str:
    share = dict(look.residual).get(drawn.id)
    return "" if share is None else f", which gave it {_share(share)}"


def _from_residual(look: Look) -> str:
    if look.is_sure:
        return f"drawn from what p has besides the draft: {RESIDUAL}"
    if look.manner.rule == "block":
        return f"drawn from what w·p has more than q: norm(max(0, w·p − q)), w = {in_digits(look.weight)}"
    return f"drawn from what p has more than q: {RESIDUAL}"


def _from_itself(look: Look) -> str:
    return "drawn from p itself, not from what p has more than q: biased, so the text is lossy"


def _named(look: Look, token: Token) -> str:
    return f"{GLYPHS[token.status]}{clip(name_of(token.id, look.texts), _MOST_OF_A_NAME)}"


def _share(value: float) -> str:
    return in_digits(value)
