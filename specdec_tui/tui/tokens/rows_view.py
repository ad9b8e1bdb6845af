"""What the views with a block of lines per round share: when lines are made, and where tokens stand in them.

How many lines a round has is known once they are made, and making those of a long run takes seconds. So
only what is in sight is counted at once; of all other rounds it is guessed, and counted bit by bit.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from math import inf
from time import monotonic
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.timer import Timer

from specdec_tui.tui.lines.inks import ink
from specdec_tui.tui.tokens.chips import Kind, Run
from specdec_tui.tui.tokens.cursor_view import CursorView
from specdec_tui.tui.tokens.run_log import Place, Row, RunLog, Shown
from specdec_tui.tui.tokens.style import TOKEN_CLASSES, stressed

if TYPE_CHECKING:
    from specdec_tui.decoding.records import Status, Token
    from specdec_tui.tui.lines.view_search import ViewSearch

_NUMBERS, _BLANKS = "rounds--numbers", "rounds--blanks"
_MARKED = Style(reverse=True)
_AT_ONCE = 64  # rows that are counted when they come
_KEPT_ROWS = 256
_PAUSE_SECONDS, _COUNT_SECONDS, _APPLY_SECONDS = 0.01, 0.01, 0.3
_LATEST = 32  # rounds that tell what is known of tokens in this run


class RowsView(CursorView):
    """Rows are kept as records; lines are counted only while the view is shown."""

    def __init__(self, log: RunLog | None = None, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(log, id=id, classes=classes)
        # Entry i is the first line of row i; one more entry holds the number of lines.
        self._starts = array("q", [0])
        self._heights = array("q")  # lines of each row, guessed or counted
        self._counted = bytearray()  # 1: counted
        self._settled = 0  # rows that have a height and are final
        self._moved = self._seen = 0  # rows before which no height is new; rows before which all are counted
        self._applied = 0.0
        self._counting: Timer | None = None
        self._made: dict[int, list[list[Run]]] = {}  # lines of a few rows
        self._styles: dict[tuple[Status | None, int, Kind], Style] = {}

    def lines_for(self, row: Row, width: int) -> list[list[Run]]:
        """How a round is written; at least one line."""
        raise NotImplementedError

    @property
    def _latest(self) -> list[Token]:
        """The tokens of the last rounds."""
        return [token for row in self.rows[-_LATEST:] for token in row.tokens]

    @property
    def rows(self) -> list[Row]:
        return self.run_log.rows

    @property
    def line_count(self) -> int:
        return self._starts[-1]

    @property
    def lines_at_rest(self) -> int:
        """Lines at the top that stay where they are."""
        self._all_counted()
        return self._starts[min(self._seen, self._moved, len(self._starts) - 1)]

    def _all_counted(self) -> bool:
        row = self._counted.find(0, self._seen)
        self._seen = row if row >= 0 else len(self._counted)
        return row < 0

    def begin_search(self) -> ViewSearch:
        search = super().begin_search()
        self._count_later()
        return search

    def clear(self) -> None:
        self._forget()
        super().clear()

    def _forget(self) -> None:
        self._starts, self._heights, self._counted = array("q", [0]), array("q"), bytearray()
        self._settled = self._moved = self._seen = 0
        self._made.clear()

    def sync(self) -> None:
        """Bring the lines up to date with the rows."""
        if not self.display or not self._width:
            return
        first = self._settled
        for row in range(first, len(self._heights)):
            self._made.pop(row, None)
        del self._heights[first:], self._counted[first:], self._starts[first + 1 :]
        self._seen, self._moved = min(self._seen, first), min(self._moved, first)
        self._guess(range(first, len(self.rows)))
        self._measure(range(len(self.rows) - 1, max(first, len(self.rows) - _AT_ONCE) - 1, -1))
        self._settled = self.run_log.settled
        line = self._starts[min(self._moved, first)]
        self._apply()
        self.lines_changed(line)
        self._count_later()

    def _guess(self, rows: range) -> None:
        counted = self._heights[max(0, rows.start - 1) : rows.start]
        guess = counted[0] if counted else 1
        for _ in rows:
            self._heights.append(guess)
            self._counted.append(0)

    def _measure(self, rows: Iterable[int], seconds: float = inf) -> None:
        until = monotonic() + seconds
        for row in rows:
            if not self._counted[row]:
                height = len(self._lines_of(row))
                if height != self._heights[row]:
                    self._heights[row] = height
                    self._moved = min(self._moved, row)
                self._counted[row] = 1
                if monotonic() >= until:
                    return

    def _apply(self) -> None:
        """Bring the starts of the rows up to date with their heights."""
        row = min(self._moved, len(self._starts) - 1)
        del self._starts[row + 1 :]
        self._starts.extend(islice(accumulate(self._heights[row:], initial=self._starts[row]), 1, None))
        self._moved = len(self._heights)
        self._applied = monotonic()

    def _in_sight(self) -> range:
        """The rows that are on the screen."""
        top = max(0, bisect_right(self._starts, self.scroll_offset.y) - 1)
        return range(top, min(len(self._heights), top + self.size.height + 1))

    def _uncounted(self) -> Iterator[int]:
        while not self._all_counted():
            yield self._seen

    def _count_later(self) -> None:
        reading = self.search is not None and self.search.is_reading
        if self._counting is None and self.is_attached and (reading or not self._all_counted()):
            self._counting = self.set_timer(_PAUSE_SECONDS, self._count_on)

    def _count_on(self) -> None:
        """Count what is in sight, then some of what is not; the reader stays where he is."""
        self._counting = None
        if not self.display or not self._width:
            return
        sight = self._in_sight()
        self._measure(sight)
        urgent = self._moved < sight.stop
        self._measure(self._uncounted(), _COUNT_SECONDS)
        done = self._all_counted()
        if self._moved < len(self._heights) and (urgent or done or monotonic() - self._applied > _APPLY_SECONDS):
            self._move()
        if self.search is not None:
            self.search.read_on()
        self._count_later()

    def _move(self) -> None:
        """Let the counted heights show."""
        top = self.scroll_offset.y
        row = max(0, bisect_right(self._starts, top) - 1)
        within, following = top - self._starts[row], self.following
        line = self._starts[self._moved]
        self._apply()
        self.lines_changed(line)
        if not following and self.scroll_offset.y != (there := self._starts[row] + within):
            self.scroll_to(y=there, animate=False)
        self.following = following

    def add(self, record: Shown, texts: tuple[str, ...]) -> None:
        """Take a round into the log. `sync` shows it."""
        self.run_log.add(record, texts)

    def drop_pending(self) -> None:
        """Take out drafts that no target pass will judge any more."""
        self.run_log.drop_pending()

    def fit(self) -> None:
        super().fit()
        self.sync()
        if self._heights:
            self._measure(self._in_sight())
            if self._moved < len(self._heights):
                self._move()
        self.keep_in_sight()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._count_later()

    def wrap_to(self, width: int) -> None:
        self._made.clear()
        if self.run_log.settled > _AT_ONCE:  # they are about as high as they were
            self._counted = bytearray(len(self._heights))
            self._seen = self._moved = 0
            self._apply()
            return
        self._forget()
        self._guess(range(len(self.rows)))
        self._moved = 0
        self._measure(range(len(self.rows)))
        self._apply()
        self._settled = self.run_log.settled

    def mark_of(self, line: int) -> int:
        return bisect_right(self._starts, line) - 1

    def line_of(self, mark: int) -> int:
        return self._starts[max(0, min(mark, len(self._starts) - 1))]

    def line_segments(self, line: int) -> list[Segment]:
        row, runs = self._runs_at(line)
        marked = self.cursor.token if self.cursor is not None and self.cursor.row == row else None
        segments = []
        for run in runs:
            style = self._style_of(run)
            if run.token is not None and run.token == marked:
                style += _MARKED
            segments.append(Segment(run.text, style))
        return segments

    def lines_of(self, place: Place) -> Sequence[int]:
        if place.row >= len(self._heights) or not self.run_log.holds(place):
            return ()
        self._measure((place.row,))
        if self._moved < len(self._heights):
            self._move()
        start, lines = self._starts[place.row], self._lines_of(place.row)
        return [start + i for i, runs in enumerate(lines) if any(run.token == place.token for run in runs)]

    def place_at(self, line: int, column: int) -> Place | None:
        if not 0 <= line < self.line_count:
            return None
        row, runs = self._runs_at(line)
        reached = 0
        for run in runs:
            reached += cell_len(run.text)
            if column < reached:
                return None if run.token is None else Place(row, run.token)
        return None

    def step_line(self, place: Place, by: int) -> Place:
        return self.run_log.step_row(place, by)

    def _runs_at(self, line: int) -> tuple[int, list[Run]]:
        row = bisect_right(self._starts, line) - 1
        lines, within = self._lines_of(row), line - self._starts[row]
        return row, lines[within] if within < len(lines) else []  # guessed too high

    def _lines_of(self, row: int) -> list[list[Run]]:
        lines = self._made.get(row)
        if lines is None:
            if len(self._made) >= _KEPT_ROWS:
                self._made.clear()
            lines = self._made[row] = self.lines_for(self.rows[row], self._width)
        return lines

    def fates_on(self, line: int) -> Iterable[Status]:
        return [run.status for run in self._runs_at(line)[1] if run.status is not None and run.token is not None]

    def line_text(self, line: int) -> str:
        return "".join(run.text for run in self._runs_at(line)[1]).rstrip()

    def _style_of(self, run: Run) -> Style:
        key = (run.status, run.strength, run.kind)
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = self._new_style(run)
        return style

    def _new_style(self, run: Run) -> Style:
        if run.kind is Kind.BLANK:
            return ink(self, _BLANKS)
        if run.status is None:
            return ink(self, _NUMBERS)
        own = ink(self, TOKEN_CLASSES[run.status])
        style = stressed(own, run.strength, self.app.no_color, self.app.console.color_system)
        return style + Style(strike=False) if run.kind is Kind.SIGN else style

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = {}
