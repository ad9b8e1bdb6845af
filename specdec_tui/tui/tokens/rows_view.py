"""What the views with a block of lines per round share: when lines are made, and where tokens stand in them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style

from specdec_tui.decoding.records import Status, Token
from specdec_tui.tui.tokens.chips import Kind, Run
from specdec_tui.tui.tokens.cursor_view import CursorView
from specdec_tui.tui.tokens.run_log import Place, Row, RunLog, Shown
from specdec_tui.tui.tokens.style import TOKEN_CLASSES, stressed

_NUMBERS, _BLANKS = "rounds--numbers", "rounds--blanks"
_MARKED = Style(reverse=True)
_LATEST = 32  # rounds that tell what is known of tokens in this run


class RowsView(CursorView):
    """Rows are kept as records; lines are counted only while the view is shown."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*TOKEN_CLASSES.values(), _NUMBERS, _BLANKS}

    def __init__(self, log: RunLog | None = None, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(log, id=id, classes=classes)
        # Entry i is the first line of row i; one more entry holds the number of lines.
        self._starts = array("q", [0])
        self._settled = 0  # rows that were counted when they were final
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

    def clear(self) -> None:
        self._starts = array("q", [0])
        self._settled = 0
        super().clear()

    def sync(self) -> None:
        """Bring the lines up to date with the rows."""
        if not self.display or not self._width:
            return
        del self._starts[self._settled + 1 :]
        first = self._starts[-1]
        for row in self.rows[self._settled :]:
            self._starts.append(self._starts[-1] + len(self.lines_for(row, self._width)))
        self._settled = self.run_log.settled
        self.lines_changed(first)

    def add(self, record: Shown, texts: tuple[str, ...]) -> None:
        """Take a round into the log. `sync` shows it."""
        self.run_log.add(record, texts)

    def drop_pending(self) -> None:
        """Take out drafts that no target pass will judge any more."""
        self.run_log.drop_pending()

    def fit(self) -> None:
        super().fit()
        self.sync()
        self.keep_in_sight()

    def wrap_to(self, width: int) -> None:
        del self._starts[1:]
        for row in self.rows:
            self._starts.append(self._starts[-1] + len(self.lines_for(row, width)))
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
        if place.row >= len(self._starts) - 1 or not self.run_log.holds(place):
            return ()
        start, lines = self._starts[place.row], self.lines_for(self.rows[place.row], self._width)
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
        return row, self.lines_for(self.rows[row], self._width)[line - self._starts[row]]

    def _style_of(self, run: Run) -> Style:
        key = (run.status, run.strength, run.kind)
        style = self._styles.get(key)
        if style is None:
            style = self._styles[key] = self._new_style(run)
        return style

    def _new_style(self, run: Run) -> Style:
        if run.kind is Kind.BLANK:
            return self.get_component_rich_style(_BLANKS)
        if run.status is None:
            return self.get_component_rich_style(_NUMBERS)
        own = self.get_component_rich_style(TOKEN_CLASSES[run.status])
        style = stressed(own, run.strength, self.app.no_color, self.app.console.color_system)
        return style + Style(strike=False) if run.kind is Kind.SIGN else style

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = {}
