"""A view of lines in which one token can be marked, and picked with the mouse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual import events
from textual.geometry import Region
from textual.message import Message

from specdec_tui.decoding.records import Status
from specdec_tui.tui.lines.line_view import LineView
from specdec_tui.tui.tokens.run_log import Place, RunLog


class CursorView(LineView):
    """Subclasses say where tokens stand. While one is marked, the view stays with it and not with the tail."""

    class Picked(Message):
        """A token was clicked."""

        def __init__(self, place: Place) -> None:
            super().__init__()
            self.place = place

    class Scrolled(Message):
        """Other lines than before are in sight."""

    def __init__(self, log: RunLog | None = None, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.run_log = RunLog() if log is None else log
        self.cursor: Place | None = None

    @property
    def emitted_only(self) -> bool:
        """Whether drafts that did not become text are missing here."""
        return False

    @property
    def fates(self) -> frozenset[Status]:
        """The fates of the tokens in sight."""
        lines = range(self.scroll_offset.y, min(self.line_count, self.scroll_offset.y + self.size.height))
        return frozenset[Status]().union(*map(self.fates_on, lines))

    def fates_on(self, line: int) -> Iterable[Status]:
        """The fates of the tokens on a line."""
        raise NotImplementedError

    @property
    def caption(self) -> str:
        """What this view is called, and how its figures are read; empty where that needs no word."""
        return ""

    def clear(self) -> None:
        """Empty the view for a new run. The log is its owner's to clear."""
        self.cursor, self.held = None, False
        self.following = True
        self.everything_changed()
        self.following = True

    def sync(self) -> None:
        """Bring the lines up to date with the log."""
        raise NotImplementedError

    def lines_of(self, place: Place) -> Sequence[int]:
        """The lines that show a token, the one to be kept in sight first; empty where nothing is laid out."""
        raise NotImplementedError

    def place_at(self, line: int, column: int) -> Place | None:
        """The token drawn at a cell of the whole view; None beside it."""
        raise NotImplementedError

    def step_line(self, place: Place, by: int) -> Place:
        """The token a line (or a round) further down, or up."""
        raise NotImplementedError

    def point(self, place: Place | None) -> None:
        """Mark a token, or none."""
        changed = set() if self.cursor is None else {*self.lines_of(self.cursor)}
        self.cursor = place
        self.held = place is not None
        if place is None:
            # Lines that came meanwhile do not count: who was at the end goes on with it.
            self.following = self.scroll_offset.y + self.size.height >= self.max_scroll_y
        else:
            self.following = False
            changed |= {*self.lines_of(place)}
        for line in changed:
            self._strips.pop(line, None)
            if 0 <= line - self.scroll_offset.y < self.size.height:
                self.refresh(Region(0, line - self.scroll_offset.y, self.size.width, 1))
        self.keep_in_sight()

    def keep_in_sight(self) -> None:
        """Scroll to the marked token, if there is one."""
        if self.cursor is None or not self.display or not self._width:
            return
        lines = self.lines_of(self.cursor)
        top, height = self.scroll_offset.y, self.size.height
        if lines and not top <= lines[0] < top + height:
            self.scroll_to(y=lines[0] if lines[0] < top else lines[0] - height + 1, animate=False)

    def fit(self) -> None:
        super().fit()
        self.keep_in_sight()
        self.post_message(self.Scrolled())  # until now nothing was laid out, or at another width

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self.following:  # at the end of a run that goes on, the pane looks by itself
            self.post_message(self.Scrolled())

    def on_click(self, event: events.Click) -> None:
        # The end of a selection is a click too, and the scroll bar's clicks pass here.
        if self.text_selection is not None or event.x >= self.scrollable_content_region.width:
            return
        place = self.place_at(self.scroll_offset.y + event.y, event.x)
        if place is not None:
            self.post_message(self.Picked(place))
