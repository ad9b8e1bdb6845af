"""One row per round: what was drafted, what became of it, and what was emitted."""

from __future__ import annotations

from specdec_tui.tui.tokens.chips import Run
from specdec_tui.tui.tokens.round_lines import round_lines
from specdec_tui.tui.tokens.rows_view import RowsView
from specdec_tui.tui.tokens.run_log import Row

# From so many lines on a round may have a line for each of its tokens: several rounds stay in sight.
_ROOMY = 14


class RoundsView(RowsView):
    """A line per round, more where it is wrapped, or where insight has the room to be spelled out."""

    _roomy = False

    @property
    def caption(self) -> str:
        told = any(token.insight and token.acceptance is not None for token in self._latest)
        return "rounds · draw<accept" if told else "rounds"

    def lines_for(self, row: Row, width: int) -> list[list[Run]]:
        return round_lines(row, width, in_rows=self._roomy)

    def fit(self) -> None:
        roomy = self.size.height >= _ROOMY
        if roomy != self._roomy and self.size.height:
            self.wrap_again()
            self._roomy = roomy
        super().fit()
