"""The panel that tells everything about the token under the cursor."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from specdec_tui.tui.inspector.text import Look, inspector_lines
from specdec_tui.tui.lines.sanitize import visible
from specdec_tui.tui.tokens.cursor_pane import CursorPane


class Inspector(VerticalScroll, can_focus=False):
    """Docked beside the panes, or below them where the screen is narrow."""

    def __init__(self) -> None:
        super().__init__(id="inspector")
        self._look: Look | None = None
        self._body = Static(markup=False)
        self.border_subtitle = "esc closes"

    def compose(self) -> ComposeResult:
        yield self._body

    def show(self, pane: CursorPane, name: str) -> None:
        """Show the token under a pane's cursor."""
        self.border_title = Content(f"token of {visible(name)}")
        place, log = pane.cursor, pane.run_log
        self._look = None
        if place is not None and log.holds(place):
            row = log.rows[place.row]
            self._look = Look(row.record, row.tokens[place.token], log.text(place), log.alternatives)
        self._write()

    def on_resize(self, event: events.Resize) -> None:
        self._write()

    def _write(self) -> None:
        width = self.scrollable_content_region.width
        if self._look is None:
            self._body.update(Content.styled("no token yet", "$quiet"))
        elif width > 0:
            lines = inspector_lines(self._look, width)
            self._body.update(Content("\n").join(Content.assemble(*line) for line in lines))
