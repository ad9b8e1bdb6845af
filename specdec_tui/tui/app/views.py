"""Which view panes show, and whether refused drafts stand in their text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from specdec_tui.settings import SettingError
from specdec_tui.tui.commands.command import check_view, following_view
from specdec_tui.tui.commands.table import key

if TYPE_CHECKING:
    from specdec_tui.tui.app.stage import Stage


class Views:
    """`tell` says something to a person; problems as an error."""

    def __init__(self, stage: Stage, tell: Callable[..., None]) -> None:
        self._stage = stage
        self._tell = tell
        self._with_drafts = False

    def cycle(self, view: str = "") -> None:
        """The next view or a named one; in the focused pane alone, or when none has the focus in all, the same one."""
        try:
            if view:
                check_view(view)
        except SettingError as error:
            self._tell(str(error), "error")
            return
        self._stage.make_way()
        grid = self._stage.grid
        current = grid.current if grid.is_one_at_a_time else grid.shown[0]
        grid.stay()
        wanted = view or following_view((grid.focused or current).view)
        for pane in [grid.focused] if grid.focused is not None else grid.shown:
            pane.view = wanted
        self._stage.give_room()

    def toggle_drafts(self) -> None:
        """Rejected and unverified drafts in the text of all panes, or out of it."""
        self._stage.make_way()
        grid = self._stage.grid
        self._with_drafts = not self._with_drafts
        grid.show_drafts(self._with_drafts)
        where = f" view ({key('view')})" if all(pane.view != "text" for pane in grid.shown) else ""
        self._tell(f"Refused drafts are {'shown' if self._with_drafts else 'left out'} in the text{where}")
