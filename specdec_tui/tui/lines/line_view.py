"""A scrolling view of lines that grow at the end, drawn with Textual's line API.

Growth never asks for a layout of the screen: the scroll bar's column is always reserved, so a
new line changes nothing but the bar's thumb. Lines are kept as painted: a view that scrolls
costs as much as its new lines. For that it goes without borders, padding, tint and opacity.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from specdec_tui.tui.lines.find import cells_of
from specdec_tui.tui.lines.inks import ink
from specdec_tui.tui.lines.layout import cluster_boundary
from specdec_tui.tui.lines.marks import restyled, with_offsets
from specdec_tui.tui.lines.view_search import ViewSearch

_MATCH, _CURRENT = "find--match", "find--current"
_KEPT_STRIPS = 4096
# A thumb that trails the tail needs no more than this; each of its moves paints a whole column.
_THUMB_SECONDS = 0.25

SCROLLING = (
    ("up", "scroll_up", "Scroll up"),
    ("down", "scroll_down", "Scroll down"),
    ("pageup", "page_up", "Page up"),
    ("pagedown", "page_down", "Page down"),
    ("home", "scroll_home", "To the start"),
    ("end", "scroll_end", "Follow the end"),
)
"""Keys of whatever a view stands in, the action of the view for each, and what it does."""


class LineView(ScrollView, can_focus=False):
    """Subclasses give the number of lines and the segments of each, and wrap them to a width."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.following = True
        self.held = False  # something other than the tail is to stay in sight
        self.search: ViewSearch | None = None
        self._strips: dict[int, Strip] = {}
        self._base: Style | None = None
        self._width = 0
        self._stale = False
        self._count = 0
        self._place: int | None = None
        self._thumb_due = False

    @property
    def line_count(self) -> int:
        raise NotImplementedError

    @property
    def lines_at_rest(self) -> int:
        """Lines at the top that stay where they are."""
        return self.line_count

    def line_segments(self, line: int) -> list[Segment]:
        """What one line shows, in the colours of the current theme."""
        raise NotImplementedError

    def line_text(self, line: int) -> str:
        """What one line shows, without blanks at its end."""
        return "".join(segment.text for segment in self.line_segments(line)).rstrip()

    def wrap_to(self, width: int) -> None:
        """Lay everything out again at a width in cells."""
        raise NotImplementedError

    def mark_of(self, line: int) -> int:
        """A number for what stands at a line, still valid after `wrap_to`."""
        raise NotImplementedError

    def line_of(self, mark: int) -> int:
        """The line where the marked thing stands now."""
        raise NotImplementedError

    @property
    def base_style(self) -> Style:
        if self._base is None:
            self._base = self.rich_style
        return self._base

    def lines_changed(self, first: int) -> None:
        """Repaint the lines from `first` on, and keep the tail in sight unless the reader left it."""
        count = self.line_count
        if len(self._strips) > _KEPT_STRIPS:
            self._strips.clear()
        end = max(count, self._count)
        for line in range(first, end):
            self._strips.pop(line, None)
        self._count = count
        if self.search is not None:
            self.search.update(first)
        if not self._width or not self.is_attached:
            return
        if count != self.virtual_size.height:
            # Assigning virtual_size would lay out the whole screen for every new line.
            self.set_reactive(Widget.virtual_size, Size(self._width, count))
            self._move_thumb_soon()
        top = self.scroll_offset.y
        if top != self.max_scroll_y and (self.following or top > self.max_scroll_y):
            self.scroll_to(y=self.max_scroll_y, animate=False)
            if self.scroll_offset.y != top:
                return
        dirty, below = max(0, first - top), min(self.size.height, end - top)
        if dirty < below:
            self.refresh(Region(0, dirty, self.size.width, below - dirty))

    def begin_search(self) -> ViewSearch:
        """Search what is shown, and what will be, until `end_search`."""
        self.search = ViewSearch(self)
        return self.search

    def end_search(self) -> None:
        """Forget the search and stay where it led; at the end, follow the text again."""
        self.search = None
        self.following = self.scroll_offset.y >= self.max_scroll_y
        self.refresh()

    def show_match(self) -> None:
        """Paint the matches anew; bring the current one into sight and stay there while the text grows."""
        line = None if self.search is None else self.search.current_line
        if line is not None:
            top, height = self.scroll_offset.y, self.size.height
            if not top <= line < top + height:
                self.scroll_to(y=max(0, line - height // 3), animate=False)
            self.following = False
        self.refresh()

    def everything_changed(self) -> None:
        """Forget all that was drawn, and paint again."""
        self._strips.clear()
        self._base = None
        self.lines_changed(0)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        # The anchor of Textual works through layouts, which this view avoids.
        self.following = not self.held and round(new_value) >= self.max_scroll_y
        self._place = None
        if round(old_value) != round(new_value):
            self.refresh(self.size.region)
        if self.following:
            self._move_thumb_soon()
        else:
            self._move_thumb()

    def _move_thumb_soon(self) -> None:
        if not self._thumb_due and self.is_attached:
            self._thumb_due = True
            self.set_timer(_THUMB_SECONDS, self._move_thumb)

    def _move_thumb(self) -> None:
        self._thumb_due = False
        self.vertical_scrollbar.window_virtual_size = self.virtual_size.height
        self.vertical_scrollbar.position = self.scroll_y

    def action_scroll_end(self) -> None:
        self.following = True
        self.scroll_to(y=self.max_scroll_y, animate=False)

    def on_resize(self, event: events.Resize) -> None:
        self.fit()

    def on_show(self) -> None:
        self.fit()

    def wrap_again(self) -> None:
        """Have everything laid out anew by the next `fit`, whatever the width."""
        self._stale = True

    def fit(self) -> None:
        """Take up the current width: wrap again, and keep the reader's place."""
        width = self.scrollable_content_region.width
        if width <= 0:
            return
        following = self.following
        if width != self._width or self._stale:
            self._stale = False
            # Kept over several resizes, or each would round it down to the start of a line.
            mark = self.mark_of(self.scroll_offset.y) if self._place is None else self._place
            self._width = width
            self.wrap_to(width)
            self._strips.clear()
            if not following:
                self.lines_changed(0)
                self.scroll_to(y=self.line_of(mark), animate=False)
                self._place = mark
            self.following = following
        self.lines_changed(0)
        self.following = following

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._strips.clear()
        self._base = None

    def render_lines(self, crop: Region) -> list[Strip]:
        """Painted lines straight from the store: filters and crops are remembered by the strips."""
        filters = self.get_line_filters()
        background = self.background_colors[1]
        selection = self.text_selection
        hovered = self.mouse_hover
        top, width = self.scroll_offset.y, self.size.width
        strips = []
        for y in crop.line_range:
            strip = self._strip(top + y, width, selection, hovered)
            for line_filter in filters:
                strip = strip.apply_filter(line_filter, background)
            strips.append(strip)
        left, right = crop.column_span
        return strips if (left, right) == (0, width) else [strip.crop(left, right) for strip in strips]

    def render_line(self, y: int) -> Strip:
        return self._strip(self.scroll_offset.y + y, self.size.width, self.text_selection, self.mouse_hover)

    def _strip(self, line: int, width: int, selection: Selection | None, hovered: bool) -> Strip:
        if line >= self.line_count:
            return Strip.blank(width, self.base_style)
        strip = self._strips.get(line)
        if strip is None or strip.cell_length != width:
            strip = Strip(self.line_segments(line)).crop_extend(0, width, self.base_style)
            self._strips[line] = strip
        if self.search is not None:
            strip = self._with_matches(strip, self.search, line)
        if selection is not None:
            strip = self._with_selection(strip, line, selection)
        # Selecting needs offsets in the strip. They triple its cost, so only lines under the mouse pay.
        return with_offsets(strip, line) if hovered else strip

    def _with_matches(self, strip: Strip, search: ViewSearch, line: int) -> Strip:
        for first, behind, current in search.found_on(line):
            style = ink(self, _CURRENT if current else _MATCH, alone=True)
            strip = restyled(strip, first, behind, style)
        return strip

    def _with_selection(self, strip: Strip, line: int, selection: Selection) -> Strip:
        span = selection.get_span(line)
        if span is None:
            return strip
        start, end = span
        first, behind = cells_of(strip.text, start, len(strip.text) if end == -1 else end)
        style = self.screen.get_component_rich_style("screen--selection")
        return restyled(strip, first, behind, style)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected part of the shown lines."""
        first = 0 if selection.start is None else selection.start.y
        last = self.line_count - 1 if selection.end is None else min(selection.end.y, self.line_count - 1)
        lines = [self.line_text(line) for line in range(first, last + 1)]
        if lines and selection.end is not None and selection.end.y == last:
            lines[-1] = lines[-1][: cluster_boundary(lines[-1], min(selection.end.x, len(lines[-1])))].rstrip()
        if lines and selection.start is not None:
            lines[0] = lines[0][selection.start.x :]
        return "\n".join(lines), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()
