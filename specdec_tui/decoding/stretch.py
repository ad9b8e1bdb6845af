"""What of two runs is compared: the rounds that made the text both have. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from specdec_tui.decoding.course import LEAST_SECONDS, RunCourse

_MOST_TIMES = 512  # of which a median is taken: it is then known to an eighth of what its times scatter by
_FEW = 4  # calls, of which none is left out
_LEAST_PASSES, _STEADY_SPREAD = 8, 1.5  # of a spread between quartiles; on a machine at rest it is below 1.1


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rounds of a run that follow each other, from number `first` up to `last`, which is not in it.

    What it answers takes bounded work however long the run.
    """

    course: RunCourse
    first: int
    last: int

    @property
    def rounds(self) -> int:
        return self.last - self.first

    @property
    def tokens(self) -> int:
        return self.course.tokens_after(self.last) - self.course.tokens_after(self.first)

    @property
    def seconds_per_token(self) -> float | None:
        """None before a token that took measurable time."""
        seconds = self.course.seconds_between(self.first, self.last)
        return seconds / self.tokens if self.tokens and seconds >= LEAST_SECONDS else None

    @property
    def wire_seconds(self) -> float:
        """Median of what a round took on the way to a server and back; 0 without one."""
        return _median(sorted(self.course.wires(self.first, self.last, self._every))) or 0.0

    @property
    def draft_counts(self) -> dict[int, int]:
        """Number of drafts -> how many rounds had so many; 0 where the drafter had nothing."""
        return {n: passes.count for n, passes in self.course.rounds_by_drafts(self.first, self.last).items()}

    @property
    def conditional_acceptance(self) -> list[float]:
        """At index i: share of draft i+1 accepted where all before it were; as far as drafts were judged."""
        return [accepted / judged for judged, accepted in self.course.fates(self.first, self.last)]

    @property
    def own_tokens_per_round(self) -> float:
        """Tokens of the target's own a round: 1, but for a run that ended on an accepted draft."""
        return self.course.own_tokens(self.first, self.last) / self.rounds

    def drafting_seconds(self, drafts: int) -> float:
        """Median of the drafting of rounds with exactly `drafts` drafts; 0 without any."""
        return _median(sorted(self.course.rounds_with(drafts).drafting(self.first, self.last, self._every))) or 0.0

    def target_seconds(self, drafts: int) -> float | None:
        """Median of the target's side (pass or call, draws, updates) of rounds with so many drafts; None without.

        Of calls the mean without the least and the greatest tenth: how much of its text a server computes again goes up
        and down as the text grows, and one hiccup is to move this no more than a median.
        """
        times = self._target_times(drafts)
        cut = len(times) // 10 or len(times) > _FEW
        return mean(times[cut : len(times) - cut]) if times and self.course.asks else _median(times)

    @property
    def draft_step_seconds(self) -> float | None:
        """Median over rounds with drafts of their drafting time per draft: one hiccup does not move it."""
        return _median(
            sorted(
                seconds / drafts
                for drafts in self.draft_counts
                if drafts
                for seconds in self.course.rounds_with(drafts).drafting(self.first, self.last, self._every)
            )
        )

    @property
    def times_vary(self) -> bool:
        """Whether passes that must take the same did not: of those that came up most the middle half spreads too far.

        Then medians of different kinds of pass may be of different times of the machine, and say nothing of each
        other. Of a run that recomputes everything it tells nothing: its passes grow with the text.
        Nor of calls, whose times vary by themselves.
        """
        if self.course.asks:
            return False
        counts = self.draft_counts
        times = self._target_times(max(counts, key=lambda drafts: counts[drafts], default=0))
        if len(times) < _LEAST_PASSES:
            return False
        low, high = (times[len(times) * part // 4] for part in (1, 3))
        return high > _STEADY_SPREAD * low

    def _target_times(self, drafts: int) -> list[float]:
        return sorted(self.course.rounds_with(drafts).target(self.first, self.last, self._every))

    @property
    def _every(self) -> int:
        return max(1, self.rounds // _MOST_TIMES)


def in_common(ours: RunCourse, theirs: RunCourse) -> tuple[Stretch, Stretch]:
    """The rounds of a run that lie in the text of both, and the other's over the same tokens.

    A pass may cost more the longer the text, so a run that is still short must not be compared with all of a
    long one. Of a run that is ahead the rounds that reach beyond the other's text are left out. Where they
    share less than half of this run, each is taken as a whole.
    """
    last = max(0, ours.rounds_within(theirs.end))
    own = Stretch(ours, 0, last)
    if ours.begin < theirs.begin or 2 * own.tokens < ours.end - ours.begin:
        return Stretch(ours, 0, ours.rounds), Stretch(theirs, 0, theirs.rounds)
    begin, end = (theirs.rounds_within(ours.tokens_after(edge)) for edge in (0, last))
    return own, Stretch(theirs, begin, end)


def _median(ordered: Sequence[float]) -> float | None:
    """Of numbers in their order."""
    if not ordered:
        return None
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
