"""The inspector of the app: where its panel stands, and which pane it tells of."""

from __future__ import annotations

from textual.containers import Horizontal

from specdec_tui.tui.app.engine_app import EngineApp
from specdec_tui.tui.inspector.panel import Inspector
from specdec_tui.tui.panes.pane import StrategyPane
from specdec_tui.tui.tokens.cursor_pane import CursorPane

BESIDE = 120  # columns from which the inspector stands beside the panes


class InspectingApp(EngineApp):
    """Opens the panel when a token of a pane is pointed at; one pane is inspected at a time."""

    body: Horizontal
    inspector: Inspector | None = None

    def action_inspect(self) -> None:
        pane = self.grid.current
        if pane.inspecting:
            pane.close_inspector()
        elif pane.run_log.last() is not None:
            self.screen.minimize()
            pane.focus(scroll_visible=False)  # its animation would end where the pane no longer is
            pane.inspect()
        else:
            self.say("Nothing to inspect yet: run a prompt first")

    def on_cursor_pane_pointed(self, message: CursorPane.Pointed) -> None:
        pane = message.pane
        assert isinstance(pane, StrategyPane)
        if not pane.inspecting:
            self._close_inspector()
            return
        for other in self.grid.panes.values():
            if other is not pane and other.inspecting:
                other.close_inspector()
        if self.inspector is None:
            self.inspector = Inspector()
            self.table.display = self.table.display and self.size.width >= BESIDE
            self.body.mount(self.inspector)
            self.call_after_refresh(self.grid.scroll_to_widget, pane, animate=False)
        self.inspector.show(pane, pane.strategy)

    def _close_inspector(self) -> None:
        if self.inspector is not None and not any(pane.inspecting for pane in self.grid.panes.values()):
            self.inspector.remove()
            self.inspector = None

    def on_cursor_pane_turned(self, message: CursorPane.Turned) -> None:
        if self.inspector is not None:
            page = max(1, self.inspector.size.height - 1)
            self.inspector.scroll_relative(y=message.by * page, animate=False)
