"""What a drafter's matches with the target's greedy text are worth: speculative rounds, replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Rounds(NamedTuple):
    """Counts over one or several texts; drafts behind a rejected one, or behind the end, are not judged."""

    tokens: int
    rounds: int
    accepted: int
    rejected: int

    def plus(self, other: Rounds) -> Rounds:
        """The counts of both."""
        return Rounds(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def acceptance(self) -> float:
        """Accepted share of the judged drafts."""
        return self.accepted / max(1, self.accepted + self.rejected)

    @property
    def tokens_per_round(self) -> float:
        """Tokens for one call of the target."""
        return self.tokens / max(1, self.rounds)


def replay_rounds(matches: Sequence[bool], gamma: int) -> Rounds:
    """Greedy speculative decoding of a text, given at which of its places the drafter's first choice is the text.

    Exact, although the matches were found by feeding the text itself: a draft counts only while all drafts
    before it in its round matched, and then the drafter has read exactly the text. A round gives its
    accepted drafts and one token of the target.
    """
    length, place, rounds, accepted, rejected = len(matches), 0, 0, 0, 0
    while place < length:
        rounds += 1
        run = 0
        while run < gamma and place + run < length and matches[place + run]:
            run += 1
        accepted += run
        rejected += int(run < gamma and place + run < length)
        place += run + 1
    return Rounds(length, rounds, accepted, rejected)
