"""A branch per round: where the drafts ran along with the text, and where they left it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec_tui.decoding.chances import is_greedy
from specdec_tui.tui.tokens.rows_view import RowsView
from specdec_tui.tui.tokens.tree_lines import entropy_bar, tree_lines

if TYPE_CHECKING:
    from specdec_tui.tui.tokens.chips import Run
    from specdec_tui.tui.tokens.run_log import Row


class TreeView(RowsView):
    """The trunk is the text; what the target refused stays readable beside it."""

    @property
    def caption(self) -> str:
        if not any(entropy_bar(token) for token in self._latest):
            return "tree"
        return f"tree · ▁▅█ {'raw ' * is_greedy(self._latest)}entropy of the target"

    def lines_for(self, row: Row, width: int) -> list[list[Run]]:
        return tree_lines(row, width, self.run_log.alternatives)
