"""Which fates the tokens in sight have: what a legend names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from specdec_tui.decoding.records import Status
from specdec_tui.tui.panes.pace import Pace

if TYPE_CHECKING:
    from specdec_tui.tui.panes.pane import StrategyPane

_SECONDS = 0.4  # a legend that changes faster cannot be read


class Fates:
    """Of one pane. While its run goes on they only become more: what comes and goes with each line would flicker."""

    def __init__(self, pane: StrategyPane, tell: Callable[[], object]) -> None:
        """`tell` is called where there are others than before."""
        self._pane, self._tell = pane, tell
        self._kept: frozenset[Status] = frozenset()
        self._told: frozenset[Status] = frozenset()
        self._pace = Pace(pane, _SECONDS, self._look)

    @property
    def now(self) -> frozenset[Status]:
        view = self._pane.cursor_view
        if view is None:
            return frozenset()
        found = view.fates
        if self._pane.has_class("-running"):
            searches = self._pane.figures.searches
            if not self._pane.is_plain or searches:
                found |= {Status.PENDING}
            found = self._kept = self._kept | found
        return found

    def others(self) -> None:
        """The view, or all that is in it, is another one."""
        self._kept = frozenset()
        self._told = frozenset()
        self._tell()

    def more(self) -> None:
        """What is in sight may have changed."""
        if self._pace.is_time:
            self._pace.now()
        else:
            self._pace.soon()

    def _look(self) -> None:
        if (now := self.now) != self._told:
            self._told = now
            self._tell()
