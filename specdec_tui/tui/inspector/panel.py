"""The panel that tells everything about the token under the cursor."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.widgets import Static

from specdec_tui.doors.characters import visible
from specdec_tui.tui.inspector.text import Look, inspector_lines
from specdec_tui.tui.tokens.cursor_pane import CursorPane


class Inspector(VerticalScroll, can_focus=False):
    """Lies over the panes, where `place` says when given where it is now."""

    DEFAULT_CLASSES = "-textual-system"  # what is shown over a maximised pane too

    def __init__(self, place: Callable[[Region], Region]) -> None:
        super().__init__(id="inspector")
        self._look: Look | None = None
        self._place = place
        self._stands = Region()
        self._body = Static(markup=False)
        self.border_subtitle = "← → token · [ ] round · PgDn more · esc closes"

    def compose(self) -> ComposeResult:
        yield self._body

    def on_mount(self) -> None:
        self.stand()
        self.screen.screen_layout_refresh_signal.subscribe(self, lambda _: self.stand())

    def stand(self) -> None:
        """Go where the panel belongs now."""
        place = self._place(self._stands)
        if place != self._stands:
            self._stands = place
            self.styles.offset = place.offset
            self.styles.width, self.styles.height = place.size
            self.set_class(place.height < 10, "-low")

    def show(self, pane: CursorPane, name: str) -> None:
        """Show the token under a pane's cursor."""
        self.border_title = Content(f"token of {visible(name)}")
        place, log = pane.cursor, pane.run_log
        self._look = None
        if place is not None and log.holds(place):
            row = log.rows[place.row]
            here = {token.id: text for token, text in zip(row.tokens, row.texts, strict=False)}
            texts = ChainMap(log.alternatives, here)
            self._look = Look(row.record, row.tokens[place.token], log.text(place), texts, log.searches)
        self._write()

    def on_resize(self, event: events.Resize) -> None:
        self._write()

    def _write(self) -> None:
        width, rows = self.scrollable_content_region.size
        if self._look is None:
            self._body.update(Content.styled("no token yet", "$quiet"))
        elif width > 0:
            lines = inspector_lines(self._look, width, rows)
            self._body.update(Content("\n").join(Content.assemble(*line) for line in lines))
