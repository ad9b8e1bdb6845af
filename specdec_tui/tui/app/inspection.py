"""Where the inspector stands, and which pane it tells of: one at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from textual.geometry import Region
from textual.notifications import SeverityLevel
from textual.widget import Widget

from specdec_tui.doors.characters import visible
from specdec_tui.traces.children import WEIGHTS
from specdec_tui.tui.commands.footer import Entry
from specdec_tui.tui.figures.words import PaneState

if TYPE_CHECKING:
    from specdec_tui.settings import Settings
    from specdec_tui.tui.inspector.difference import Parting, Side
    from specdec_tui.tui.inspector.look import Look
    from specdec_tui.tui.inspector.panel import Inspector
    from specdec_tui.tui.panes.pane import StrategyPane
    from specdec_tui.tui.tokens.run_log import Place

_KEYS = (
    Entry("closes", ("step out",)),  # the way out is told however narrow the panel is
    Entry("rejection", ("next rejection", "previous rejection")),
    Entry("round", ("previous round", "next round")),
    Entry("difference", ("first difference",)),
    Entry("what if", ("branch",)),
    Entry("more", ("next page of the inspector",)),
)


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

    @property
    def run_settings(self) -> Settings:
        """Those of the run that the panes tell of."""

    @property
    def shown_panes(self) -> Iterable[StrategyPane]:
        """In their order."""

    @property
    def focused(self) -> Widget | None:
        """What has the focus."""

    @property
    def room_for_panel(self) -> tuple[Region, int]:
        """Where panes are, and down to which row the inspector may reach."""

    def go_into(self, pane: StrategyPane) -> None:
        """Give a pane the focus and bring it into sight."""

    def leave_panes(self) -> None:
        """Take the focus away from them."""

    def put_up(self, panel: Inspector) -> None:
        """Show the inspector over everything."""


class Inspection:
    """Opens the panel when a token of a pane is pointed at, and closes it when none is any more."""

    def __init__(self, screen: InspectionScreen) -> None:
        self._screen = screen
        self.panel: Inspector | None = None
        self._came_from_outside = False
        self._parting: tuple[StrategyPane, StrategyPane, Place] | None = None  # what the panel tells of, if it does

    def toggle(self) -> None:
        """Inspect the last token of the current pane, or stop inspecting it."""
        pane = self._screen.current_pane
        if pane.inspecting:
            self.close()
        elif pane.run_log.last() is not None:
            self._came_from_outside = self._screen.focused is not pane
            self._screen.go_into(pane)
            pane.inspect()
        else:
            self._screen.say(_nothing(pane))

    def close(self) -> bool:
        """Stop inspecting; False when nothing was inspected."""
        inspected = [pane for pane in self._screen.all_panes if pane.inspecting]
        for pane in inspected:
            pane.close_inspector()
        if inspected and self._came_from_outside:
            self._screen.leave_panes()
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
            from specdec_tui.tui.inspector.panel import Inspector  # not at a start

            keys = [f"{' '.join(name for name, _ in entry.keys)} {entry.label}" for entry in _KEYS]
            self.panel = Inspector(self._place, keys)
            self._screen.put_up(self.panel)
        self._show(pane, self.panel)
        self.panel.call_after_refresh(self.panel.stand)

    def _show(self, pane: StrategyPane, panel: Inspector) -> None:
        """The reasons of the token under the cursor; where texts part as long as it stands there, how they do."""
        if self._parting is not None and self._parting[0] is pane and self._parting[2] == pane.cursor:
            ours, theirs = self._side(pane, pane.cursor), self._side_at(self._parting[1], pane)
            if ours is not None and theirs is not None:
                panel.show_difference(ours, theirs)
                return
        self._parting = None
        panel.show(self._look(pane, pane.cursor), pane.strategy)

    def _look(self, pane: StrategyPane, place: Place | None) -> Look | None:
        from specdec_tui.tui.inspector.panel import look_at

        return look_at(pane.run_log, place, pane.strategy, self._screen.run_settings)

    def _side(self, pane: StrategyPane, place: Place | None) -> Side | None:
        from specdec_tui.tui.inspector.difference import Side

        look = self._look(pane, place)
        return None if look is None else Side(pane.strategy, look)

    def _side_at(self, other: StrategyPane, pane: StrategyPane) -> Side | None:
        """The token of another pane at the place of the marked one."""
        assert pane.cursor is not None
        return self._side(other, other.run_log.find(pane.run_log.token(pane.cursor).position))

    def go_to_difference(self, pane: StrategyPane) -> None:
        """Mark the first token that the target has otherwise, or else the next pane, and tell both sides of it."""
        other = self._to_compare_with(pane)
        if other is None:
            own = "its tokens are those of another tokenizer" if pane.run_log.own_tokens else "no other pane has text"
            self._screen.say(f"Nothing to compare {visible(pane.strategy)} with: {own}")
            return
        from specdec_tui.tui.inspector.difference import parting

        found = parting(pane.run_log, other.run_log)
        if found.position is None:
            self._screen.say(_equal(pane, other, found))
            return
        place, there = (log.find(found.position) for log in (pane.run_log, other.run_log))
        if place is None or there is None:
            self._screen.say(_parted_before(pane, other, found.position))
        if place is not None:
            self._parting = pane, other, place
            pane.inspect(place)

    def _to_compare_with(self, pane: StrategyPane) -> StrategyPane | None:
        """The target's pane, else the next one with text in the same tokenizer's ids.

        Of a what-if over another form of the weights its run's: what the form alone changes.
        """
        shown = list(self._screen.shown_panes)
        at = shown.index(pane) if pane in shown else -1
        others = [*shown[at + 1 :], *shown[: max(at, 0)]]
        others = [other for other in others if other.run_log.last() is not None]
        others = [other for other in others if not other.run_log.own_tokens and not pane.run_log.own_tokens]
        origin = pane.run_log.origin
        first = origin.parent if origin is not None and WEIGHTS in dict(origin.changes) else "target"
        wanted = (other for name in (first, "target") for other in others if other.strategy == name)
        return next(wanted, next(iter(others), None))

    def settle(self) -> None:
        """The focus has moved: the panel covers no prompt that is written."""
        if self.panel is not None and self.panel.is_mounted:
            self.panel.stand()

    def turn(self, by: int) -> None:
        """The next page of the panel (1), or the one before (-1)."""
        if self.panel is not None:
            page = max(1, self.panel.size.height - 1)
            self.panel.scroll_relative(y=by * page, animate=False)

    def _place(self, now: Region) -> Region:
        """Where the panel stands, told where it stands now."""
        from specdec_tui.tui.inspector.place import stand

        pane = next((pane for pane in self._screen.all_panes if pane.inspecting), None)
        if pane is None:
            return now
        panes, bottom = self._screen.room_for_panel
        others = [other.region for other in self._screen.all_panes if other is not pane]
        return stand(panes, bottom, pane.region.intersection(panes), pane.cursor_row, now, others)

    def _close(self) -> None:
        if self.panel is not None and not any(pane.inspecting for pane in self._screen.all_panes):
            self.panel.remove()
            self.panel = None
            self._came_from_outside = False


def _equal(pane: StrategyPane, other: StrategyPane, found: Parting) -> str:
    """That two texts are the same as far as they can be compared."""
    names = f"{visible(pane.strategy)} and {visible(other.strategy)}"
    if not found.shared:
        return f"{names} have no place in common yet"
    tokens = f"{found.shared} token{'' if found.shared == 1 else 's'}"
    if found.longer:
        return f"{names} are the same in all {tokens} that both have"
    return f"{names} are equal: the same {tokens}"


def _parted_before(pane: StrategyPane, other: StrategyPane, position: int) -> str:
    """That two texts part at a token that a what-if did not write itself."""
    names = f"{visible(pane.strategy)} and {visible(other.strategy)}"
    origins = [one.run_log.origin for one in (pane, other) if one.run_log.find(position) is None]
    if any(origin is not None and (origin.position, origin.token is None) == (position, False) for origin in origins):
        return f"{names} part at token {position + 1}: the one that the what-if was given"
    later = [visible(one.strategy) for one in (pane, other) if one.run_log.find(position) is None]
    return f"{names} part at token {position + 1}, before {' and '.join(later)} begin{'s' * (len(later) == 1)}"


def _nothing(pane: StrategyPane) -> str:
    """Why there is no token to inspect."""
    match pane.state:
        case PaneState.IDLE:
            return "Nothing to inspect yet: run a prompt first"
        case PaneState.ABSENT:
            return f"Nothing to inspect: {visible(pane.strategy)} was not in the last run"
        case PaneState.WAITING:
            return f"Nothing to inspect yet: {visible(pane.strategy)} has not begun"
        case PaneState.ENDED | PaneState.BROKEN_OFF:
            return f"Nothing to inspect: {visible(pane.strategy)} wrote no token"
        case _:
            return f"Nothing to inspect yet: {visible(pane.strategy)} has no token so far"
