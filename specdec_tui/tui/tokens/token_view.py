"""The text of one run, every token in the colours of its fate, below the turns that went before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection

from specdec_tui.decoding.records import Status, Token
from specdec_tui.doors.characters import copyable, visible
from specdec_tui.tui.lines.find import cells_of
from specdec_tui.tui.lines.inks import ink
from specdec_tui.tui.lines.layout import TAB, TextLayout, cluster_boundary, cluster_end, expand_tabs
from specdec_tui.tui.lines.view_search import Found, ViewSearch
from specdec_tui.tui.tokens.cursor_view import CursorView
from specdec_tui.tui.tokens.run_log import Place, RunLog
from specdec_tui.tui.tokens.style import TOKEN_CLASSES, stressed, token_styles
from specdec_tui.tui.tokens.thrown_away import MARKS, OFF_TEXT, SIGNS, THROWN_AWAY, Around, Look, Mark, marked
from specdec_tui.tui.tokens.transcript import Transcript

_AROUND: dict[Look, str] = {look: f"turn--{look.value}" for look in (*Around, Mark.SEAM)}
_REJECTED, _UNVERIFIED = Status.REJECTED, Status.UNVERIFIED  # looking an enum's members up is slow
_IN_PIECE = 24  # bits of a mark that say where in its piece
_IN_LINE = str.maketrans({"\n": "↵", "\t": "⇥"})


class TokenView(CursorView):
    """The turns before, then the emitted tokens, and at the tail the drafts that wait for the target."""

    def __init__(
        self, log: RunLog | None = None, *, seams: bool = True, id: str | None = None, classes: str | None = None
    ) -> None:
        """`seams`: with the drafts, rounds are told apart too. Where each has one token there is nothing to tell."""
        super().__init__(log, id=id, classes=classes)
        self._seams = seams
        self.transcript = Transcript(seams)
        self.layout_text = TextLayout()
        self._with_drafts = False
        # A look and a text for each piece of the layout; behind the earlier turns, `_first` pieces, a place too.
        self._looks: list[Look] = []
        self._texts: list[str] = []
        self._first = 0
        self._places: list[tuple[int, int]] = []  # as in a `Place`, which is slower to make
        self._settled = 0  # pieces that are no drafts waiting
        self._rows = 0  # of the log, in those pieces
        self._rest: tuple[str, ...] = ()  # of the log, in those pieces
        self._styles: dict[Look, Style] | None = None

    def tell_rounds_apart(self, wanted: bool) -> None:
        """From the next text on."""
        self._seams = self.transcript.seams = wanted

    @property
    def emitted_only(self) -> bool:
        return not self._with_drafts

    @property
    def line_count(self) -> int:
        return len(self.layout_text.lines)

    @property
    def with_drafts(self) -> bool:
        """Whether drafts that did not become text stand struck out where they were refused, and seams of rounds."""
        return self._with_drafts

    @with_drafts.setter
    def with_drafts(self, wanted: bool) -> None:
        self._with_drafts = wanted
        self.lay_out_again()

    def lay_out_again(self) -> None:
        """Other pieces than before stand before or among the tokens; the reader stays about where he was."""
        following, share = self.following, self.scroll_offset.y / max(1, self.line_count)
        self._lay_out()
        self.sync()
        if not following:
            self.scroll_to(y=round(share * self.line_count), animate=False)
        self.following = following

    def clear(self) -> None:
        self._lay_out()
        super().clear()

    def _lay_out(self) -> None:
        """Begin anew, with the turns before."""
        before = list(self.transcript.pieces(self._with_drafts, self._width or 80))
        self._looks = [look for look, _ in before]
        self._texts = [text for _, text in before]
        self._first = self._settled = len(before)
        self._places, self._rows, self._rest = [], 0, ()
        self.layout_text = TextLayout(self._width or 80)
        self.layout_text.append(_all_shown(self._looks, self._texts))
        if self.search is not None:
            self.search.matches.cut(0)
        self.everything_changed()

    def sync(self) -> None:
        """Bring the text up to date with the log."""
        del self._looks[self._settled :], self._texts[self._settled :], self._places[self._settled - self._first :]
        settled = self.run_log.settled
        for row in range(self._rows, settled):
            self._take(row)
        if self._places and not self._rest:
            # It belongs to the token that began the character.
            self._rest = self.run_log.rest
            emitted = next((look for look in reversed(self._looks) if look not in OFF_TEXT), Status.SAMPLED)
            for text in self._rest:
                self._add(emitted, text, self._places[-1])
        new = self._shown_from(self._settled)
        self._rows, self._settled = settled, len(self._looks)
        changed = self.layout_text.append(new)
        if self.run_log.settled < len(self.run_log.rows):
            self._take(self.run_log.settled)
            changed = min(changed, self.layout_text.set_tail(self._shown_from(self._settled)))
        self.lines_changed(changed)

    def _take(self, row: int) -> None:
        # Called for every row of a run when drafts come and go: nothing is called for each token.
        record = self.run_log.rows[row]
        told = [(token.status, text) for token, text in zip(record.tokens, record.texts, strict=False)]
        pieces: Iterable[tuple[int, Look, str]] = [(index, *one) for index, one in enumerate(told)]
        if not self._with_drafts:
            pieces = [piece for piece in pieces if piece[1] is not _REJECTED and piece[1] is not _UNVERIFIED]
        else:
            pieces = marked(told, self._seams and row > 0)
        for index, look, text in pieces:
            self._looks.append(look)
            self._texts.append(text)
            self._places.append((row, index))

    def _add(self, look: Look, text: str, place: tuple[int, int]) -> None:
        self._looks.append(look)
        self._texts.append(text)
        self._places.append(place)

    def _shown_from(self, piece: int) -> list[str]:
        return _all_shown(self._looks[piece:], self._texts[piece:])

    def token_at(self, line: int, column: int) -> Token | None:
        """The token drawn at a cell of the whole text (not of the visible part); None beside it."""
        place = self.place_at(line, column)
        return None if place is None else self.run_log.token(place)

    def place_at(self, line: int, column: int) -> Place | None:
        piece = self.layout_text.piece_at(line, column)
        return None if piece is None or piece < self._first else Place(*self._places[piece - self._first])

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
            within = range(self._first, self._settled)
            here = [(at, start) for at, start, _ in layout.pieces_of(line) if at in within and at != piece]
            pieces = [(at, start) for at, start in here if self._looks[at] not in MARKS]
            if pieces:
                at = max(0, bisect_right([start for _, start in pieces], column) - 1)
                return Place(*self._places[pieces[at][0] - self._first])
            line += by
        return place

    def _piece_of(self, place: Place) -> int | None:
        settled = self._settled - self._first
        at = bisect_left(self._places, place, hi=settled)
        behind = at
        while behind < settled and self._places[behind] == place:
            if self._looks[self._first + behind] not in MARKS:
                return self._first + behind
            behind += 1
        before = self._first + at - 1
        is_counted = at > 0 and self._looks[before] is Around.MORE and self._places[at - 1][0] == place.row
        return before if is_counted else None

    def line_segments(self, line: int) -> list[Segment]:
        styles = self._styles_of_looks()
        text = self.layout_text.lines[line]
        simple = text.isascii()
        cursor = None if self.cursor is None else self._piece_of(self.cursor)
        runs: list[tuple[int, Look | None]] = []  # None: the marked token
        for piece, start, _end in self.layout_text.pieces_of(line):
            look = None if piece == cursor else self._looks[piece]
            if not runs or runs[-1][1] is not look:
                runs.append((start if simple else cluster_boundary(text, start), look))
        segments: list[Segment] = []
        column = 0
        for index, (start, look) in enumerate(runs):
            end = runs[index + 1][0] if index + 1 < len(runs) else len(text)
            style = self._marked_style() if look is None else styles[look]
            drawn = text[start:end].removesuffix("\n")
            if look is None and not drawn:
                drawn = "↵"  # a break alone has no cell that could be marked
            if "\t" in drawn:
                # Tab stops count from the start of the line, so a run is expanded behind its offset.
                lead = " " * (column % TAB)
                drawn = expand_tabs(lead + drawn)[len(lead) :]
            if look is Around.RULE and drawn and text.endswith("\n"):
                drawn += "─" * (self._width - column - cell_len(drawn))
            if drawn:
                segment = Segment(drawn, style)
                column += segment.cell_length
                segments.append(segment)
        return segments

    def fates_on(self, line: int) -> Iterable[Status]:
        looks = [self._looks[piece] for piece, _, _ in self.layout_text.pieces_of(line)]
        return [look for look in looks if isinstance(look, Status)]

    def _styles_of_looks(self) -> dict[Look, Style]:
        if self._styles is None:
            names = [*TOKEN_CLASSES.items(), *_AROUND.items()]
            self._styles = {look: ink(self, name) for look, name in names}
            system = self.app.console.color_system
            for look in THROWN_AWAY:
                style = stressed(self._styles[look], -1, self.app.no_color, system)
                self._styles[look] = style + Style(strike=look is not Around.MORE)
            for status, sign in SIGNS.items():
                self._styles[sign] = self._styles[status] + Style(strike=False, underline=False)
        return self._styles

    def _marked_style(self) -> Style:
        assert self.cursor is not None
        return token_styles(self)[self.run_log.token(self.cursor).status] + Style(reverse=True)

    def wrap_to(self, width: int) -> None:
        before = [text for _, text in self.transcript.pieces(self._with_drafts, width)]
        if len(before) != self._first or before == self._texts[: self._first]:
            self.layout_text.resize(width)
            return
        self._texts[: self._first] = before
        self.layout_text = TextLayout(width)
        self.layout_text.append(self.settled_texts(0))
        self.layout_text.set_tail(self._shown_from(self._settled))
        if self.search is not None:
            self.search.matches.cut(0)

    def mark_of(self, line: int) -> int:
        # Of a piece, as the figures of earlier turns are longer and shorter with the width.
        layout = self.layout_text
        offset = layout.offset_of(line, 0)
        piece = bisect_right(range(len(self._looks)), offset, key=lambda piece: layout.span_of(piece)[0]) - 1
        return 0 if piece < 0 else piece << _IN_PIECE | min(offset - layout.span_of(piece)[0], (1 << _IN_PIECE) - 1)

    def line_of(self, mark: int) -> int:
        piece, within = mark >> _IN_PIECE, mark & (1 << _IN_PIECE) - 1
        return self.layout_text.line_of(self.layout_text.span_of(piece)[0] + within) if self._looks else 0

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles = None

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it was generated: without the line breaks of the wrapping."""
        layout = self.layout_text
        start = 0 if selection.start is None else layout.offset_of(selection.start.y, selection.start.x)
        end = None if selection.end is None else self._offset_behind(selection.end.y, selection.end.x - 1)
        return copyable(self._generated(start, end)), "\n"

    def _generated(self, start: int, end: int | None) -> str:
        """The text between two offsets as it was told, without what did not become text."""
        parts: list[str] = []
        at = 0
        for look, text in zip(self._looks, self._texts, strict=True):  # what is shown has as many characters
            if look not in OFF_TEXT:
                parts.append(text[max(0, start - at) : None if end is None else max(0, end - at)])
            at += len(text)
        return "".join(parts)

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

    def settled_texts(self, first: int) -> list[str]:
        """What the pieces from the `first` on are shown as, but for drafts that wait."""
        return _all_shown(self._looks[first : self._settled], self._texts[first : self._settled])

    def searched_texts(self, first: int) -> list[str]:
        """The same without what stands in a text as a mark: a word may go on behind one."""
        looks = self._looks[first : self._settled]
        return ["" if look in MARKS else text for look, text in zip(looks, self.settled_texts(first), strict=True)]


