"""Where the inspector stands, and which pane it tells of: one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from textual.notifications import SeverityLevel

from specdec_tui.tui.inspector.panel import Inspector
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

    def minimise(self) -> None:
        """Bring back what a maximised pane hides."""

    def open_panel(self, beside: StrategyPane) -> Inspector:
        """Make room for the inspector and keep that pane in sight."""


class Inspection:
    """Opens the panel when a token of a pane is pointed at, and closes it when none is any more."""

    def __init__(self, screen: InspectionScreen) -> None:
        self._screen = screen
        self.panel: Inspector | None = None

    def toggle(self) -> None:
        """Inspect the last token of the current pane, or stop inspecting it."""
        pane = self._screen.current_pane
        if pane.inspecting:
            pane.close_inspector()
        elif pane.run_log.last() is not None:
            self._screen.minimise()
            pane.focus(scroll_visible=False)  # its animation would end where the pane no longer is
            pane.inspect()
        else:
            self._screen.say("Nothing to inspect yet: run a prompt first")

    def close(self) -> bool:
        """Stop inspecting; False when nothing was inspected."""
        inspected = [pane for pane in self._screen.all_panes if pane.inspecting]
        for pane in inspected:
            pane.close_inspector()
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
            self.panel = self._screen.open_panel(pane)
        self.panel.show(pane, pane.strategy)

    def turn(self, by: int) -> None:
        """The next page of the panel (1), or the one before (-1)."""
        if self.panel is not None:
            page = max(1, self.panel.size.height - 1)
            self.panel.scroll_relative(y=by * page, animate=False)

    def _close(self) -> None:
        if self.panel is not None and not any(pane.inspecting for pane in self._screen.all_panes):
            self.panel.remove()
            self.panel = None
