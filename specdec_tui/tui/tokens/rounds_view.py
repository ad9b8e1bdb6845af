"""One row per round: what was drafted, what became of it, and what was emitted."""

from __future__ import annotations

from specdec_tui.tui.tokens.round_lines import RoundLines, Run
from specdec_tui.tui.tokens.rows_view import RowsView
from specdec_tui.tui.tokens.run_log import Row


class RoundsView(RowsView):
    """A line per round, more where it is wrapped or insight is on."""

    def lines_for(self, row: Row, width: int) -> list[list[Run]]:
        return RoundLines(row.record, row.texts).lines(width)
