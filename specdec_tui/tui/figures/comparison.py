"""The table at the end of a prompt: every strategy against the target, in as many whole columns as fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from specdec_tui.decoding.costs import Costs, shown_costs
from specdec_tui.decoding.figures import OTHER_TEXTS, RunFigures
from specdec_tui.decoding.records import Lossless
from specdec_tui.decoding.standing import Standing, Verdict, standing
from specdec_tui.tui.figures.columns import COLUMNS, LATER, Column, Entry, columns_of
from specdec_tui.tui.figures.table_notes import note_lines, notes
from specdec_tui.tui.figures.words import QUIET, WARN, Part, fit_groups

if TYPE_CHECKING:
    from specdec_tui.tui.figures.pinned import Changes

Row = tuple[str, RunFigures, Lossless | None]

# Columns from which cells stand two apart.
_AIRY = 70
_LEAST_HINT = len(f" +{len(COLUMNS)} ")


class ComparisonTable(Widget):
    """Numbers of all panes side by side; the best speedup carries a star. No column is cut.

    Where there are fewer rows than it has to say, what is below the headings can be scrolled, and it says so.
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._entries: Sequence[Entry] = ()
        self._label = ""
        self._can_repeat = True
        self._pinned: Sequence[Sequence[Part]] = ()
        self._lines: list[Content] = []
        self._top = 0

    @property
    def height_wanted(self) -> int:
        """Rows of all it has to say."""
        return len(self._lines)

    @property
    def overflows(self) -> bool:
        """Whether it can be scrolled."""
        return self.height_wanted > self.size.height

    @property
    def row_count(self) -> int:
        return len(self._entries)

    def cells(self, strategy: str) -> dict[str, str]:
        """What is known of a strategy, by column, whether there is room for it or not."""
        entry = next(entry for entry in self._entries if entry.strategy == strategy)
        return {column.title: column.longest(entry)[0].strip() for column in columns_of(self._entries)}

    def show(
        self,
        rows: Sequence[Row],
        baseline: RunFigures | None = None,
        label: str = "",
        can_repeat: bool = True,
        drafters: Mapping[str, str] = MappingProxyType({}),
        changes: Mapping[str, Changes] = MappingProxyType({}),
        pinned: Sequence[Sequence[Part]] = (),
    ) -> None:
        """Fill the table with (strategy, figures, verdict) rows, in their order.

        `baseline`: a run of the target at another time, and `label` which; without one it is the target's own row,
        and where that is not there either, `label` says how to come by one.
        `can_repeat`: there are models to run it again with. `drafters`: names that stand beside strategies.
        `changes`: since a pin, of which `pinned` tells below the rows.
        """
        target = next((figures for name, figures, _ in rows if name == "target"), baseline)
        self._label = label if target is baseline else ""
        self._can_repeat = can_repeat
        self._pinned = pinned
        self._entries = [
            replace(entry, drafter=drafters.get(entry.strategy, ""), changes=changes.get(entry.strategy))
            for entry in ranked(rows, target)
        ]
        self._fill()

    def on_resize(self, event: events.Resize) -> None:
        self._fill()

    def _fill(self) -> None:
        width = self.size.width or self.app.size.width
        self._lines = table_lines(self._entries, self._label, self._can_repeat, width, self._pinned)
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self.height_wanted

    def render(self) -> Content:
        lines, self._top = in_sight(self._lines, self._top, *self.size)
        return Content("\n").join(lines)

    def scroll(self, how: str) -> None:
        """Move what is below the headings by one of the ways that a pane's text moves."""
        page = max(1, self.size.height - 2)
        ways = {"scroll_up": -1, "scroll_down": 1, "page_up": -page, "page_down": page}
        ends = {"scroll_home": 0, "scroll_end": self.height_wanted}
        self._top = max(0, self._top + ways[how]) if how in ways else ends[how]
        self.refresh()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.scroll("scroll_down")

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.scroll("scroll_up")


def in_sight(lines: Sequence[Content], top: int, width: int, height: int) -> tuple[list[Content], int]:
    """The headings and, from the line `top` below them, what else has room; and the `top` that this took.

    Where that is not all, the last row says how much there is above and below.
    """
    room = height - 2
    if len(lines) <= height or room < 1:
        return list(lines[: max(1, height)]), 0
    top = min(top, len(lines) - 1 - room)
    above, below = top, len(lines) - 1 - room - top
    more = [f"{sign} {count} more" for sign, count in (("↑", above), ("↓", below)) if count]
    keys = "pageup, pagedown"
    told = fit_groups([[(f" {' · '.join(more)}", WARN)], [(keys, QUIET)]], width)
    return [lines[0], *lines[1 + top : 1 + top + room], Content.assemble(*told)], top


