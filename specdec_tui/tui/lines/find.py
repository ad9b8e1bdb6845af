"""Finding a text in one that grows: pure, no screen.

The text is made of parts (tokens, or lines). Parts are added and taken away at the end, and each
change searches what it brought and nothing before it. Offsets count characters.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from specdec_tui.tui.lines.layout import cells_at, cluster_end


class Search:
    """Where `query` stands in the parts given so far; matches do not overlap.

    Upper case in the query makes upper and lower case differ. An empty query is found nowhere.
    """

    def __init__(self, parts: Iterable[str] = ()) -> None:
        self.query = ""
        self._pattern: re.Pattern[str] | None = None
        self._parts: list[str] = []
        # Entry i is where part i begins; one more entry holds the length of the text.
        self._offsets = array("q", [0])
        self._matches = array("q")
        self.extend(parts)

    def __len__(self) -> int:
        """Number of matches."""
        return len(self._matches)

    @property
    def part_count(self) -> int:
        return len(self._parts)

    def look_for(self, query: str) -> None:
        """Search everything for another query."""
        self.query = query
        exact = query != query.lower()
        self._pattern = re.compile(re.escape(query), re.NOFLAG if exact else re.IGNORECASE) if query else None
        del self._matches[:]
        self._search_from(0)

    def extend(self, parts: Iterable[str]) -> None:
        """Add parts behind the text."""
        before = self._offsets[-1]
        for part in parts:
            self._parts.append(part)
            self._offsets.append(self._offsets[-1] + len(part))
        # A match may have begun in the text before.
        self._search_from(before - len(self.query) + 1)

    def cut(self, count: int) -> None:
        """Keep the first `count` parts only."""
        del self._parts[count:]
        del self._offsets[count + 1 :]
        del self._matches[bisect_right(self._matches, self._offsets[-1] - len(self.query)) :]

    def span(self, match: int) -> tuple[int, int]:
        """Where a match begins and ends."""
        start = self._matches[match]
        return start, start + len(self.query)

    def within(self, start: int, end: int) -> range:
        """The matches that reach into the text from `start` to `end`."""
        return range(
            bisect_right(self._matches, start - len(self.query)),
            bisect_left(self._matches, end),
        )

    def first_from(self, offset: int) -> int | None:
        """The first match that begins at `offset` or behind, else the first of all; None: there is none."""
        if not self._matches:
            return None
        match = bisect_left(self._matches, offset)
        return match if match < len(self._matches) else 0

    def part_at(self, offset: int) -> int:
        return bisect_right(self._offsets, offset, 0, len(self._parts)) - 1

    def part_span(self, part: int) -> tuple[int, int]:
        """Where a part begins and ends."""
        return self._offsets[part], self._offsets[part + 1]

    def _search_from(self, offset: int) -> None:
        if self._pattern is None or not self._parts:
            return
        if self._matches:
            offset = max(offset, self.span(-1)[1])
        first = max(0, self.part_at(max(0, offset)))
        begins = self._offsets[first]
        text = "".join(self._parts[first:])
        found = self._pattern.finditer(text, max(0, offset - begins))
        self._matches.extend(begins + match.start() for match in found)


def cells_of(line: str, start: int, end: int) -> tuple[int, int]:
    """The cells (first, behind the last) that hold the characters from `start` to `end` of a laid-out line.

    What attaches to a character shares its cells. A newline has none.
    """
    start, end = max(0, start), min(end, len(line.removesuffix("\n")))
    if line.isascii() and "\t" not in line:
        return min(start, end), end
    at = column = 0
    first = None
    while at < end:
        behind = cluster_end(line, at)
        if first is None and start < behind:
            first = column
        column += cells_at(line, at, behind, column)
        at = behind
    return (column if first is None else first), column
