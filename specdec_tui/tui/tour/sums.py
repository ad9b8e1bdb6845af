"""The sum behind a measured speedup as the tour says it, and the steady run that stands in where a clock says little.

Tokens of a round over what it took, in plain passes of the target: with means of all rounds compared that is the
measured speedup itself, and it can be done again from the seconds on the screen. Where clocks contradict each other
the tokens are exact all the same, and the interval of the speedup, turned round, is one of the passes. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from specdec_tui.decoding.stretch import in_common
from specdec_tui.traces.format import TraceError
from specdec_tui.traces.recorded import recorded
from specdec_tui.tui.tour.facts import Facts, facts_of


@dataclass(frozen=True, slots=True)
class Given:
    """What rounds gave: so many tokens in so many of them."""

    tokens: int
    rounds: int

    @property
    def each(self) -> float:
        """Tokens of a round, as it is said."""
        return round(self.tokens / self.rounds, 2)

    @property
    def text(self) -> str:
        """`3.00 tokens (33 in 11 rounds)`."""
        return f"{self.each:.2f} tokens ({self.tokens:,} in {self.rounds:,} round{'s' * (self.rounds != 1)})"


@dataclass(frozen=True, slots=True)
class RoundSum:
    """A mean round in plain passes of the target, as it is said: `drafting` + `checking` = `steps`.

    `checking` has all that is no drafting. `speedup`: as measured, not rounded. `drafts`: of a mean round, and what
    `each` of them took, a mean as well, so that their product is `drafting`; neither is rounded.
    """

    given: Given
    drafting: float
    checking: float
    steps: float
    speedup: float
    drafts: float
    each: float

    @property
    def product(self) -> tuple[str, str]:
        """`3.8` and `0.071`: `drafts` and `each`, with digits enough that they give `drafting` as it is said."""
        for places in (1, 2, 3):
            count = f"{self.drafts:.{places}f}"
            for digits in (2, 3, 4):
                each = f"{self.each:.{digits}f}"
                if f"{float(count) * float(each):.2f}" == f"{self.drafting:.2f}":
                    return _whole(count), each
        return _whole(count), each

    @property
    def quotient(self) -> str:
        """`3.00 / 1.50 = 2.00×`, with `≈` where the division of these figures has another last digit."""
        sign = "=" if f"{self.given.each / self.steps:.2f}" == f"{self.speedup:.2f}" else "≈"
        return f"{self.given.each:.2f} / {self.steps:.2f} {sign} {self.speedup:.2f}×"

    @property
    def is_mostly_drafting(self) -> bool:
        return self.drafting > self.checking


@dataclass(frozen=True, slots=True)
class RoundBounds:
    """Between how many plain passes a round took, `low` to `high`, where only the interval of a speedup is known.

    `drafting`: the share of the rounds' time that drafting took.
    """

    given: Given
    low: float
    high: float
    drafting: float = 0.0

    @property
    def text(self) -> str:
        """`1.21 to 1.94 plain passes`, or `1.00 plain passes or more` where the clock knows no more than that."""
        ends = f"{self.low:.2f}" if self.low >= self.high else f"{self.low:.2f} to {self.high:.2f}"
        return f"{ends} plain passes{' or more' * (self.low >= self.high)}"

    def parts(self, drafts: str, check: str) -> str:
        """` (drafts 0.42–0.67 + check 0.79–1.27)`: by these shares of the time; nothing where they say nothing."""
        if self.low >= self.high or self.drafting < 0.005:
            return ""
        first = [round(end * self.drafting, 2) for end in (self.low, self.high)]
        rest = [end - part for end, part in zip((self.low, self.high), first, strict=True)]
        return f" ({drafts} {first[0]:.2f}–{first[1]:.2f} + {check} {rest[0]:.2f}–{rest[1]:.2f})"


def given_by(facts: Facts) -> Given | None:
    """Of the rounds that the speedup compares; None without any."""
    if facts.baseline is None or not facts.figures.rounds or not facts.baseline.rounds:
        return None
    own, _ = in_common(facts.figures.course, facts.baseline.course)
    return Given(own.tokens, own.rounds) if own.rounds else None


def sum_of(facts: Facts) -> RoundSum | None:
    """Of a run; None where nothing was measured, or by a disturbed clock."""
    found, given, baseline = facts.standing, given_by(facts), facts.baseline
    if found is None or found.is_disturbed or given is None or baseline is None:
        return None
    own, other = in_common(facts.figures.course, baseline.course)
    if (plain := other.seconds_per_token) is None:
        return None
    records = [record for record, _ in facts.rounds[own.first : own.last]]
    drafts = sum(len(record.drafts) for record in records) / own.rounds
    drafting = sum(record.draft_seconds for record in records) / own.rounds / plain
    checking = sum(record.seconds - record.draft_seconds for record in records) / own.rounds / plain
    said, steps = round(drafting, 2), round(drafting + checking, 2)
    each = drafting / drafts if drafts else 0.0
    return RoundSum(given, said, round(steps - said, 2), steps, found.ratio, drafts, each) if steps else None


def bounds_of(facts: Facts) -> RoundBounds | None:
    """Of a run whose clock was disturbed, from what is said of its speedup; None where no interval is known."""
    found, given = facts.standing, given_by(facts)
    if found is None or not found.is_disturbed or found.low is None or found.high is None or given is None:
        return None
    low, high = round(found.low, 2), round(found.high, 2)
    if low <= 0:
        return None
    share = facts.figures.draft_seconds / (facts.figures.decode_seconds or 1.0)
    return RoundBounds(given, round(given.each / high, 2), round(given.each / low, 2), share)


def _whole(number: str) -> str:
    """`4` for `4.0`."""
    return number.rstrip("0").removesuffix(".") if "." in number else number


@cache
def steady() -> Facts | None:
    """Of the drafter's strategy in the recording that comes with the package, whose clock is steady; else None."""
    try:
        return facts_of(recorded().events).get("speculative")
    except TraceError:  # a damaged installation: the tour goes on without it
        return None
