"""Pinning what the panes show, so that every later run is told by how it differs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING

from specdec_tui.tui.commands.header import local_time
from specdec_tui.tui.commands.table import key

if TYPE_CHECKING:
    from specdec_tui.tui.app.recordings import Recordings
    from specdec_tui.tui.app.stage import Stage


class Pinning:
    """`at_work`: what keeps the panes from showing a whole run, as a person is told; empty where nothing does."""

    def __init__(
        self, stage: Stage, recordings: Recordings, at_work: Callable[[], str], tell: Callable[..., None]
    ) -> None:
        self._stage = stage
        self._recordings = recordings
        self._at_work = at_work
        self._tell = tell
        self._pins = 0

    def pin(self) -> None:
        """The figures of all panes; those pinned before go."""
        if told := self._at_work():
            self._tell(told, holds=lambda: self._at_work() == told)
            return
        trace = self._recordings.trace
        if trace is None or not self._stage.grid.results:
            self._tell(f"Nothing to pin yet: run a prompt first, or open a trace ({key('history')})")
            return
        created = local_time(trace.header.created)
        when = created[11:] if created.startswith(date.today().isoformat()) else created
        letter = chr(ord("A") + self._pins % 26)
        self._pins += 1
        said = self._stage.pin(letter, when)
        self._tell(f"Pinned {said}. Later runs are told by how they differ; P unpins", timeout=8)

    def unpin(self) -> None:
        """Later runs stand for themselves again."""
        said = self._stage.unpin()
        self._tell(f"Unpinned {said}" if said else f"Nothing is pinned: {key('pin')} pins what the panes show")
