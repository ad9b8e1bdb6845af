"""What a server told of its run, whichever server it is: steps with their tokens, and what was drafted for each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from specdec_tui.decoding.records import EndReason

_BROKEN = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class ServedStep:
    """A step of the engine: the tokens it added with their texts, and how long it took.

    The first `accepted` tokens were drafts, the one behind them is the target's own; where the end of the text cut the
    step there is none. `drafted`: how many drafts it checked; None where that is not told.
    """

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    seconds: float
    accepted: int = 0
    drafted: int | None = 0

    @property
    def untold(self) -> int | None:
        """Drafts whose ids are not known: those that were not accepted."""
        return None if self.drafted is None else self.drafted - self.accepted


@dataclass(frozen=True, slots=True)
class ServedRun:
    """A whole run. The first token is that of the prefill; `unplaced` is that of `RunEnded`.

    `told`: sentences for a person: what was counted, by whom, and what is not known.
    """

    server: str
    prompt: str
    prompt_tokens: int
    gamma: int
    first: ServedStep
    steps: tuple[ServedStep, ...]
    reason: EndReason
    message: str
    answer: str
    unplaced: tuple[int, int] | None = None
    told: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(id for step in (self.first, *self.steps) for id in step.ids)


def texts_of(pieces: list[str] | None, text: str, count: int) -> tuple[str, ...]:
    """The text that each of `count` tokens adds, from the pieces of each alone and the text of all of them.

    Behind the text there may be pieces of special tokens. Where the pieces do not make it up, as inside a character, or
    there are none, the last token has the whole: a text is not cut where nothing says how.
    """
    told = pieces or []
    is_broken = _BROKEN not in text and any(_BROKEN in piece for piece in told)
    if len(told) == count and text in accumulate(told, initial="") and not is_broken:
        return tuple(told)
    return (*[""] * (count - 1), text)
