"""The turns of a conversation before the present one, as far as they are kept. No widget here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len

from specdec_tui.tui.tokens.thrown_away import OFF_TEXT, SEAM, Around, Mark, Piece, marked, rounds_of

if TYPE_CHECKING:
    from specdec_tui.decoding.records import Status

MOST_TURNS, MOST_TOKENS = 50, 16_000
_LONGEST_PROMPT = 400


@dataclass(frozen=True, slots=True)
class Turn:
    """An answered prompt. `pieces`: every token of its rounds, those that did not become text among them.

    `number` counts the turns of a conversation from 1; `figures`: how it went, in a few words.
    """

    number: int
    prompt: str
    pieces: tuple[tuple[Status, str], ...]
    figures: str


class Transcript:
    """At most so many turns and tokens, drafts included; the oldest go first. `seams`: rounds of drafts made them."""

    def __init__(self, seams: bool = True) -> None:
        self.seams = seams
        self.kept = ""
        """What a what-if was given of another run's text: it stands before the answer in place of any turns."""
        self.turns: list[Turn] = []
        self.number = 0
        """Of the present turn; 0 where it belongs to no conversation: then the earlier ones are not shown with it."""
        self._prompt = ""
        self._last: Turn | None = None
        self._gone = 0

    @property
    def is_shown(self) -> bool:
        """Whether the present turn has earlier ones before it."""
        return self.number > 1 and bool(self.turns)

    def begin(self, number: int, prompt: str) -> None:
        """A turn begins: the earlier ones are those with a smaller number. 0: it belongs to no conversation."""
        if self._last is not None and (not number or self._last.number < number):
            self.turns.append(self._last)
            self._last = None
        if number == 1:
            self._gone = 0
        if number:
            same = (turn for turn in self.turns if (turn.number, turn.prompt) == (number, prompt))
            self._last = next(same, self._last)  # it is shown again, behind a run of no conversation
            self.turns = [turn for turn in self.turns if turn.number < number]
        self.number, self._prompt = number, prompt
        while len(self.turns) > MOST_TURNS or sum(len(turn.pieces) for turn in self.turns) > MOST_TOKENS:
            self._gone = self.turns.pop(0).number

    def ended(self, turn: Turn) -> None:
        """The present turn is over. It stays the present one until another begins."""
        self._last = turn

    def forget(self) -> None:
        """Another conversation begins."""
        self.turns, self._last, self.number, self._gone = [], None, 0, 0

    def pieces(self, with_drafts: bool, width: int) -> Iterator[Piece]:
        """What stands before the present answer; of a turn's figures the first that fit into `width` cells."""
        if self.kept:
            yield Around.KEPT, self.kept
            yield Mark.SEAM, SEAM
        if not self.is_shown or self.kept:
            return
        if self._gone:
            gone = "turn 1 is" if self._gone == 1 else f"turns 1–{self._gone} are"
            yield Around.RULE, f"{gone} gone: at most {MOST_TURNS} turns and {MOST_TOKENS:,} tokens are kept here\n"
        for turn in self.turns:
            yield Around.PROMPT, _headline(turn.prompt)
            end = ""
            for look, text in _answer(turn, with_drafts, self.seams):
                yield look, text
                end = "" if look in OFF_TEXT else text or end
            if not end.endswith("\n"):
                yield Around.RULE, "\n"
            yield Around.RULE, _rule(turn, width)
        yield Around.PROMPT, _headline(self._prompt)


def _answer(turn: Turn, with_drafts: bool, seams: bool) -> Iterator[Piece]:
    if not with_drafts:
        yield from (piece for piece in turn.pieces if piece[0] not in OFF_TEXT)
        return
    for number, row in enumerate(rounds_of(turn.pieces)):
        yield from ((look, text) for _, look, text in marked(row, seams and number > 0))


def _rule(turn: Turn, width: int) -> str:
    told = f"── turn {turn.number}"
    for figure in turn.figures.split(" · "):
        if cell_len(f"{told} · {figure} ") <= width:
            told += f" · {figure}"
    return f"{told} \n"


def _headline(prompt: str) -> str:
    """A prompt in one paragraph; a long one loses its end."""
    words = " ".join(prompt.split())
    return f"› {words if len(words) <= _LONGEST_PROMPT else words[:_LONGEST_PROMPT] + '…'}\n"
