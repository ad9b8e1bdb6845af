"""Where the inspector stands, and which pane it tells of: one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from textual.geometry import Region
from textual.notifications import SeverityLevel
from textual.widget import Widget

from specdec_tui.doors.characters import visible
from specdec_tui.tui.figures.words import PaneState
from specdec_tui.tui.inspector.panel import Inspector
from specdec_tui.tui.inspector.place import stand
from specdec_tui.tui.panes.pane import StrategyPane


class InspectionScreen(Protocol):
    """What inspecting asks of the screen."""

    @property
    def current_pane(self) -> StrategyPane:
        """The pane that keys act on."""

    @property
    def all_panes(self) -> Iterable[StrategyPane]:
        """The shown ones and the hidden ones."""

    def say(self, text: str, severity: SeverityLevel = "information", timeout: float = 5) -> None:
        """Tell a person."""

    @property
    def focused(self) -> Widget | None:
        """What has the focus."""

    @property
    def room_for_panel(self) -> tuple[Region, int]:
        """Where panes are, and down to which row the inspector may reach."""

    def go_into(self, pane: StrategyPane) -> None:
        """Give a pane the focus and bring it into sight."""

    def leave_panes(self) -> None:
        """Take the focus away from them."""

    def put_up(self, panel: Inspector) -> None:
        """Show the inspector over everything."""


class Inspection:
    """Opens the panel when a token of a pane is pointed at, and closes it when none is any more."""

    def __init__(self, screen: InspectionScreen) -> None:
        self._screen = screen
        self.panel: Inspector | None = None
        self._came_from_outside = False

    def toggle(self) -> None:
        """Inspect the last token of the current pane, or stop inspecting it."""
        pane = self._screen.current_pane
        if pane.inspecting:
            self.close()
        elif pane.run_log.last() is not None:
            self._came_from_outside = self._screen.focused is not pane
            self._screen.go_into(pane)
            pane.inspect()
        else:
            self._screen.say(_nothing(pane))

    def close(self) -> bool:
        """Stop inspecting; False when nothing was inspected."""
        inspected = [pane for pane in self._screen.all_panes if pane.inspecting]
        for pane in inspected:
            pane.close_inspector()
        if inspected and self._came_from_outside:
            self._screen.leave_panes()
        return bool(inspected)

    def move_to(self, pane: StrategyPane) -> None:
        """Where one pane is inspected: inspect another one instead, at the same place of the text."""
        inspected = next((pane for pane in self._screen.all_panes if pane.inspecting), None)
        if inspected is None or inspected is pane or pane.run_log.last() is None:
            return
        place = inspected.cursor
        token = inspected.run_log.token(place) if place is not None and inspected.run_log.holds(place) else None
        pane.inspect(None if token is None else pane.run_log.find(token.position))

    def pointed(self, pane: StrategyPane) -> None:
        """The cursor of a pane has moved, come or gone."""
        if not pane.inspecting:
            self._close()
            return
        for other in self._screen.all_panes:
            if other is not pane and other.inspecting:
                other.close_inspector()
        if self.panel is None:
            self.panel = Inspector(self._place)
            self._screen.put_up(self.panel)
        self.panel.show(pane, pane.strategy)
        self.panel.call_after_refresh(self.panel.stand)

    def settle(self) -> None:
        """The focus has moved: the panel covers no prompt that is written."""
        if self.panel is not None and self.panel.is_mounted:
            self.panel.stand()

    def turn(self, by: int) -> None:
        """The next page of the panel (1), or the one before (-1)."""
        if self.panel is not None:
            page = max(1, self.panel.size.height - 1)
            self.panel.scroll_relative(y=by * page, animate=False)

    def _place(self, now: Region) -> Region:
        """Where the panel stands, told where it stands now."""
        pane = next((pane for pane in self._screen.all_panes if pane.inspecting), None)
        if pane is None:
            return now
        panes, bottom = self._screen.room_for_panel
        others = [other.region for other in self._screen.all_panes if other is not pane]
        return stand(panes, bottom, pane.region.intersection(panes), pane.cursor_row, now, others)

    def _close(self) -> None:
        if self.panel is not None and not any(pane.inspecting for pane in self._screen.all_panes):
            self.panel.remove()
            self.panel = None
            self._came_from_outside = False


def _nothing(pane: StrategyPane) -> str:
    """Why there is no token to inspect."""
    match pane.state:
        case PaneState.IDLE:
            return "Nothing to inspect yet: run a prompt first"
        case PaneState.ABSENT:
            return f"Nothing to inspect: {visible(pane.strategy)} was not in the last run"
        case PaneState.WAITING:
            return f"Nothing to inspect yet: {visible(pane.strategy)} has not begun"
        case PaneState.ENDED | PaneState.BROKEN_OFF:
            return f"Nothing to inspect: {visible(pane.strategy)} wrote no token"
        case _:
            return f"Nothing to inspect yet: {visible(pane.strategy)} has no token so far"
