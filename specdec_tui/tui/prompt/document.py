"""The text of a prompt, exactly as it was typed or pasted, beside what is shown of it."""

from __future__ import annotations

from rich.cells import cell_len
from textual.document._document import Document, EditResult, Location
from textual.geometry import Size

from specdec_tui.doors.characters import visible


class PromptDocument(Document):
    """Its lines end at newlines alone, and are shown with a symbol for every character that a terminal would obey.

    Textual's own splits a text at everything that Python calls a line's end (U+2028, U+0085, a form feed)
    and joins it with newlines. `text` and what is copied are exact; `lines`, from which widths and places
    of the cursor are counted, are as they are shown: one character for each.
    """

    def __init__(self, text: str) -> None:
        super().__init__("")
        self._lines = text.split("\n")
        self._shown = list(map(visible, self._lines))

    @property
    def lines(self) -> list[str]:
        return self._shown

    def __getitem__(self, line_index: int | slice) -> str | list[str]:  # type: ignore[override]
        return self._shown[line_index]

    def get_size(self, indent_width: int) -> Size:
        return Size(max(cell_len(line.expandtabs(indent_width)) for line in self._shown), len(self._shown))

    def replace_range(self, start: Location, end: Location, text: str) -> EditResult:
        (top, left), (bottom, right) = sorted((start, end))
        replaced = self.get_text_range(start, end)
        before = self._lines[top][:left] if top < len(self._lines) else ""
        behind = self._lines[bottom][right:] if bottom < len(self._lines) else ""
        new = (before + text).split("\n")
        place = (top + len(new) - 1, len(new[-1]))
        new[-1] += behind
        self._lines[top : bottom + 1] = new
        self._shown[top : bottom + 1] = map(visible, new)
        return EditResult(place, replaced)
