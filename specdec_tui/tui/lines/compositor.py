"""Paints what changed and nothing else: a screen whose partial updates ask only the widgets concerned.

Textual's own partial update asks every widget whose container reaches into the box around all
changes, and for all of its rows: a new token in one pane makes the prompt, the footer and the
other panes compose their rows too, only to be thrown away. Every painting takes the interpreter
from decoding, so this is the difference between watching and slowing down.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual._compositor import ChopsUpdate, Compositor
from textual.binding import Binding, BindingType
from textual.errors import NoWidget
from textual.geometry import Offset, Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from specdec_tui.tui.lines.line_view import LineView
from specdec_tui.tui.lines.marks import start_of_character


class SparingCompositor(Compositor):
    """Textual's compositor; while a partial update is made, only changed rows of widgets are rendered."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: list[Region] = []

    def render_partial_update(self) -> ChopsUpdate | None:
        # A widget asking for its region while it is rendered would make Textual place all widgets anew,
        # and the rest of the picture would show them elsewhere than its beginning: do that before.
        if self._full_map_invalidated:
            _ = self.full_map
            self._cuts = None
        self._changed = list(self._dirty_regions)
        try:
            return super().render_partial_update()
        finally:
            self._changed = []

    def get_widget_and_offset_at(self, x: int, y: int) -> tuple[Widget | None, Offset | None]:
        """Textual takes the second half of a wide character for the next one: a selection would end behind that."""
        try:
            widget, region = self.get_widget_at(x, y)
        except NoWidget:
            return None, None
        if isinstance(widget, LineView):
            x = region.x + start_of_character(widget.render_line(y - region.y), x - region.x)
        return super().get_widget_and_offset_at(x, y)

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        if not self._changed:
            yield from super()._get_renders(crop)
            return
        left = self._changed
        for widget, (region, clip) in self.visible_widgets.items():  # front to back
            shown = region.intersection(clip)
            changed = [change for change in left if change.overlaps(shown)]
            if changed:
                top = max(shown.y, min(change.y for change in changed))
                bottom = min(shown.bottom, max(change.bottom for change in changed))
                rows = Region(shown.x, top, shown.width, bottom - top)
                yield region, rows, widget.render_lines(rows.translate(-region.offset))
                # What lies behind a change that this widget covers cannot be seen.
                left = [change for change in left if not shown.contains_region(change)]


class SparingScreen(Screen[None], inherit_bindings=False):
    """The app's main screen. The keys that walk over all widgets are free for the app."""

    AUTO_FOCUS = ""
    """Whoever closes a dialog is where he was: Textual would focus the first pane, which may not even be in sight."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c,super+c", "screen.copy_text", show=False)]

    def __init__(self) -> None:
        super().__init__(id="_default")
        self._compositor = SparingCompositor()
        self._left: object = None

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Toasts are for dialogs; on this screen they would cover the prompt."""
        self.app.clear_notifications()
        # Whatever changes styles gives them to this screen too, but for what becomes of the app behind a whole dialog.
        event.refresh_styles = self._left not in (None, self._around)

    def on_screen_suspend(self) -> None:
        self._left = self._around

    @property
    def _around(self) -> tuple[frozenset[str], frozenset[str]]:
        """What styles may ask of the app itself."""
        return self.app.classes, frozenset(self.app.pseudo_classes)
