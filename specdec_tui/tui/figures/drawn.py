"""A view that is drawn in lines of coloured parts; what is drawn can be selected."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from specdec_tui.tui.figures.chart_lines import Ink, Line
from specdec_tui.tui.lines.inks import ink
from specdec_tui.tui.lines.marks import restyled, with_offsets


class DrawnView(Widget, can_focus=False):
    """Whoever draws fills `_lines`, each as wide as the view, and refreshes."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Line] = []
        self._styles: dict[Ink, Style] = {}

    @property
    def lines(self) -> list[str]:
        """What is drawn in text, row by row."""
        return ["".join(text for text, _ in line).rstrip() for line in self._lines]

    def _style(self, wanted: Ink) -> Style:
        if not self._styles:
            self._styles = {one: ink(self, one.value) for one in Ink}
        return self._styles[wanted]

    def render_line(self, y: int) -> Strip:
        if y >= len(self._lines):
            return Strip.blank(self.size.width, self.rich_style)
        segments = [Segment(text, self._style(wanted)) for text, wanted in self._lines[y]]
        strip = Strip(segments).crop_extend(0, self.size.width, self.rich_style)
        if (selection := self.text_selection) is not None and (span := selection.get_span(y)) is not None:
            first, end = span
            style = self.screen.get_component_rich_style("screen--selection")
            strip = restyled(strip, first, self.size.width if end == -1 else end, style)
        return with_offsets(strip, y) if self.mouse_hover else strip

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected part of what is drawn in text."""
        return selection.extract("\n".join(self.lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = {}
