"""Out of what is open, one step at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec_tui.tui.panes.find_bar import FindBar

if TYPE_CHECKING:
    from specdec_tui.tui.app.drawer import Drawer
    from specdec_tui.tui.app.first_minute import Recording
    from specdec_tui.tui.app.front import Front
    from specdec_tui.tui.app.inspection import Inspection
    from specdec_tui.tui.app.racing import Racing
    from specdec_tui.tui.app.recordings import Recordings
    from specdec_tui.tui.app.touring import Tour
    from specdec_tui.tui.panes.grid import PaneGrid


class StepsOut:
    """The innermost first: search, tour, inspector, side bar, a maximised pane, a pane, race, recording, trace.

    At last what was said.
    """

    def __init__(
        self,
        front: Front,
        grid: PaneGrid,
        inspection: Inspection,
        drawer: Drawer,
        racing: Racing,
        recordings: Recordings,
        recording: Recording,
        tour: Tour,
    ) -> None:
        self._front = front
        self._grid = grid
        self._inspection = inspection
        self._drawer = drawer
        self._racing = racing
        self._recordings = recordings
        self._recording = recording
        self._tour = tour

    def take(self) -> None:
        """One of them. Dialogs and the prompt box do so themselves."""
        screen = self._grid.screen
        for bar in screen.query(FindBar):
            bar.action_close()
            return
        if self._tour.is_on and self._drawer.bar is None:
            if not self._inspection.close():
                self._tour.leave()
            return
        if self._tour.waits:
            self._tour.leave()
            self._front.say("The tour does not begin by itself any more")
            return
        if self._inspection.close():
            return
        if self._drawer.bar is not None:
            self._drawer.close()
        elif screen.maximized is not None:
            self._front.minimise()
        elif self._grid.focused is not None:
            self._front.leave_panes()
        elif self._racing.race is not None:
            self._racing.toggle(None)
        elif self._recording.is_on:
            self._recording.end()
        elif not self._recordings.leave():
            self._front.say_no_more()
