"""The rounds of one run as they were told, and walks over their tokens. No widget here."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import NamedTuple

from specdec_tui.decoding.records import (
    EMITTED,
    DraftsProposed,
    Origin,
    PrefillDone,
    RoundVerified,
    RunStarted,
    Status,
    Token,
    tokens_of,
)

Shown = PrefillDone | DraftsProposed | RoundVerified


class Place(NamedTuple):
    """A token of a log: the row of its round, and where it stands there."""

    row: int
    token: int


@dataclass(frozen=True, slots=True)
class Row:
    """A round (or the prefill) with the text of each of its tokens."""

    record: Shown
    texts: tuple[str, ...]

    @property
    def tokens(self) -> tuple[Token, ...]:
        return tokens_of(self.record)

    @property
    def pending(self) -> bool:
        return isinstance(self.record, DraftsProposed)


class RunLog:
    """Grows by a row a round. Drafts that wait for the target have a row until their round takes it."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.alternatives: dict[int, str] = {}
        self.searches = False
        self.served = False
        """Whether the run is a search, which draws nothing."""
        self.own_tokens = False
        """Whether its tokens are those of another tokenizer than the target's."""
        self.origin: Origin | None = None
        """Of a what-if."""
        self.given: tuple[int, ...] = ()
        """Ids of all new tokens that a what-if goes on behind, as far as they are known."""
        self.rest: tuple[str, ...] = ()
        """What an unfinished last character still owed when the run ended."""
        self._starts = array("q")  # position of the first token of each row
        self._next = 0  # position behind the last row that is settled
        self._open: list[tuple[Token, str]] = []  # what is pending of a search

    @property
    def by_calls(self) -> bool:
        """Whether the target of the run is on a server."""
        first = self.rows[0].record if self.rows else None
        return isinstance(first, PrefillDone) and first.by_calls

    @property
    def settled(self) -> int:
        """The rows that will not change any more; pending drafts are behind them."""
        return len(self.rows) - bool(self.rows and self.rows[-1].pending)

    def clear(self) -> None:
        """Forget everything, for a new run."""
        self.rows.clear()
        self.alternatives.clear()
        self.rest, self.searches, self.own_tokens, self.origin = (), False, False, None
        self.served = False
        self.given = ()
        del self._starts[:], self._open[:]
        self._next = 0

    def start(self, record: RunStarted) -> None:
        """What kind of run it is whose rounds come."""
        self.searches, self.own_tokens, self.origin = record.beams > 0, record.own_tokens, record.origin
        self.served = record.served

    def add(self, record: Shown, texts: tuple[str, ...]) -> None:
        """Take a round; the verdict of a round takes the row of its pending drafts."""
        self.drop_pending()
        if isinstance(record, DraftsProposed):
            # Of a search only what is new is told.
            self._open = [*self._open[: record.kept], *zip(record.drafts, texts, strict=False)]
            if record.kept:
                record = replace(record, drafts=tuple(token for token, _ in self._open), kept=0)
                texts = tuple(text for _, text in self._open)
        row = Row(record, texts)
        tokens = row.tokens
        self._starts.append(tokens[0].position if tokens else self._next)
        self.rows.append(row)
        if isinstance(record, RoundVerified):
            del self._open[: len(record.settled)]
        self._next = max((token.position + 1 for token in tokens if token.status in EMITTED), default=self._next)

    def drop_pending(self) -> None:
        """Take out drafts that no target pass will judge any more."""
        if self.settled < len(self.rows):
            self.rows.pop()
            self._starts.pop()

    def token(self, place: Place) -> Token:
        return self.rows[place.row].tokens[place.token]

    def text(self, place: Place) -> str:
        """The text of a token as it was told; empty where none was."""
        texts = self.rows[place.row].texts
        return texts[place.token] if place.token < len(texts) else ""

    def holds(self, place: Place) -> bool:
        return place.row < len(self.rows) and place.token < len(self.rows[place.row].tokens)

    def find(self, position: int, status: Status | None = None) -> Place | None:
        """The emitted token at a position, or the one of that status in the same round."""
        row = bisect_right(self._starts, position) - 1
        if row < 0:
            return None
        for index, token in enumerate(self.rows[row].tokens):
            if token.position == position and (token.status in EMITTED if status is None else token.status is status):
                return Place(row, index)
        return None

    def step(self, place: Place, by: int, emitted: bool = False) -> Place:
        """The next token (`by` 1) or the previous one (-1), of emitted ones alone if asked; else `place` itself."""
        row, index = place
        tokens = self.rows[row].tokens if 0 <= row < len(self.rows) else ()
        while True:
            index += by
            while not 0 <= index < len(tokens):
                row += by
                if not 0 <= row < len(self.rows):
                    return place
                tokens = self.rows[row].tokens
                index = 0 if by > 0 else len(tokens) - 1
            if not emitted or tokens[index].status in EMITTED:
                return Place(row, index)

    def step_row(self, place: Place, by: int, emitted: bool = False) -> Place:
        """The token at the same place of the next round, or of the previous one."""
        row = place.row + by
        while 0 <= row < len(self.rows):
            if tokens := self.rows[row].tokens:
                there = Place(row, min(place.token, len(tokens) - 1))
                there = self.nearest_emitted(there) if emitted else there
                return there if there.row == row else place
            row += by
        return place

    def first(self, emitted: bool = False) -> Place | None:
        found = self.step(Place(-1, 0), 1, emitted)
        return found if found.row >= 0 else None

    def last(self, emitted: bool = False) -> Place | None:
        found = self.step(Place(len(self.rows), 0), -1, emitted)
        return found if found.row < len(self.rows) else None

    def step_rejection(self, place: Place, by: int, emitted: bool = False) -> Place | None:
        """The next refused draft (`by` 1) or the one before (-1), None where there is none.

        Of emitted tokens alone, if asked: the token that stands in the place of it.
        """
        rows = range(place.row, len(self.rows)) if by > 0 else range(min(place.row, len(self.rows) - 1), -1, -1)
        for row in rows:
            for index, token in enumerate(self.rows[row].tokens):
                if token.status is Status.REJECTED:
                    there = self.nearest_emitted(Place(row, index)) if emitted else Place(row, index)
                    if there > place if by > 0 else there < place:
                        return there
        return None

    def emitted_ids(self) -> dict[int, int]:
        """The text in ids: new-token index -> id; of a what-if those that it was given, and its own behind them."""
        given = dict(enumerate(self.given))
        if self.origin is not None and self.origin.token is not None:
            given[self.origin.position] = self.origin.token
        return given | {
            token.position: token.id for row in self.rows for token in row.tokens if token.status in EMITTED
        }

    def nearest_emitted(self, place: Place) -> Place:
        """The token itself if it was emitted; for a draft that was not, the one that its round ended with."""
        tokens = self.rows[place.row].tokens
        if tokens[place.token].status in EMITTED:
            return place
        if tokens[-1].status in EMITTED:
            return Place(place.row, len(tokens) - 1)
        return self.step(place, -1, emitted=True)
