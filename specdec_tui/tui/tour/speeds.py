"""How the tour says what was measured: as a sum of what rounds gave and took, and how far the clock is to be believed.

Pure.
"""

from __future__ import annotations

from specdec_tui.decoding.standing import Standing, Verdict
from specdec_tui.tui.tour.facts import Facts
from specdec_tui.tui.tour.sums import RoundBounds, RoundSum, bounds_of, sum_of

DISTURBED = "clock was disturbed."
_TOO_LITTLE = "too little to be sure of"


def ratio(facts: Facts) -> str:
    """A speedup in few words."""
    found = facts.standing
    if found is None:
        return "too short to measure"
    if found.is_disturbed:
        return f"{found.text}, clock disturbed"
    if found.verdict in (Verdict.SHORT, Verdict.UNCHECKED):
        return f"{found.text}, but {_TOO_LITTLE}"
    return f"{found.text}, slower" if found.verdict is Verdict.SLOWER else found.text


def sum_sentence(facts: Facts, drafts: str, check: str) -> str:
    """What a mean round took and gave, and the speedup that is the one by the other.

    `drafts` and `check`: what its two parts are called.
    """
    if (told := sum_of(facts)) is not None and facts.standing is not None:
        return f"A round took {parts(told, drafts, check)} and gave {quotient(told)}, {_word(facts.standing)}."
    if (bounds := bounds_of(facts)) is not None and facts.standing is not None:
        return _bounds(bounds, facts.standing, drafts, check)
    if facts.standing is not None:
        return f"Measured: {facts.standing.text} by a disturbed clock, which says nothing."
    return "The run was too short to measure a speedup."


def parts(told: RoundSum, drafts: str, check: str) -> str:
    """`drafts 0.27 (3.8 × c 0.071 each) + check v 1.17 = 1.44 plain passes`; what costs nothing is no product."""
    count, each = told.product
    product = f" ({count} × c {each} each)" if told.drafting else ""
    return f"{drafts} {told.drafting:.2f}{product} + {check} v {told.checking:.2f} = {told.steps:.2f} plain passes"


def quotient(told: RoundSum) -> str:
    """`3.00 tokens (33 in 11 rounds): 3.00 / 1.44 ≈ 2.09×`."""
    return f"{told.given.text}: {told.quotient}"


def _bounds(bounds: RoundBounds, found: Standing, drafts: str, check: str) -> str:
    """The same where the clock knows but an interval."""
    return (
        f"A round gave {bounds.given.text} and took {bounds.text}{bounds.parts(drafts, check)}: so "
        f"{found.text}, {how_sure(found)}."
    )


def how_sure(found: Standing) -> str:
    """What the interval of a disturbed clock tells all the same, by its ends as they are said."""
    low, high = (round(end, 2) for end in found.range)
    if 1 < low < high < 1.05 * low:
        return "faster for sure"
    if high > low > 1:  # where they are one, it is but what the tokens allow at most
        return "faster for sure, this clock cannot say how much"
    if high < 1:
        return "slower for sure, this clock cannot say how much"
    return "this clock cannot say whether faster or slower"


def _word(found: Standing) -> str:
    match found.verdict:
        case Verdict.FASTER:
            return "faster than the target"
        case Verdict.SLOWER:
            return "slower than the target"
        case Verdict.SHORT | Verdict.UNCHECKED:
            return _TOO_LITTLE
    return "not surely faster or slower"
