"""The turns of a conversation before the present one, as far as they are kept. No widget here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from rich.cells import cell_len

from specdec_tui.decoding.records import Status

MOST_TURNS, MOST_TOKENS = 50, 16_000
_LONGEST_PROMPT = 400

_MOST_OFF_TEXT = 3
UNSHORTENED = _MOST_OFF_TEXT + 2
"""Tokens of a round that `shortened` leaves as they are: one of them at least became text."""


class Around(StrEnum):
    """What stands around the answers of a conversation, and in the place of drafts that are not spelled out."""

    PROMPT = "prompt"
    RULE = "rule"
    MORE = "more"


Look = Status | Around
"""How a piece of the text is painted."""
Piece = tuple[Look, str]

OFF_TEXT: frozenset[Look] = frozenset({Status.REJECTED, Status.UNVERIFIED, Around.MORE})
"""Looks of drafts that did not become text."""


def shortened(tokens: Iterable[tuple[Status, str]]) -> Iterator[tuple[int, Look, str]]:
    """Tokens with their indices; of many refused drafts in a row the first few, then how many more there are.

    A drafter that copies long texts would else bury the text under what was refused.
    """
    for is_off, group in groupby(enumerate(tokens), key=lambda one: one[1][0] in OFF_TEXT):
        row = list(group)
        spelled = _MOST_OFF_TEXT if is_off and len(row) > _MOST_OFF_TEXT + 1 else len(row)
        yield from ((index, status, text) for index, (status, text) in row[:spelled])
        if spelled < len(row):
            yield row[spelled][0], Around.MORE, f" (+{len(row) - spelled})"


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
    """At most so many turns and tokens, drafts included; the oldest go first."""

    def __init__(self) -> None:
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
        if not self.is_shown:
            return
        if self._gone:
            gone = "turn 1 is" if self._gone == 1 else f"turns 1–{self._gone} are"
            yield Around.RULE, f"{gone} gone: at most {MOST_TURNS} turns and {MOST_TOKENS:,} tokens are kept here\n"
        for turn in self.turns:
            yield Around.PROMPT, _headline(turn.prompt)
            end = ""
            for _, look, text in shortened(turn.pieces):
                if with_drafts or look not in OFF_TEXT:
                    yield look, text
                    end = "" if look in OFF_TEXT else text or end
            if not end.endswith("\n"):
                yield Around.RULE, "\n"
            yield Around.RULE, _rule(turn, width)
        yield Around.PROMPT, _headline(self._prompt)


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
