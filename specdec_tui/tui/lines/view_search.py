"""A search in what one view shows: which cells are matches, and which match is the current one."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Protocol

from specdec_tui.tui.lines.find import Search, cells_of

_READING_SECONDS, _AT_ONCE = 0.01, 128  # lines that are always read

# (first cell, cell behind the last, whether it belongs to the current match)
Found = tuple[int, int, bool]


class Lines(Protocol):
    """What a search must know of a view: `line_count` lines, each without line breaks.

    `lines_at_rest`: those at the top that will not move any more, however much is still to be laid out.
    """

    @property
    def line_count(self) -> int: ...

    @property
    def lines_at_rest(self) -> int: ...

    def line_text(self, line: int) -> str: ...


class ViewSearch:
    """Searches the lines of a view as they are shown."""

    def __init__(self, view: Lines) -> None:
        self._lines = view
        self.matches = Search()
        self.current: int | None = None
        self.update(0)

    def update(self, first: int) -> None:
        """The lines from `first` on are new or others than before."""
        self.matches.cut(min(first, self.matches.part_count))
        self.read_on()

    @property
    def is_reading(self) -> bool:
        """Whether not all was searched yet."""
        return self.matches.part_count < self._lines.line_count

    def read_on(self) -> None:
        """Search on through the lines that are at rest, for a moment."""
        until = monotonic() + _READING_SECONDS
        while (known := self.matches.part_count) < (end := self._lines.lines_at_rest) and monotonic() < until:
            lines = range(known, min(end, known + _AT_ONCE))
            self.matches.extend(self._lines.line_text(line) + "\n" for line in lines)
        self._hold_current()

    def look_for(self, query: str, line: int) -> None:
        """Search for another query: the match at or behind the present one becomes current, or behind `line`."""
        place = self.offset_of(line) if self.current is None else self.matches.span(self.current)[0]
        self.matches.look_for(query)
        self.current = self.matches.first_from(place)

    def step(self, by: int, line: int) -> None:
        """Go so many matches on, around the end; without a current one, to the first match behind `line`."""
        if not len(self.matches):
            self.current = None
        elif self.current is None:
            self.current = self.matches.first_from(self.offset_of(line))
        else:
            self.current = (self.current + by) % len(self.matches)

    def found_on(self, line: int) -> Sequence[Found]:
        """The matches on a line, in cells."""
        text, begins = self.line(line)
        found: list[Found] = []
        for match in self.matches.within(begins, begins + len(text)):
            start, end = self.matches.span(match)
            first, behind = cells_of(text, start - begins, end - begins)
            if first < behind:
                found.append((first, behind, match == self.current))
        return found

    @property
    def current_line(self) -> int | None:
        """The line where the current match begins."""
        return None if self.current is None else self.line_of(self.matches.span(self.current)[0])

    def offset_of(self, line: int) -> int:
        """Where a line begins in the searched text."""
        return self.line(line)[1] if line < self.matches.part_count else 0

    def line(self, line: int) -> tuple[str, int]:
        """A line's text, and where that begins in the searched text."""
        if line >= self.matches.part_count:
            return "", self.matches.part_span(self.matches.part_count - 1)[1] if self.matches.part_count else 0
        return self._lines.line_text(line), self.matches.part_span(line)[0]

    def line_of(self, offset: int) -> int:
        """The line that holds a place in the searched text."""
        return self.matches.part_at(offset)

    def _hold_current(self) -> None:
        if self.current is not None:
            self.current = min(self.current, len(self.matches) - 1) if len(self.matches) else None
