"""An app of four panes and a table, for tests of how they look."""

from __future__ import annotations

from textual.app import ComposeResult
from widget_data import STORY, HostApp, words_of

from specdec_tui.decoding.records import Status
from specdec_tui.tui.figures.comparison import ComparisonTable
from specdec_tui.tui.panes.pane import DRAWN, StrategyPane
from specdec_tui.tui.tokens.legend import Legend

NAMES = {1: "target", 3: "speculative", 4: "ngram", 5: "lookup"}
PIECES = words_of(STORY + "投机解码 👨\u200d👩\u200d👧 [/x] \x1b[31m\tend")


class PanesApp(HostApp):
    """Four panes with a run each: ended, ended, in the middle, failed."""

    def __init__(self, theme: str, columns: str, view: str) -> None:
        self.panes = [StrategyPane(number, name) for number, name in NAMES.items()]
        self.legend = Legend()
        self.table = ComparisonTable()
        self.first_view = view
        super().__init__(*self.panes, theme=theme, columns=columns)

    def compose(self) -> ComposeResult:
        yield from super().compose()
        yield self.legend
        yield self.table

    def on_strategy_pane_fates_changed(self) -> None:
        showing = [pane for pane in self.panes if pane.view not in DRAWN]
        self.legend.explain(frozenset[Status]().union(*(pane.fates.now for pane in showing)) if showing else None)
