"""One row per round: what was drafted, what became of it, and what was emitted."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style

from specdec_tui.decoding.records import DraftsProposed, Status
from specdec_tui.tui.line_view import LineView
from specdec_tui.tui.round_lines import RoundLines, Shown
from specdec_tui.tui.token_style import TOKEN_CLASSES, token_styles

_NUMBERS = "rounds--numbers"


class RoundsView(LineView):
    """Rows are kept as records; lines are counted only while the view is shown."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*TOKEN_CLASSES.values(), _NUMBERS}

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.rows: list[RoundLines] = []
        # Entry i is the first line of row i; one more entry holds the number of lines.
        self._starts = array("q", [0])
        self._styles: dict[Status | None, Style] | None = None

    @property
    def line_count(self) -> int:
        return self._starts[-1]

    def clear(self) -> None:
        """Empty the view for a new run."""
        self.rows = []
        self._starts = array("q", [0])
        self.following = True
        self.everything_changed()
        self.following = True

    def add(self, record: Shown, texts: tuple[str, ...]) -> None:
        """Take a round; the verdict of a round takes the row of its pending drafts. `sync` shows it."""
        row = RoundLines(record, texts)
        if self.rows and isinstance(self.rows[-1].record, DraftsProposed):
            self.rows[-1] = row
            del self._starts[len(self.rows) :]
        else:
            self.rows.append(row)

    def drop_pending(self) -> None:
        """Take out drafts that no target pass will judge any more."""
        if self.rows and isinstance(self.rows[-1].record, DraftsProposed):
            self.rows.pop()
            del self._starts[len(self.rows) + 1 :]

    def sync(self) -> None:
        """Bring the lines up to date with the rows."""
        if not self.display or not self._width:
            return
        counted = len(self._starts) - 1
        first = self._starts[counted]
        for row in self.rows[counted:]:
            self._starts.append(self._starts[-1] + len(row.lines(self._width)))
        self.lines_changed(first)

    def fit(self) -> None:
        super().fit()
        self.sync()

    def wrap_to(self, width: int) -> None:
        del self._starts[1:]
        for row in self.rows:
            self._starts.append(self._starts[-1] + len(row.lines(width)))

    def mark_of(self, line: int) -> int:
        return bisect_right(self._starts, line) - 1

    def line_of(self, mark: int) -> int:
        return self._starts[max(0, min(mark, len(self._starts) - 1))]

    def line_segments(self, line: int) -> list[Segment]:
        if self._styles is None:
            styles: dict[Status | None, Style] = {None: self.get_component_rich_style(_NUMBERS)}
            for status, style in token_styles(self).items():
                styles[status] = style
            self._styles = styles
        row = bisect_right(self._starts, line) - 1
        runs = self.rows[row].lines(self._width)[line - self._starts[row]]
        return [Segment(text, self._styles[status]) for text, status in runs]

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = None
