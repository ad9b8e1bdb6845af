"""One row per round: what was drafted, what became of it, and what was emitted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from specdec_tui.tui.tokens.rows_view import RowsView

if TYPE_CHECKING:
    from specdec_tui.tui.tokens.chips import Run
    from specdec_tui.tui.tokens.run_log import Row

# From so many lines on a round may have a line for each of its tokens: several rounds stay in sight.
_ROOMY = 14
_LATEST = 4  # rounds whose figures are named
_BESIDE_CAPTION = 12  # cells of the frame, and of which turn it is


class RoundsView(RowsView):
    """A line per round, more where it is wrapped, or where insight has the room to be spelled out."""

    _roomy = False

    @property
    def caption(self) -> str:
        """What it is, and what the figures are that stand beside its last tokens, as far as there is room."""
        shown = self.rows[-_LATEST:] if self._width else []
        lines = [line for row in shown for line in self.lines_for(row, self._width)]
        told = " ".join(run.text for line in lines for run in line if run.token is None)
        meanings = {"coin<accept: kept": r"[<≥]|coin", "p target": r"\bp\b", "q drafter": r"\bq\b"}
        meanings |= {"H entropy, nats": r"\bH\b"}
        parts = [meaning for meaning, figure in meanings.items() if re.search(figure, told)]
        room = self.size.width - _BESIDE_CAPTION
        while parts and len(" · ".join(["rounds", *parts])) > room:
            parts.pop()
        return " · ".join(["rounds", *parts])

    def lines_for(self, row: Row, width: int) -> list[list[Run]]:
        from specdec_tui.tui.tokens.round_lines import round_lines  # not at a start

        return round_lines(row, width, in_rows=self._roomy)

    def fit(self) -> None:
        roomy = self.size.height >= _ROOMY
        if roomy != self._roomy and self.size.height:
            self.wrap_again()
            self._roomy = roomy
        super().fit()
