"""From pane to pane, and one of them in all the room there is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specdec_tui.tui.app.front import Front
    from specdec_tui.tui.app.inspection import Inspection
    from specdec_tui.tui.app.stage import Stage
    from specdec_tui.tui.panes.pane import StrategyPane


class GoingAbout:
    """`tell` says something to a person."""

    def __init__(self, front: Front, stage: Stage, inspection: Inspection, tell: Callable[..., None]) -> None:
        self._front = front
        self._stage = stage
        self._inspection = inspection
        self._tell = tell

    def next(self, by: int) -> None:
        self.to(self._stage.grid.neighbour(by))

    def to_strategy(self, name: str) -> None:
        pane = self._stage.grid.panes[name]
        if pane.display:
            self.to(pane)
        else:
            self._tell(f"{name} is not shown: {pane.number} brings it", holds=lambda: not pane.display)

    def to(self, pane: StrategyPane) -> None:
        """What fills the room goes on filling it; the inspector comes along."""
        maximised = pane.screen.maximized is not None
        self._front.minimise()
        self._stage.make_way()
        self._stage.grid.go_to(pane.strategy)
        self._inspection.move_to(pane)
        if maximised:
            pane.screen.maximize(pane, container=False)

    def toggle_maximise(self) -> None:
        pane = self._stage.grid.current
        if pane.screen.maximized is not None:
            self._front.minimise()
        else:
            pane.focus()
            pane.screen.maximize(pane, container=False)
