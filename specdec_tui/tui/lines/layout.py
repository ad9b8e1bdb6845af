"""Word wrap for text that grows at its end: pure, no screen.

Greedy wrapping depends only on where a line starts, so an append re-wraps the last line and
nothing before it, whatever the length of the paragraph. Offsets count characters.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from rich.cells import cell_len

TAB = 4

_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_LONGEST_CLUSTER = 64
# Signs among tokens of plain text: one cell each, and no line breaks at them. They cost as little as letters.
_SIGNS = str.maketrans(dict.fromkeys("▏✗○↻↵⇥", "x"))
# A wide character may start a line, unless it closes what stands before it.
_CLOSING = frozenset("、。，．！？）」』】〉》〕：；…")


def cluster_end(text: str, start: int) -> int:
    """End of the character at `start` together with what attaches to it.

    Attached are zero-width characters, and whatever follows a zero-width joiner. Nothing attaches
    to a blank. At most 64 characters, so hostile text cannot make one cluster of a paragraph.
    """
    end = start + 1
    if text[start] in " \t\n":
        return end
    limit = min(len(text), start + _LONGEST_CLUSTER)
    while end < limit:
        character = text[end]
        if character.isascii():
            break
        if character == _JOINER:
            joins = end + 1 < limit and text[end + 1] not in "\n\t "
            end += 2 if joins else 1
        elif cell_len(character) == 0:
            end += 1
        else:
            break
    return end


def cluster_boundary(text: str, offset: int) -> int:
    """The first place at or behind `offset` where no character is torn from what attaches to it."""
    at = 0
    while at < offset:
        at = cluster_end(text, at)
    return at


def cells_at(text: str, start: int, end: int, column: int) -> int:
    """Width of one cluster in cells; a tab reaches to the next tab stop."""
    if text[start] == "\t":
        return TAB - column % TAB
    return cell_len(text[start:end])


def line_end(text: str, start: int, width: int) -> int:
    """Where the line that starts at `start` ends, at `width` cells.

    A line keeps its newline, and one space may hang over its right edge. A word longer than a
    line is cut.
    """
    window = text[start : start + width + 2]
    if not window.isascii():
        window = window.translate(_SIGNS)
    if window.isascii() and "\t" not in window:
        newline = window.find("\n", 0, width + 1)
        if newline >= 0:
            return start + newline + 1
        if len(window) <= width:
            return start + len(window)
        space = window.rfind(" ", 0, width + 1)
        if space < 0:
            return start + width
        hangs = space == width and window[width + 1 :] == "\n"
        return start + space + (2 if hangs else 1)
    return _line_end_of_any_text(text, start, width)


def _line_end_of_any_text(text: str, start: int, width: int) -> int:
    column = 0
    at = start
    break_at = start
    # Zero-width characters never fill a line: a bound keeps every line short.
    limit = start + 8 * width + _LONGEST_CLUSTER
    while at < len(text):
        character = text[at]
        if character == "\n":
            return at + 1
        end = cluster_end(text, at)
        cells = cells_at(text, at, end, column)
        blank = character in " \t"
        # Judged by the first character alone: a variation selector may still be on its way.
        wide = not blank and cell_len(character) == 2
        if wide and character not in _CLOSING:
            break_at = at
        if column + cells > width:
            if blank:
                return end + 1 if text[end : end + 1] == "\n" else end
            return break_at if break_at > start else (at if at > start else end)
        column += cells
        at = end
        if blank or (wide and text[at : at + 1] not in _CLOSING):
            break_at = at
        if at >= limit:
            return at
    return len(text)


def expand_tabs(line: str) -> str:
    """A laid-out line as it is drawn: without its newline, tabs as spaces."""
    line = line.removesuffix("\n")
    if "\t" not in line:
        return line
    drawn: list[str] = []
    column = at = 0
    while at < len(line):
        end = cluster_end(line, at)
        cells = cells_at(line, at, end, column)
        drawn.append(" " * cells if line[at] == "\t" else line[at:end])
        column += cells
        at = end
    return "".join(drawn)


class TextLayout:
    """The lines of a growing text made of pieces (tokens), at a width in cells.

    A tail of provisional pieces may follow the text; the next append or tail takes its place.
    """

    def __init__(self, width: int = 80) -> None:
        self.width = max(1, width)
        self.lines: list[str] = []
        self._starts = array("q")
        self._pieces = array("q")
        self._length = 0
        self._without_tail: tuple[int, str, int, int] | None = None

    @property
    def text(self) -> str:
        """Everything laid out, the tail included."""
        return "".join(self.lines)

    def append(self, pieces: Sequence[str]) -> int:
        """Add pieces behind the text, in place of the tail; returns the first line that changed."""
        changed = self._drop_tail()
        return min(changed, self._extend(pieces))

    def set_tail(self, pieces: Sequence[str]) -> int:
        """Show `pieces` behind the text until something takes their place; returns the first line that changed."""
        changed = self._drop_tail()
        if not pieces:
            return changed
        last = self.lines[-1] if self.lines else ""
        self._without_tail = (len(self.lines), last, self._length, len(self._pieces))
        return min(changed, self._extend(pieces))

    def resize(self, width: int) -> bool:
        """Wrap everything to another width; False when it is the width already."""
        width = max(1, width)
        if width == self.width:
            return False
        text = self.text
        self.width = width
        tail_from = None if self._without_tail is None else self._without_tail[2:]
        self.lines.clear()
        del self._starts[:]
        if tail_from is None:
            self._wrap(text, 0)
            return True
        length, piece_count = tail_from
        self._wrap(text[:length], 0)
        last = self.lines[-1] if self.lines else ""
        self._without_tail = (len(self.lines), last, length, piece_count)
        self._wrap_from_last_line(text[length:], length)
        return True

    def pieces_of(self, line: int) -> list[tuple[int, int, int]]:
        """(piece, start, end) of every piece on a line; offsets into the line's text."""
        start = self._starts[line]
        end = start + len(self.lines[line])
        first = max(0, bisect_right(self._pieces, start) - 1)
        found = []
        for piece in range(first, len(self._pieces)):
            begins = self._pieces[piece]
            if begins >= end:
                break
            ends = self._pieces[piece + 1] if piece + 1 < len(self._pieces) else self._length
            if ends > start and ends > begins:
                found.append((piece, max(begins, start) - start, min(ends, end) - start))
        return found

    def span_of(self, piece: int) -> tuple[int, int]:
        """Offsets into the text of the first and the last character of a piece."""
        start = self._pieces[piece]
        end = self._pieces[piece + 1] if piece + 1 < len(self._pieces) else self._length
        return start, max(start, end - 1)

    def piece_of(self, offset: int) -> int | None:
        """The piece that holds a place in the text; None behind the end."""
        return bisect_right(self._pieces, offset) - 1 if 0 <= offset < self._length else None

    def piece_at(self, line: int, column: int) -> int | None:
        """The piece drawn at a cell, None where there is none."""
        if not 0 <= line < len(self.lines) or column < 0:
            return None
        text = self.lines[line]
        reached = at = 0
        while at < len(text) and text[at] != "\n":
            end = cluster_end(text, at)
            reached += cells_at(text, at, end, reached)
            if column < reached:
                return next((piece for piece, start, stop in self.pieces_of(line) if start <= at < stop), None)
            at = end
        return None

    def line_of(self, offset: int) -> int:
        """The line that holds a place in the text; the last one for a place behind the end."""
        return max(0, bisect_right(self._starts, offset) - 1)

    def offset_of(self, line: int, drawn: int) -> int:
        """Offset into the text of the `drawn`-th character of a line as `expand_tabs` draws it."""
        if line >= len(self.lines):
            return self._length
        text = self.lines[line]
        at = column = passed = 0
        while at < len(text) and text[at] != "\n":
            end = cluster_end(text, at)
            cells = cells_at(text, at, end, column)
            passed += cells if text[at] == "\t" else end - at
            if passed > drawn:
                break
            column += cells
            at = end
        return self._starts[line] + at

    def _drop_tail(self) -> int:
        if self._without_tail is None:
            return len(self.lines)
        count, last, length, piece_count = self._without_tail
        self._without_tail = None
        del self.lines[count:]
        del self._starts[count:]
        del self._pieces[piece_count:]
        if count:
            self.lines[-1] = last
        self._length = length
        return max(0, count - 1)

    def _extend(self, pieces: Sequence[str]) -> int:
        before = self._length
        self._pieces.extend(accumulate(map(len, pieces), initial=before))
        self._length = self._pieces.pop()  # behind the last one
        return self._wrap_from_last_line("".join(pieces), before)

    def _wrap_from_last_line(self, added: str, before: int) -> int:
        if not added:
            return len(self.lines)
        if self.lines:
            added = self.lines.pop() + added
            before = self._starts.pop()
        changed = len(self.lines)
        self._wrap(added, before)
        return changed

    def _wrap(self, text: str, offset: int) -> None:
        start, length, width = 0, len(text), self.width
        while start < length:
            end = line_end(text, start, width)
            self.lines.append(text[start:end])
            self._starts.append(offset + start)
            start = end
