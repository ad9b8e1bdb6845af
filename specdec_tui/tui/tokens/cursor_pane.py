"""A pane whose tokens can be walked over one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.message import Message

from specdec_tui.tui.tokens.run_log import Place, RunLog

if TYPE_CHECKING:
    from specdec_tui.tui.tokens.cursor_view import CursorView

_CURSOR_ACTIONS = ("move_cursor", "turn_inspector", "go_to_rejection", "go_to_difference", "branch")


class CursorPane(Vertical):
    """Keeps the cursor over a log that its views share. Who shows the token hears of it by `Pointed`."""

    class Pointed(Message):
        """The cursor is somewhere else, stands on something else now, or inspecting has begun or ended."""

        def __init__(self, pane: CursorPane) -> None:
            super().__init__()
            self.pane = pane

    class Turned(Message):
        """Another page of what is said of the token is wanted: the next (1) or the one before (-1)."""

        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

    class WhatIfWanted(Message):
        """The text is to go on otherwise from the token under the cursor."""

    class NothingThere(Message):
        """There is no such token to go to, and `why`."""

        def __init__(self, why: str) -> None:
            super().__init__()
            self.why = why

    class DifferenceWanted(Message):
        """The first token is wanted that another pane has otherwise."""

        def __init__(self, pane: CursorPane) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.run_log = RunLog()
        self.inspecting = False
        self.cursor: Place | None = None

    @property
    def cursor_views(self) -> tuple[CursorView, ...]:
        raise NotImplementedError

    @property
    def cursor_view(self) -> CursorView | None:
        """The view on the screen; None where it has no tokens."""
        return next((view for view in self.cursor_views if view.display), None)

    @property
    def cursor_row(self) -> int:
        """The row of the screen that shows the marked token."""
        view = self.cursor_view
        if view is None or self.cursor is None or not (lines := view.lines_of(self.cursor)):
            return self.region.y
        shown = view.region
        return max(shown.y, min(shown.bottom - 1, shown.y + lines[0] - view.scroll_offset.y))

    @property
    def _emitted_only(self) -> bool:
        view = self.cursor_view
        return view is None or view.emitted_only

    def inspect(self, place: Place | None = None) -> None:
        """Mark a token, by default the last one, and say so."""
        self.inspecting = True
        self._point(place or self.run_log.last(self._emitted_only))

    def close_inspector(self) -> None:
        self.inspecting = False
        self._point(None)

    def action_turn_inspector(self, by: int) -> None:
        self.post_message(self.Turned(by))

    def action_branch(self) -> None:
        self.post_message(self.WhatIfWanted())

    def action_go_to_rejection(self, by: int) -> None:
        """The next refused draft (1) or the one before (-1); in a text without drafts the token in its place."""
        if self.cursor is None:
            return
        there = self.run_log.step_rejection(self.cursor, by, self._emitted_only)
        if there is None:
            way = "further" if by > 0 else "earlier"
            self.post_message(self.NothingThere(f"No {way} rejection in this pane"))
        else:
            self._point(there)

    def action_go_to_difference(self) -> None:
        self.post_message(self.DifferenceWanted(self))

    def action_move_cursor(self, how: str) -> None:
        """`next`, `previous`, `down`, `up`, `next_round`, `previous_round`, `first` or `last`."""
        log, emitted, place = self.run_log, self._emitted_only, self.cursor
        if place is None:
            return
        match how:
            case "first" | "last":
                place = (log.first(emitted) if how == "first" else log.last(emitted)) or place
            case "next" | "previous":
                place = log.step(place, 1 if how == "next" else -1, emitted)
            case "down" | "up" if self.cursor_view is not None:
                place = self.cursor_view.step_line(place, 1 if how == "down" else -1)
            case _:
                place = log.step_row(place, 1 if how in ("next_round", "down") else -1, emitted)
        self._point(place)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of the cursor are free for others while there is none."""
        return self.inspecting if action in _CURSOR_ACTIONS else super().check_action(action, parameters)

    def on_cursor_view_picked(self, message: CursorView.Picked) -> None:
        message.stop()
        self.inspect(message.place)

    def cursor_to_start(self) -> None:
        """A new run: there is no token yet."""
        self.cursor = None
        if self.inspecting:
            self.post_message(self.Pointed(self))

    def log_changed(self, settled: int) -> None:
        """The log grew; `settled` rows had been final before. The cursor stays where it is."""
        if not self.inspecting:
            return
        if self.cursor is None:
            self._point(self.run_log.last(self._emitted_only))
        elif self.cursor.row >= settled:
            last = self.run_log.last(self._emitted_only)
            self._point(self.cursor if self.run_log.holds(self.cursor) else last)

    def view_changed(self) -> None:
        """Keep the token in the view that is shown now, or the nearest one it has; a view without tokens has none."""
        if self.inspecting and self.cursor_view is None:
            self.close_inspector()
        elif self.cursor is not None:
            self._point(self.cursor)

    def _point(self, place: Place | None) -> None:
        if place is not None and self._emitted_only:
            place = self.run_log.nearest_emitted(place)
        self.cursor = place
        for view in self.cursor_views:
            view.point(place)
        self.post_message(self.Pointed(self))
