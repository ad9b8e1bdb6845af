"""Every figure of a run, defined once and summed up from its records as they arrive. No torch here.

Definitions follow Leviathan et al. 2023 (arXiv 2211.17192): acceptance rate α, cost ratio c and
the expected tokens per round; v, the measured price of verifying a block, is our addition to it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

from specdec_tui.decoding.course import LEAST_SECONDS, RunCourse
from specdec_tui.decoding.records import (
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
)

RECOMPUTES = "every pass computes the whole text again: a speedup here is more than it is where a cache is kept"
"""What must stand beside a speedup of a run that `recomputes`."""


_LEAST_PASSES, _STEADY_SPREAD = 8, 1.5  # of a spread between quartiles; on a machine at rest it is below 1.1


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
        self._drafted = 0
        self._tokens_per_round: list[int] = []
        self._judged_at: list[int] = []
        self._accepted_at: list[int] = []
        self._accepted_lengths: list[int] = []
        # Kept in order, so that a median costs nothing however long the run.
        self._verify_times: dict[int, list[float]] = {}
        self._draft_times: list[float] = []
        self._drafting_times: dict[int, list[float]] = {}
        self._captured = self._recomputes = False
        self._round_tokens = self._own_tokens = 0
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
                self._recomputes = record.recomputes
                self._prefill_tokens = 0 if token is None else 1
            case RunEnded():
                self._end = record

    def _add_round(self, record: RoundVerified) -> None:
        accepted = rejected = 0
        for draft in record.drafts:
            accepted += draft.status is Status.ACCEPTED
            rejected += draft.status is Status.REJECTED
        drafts, judged = len(record.drafts), accepted + rejected
        while len(self._judged_at) < drafts:
            self._judged_at.append(0)
            self._accepted_at.append(0)
        for index in range(judged):
            self._judged_at[index] += 1
            self._accepted_at[index] += index < accepted
        if drafts:
            self._accepted_lengths.extend([0] * (accepted + 1 - len(self._accepted_lengths)))
            self._accepted_lengths[accepted] += 1
            insort(self._draft_times, record.draft_seconds / drafts)
        insort(self._drafting_times.setdefault(drafts, []), record.draft_seconds)
        insort(self._verify_times.setdefault(drafts, []), record.verify_seconds + record.other_seconds)
        new_tokens = accepted + (record.emitted is not None)
        self._tokens_per_round.append(new_tokens)
        self.course.add(record, new_tokens)
        self._round_tokens += new_tokens
        self._own_tokens += record.emitted is not None
        self._drafted += drafts
        self._draft_seconds += record.draft_seconds
        self._verify_seconds += record.verify_seconds
        self._other_seconds += record.other_seconds

    @property
    def strategy(self) -> str:
        return self._start.strategy

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
    def prefill_tokens(self) -> int:
        """Tokens the prefill pass emitted: 1, or 0 when there was no room for it."""
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
    def decode_seconds(self) -> float:
        """Time of all rounds; the prefill is not in it."""
        return self._draft_seconds + self._verify_seconds + self._other_seconds

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Tokens of the rounds per second of the rounds; None before the first of them that took measurable time."""
        seconds = self.decode_seconds
        return self._round_tokens / seconds if seconds >= LEAST_SECONDS else None

    @property
    def rounds(self) -> int:
        return len(self._tokens_per_round)

    @property
    def target_calls(self) -> int:
        """Passes of the target, the prefill pass included."""
        return self._prefill_tokens + self.rounds

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
        """α = accepted / judged."""
        return _ratio(self.accepted, self.judged)

    @property
    def wasted_rate(self) -> float | None:
        """(rejected + unverified) / drafted."""
        return _ratio(self._drafted - self.accepted, self._drafted)

    @property
    def tokens_per_target_call(self) -> float | None:
        """τ = new tokens / target passes."""
        return _ratio(self.new_tokens, self.target_calls)

    @property
    def tokens_per_round(self) -> list[int]:
        """New tokens of each round, in order."""
        return list(self._tokens_per_round)

    @property
    def accepted_lengths(self) -> list[int]:
        """At index n: how many rounds with drafts had exactly n of them accepted."""
        return list(self._accepted_lengths)

    @property
    def conditional_acceptance(self) -> list[float | None]:
        """At index i: share of draft i+1 accepted where all before it were; None where never judged."""
        return [_ratio(a, j) for a, j in zip(self._accepted_at, self._judged_at, strict=True)]

    @property
    def drafts_per_round(self) -> float | None:
        """Mean drafts per round; rounds for which the drafter had nothing count as 0."""
        return _ratio(self._drafted, self.rounds)

    @property
    def draft_step_seconds(self) -> float | None:
        """Median over rounds with drafts of their drafting time per draft: one hiccup does not move it."""
        return _median(self._draft_times)

    def verify_step_seconds(self, drafts: int) -> float | None:
        """Median of the target's side (pass and draws) of rounds with exactly `drafts` drafts; None without any."""
        return _median(self._verify_times.get(drafts, ()))

    @property
    def pace_changed(self) -> bool:
        """Whether passes that must take the same did not: of those that came up most the middle half spreads too far.

        Then medians of different kinds of pass may be of different times of the machine, and say nothing of each
        other. Passes of a run that recomputes everything do grow with the text.
        """
        times = max(self._verify_times.values(), key=len, default=[])
        low, high = (times[len(times) * part // 4] for part in (1, 3)) if len(times) >= _LEAST_PASSES else (1.0, 1.0)
        return not self.recomputes and high > _STEADY_SPREAD * low

    def drafting_seconds(self, drafts: int) -> float | None:
        """Median of the drafting of rounds with exactly `drafts` drafts; None without any."""
        return _median(self._drafting_times.get(drafts, ()))

    @property
    def draft_counts(self) -> dict[int, int]:
        """Number of drafts -> how many rounds had so many; 0 where the drafter had nothing."""
        return {drafts: len(times) for drafts, times in sorted(self._verify_times.items())}

    @property
    def own_tokens_per_round(self) -> float | None:
        """Tokens of the target's own a round: 1, but for a run that ended on an accepted draft."""
        return _ratio(self._own_tokens, self.rounds)

    @property
    def pads(self) -> bool:
        """Whether passes of rounds without drafts are over as many tokens as all others: captured programs."""
        return self._captured and bool(self.gamma) and self.strategy not in ("target", "drafter")

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
        for record in recent:
            figures.add(record)
        return figures


def _median(ordered: Sequence[float]) -> float | None:
    """Of numbers in their order."""
    if not ordered:
        return None
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def speedup(baseline: RunFigures, run: RunFigures) -> float | None:
    """Decode time per token of the target's own run divided by this run's; None before both have rounds.

    Over the tokens that both have: a pass may cost more the longer the text, so a run that is still
    short must not be compared with all of a long one. Where they share less than half of this run,
    each counts as a whole.
    """
    ours, theirs = run.course, baseline.course
    begin, end = max(ours.begin, theirs.begin), min(ours.end, theirs.end)
    if 2 * (end - begin) < ours.end - ours.begin:
        return _quotient(run.decode_tokens_per_second, baseline.decode_tokens_per_second)
    own, other = (course.seconds_until(end) - course.seconds_until(begin) for course in (ours, theirs))
    return other / own if min(own, other) >= LEAST_SECONDS else None


def expected_tokens_per_round(alpha: float, gamma: float) -> float:
    """(1 − α^(γ+1)) / (1 − α): tokens of a round whose drafts are each accepted with probability α."""
    return gamma + 1 if alpha >= 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def predicted_speedup(alpha: float, gamma: float, cost_ratio: float, verify_ratio: float) -> float:
    """Speedup the model of Leviathan et al. expects of γ drafts per round.

    Expected tokens per round over its cost in target steps, γ·c + v. γ may be a mean that is not
    whole. `verify_ratio` v > 0 is the measured price of the target pass over γ+1 tokens.
    """
    return expected_tokens_per_round(alpha, gamma) / (gamma * cost_ratio + verify_ratio)


def _steady_step(run: RunFigures, baseline: RunFigures) -> float | None:
    """Median seconds of a plain step of the baseline; None where medians of the two cannot be compared."""
    return None if run.pace_changed or baseline.pace_changed else baseline.verify_step_seconds(0)


def cost_ratio(run: RunFigures, baseline: RunFigures) -> float | None:
    """c = time per draft of `run` / time of a plain target step of `baseline`, both medians.

    None when there was no draft, or no plain step (a pass over one token) to compare with, or where the
    machine's pace changed.
    """
    step, draft = _steady_step(run, baseline), run.draft_step_seconds
    return draft / step if step and draft is not None else None


def verify_ratio(run: RunFigures, baseline: RunFigures) -> float | None:
    """v = median target's side (pass and draws) of a full round of γ+1 tokens / that of a plain step of `baseline`.

    Only full rounds count: those cut short by the room left, by an end token or by a drafter
    without ideas verify fewer tokens. None when there was no full round or no plain step, or where the
    machine's pace changed.
    """
    step, full = _steady_step(run, baseline), run.verify_step_seconds(run.gamma)
    return full / step if step and full is not None else None


def tokens_expected(run: RunFigures) -> float | None:
    """Tokens of a mean round, from how drafts fared at each place of a round and how many there were of them.

    1 + Σ_n f(n) Σ_{i≤n} a(1)·…·a(i): f(n) is the share of rounds with n drafts, a(i) the share of i-th
    drafts accepted where all before them were, over rounds of every length. The 1 is the target's own
    token, which a round lacks that ended the text on a draft. None without a judged draft.
    """
    own = run.own_tokens_per_round
    if own is None or not run.judged:
        return None
    kept, reached = [0.0], 1.0
    for rate in run.conditional_acceptance:
        reached *= rate or 0.0
        kept.append(kept[-1] + reached)
    return own + sum(count * kept[drafts] for drafts, count in run.draft_counts.items()) / run.rounds


def prediction(run: RunFigures, baseline: RunFigures) -> float | None:
    """The speedup to be expected of a run's rounds: `tokens_expected` over the cost of a mean round in target steps.

    Modelled: how many tokens come out. A draft is taken to fare the same at its place of the round,
    however many follow it and whenever the round is. Measured: how many drafts rounds had, and medians
    of what drafting and the target's side (pass, draws, updates) take for each number of drafts, and of
    a plain step of the baseline. Medians, so what one hiccup took is in the speedup and not in here.

    A round is taken to cost no less than a plain step. With one α for all places and γ drafts in every round
    this is `predicted_speedup`. None without a
    judged draft, or a plain step to compare with, or where the machine's pace changed within the runs:
    their ratio may hold, but medians of different times make no round.
    """
    step, tokens = _steady_step(run, baseline), tokens_expected(run)
    if not step or tokens is None:
        return None
    counts = run.draft_counts
    costs = (
        count * ((run.drafting_seconds(n) or 0.0) + (run.verify_step_seconds(n) or 0.0)) for n, count in counts.items()
    )
    mean = sum(costs) / run.rounds
    if not run.recomputes:
        mean = max(mean, step)  # reading more tokens cannot take less: where it seems so, the clock says it
    return tokens * step / mean if mean >= LEAST_SECONDS else None


def remainder(run: RunFigures, baseline: RunFigures) -> float | None:
    """By how much the measured speedup is above the predicted one, as a share of that; below it is negative."""
    measured, expected = speedup(baseline, run), prediction(run, baseline)
    return measured / expected - 1 if measured and expected else None
