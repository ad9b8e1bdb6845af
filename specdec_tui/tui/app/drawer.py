"""Where the side bar comes from, and where the focus goes when it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from textual.containers import Horizontal
from textual.widget import Widget

if TYPE_CHECKING:
    from specdec_tui.backends.pair import PairInfo
    from specdec_tui.settings import Settings
    from specdec_tui.tui.screens.side_bar import SideBar


class Drawer:
    """Makes the bar when it is wanted: its many widgets would be styled again at every change of focus."""

    def __init__(self) -> None:
        self.bar: SideBar | None = None
        self._left: Widget | None = None

    def open(self, body: Horizontal, settings: Settings, asks: Mapping[str, str], pair: PairInfo | None) -> None:
        """Beside what is in `body`. `asks`: what the model's files ask, by setting; `pair`: what is loaded."""
        from specdec_tui.tui.screens.side_bar import SideBar  # not at a start

        self._left = body.screen.focused
        self.bar = SideBar(settings, asks, pair)
        body.mount(self.bar)

    def close(self) -> None:
        """Whoever is in it goes back to where it was opened from."""
        if self.bar is None:
            return
        if self.bar.has_focus_within:
            back = self._left
            self.bar.screen.set_focus(back if back is not None and back.focusable else None)
        self.bar.remove()
        self.bar = None