def _all_shown(looks: Sequence[Look], texts: Sequence[str]) -> list[str]:
    # What is printable is shown as it is, whatever its look: most texts are.
    return [text if text.isprintable() else _shown(look, text) for look, text in zip(looks, texts, strict=True)]


def _shown(look: Look, text: str) -> str:
    """As many characters as `text`. Drafts that did not become text break no line."""
    text = visible(text)
    return text.translate(_IN_LINE) if look in OFF_TEXT else text


class _TextSearch(ViewSearch):
    """Searches the text itself: a match may go on in the next line of the wrapping, and behind a mark.

    A part of what is searched is a piece of the layout; marks are empty in the one and not in the other.
    """

    def __init__(self, view: TokenView) -> None:
        self._view = view
        super().__init__(view)

    is_reading = False

    def offset_of(self, line: int) -> int:
        return self._searched(self._view.layout_text.offset_of(line, 0)) if line < self._view.line_count else 0

    def read_on(self) -> None: ...

    def update(self, first: int) -> None:
        new = self._view.searched_texts(self.matches.part_count)
        if not self._view.line_count:
            self.matches.cut(0)
        self.matches.extend(new)
        self._hold_current()

    def found_on(self, line: int) -> list[Found]:
        layout = self._view.layout_text
        text, begins = layout.lines[line], layout.offset_of(line, 0)
        found: list[Found] = []
        for match in self.matches.within(self._searched(begins), self._searched(begins + len(text))):
            start, end = self.matches.span(match)
            first, behind = cells_of(text, self._laid_out(start) - begins, self._laid_out(end - 1) + 1 - begins)
            if first < behind:
                found.append((first, behind, match == self.current))
        return found

    def line_of(self, offset: int) -> int:
        return self._view.layout_text.line_of(self._laid_out(offset))

    def _searched(self, offset: int) -> int:
        """Where a place of the layout is in what is searched."""
        piece = self._view.layout_text.piece_of(offset)
        if piece is None or piece >= self.matches.part_count:
            return self.matches.part_span(self.matches.part_count - 1)[1] if self.matches.part_count else 0
        begins, ends = self.matches.part_span(piece)
        return min(ends, begins + offset - self._view.layout_text.span_of(piece)[0])

    def _laid_out(self, offset: int) -> int:
        """Where a place of what is searched is in the layout."""
        piece = self.matches.part_at(offset)
        return self._view.layout_text.span_of(piece)[0] + offset - self.matches.part_span(piece)[0]