def ranked(rows: Sequence[Row], baseline: RunFigures | None) -> list[Entry]:
    """Every row against the baseline.

    The fastest is the best if it may be called faster; where it may not, no slower one is in its place, nor where
    one with a disturbed clock may be faster.
    """
    found = [None if name == "target" else standing(figures, baseline) for name, figures, _ in rows]
    rivals = [one for row, one in zip(rows, found, strict=True) if row[0] not in OTHER_TEXTS and one]
    best = max(rivals, key=_may_be, default=None)
    starred = best if best is not None and best.verdict is Verdict.FASTER else None
    return [
        Entry(*row, baseline, one, _costs(*row[:2], baseline), one is not None and one is starred)
        for row, one in zip(rows, found, strict=True)
    ]


def _may_be(found: Standing) -> float:
    """The highest speedup that it may have."""
    return inf if found.is_disturbed and found.high is None else found.range[1]


def _costs(strategy: str, figures: RunFigures, baseline: RunFigures | None) -> Costs:
    return Costs() if strategy == "target" else shown_costs(figures, baseline)


def table_lines(
    entries: Sequence[Entry], label: str, can_repeat: bool, width: int, pinned: Sequence[Sequence[Part]] = ()
) -> list[Content]:
    """Headings, rows, and below them what a reader of the figures must know, and of which pin changes are."""
    columns, left_out = fitting(entries, width)
    widths, gap = [_width(column, entries) for column in columns], _gap(width)
    heading = _row([(column.title, "") for column in columns], columns, widths, gap)
    used = sum(cell_len(text) for text, _ in heading)
    heading.append((_hint(left_out, width - used - 1).rjust(width - used - 1) + " ", QUIET))
    lines = [Content.assemble(*heading).stylize("on $panel").stylize("bold", 0, used)]
    lines += [Content.assemble(*_row([c.cell(entry) for c in columns], columns, widths, gap)) for entry in entries]
    return lines + [
        line
        for note in [*([pinned] if pinned else []), *notes(entries, label, can_repeat)]
        for line in note_lines(note, width)
    ]


def fitting(entries: Sequence[Entry], width: int) -> tuple[list[Column], int]:
    """The columns that have room, in their order, and how many others there are."""
    columns = columns_of(entries)
    shown: dict[str, Column] = {}
    for column in sorted(_with_more(columns), key=lambda column: column.rank):
        tried = {**shown, column.title: column}
        room = width if len(tried) == len(columns) else width - _LEAST_HINT
        used = 1 + sum(_width(one, entries) for one in tried.values()) + _gap(width) * (len(tried) - 1)
        if not shown or used <= room:
            shown = tried
        elif column.rank < LATER and column.title not in shown:
            break
    return [shown[column.title] for column in columns if column.title in shown], len(columns) - len(shown)


def _with_more(columns: Sequence[Column]) -> Iterator[Column]:
    for column in columns:
        yield column
        for rank, cell in column.more:
            yield replace(column, rank=rank, cell=cell)


def _width(column: Column, entries: Sequence[Entry]) -> int:
    return max(cell_len(text) for text in (column.title, *(column.cell(entry)[0] for entry in entries)))


def _gap(width: int) -> int:
    return 2 if width >= _AIRY else 1


def _row(cells: Sequence[Part], columns: Sequence[Column], widths: Sequence[int], gap: int) -> list[Part]:
    parts: list[Part] = []
    for (text, style), column, width in zip(cells, columns, widths, strict=True):
        before, blank = " " * (gap if parts else 1), " " * (width - cell_len(text))
        parts += (
            [(before + blank, ""), (text, style)] if column.is_number else [(before, ""), (text, style), (blank, "")]
        )
    return parts


def _hint(left_out: int, room: int) -> str:
    """The longest that fits of how many columns had no room, and where they have."""
    if not left_out:
        return ""
    hints = f"+{left_out} columns in a wider terminal", f"+{left_out} if wider", f"+{left_out}"
    return next((hint for hint in hints if len(hint) + 1 <= room), "")
