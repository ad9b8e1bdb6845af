"""The panel that tells everything about the token under the cursor."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.widgets import Static

from specdec_tui.decoding.records import strategy_of
from specdec_tui.doors.characters import visible
from specdec_tui.settings import Settings
from specdec_tui.tui.inspector.alternatives import Line
from specdec_tui.tui.inspector.difference import Side, difference_lines
from specdec_tui.tui.inspector.look import Look, manner_of
from specdec_tui.tui.inspector.text import inspector_lines, title_of
from specdec_tui.tui.tokens.run_log import Place, RunLog

_OF_THE_DRAFTER = ("drafter", "drafter-beam")


def look_at(log: RunLog, place: Place | None, strategy: str, settings: Settings) -> Look | None:
    """What is to be told of a token of a run with these settings; None where there is none."""
    if place is None or not log.holds(place):
        return None
    row = log.rows[place.row]
    here = {token.id: text for token, text in zip(row.tokens, row.texts, strict=False)}
    texts = ChainMap(log.alternatives, here)
    model = "drafter" if strategy_of(strategy) in _OF_THE_DRAFTER else "target"
    manner = manner_of(settings, log.origin)
    token, kind = row.tokens[place.token], (log.searches, model, log.origin, log.by_calls, log.served)
    return Look(row.record, token, log.text(place), texts, manner, *kind)


class Inspector(VerticalScroll, can_focus=False):
    """Lies over the panes, where `place` says when given where it is now; `keys` with what they do are on its frame."""

    DEFAULT_CLASSES = "-textual-system"  # what is shown over a maximised pane too

    def __init__(self, place: Callable[[Region], Region], keys: Sequence[str] = ()) -> None:
        super().__init__(id="inspector")
        self._title: Callable[[int], Line] = lambda width: []
        self._lines: Callable[[int, int], list[Line]] = lambda width, rows: []
        self._place = place
        self._keys = keys
        self._stands = Region()
        self._body = Static(markup=False)

    def compose(self) -> ComposeResult:
        yield self._body

    def on_mount(self) -> None:
        self.stand()
        self.screen.screen_layout_refresh_signal.subscribe(self, lambda _: self.stand())

    def stand(self) -> None:
        """Go where the panel belongs now."""
        place = self._place(self._stands)
        if place != self._stands:
            self._stands = place
            self.styles.offset = place.offset
            self.styles.width, self.styles.height = place.size
            self.set_class(place.height < 10, "-low")

    def show(self, look: Look | None, name: str) -> None:
        """Tell of a token of the pane of this name; None: it has none yet."""
        name = visible(name)
        if look is None:
            self._title = lambda width: [(f"why · {name}", "")]
            self._lines = lambda width, rows: [[("no token yet", "$quiet")]]
        else:
            self._title = lambda width: title_of(look, name, width)
            self._lines = lambda width, rows: inspector_lines(look, width, rows)
        self._write()

    def show_difference(self, ours: Side, theirs: Side) -> None:
        """Tell of the place where the texts of two panes part."""
        self._title = lambda width: [(f"where {visible(ours.name)} and {visible(theirs.name)} part", "")]
        self._lines = lambda width, rows: difference_lines(ours, theirs, width, rows)
        self._write()

    def on_resize(self, event: events.Resize) -> None:
        self._write()

    def _write(self) -> None:
        width, rows = self.scrollable_content_region.size
        if width > 0:
            self.border_title = Content.assemble(*self._title(max(1, self.outer_size.width - 4)))
            self.border_subtitle = Content(subtitle(self._keys, self.outer_size.width - 4))
            lines = self._lines(width, rows)
            self._body.update(Content("\n").join(Content.assemble(*line) for line in lines))


def subtitle(keys: Sequence[str], width: int) -> str:
    """As many of the keys as fit into so many cells, the first ones first, of which the very first stands last."""
    for count in range(len(keys), 0, -1):
        told = " · ".join([*keys[1:count], keys[0]])
        if cell_len(told) <= width:
            return told
    return ""
