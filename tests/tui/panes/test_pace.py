"""Work that waits, and is not lost."""

from __future__ import annotations

from textual.widgets import Static
from widget_data import HostApp

from specdec_tui.tui.panes.pace import Pace


async def test_what_is_wanted_often_is_done_once_and_the_last_wish_is_not_lost() -> None:
    owner, done = Static(), []
    async with HostApp(owner, columns="-one").run_test(size=(20, 4)) as pilot:
        pace = Pace(owner, 0.05, lambda: done.append(True))
        pace.now()
        assert not pace.is_time and len(done) == 1
        for _ in range(5):
            pace.soon()
        assert len(done) == 1
        await pilot.pause(0.5)
        assert len(done) == 2 and pace.is_time
