"""What a run has to say under its text: each thing once, some in full and the others counted."""

from __future__ import annotations

from itertools import islice

from textual.content import Content
from textual.widgets import Static

from specdec_tui.doors.characters import visible

_LONGEST, _MOST_SHOWN = 2000, 12


class NoteBox(Static):
    """Shown while there is something in it. What is added is painted with the next `paint`, once for all of it."""

    def __init__(self) -> None:
        super().__init__(classes="notes", markup=False)
        self.display = False
        self._notes: dict[str, str] = {}  # each once, and its style
        self._painted = 0

    def add(self, text: str, style: str = "") -> None:
        self._notes[visible(text[:_LONGEST].strip())] = style

    def empty(self) -> None:
        self._notes, self._painted = {}, 0
        self._show()

    def paint(self) -> None:
        if len(self._notes) > self._painted:
            self._show()

    def _show(self) -> None:
        self._painted = len(self._notes)
        self.display = bool(self._notes)
        shown = [Content.styled(text, style) for text, style in islice(self._notes.items(), _MOST_SHOWN)]
        if (more := len(self._notes) - _MOST_SHOWN) > 0:
            shown += [Content(f"… and {more} more: exports hold them all")]
        self.update(Content("\n").join(shown))
