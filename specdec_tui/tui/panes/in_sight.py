"""Which pane a person looks at: the one in front where only one has room, the one with the focus, their neighbours."""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.layout import Layout

from specdec_tui.decoding.standing import Verdict
from specdec_tui.settings import SERVED, STRATEGIES
from specdec_tui.several_drafters import key_of, shown
from specdec_tui.tui.panes.arrangement import PaneLayout, one_at_a_time
from specdec_tui.tui.panes.pane import StrategyPane
from specdec_tui.tui.panes.strip import PaneStrip, tab_of
from specdec_tui.tui.panes.welcome import invitation, obstacle, welcome


class PanesInSight(VerticalScroll, can_focus=False):
    """All panes by the names of their runs, in their order. Those without a run say what can be done."""

    def __init__(self) -> None:
        super().__init__(id="panes")
        self.panes: dict[str, StrategyPane] = {
            name: StrategyPane(key_of(name), name) for name in (*STRATEGIES, *SERVED)
        }
        self._there = shown(0)
        self._layout = PaneLayout()
        self.strip = PaneStrip()
        """Stands above the panes where only one of them has room."""
        self._touched = ""
        self._loading = ""
        self._obstacle, self._is_of_a_trace = "", False
        self._is_new = True

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def shown(self) -> list[StrategyPane]:
        # Textual's `display` is off for what is closing, too: leaving switches no strategy off, and one stays on.
        return [pane for pane in self.panes.values() if pane.styles.display != "none"]

    @property
    def in_sight(self) -> list[StrategyPane]:
        """The panes of which something is on the screen."""
        screen = self.region if self.screen.maximized is None else self.screen.region
        return [pane for pane in self.shown if pane.is_on_screen and pane.region.overlaps(screen)]

    @property
    def current(self) -> StrategyPane:
        """The pane keys act on: the focused one, else the one that would stand in front."""
        return self.focused or self.front

    @property
    def is_one_at_a_time(self) -> bool:
        """Whether one pane stands in front of the others."""
        return self.is_mounted and one_at_a_time(len(self.shown), self.app.size)

    @property
    def front(self) -> StrategyPane:
        """The pane that is in sight where only one has room.

        The one a person was in last; else the fastest that ended, one that drafts, the first.
        """
        shown = self.shown
        touched = self.panes.get(self._touched)
        if touched is not None and touched.display:
            return touched
        drafting = [pane for pane in shown if not pane.is_plain] or shown
        if any(pane.has_class("-running") for pane in shown):
            return drafting[0]
        ended = [(against, pane) for pane in drafting if (against := pane.told[0]) is not None]
        faster = [(against.ratio, pane) for against, pane in ended if against.verdict is Verdict.FASTER]
        best, front = max(faster, key=lambda one: one[0], default=(1.0, drafting[0]))
        # The drafter's own strategy stays in front of one that is hardly faster, or not even surely so.
        own = [against for against, pane in ended if pane is drafting[0] and not against.is_disturbed]
        return drafting[0] if own and own[0].ratio >= best else front

    @property
    def chosen(self) -> str:
        """The pane that a person was in last, which stands in front; empty where it is not theirs to say."""
        return self._touched

    def choose(self, strategy: str) -> None:
        """That one is in front, without the focus."""
        self._touched = strategy
        self._bring_to_front()

    def show_loading(self, stage: str) -> None:
        """At what a load of models is; empty when there is none."""
        if stage != self._loading:
            self._loading = stage
            self._welcome()

    def show_obstacle(self, why: str, of_a_trace: bool = False) -> None:
        """Why no prompt can run, empty where one can; `of_a_trace`: it was one that cannot be shown."""
        if (why, of_a_trace) != (self._obstacle, self._is_of_a_trace):
            self._obstacle, self._is_of_a_trace = why, of_a_trace
            self._welcome()

    def tour_was_walked(self) -> None:
        """Empty panes do not ask any more whether a person is new here."""
        self._is_new = False
        self._welcome()

    def _welcome(self) -> None:
        """Bring what empty panes say in line with what is switched on."""
        off = [name for name, pane in self.panes.items() if not pane.display and name in self._there]
        for pane in self.shown:
            text = welcome(pane.strategy, pane.strategy in STRATEGIES and not self._is_of_a_trace)
            more = obstacle(self._obstacle) if self._obstacle else invitation(off, self._loading, self._is_new)
            pane.welcome(text + more if pane is self.front else text)

    def _bring_to_front(self) -> None:
        """Place the pane that is to be in sight, and tell of the others."""
        if not self.is_mounted:
            return
        alone, front = self.is_one_at_a_time, self.front
        self.strip.display = alone and self.display
        if is_new := self._layout.front is not front:
            self._layout.front = front
        self._tell_tabs()
        if is_new:
            if alone:
                front.refresh(layout=True)
            self._welcome()

    def _tell_tabs(self) -> None:
        if isinstance(front := self._layout.front, StrategyPane):
            self.strip.show([tab_of(pane) for pane in self.shown], front.strategy)

    def _into_sight(self, pane: StrategyPane) -> None:
        if not self.is_one_at_a_time:  # else it is in front, or has no place
            self.scroll_to_widget(pane, animate=False)

    def on_click(self) -> None:
        if (pane := self.focused) is not None:
            self._touched = pane.strategy

    @property
    def focused(self) -> StrategyPane | None:
        """The pane a person is in."""
        return next((pane for pane in self.shown if pane.has_focus_within), None)

    def stay(self) -> None:
        """Whoever reads on in the pane in front wants it to stay there."""
        if self.is_one_at_a_time:
            self._touched = self.front.strategy

    def go_to(self, strategy: str) -> None:
        """Give a shown pane the focus and bring it into sight."""
        pane = self.panes[strategy]
        pane.focus()
        self._touched = strategy
        self._bring_to_front()
        self._into_sight(pane)

    def neighbour(self, by: int) -> StrategyPane:
        """The next shown pane (1) or the one before (-1), around the ends.

        From outside: the one in sight, or where all are, the first or the last.
        """
        shown, here = self.shown, self.focused
        if here is None and self.is_one_at_a_time:
            return self.front
        if here is None:
            return shown[0 if by > 0 else -1]
        return shown[(shown.index(here) + by) % len(shown)]
