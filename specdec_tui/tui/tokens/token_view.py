"""The text of one run, every token in the colours of its fate."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection

from specdec_tui.decoding.records import Status, Token
from specdec_tui.tui.lines.layout import TAB, TextLayout, cluster_boundary, cluster_end, expand_tabs
from specdec_tui.tui.lines.sanitize import copyable, visible
from specdec_tui.tui.lines.view_search import ViewSearch
from specdec_tui.tui.tokens.cursor_view import CursorView
from specdec_tui.tui.tokens.run_log import Place, RunLog
from specdec_tui.tui.tokens.style import TOKEN_CLASSES, token_styles


class TokenView(CursorView):
    """Emitted tokens, and at the tail the drafts that wait for the target."""

    COMPONENT_CLASSES: ClassVar[set[str]] = set(TOKEN_CLASSES.values())

    def __init__(self, log: RunLog | None = None, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(log, id=id, classes=classes)
        self.layout_text = TextLayout()
        self._tokens: list[Token] = []
        self._texts: list[str] = []
        self._emitted = 0
        self._styles: dict[Status, Style] | None = None

    @property
    def emitted_only(self) -> bool:
        return True

    @property
    def line_count(self) -> int:
        return len(self.layout_text.lines)

    def clear(self) -> None:
        self.layout_text = TextLayout(self._width or 80)
        self._tokens = []
        self._texts = []
        self._emitted = 0
        super().clear()

    def feed(
        self,
        tokens: Sequence[Token],
        texts: Sequence[str],
        pending: Sequence[Token] = (),
        pending_texts: Sequence[str] = (),
    ) -> None:
        """Append emitted tokens with their texts; `pending` drafts take the place of earlier ones."""
        del self._tokens[self._emitted :]
        del self._texts[self._emitted :]
        changed = self.layout_text.append([visible(text) for text in texts])
        self._tokens.extend(tokens)
        self._texts.extend(texts)
        self._emitted = len(self._tokens)
        if pending:
            self._tokens.extend(pending)
            self._texts.extend(pending_texts)
            changed = min(changed, self.layout_text.set_tail([visible(text) for text in pending_texts]))
        self.lines_changed(changed)

    def token_at(self, line: int, column: int) -> Token | None:
        """The token drawn at a cell of the whole text (not of the visible part); None beside it."""
        piece = self.layout_text.piece_at(line, column)
        return None if piece is None else self._tokens[piece]

    def place_at(self, line: int, column: int) -> Place | None:
        token = self.token_at(line, column)
        return None if token is None else self.run_log.find(token.position, token.status)

    def lines_of(self, place: Place) -> Sequence[int]:
        piece = self._piece_of(place)
        if piece is None:
            return ()
        first, last = (self.layout_text.line_of(offset) for offset in self.layout_text.span_of(piece))
        return range(last, first - 1, -1)  # its space may hang at the end of the line above

    def step_line(self, place: Place, by: int) -> Place:
        piece = self._piece_of(place)
        if piece is None:
            return place
        layout = self.layout_text
        offset = layout.span_of(piece)[1]
        line = layout.line_of(offset)
        column = offset - layout.offset_of(line, 0)
        line += by
        while 0 <= line < self.line_count:
            # A line may hold nothing but the end of a piece that begins above it.
            pieces = [(at, start) for at, start, _ in layout.pieces_of(line) if at < self._emitted and at != piece]
            if pieces:
                at = max(0, bisect_right([start for _, start in pieces], column) - 1)
                return self.run_log.find(self._tokens[pieces[at][0]].position) or place
            line += by
        return place

    def _piece_of(self, place: Place) -> int | None:
        if not self.run_log.holds(place):
            return None
        # Every emitted token has a piece of its own, in the order of their positions.
        piece = self.run_log.token(place).position
        return piece if piece < self._emitted else None

    def line_segments(self, line: int) -> list[Segment]:
        if self._styles is None:
            self._styles = token_styles(self)
        text = self.layout_text.lines[line]
        simple = text.isascii()
        cursor = None if self.cursor is None else self._piece_of(self.cursor)
        runs: list[tuple[int, Status | None]] = []  # None: the marked token
        for piece, start, _end in self.layout_text.pieces_of(line):
            status = None if piece == cursor else self._tokens[piece].status
            if not runs or runs[-1][1] is not status:
                runs.append((start if simple else cluster_boundary(text, start), status))
        segments: list[Segment] = []
        column = 0
        for index, (start, status) in enumerate(runs):
            end = runs[index + 1][0] if index + 1 < len(runs) else len(text)
            style = self._marked_style() if status is None else self._styles[status]
            drawn = text[start:end].removesuffix("\n")
            if status is None and not drawn:
                drawn = "↵"  # a break alone has no cell that could be marked
            if "\t" in drawn:
                # Tab stops count from the start of the line, so a run is expanded behind its offset.
                lead = " " * (column % TAB)
                drawn = expand_tabs(lead + drawn)[len(lead) :]
            if drawn:
                segment = Segment(drawn, style)
                column += segment.cell_length
                segments.append(segment)
        return segments

    def _marked_style(self) -> Style:
        assert self.cursor is not None
        return token_styles(self)[self.run_log.token(self.cursor).status] + Style(reverse=True)

    def wrap_to(self, width: int) -> None:
        self.layout_text.resize(width)

    def mark_of(self, line: int) -> int:
        return self.layout_text.offset_of(line, 0)

    def line_of(self, mark: int) -> int:
        return self.layout_text.line_of(mark)

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = None

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it was generated: without the line breaks of the wrapping."""
        layout = self.layout_text
        generated = "".join(self._texts)  # what is shown has as many characters
        start = 0 if selection.start is None else layout.offset_of(selection.start.y, selection.start.x)
        end = None if selection.end is None else self._offset_behind(selection.end.y, selection.end.x - 1)
        return copyable(generated[start:end]), "\n"

    def _offset_behind(self, line: int, drawn: int) -> int:
        """Where the character ends that the `drawn`-th one of a line belongs to: a selection tears none."""
        layout = self.layout_text
        begins = layout.offset_of(line, 0)
        if drawn < 0 or line >= len(layout.lines):
            return begins
        text = layout.lines[line].removesuffix("\n")
        at = layout.offset_of(line, drawn) - begins
        return begins + (cluster_end(text, at) if at < len(text) else len(text))

    def begin_search(self) -> ViewSearch:
        self.search = _TextSearch(self)
        return self.search

    def emitted_texts(self, first: int) -> list[str]:
        """What the emitted tokens from the `first` on are shown as."""
        return [visible(text) for text in self._texts[first : self._emitted]]


class _TextSearch(ViewSearch):
    """Searches the emitted text itself: a match may go on in the next line of the wrapping."""

    def __init__(self, view: TokenView) -> None:
        self._view = view
        super().__init__(view)

    def update(self, first: int) -> None:
        new = self._view.emitted_texts(self.matches.part_count)
        if not self._view.line_count:
            self.matches.cut(0)
        self.matches.extend(new)
        self._hold_current()

    def line(self, line: int) -> tuple[str, int]:
        layout = self._view.layout_text
        return layout.lines[line], layout.offset_of(line, 0)

    def line_of(self, offset: int) -> int:
        return self._view.layout_text.line_of(offset)
