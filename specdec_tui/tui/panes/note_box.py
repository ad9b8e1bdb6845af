"""What a run has to say under its text: each thing once, in as many rows as there are; a mark where that is not all."""

from __future__ import annotations

from itertools import islice

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from specdec_tui.doors.characters import visible
from specdec_tui.tui.figures.words import in_rows, shortened

_LONGEST, _MOST_SHOWN = 2000, 12
"""Characters of a note, and notes that are looked at: more than there are ever rows for."""


class NoteBox(Widget):
    """Shown while there is something in it. What is added is painted with the next `paint`, once for all of it."""

    def __init__(self) -> None:
        super().__init__(classes="notes")
        self.display = False
        self._notes: dict[str, str] = {}  # each once, and its style
        self._painted = 0

    def add(self, text: str, style: str = "") -> None:
        """What has a style of its own, a fault, stands before all others: they may leave no room behind them."""
        note = {visible(text[:_LONGEST].strip()): style}
        self._notes = note | self._notes | note if style else self._notes | note

    def empty(self) -> None:
        self._notes, self._painted = {}, 0
        self._show()

    def paint(self) -> None:
        if len(self._notes) > self._painted:
            self._show()

    def _show(self) -> None:
        self._painted = len(self._notes)
        self.display = bool(self._notes)
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return sum(map(len, self._wrapped(width)))

    def render(self) -> Content:
        return Content("\n").join(self._fitting(*self.content_size))

    def _fitting(self, width: int, rows: int) -> list[Content]:
        """Rows of as many notes as have room, the last of them cut where it must be, and how many others there are."""
        wrapped = self._wrapped(width)
        if sum(map(len, wrapped)) <= rows:
            return [line for lines in wrapped for line in lines]
        room = rows - 1 if rows > 2 else rows
        begun = sum(room > sum(map(len, wrapped[:place])) for place in range(len(wrapped)))
        left = len(self._notes) - begun
        if not left:
            room = rows
        shown = Content("\n").join([line for lines in wrapped[:begun] for line in lines])
        more = [Content(shortened(f"… and {left} more: exports hold them all", width))] if left and room < rows else []
        return [in_rows(shown, width, room), *more]

    def _wrapped(self, width: int) -> list[list[Content]]:
        return [
            Content.styled(text, style).wrap(max(1, width)) for text, style in islice(self._notes.items(), _MOST_SHOWN)
        ]
