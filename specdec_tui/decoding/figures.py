"""Every figure of a run, defined once and summed up from its records as they arrive. No torch here.

Definitions follow Leviathan et al. 2023 (arXiv 2211.17192). What is expected of a run is in `costs.py`.
"""

from __future__ import annotations

from specdec_tui.decoding.course import LEAST_SECONDS, RunCourse
from specdec_tui.decoding.records import (
    PassLimit,
    PassSeconds,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
)
from specdec_tui.decoding.stretch import in_common

SEARCHES = ("beam", "drafter-beam")
OF_THE_DRAFTER = ("drafter", "drafter-beam")
"""Strategies that run on the drafter alone: their passes tell nothing of the target's."""
OTHER_TEXTS = ("drafter", *SEARCHES)
"""Strategies whose text is not meant to be the target's, so that being faster is no merit of theirs."""
DRAFT_NOTHING = ("target", *OTHER_TEXTS)
RECOMPUTES = "every pass computes the whole text again: a speedup here is more than it is where a cache is kept"
"""What must stand beside a speedup of a run that `recomputes`."""
REFUSED_UNTOLD = "how many drafts were refused is not told"
"""What stands in the place of a rate of acceptance where not all `drafts_are_told`."""


class RunFigures:
    """The figures of one run so far. `add` takes constant time per token of the record."""

    def __init__(self) -> None:
        self.course = RunCourse()
        self.is_of_another_time = False
        """Set where this is a baseline from another run than the one it is compared with: clocks may differ."""
        self._start = RunStarted("", 0, 0, 0)
        self._prefill_seconds = self._capture_seconds = 0.0
        self._prefill_tokens = 0
        self._draft_seconds = 0.0
        self._verify_seconds = 0.0
        self._other_seconds = 0.0
        self._wire_seconds = 0.0
        self._calls = 0
        self._by_calls = False
        self._drafted = 0
        self._tokens_per_round: list[int] = []
        self._judged_at: list[int] = []
        self._accepted_at: list[int] = []
        self._accepted_lengths: list[int] = []
        self._captured = self._recomputes = False
        self._passes: PassSeconds = ()
        self._pass_limit: PassLimit | None = None
        self._round_tokens = 0
        self._owed = 0  # tokens that the prefill of a search chose and a round tells
        self._untold_rounds = 0
        self._end: RunEnded | None = None

    def add(self, record: Record) -> None:
        """Count one record; the records of a run come in their order."""
        match record:
            case RoundVerified():
                self._add_round(record)
            case RunStarted():
                self._start = record
            case PrefillDone(token=token, seconds=seconds, capture_seconds=capturing):
                self._prefill_seconds, self._capture_seconds = seconds, capturing
                self._captured = record.captured or capturing > 0
                self._recomputes, self._by_calls = record.recomputes, record.by_calls
                self._passes, self._pass_limit = record.passes, record.pass_limit
                self._prefill_tokens = 0 if token is None else 1
                self._owed = 1 if token is None and record.beams else 0
            case RunEnded(unplaced=unplaced):
                self._end = record
                if unplaced is not None:
                    self._place(*unplaced)

    def _add_round(self, record: RoundVerified) -> None:
        untold = record.untold or 0
        accepted, rejected = 0, int(untold > 0)
        for draft in record.drafts:
            accepted += draft.status is Status.ACCEPTED
            rejected += draft.status is Status.REJECTED
        drafts, judged = len(record.drafts) + untold, accepted + rejected
        self._untold_rounds += record.untold is None
        while len(self._judged_at) < drafts:
            self._judged_at.append(0)
            self._accepted_at.append(0)
        for index in range(judged):
            self._judged_at[index] += 1
            self._accepted_at[index] += index < accepted
        if drafts:
            self._accepted_lengths.extend([0] * (accepted + 1 - len(self._accepted_lengths)))
            self._accepted_lengths[accepted] += 1
        new_tokens = accepted + len(record.settled) + (record.emitted is not None)
        if self._owed and new_tokens:
            new_tokens, self._owed, self._prefill_tokens = new_tokens - 1, 0, 1
        self._tokens_per_round.append(new_tokens)
        self.course.add(record, judged, accepted, searches=self.searches)
        self._round_tokens += new_tokens
        self._drafted += drafts
        self._draft_seconds += record.draft_seconds
        self._verify_seconds += record.verify_seconds
        self._other_seconds += record.other_seconds
        self._wire_seconds += record.wire_seconds
        self._calls += record.calls

    def _place(self, rounds: int, drafts: int) -> None:
        """So many rounds had so many drafts, the first of each refused: no other round had any that were not told."""
        self._untold_rounds = 0
        self._drafted += drafts
        if rounds:
            for counts in (self._judged_at, self._accepted_at, self._accepted_lengths):
                counts.extend([0] * (not counts))
            self._judged_at[0] += rounds
            self._accepted_lengths[0] += rounds

    @property
    def strategy(self) -> str:
        return self._start.strategy

    @property
    def is_what_if(self) -> bool:
        """Whether it began behind another run's text or is that run with other settings: its text is another one."""
        return self._start.origin is not None

    @property
    def searches(self) -> bool:
        """Whether it is a search: its passes are over several texts, and its text is another one than the target's."""
        return self._start.beams > 0

    @property
    def own_tokens(self) -> bool:
        """Whether its tokens are those of another tokenizer than the target's."""
        return self._start.own_tokens

    @property
    def served(self) -> bool:
        """Whether a server drafted and checked by itself: what its rounds took is not split, and has no prediction."""
        return self._start.served

    @property
    def drafts_are_told(self) -> bool:
        """Whether all drafts are counted. Else there may be more refused ones: rates of acceptance do not exist."""
        return not self._untold_rounds

    @property
    def answered(self) -> float:
        """Tokens of the answer for each step of a search that has ended; 1 of any other run."""
        return self._round_tokens / self.rounds if self.searches and self._end and self.rounds else 1.0

    @property
    def is_alone(self) -> bool:
        """Whether no other run's rounds came between its own, so that none was measured at the same time."""
        return self._start.alone

    @property
    def prompt_tokens(self) -> int:
        return self._start.prompt_tokens

    @property
    def gamma(self) -> int:
        return self._start.gamma

    @property
    def max_new_tokens(self) -> int:
        return self._start.max_new_tokens

    @property
    def new_tokens(self) -> int:
        """Emitted token ids, the end token included once."""
        return self._prefill_tokens + self._round_tokens

    @property
    def prefill_seconds(self) -> float:
        return self._prefill_seconds

    @property
    def capture_seconds(self) -> float:
        """What capturing the rounds took, once for a shape: no part of any other figure."""
        return self._capture_seconds

    @property
    def passes(self) -> PassSeconds:
        """What passes of its model took before the clock of the first run, where they were measured."""
        return self._passes

    @property
    def pass_limit(self) -> PassLimit | None:
        """What such passes take at least, where it is known."""
        return self._pass_limit

    @property
    def prefill_tokens(self) -> int:
        """Tokens the prefill pass emitted: 1, or 0 when there was no room for it.

        Of a search 0 until a round has told the one that it chose.
        """
        return self._prefill_tokens

    @property
    def draft_seconds(self) -> float:
        return self._draft_seconds

    @property
    def verify_seconds(self) -> float:
        return self._verify_seconds

    @property
    def other_seconds(self) -> float:
        return self._other_seconds

    @property
    def by_calls(self) -> bool:
        """Whether the target is on a server: then `verify_seconds` are the server's."""
        return self._by_calls

    @property
    def wire_seconds(self) -> float:
        """Time of the rounds on the way to a server and back; 0 without one."""
        return self._wire_seconds

    @property
    def calls(self) -> int:
        """Round trips of the rounds to a server; those of the prefill are not in it."""
        return self._calls

    @property
    def has_calls(self) -> bool:
        """Whether its rounds are calls of a server; the tokens of a stream are none."""
        return self._by_calls and not self.served and self.strategy not in DRAFT_NOTHING

    @property
    def calls_per_round(self) -> float | None:
        """Round trips of a mean round; None of a stream, and of a target that is not on a server."""
        return _ratio(self._calls, self.rounds) if self.has_calls else None

    @property
    def decode_seconds(self) -> float:
        """Time of all rounds; the prefill is not in it."""
        return self._draft_seconds + self._verify_seconds + self._other_seconds + self._wire_seconds

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Tokens of the rounds per second of the rounds; None before the first of them that took measurable time.

        Of a search in progress each step counts as a token: how many it settles is known at its end.
        """
        seconds, tokens = self.decode_seconds, self._round_tokens
        if self.searches and self._end is None:
            tokens = self.rounds
        return tokens / seconds if seconds >= LEAST_SECONDS else None

    @property
    def rounds(self) -> int:
        return len(self._tokens_per_round)

    @property
    def target_calls(self) -> int:
        """Passes of the target, the prefill pass included; of a search its steps."""
        return self._prefill_tokens + self._owed + self.rounds

    @property
    def drafted(self) -> int:
        return self._drafted

    @property
    def judged(self) -> int:
        """Accepted or rejected drafts; those behind a rejection were never judged."""
        return sum(self._judged_at)

    @property
    def accepted(self) -> int:
        return sum(self._accepted_at)

    @property
    def rejected(self) -> int:
        return self.judged - self.accepted

    @property
    def unverified(self) -> int:
        return self._drafted - self.judged

    @property
    def acceptance_rate(self) -> float | None:
        """α = accepted / judged; None where refused drafts may be untold."""
        return _ratio(self.accepted, self.judged) if self.drafts_are_told else None

    @property
    def wasted_rate(self) -> float | None:
        """(rejected + unverified) / drafted."""
        return _ratio(self._drafted - self.accepted, self._drafted) if self.drafts_are_told else None

    @property
    def tokens_per_target_call(self) -> float | None:
        """τ = new tokens / target passes; None of a search, whose steps may be a pass for each of its texts."""
        return None if self.searches else _ratio(self.new_tokens, self.target_calls)

    @property
    def tokens_per_round(self) -> list[int]:
        """New tokens of each round, in order."""
        return list(self._tokens_per_round)

    @property
    def accepted_lengths(self) -> list[int]:
        """At index n: how many rounds with drafts had exactly n of them accepted; empty where not all are told."""
        return list(self._accepted_lengths) if self.drafts_are_told else []

    @property
    def conditional_acceptance(self) -> list[float | None]:
        """At index i: share of draft i+1 accepted where all before it were; None where never judged."""
        judged = self._judged_at if self.drafts_are_told else [0] * len(self._judged_at)
        return [_ratio(a, j) for a, j in zip(self._accepted_at, judged, strict=True)]

    @property
    def drafts_per_round(self) -> float | None:
        """Mean drafts per round; rounds for which the drafter had nothing count as 0."""
        return _ratio(self._drafted, self.rounds) if self.drafts_are_told else None

    @property
    def is_captured(self) -> bool:
        """Whether its rounds were played as programs."""
        return self._captured

    @property
    def pads(self) -> bool:
        """Whether passes of rounds without drafts are over as many tokens as all others: captured programs."""
        return self._captured and bool(self.gamma) and self.strategy not in DRAFT_NOTHING

    @property
    def recomputes(self) -> bool:
        """Whether every target pass computes the whole text again (no cache, or a state that cannot be rewound).

        Then more tokens per pass save more than they would of a model that keeps what it computed.
        """
        return self._recomputes

    @property
    def end(self) -> RunEnded | None:
        return self._end

    def window(self) -> RunFigures:
        """The same figures of the last `course.WINDOW_ROUNDS` rounds alone; the prefill is in none of them."""
        recent = self.course.latest()
        figures = RunFigures()
        figures.course = RunCourse(self.course.tokens_after(self.rounds - len(recent)))
        figures.add(self._start)
        figures._by_calls = self._by_calls
        for record in recent:
            figures.add(record)
        return figures


def _quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def speedup(baseline: RunFigures, run: RunFigures) -> float | None:
    """Decode time per token of the target's own run divided by this run's; None before both have rounds.

    Over the tokens that both have (`stretch.in_common`). Of a search, by the tokens of its answer, and so only once
    it has ended. None too where the two write tokens of different tokenizers.
    """
    if (run.searches and run.end is None) or run.own_tokens or baseline.own_tokens:
        return None
    own, other = in_common(run.course, baseline.course)
    ratio = _quotient(other.seconds_per_token, own.seconds_per_token)
    return None if ratio is None else ratio * run.answered
