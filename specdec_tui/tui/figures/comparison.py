"""The table at the end of a prompt: every strategy against the target, in as many whole columns as fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from specdec_tui.decoding.costs import TIMES_VARY, UNPREDICTED, Costs, costs
from specdec_tui.decoding.figures import OTHER_TEXTS, RunFigures
from specdec_tui.decoding.records import EndReason, Lossless, LosslessStatus
from specdec_tui.decoding.standing import MARKS, MEANINGS, RECOMPUTES, Standing, Verdict, standing
from specdec_tui.doors.characters import visible
from specdec_tui.tui.figures.words import BAD, GOOD, QUIET, WARN, Part, fit_groups, lossless_part, speed_text

Row = tuple[str, RunFigures, Lossless | None]

# Columns from which cells stand two apart.
_AIRY = 70
_MOST_NOTE_ROWS = 3
_NOTHING = ("–", "")
_LONGEST_DRAFTER, _WIDEST_DRAFTER = 12, 40
"""Cells of a drafter's name, with little room and with much."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row and what it is compared with."""

    strategy: str
    figures: RunFigures
    lossless: Lossless | None
    baseline: RunFigures | None
    standing: Standing | None
    costs: Costs
    is_best: bool = False
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """`rank`: the lower, the sooner it has room. What is in `more` takes its place where that has room, too."""

    title: str
    rank: int
    cell: Callable[[Entry], Part]
    is_number: bool = True
    more: tuple[tuple[int, Callable[[Entry], Part]], ...] = ()

    @property
    def longest(self) -> Callable[[Entry], Part]:
        return self.more[-1][1] if self.more else self.cell


class ComparisonTable(Widget):
    """Numbers of all panes side by side; the best speedup carries a star. No column is cut.

    Where there are fewer rows than it has to say, what is below the headings can be scrolled, and it says so.
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._entries: Sequence[Entry] = ()
        self._label = ""
        self._can_repeat = True
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
        return {column.title: column.longest(entry)[0].strip() for column in COLUMNS}

    def show(
        self,
        rows: Sequence[Row],
        baseline: RunFigures | None = None,
        label: str = "",
        can_repeat: bool = True,
        drafters: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Fill the table with (strategy, figures, verdict) rows, in their order.

        `baseline`: a run of the target at another time, and `label` which; without one it is the target's own row,
        and where that is not there either, `label` says how to come by one.
        `can_repeat`: there are models to run it again with. `drafters`: names that stand beside strategies.
        """
        target = next((figures for name, figures, _ in rows if name == "target"), baseline)
        self._label = label if target is baseline else ""
        self._can_repeat = can_repeat
        self._entries = [replace(entry, drafter=drafters.get(entry.strategy, "")) for entry in ranked(rows, target)]
        self._fill()

    def on_resize(self, event: events.Resize) -> None:
        self._fill()

    def _fill(self) -> None:
        width = self.size.width or self.app.size.width
        self._lines = table_lines(self._entries, self._label, self._can_repeat, width)
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
    return Costs() if strategy == "target" else costs(figures, baseline)


def table_lines(entries: Sequence[Entry], label: str, can_repeat: bool, width: int) -> list[Content]:
    """Headings, rows, and below them what a reader of the figures must know."""
    columns, left_out = fitting(entries, width)
    widths, gap = [_width(column, entries) for column in columns], _gap(width)
    heading = _row([(column.title, "") for column in columns], columns, widths, gap)
    used = sum(cell_len(text) for text, _ in heading)
    heading.append((_hint(left_out, width - used - 1).rjust(width - used - 1) + " ", QUIET))
    lines = [Content.assemble(*heading).stylize("on $panel").stylize("bold", 0, used)]
    lines += [Content.assemble(*_row([c.cell(entry) for c in columns], columns, widths, gap)) for entry in entries]
    return lines + [line for note in notes(entries, label, can_repeat) for line in note_lines(note, width)]


def note_lines(note: Sequence[Sequence[Part]], width: int) -> list[Content]:
    """A note in a few rows, wrapped between words; of too many groups the last ones are counted."""
    lines: list[Content] = []
    for count in range(len(note), 0, -1):
        left_out = len(note) - count
        groups = [*note[:count], *([[(f"+ {left_out} more, each in its pane", QUIET)]] if left_out else [])]
        parts = [part for index, group in enumerate(groups) for part in ([(" · ", QUIET)] * (index > 0) + [*group])]
        lines = Content.assemble(*parts).wrap(max(1, width - 2))
        if len(lines) <= _MOST_NOTE_ROWS:
            break
    return [Content.assemble(" ", line) for line in lines]


def fitting(entries: Sequence[Entry], width: int) -> tuple[list[Column], int]:
    """The columns that have room, in their order, and how many others there are."""
    shown: dict[str, Column] = {}
    for column in sorted(_with_more(), key=lambda column: column.rank):
        tried = {**shown, column.title: column}
        room = width if len(tried) == len(COLUMNS) else width - _LEAST_HINT
        used = 1 + sum(_width(one, entries) for one in tried.values()) + _gap(width) * (len(tried) - 1)
        if not shown or used <= room:
            shown = tried
        elif column.rank < _REST and column.title not in shown:
            break
    return [shown[column.title] for column in COLUMNS if column.title in shown], len(COLUMNS) - len(shown)


def _with_more() -> Iterator[Column]:
    for column in COLUMNS:
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


def notes(entries: Sequence[Entry], label: str, can_repeat: bool) -> list[list[list[Part]]]:
    """What is said below the rows, each in groups: of the baseline, and of runs whose clock was disturbed."""
    found: list[list[list[Part]]] = []
    baseline: list[list[Part]] = []
    marks = {mark for entry in entries if entry.standing is not None for mark in entry.standing.marks}
    for mark in (mark for mark in MARKS if mark in marks):
        baseline.append([(f"{mark} {MEANINGS[mark]}", WARN if mark == RECOMPUTES else QUIET)])
    if unpredicted := [visible(entry.strategy) for entry in entries if entry.costs.missing == TIMES_VARY]:
        baseline.append([(f"{UNPREDICTED} {TIMES_VARY}: no predicted, c and v of {', '.join(unpredicted)}", QUIET)])
    if label:
        is_known = any(entry.baseline is not None for entry in entries)
        baseline.append([(f"speedups vs. {visible(label)}" if is_known else visible(label), QUIET)])
    if baseline:
        found.append(baseline)
    disturbed = [entry for entry in entries if entry.standing is not None and entry.standing.is_disturbed]
    if disturbed:
        key = [(", ", WARN), ("r repeats", "$text-accent")] if can_repeat else []
        found.append([[("clock disturbed", WARN), *key]])
        for entry in disturbed:
            assert entry.standing is not None
            found[-1].append([(f"{visible(entry.strategy)}: {entry.standing.reason}", QUIET)])
    if unchecked := [entry for entry in entries if entry.standing and entry.standing.verdict is Verdict.UNCHECKED]:
        names = ", ".join(visible(entry.strategy) for entry in unchecked)
        assert unchecked[0].standing is not None
        found.append(
            [[(f"{unchecked[0].standing.doubt}", WARN)], [(f"{names}: {unchecked[0].standing.reason}", QUIET)]]
        )
    return found


def _number(value: float | None, form: str, unit: str = "") -> Part:
    return _NOTHING if value is None else (format(value, form) + unit, "")


def _name(entry: Entry, longest: int = _LONGEST_DRAFTER) -> Part:
    drafter = visible(entry.drafter)
    if cell_len(drafter) > longest:
        drafter = set_cell_size(drafter, longest - 1) + "…"
    told = f"{visible(entry.strategy)} · {drafter}" if drafter else visible(entry.strategy)
    return (f"{'★' if entry.is_best else ' '} {told}", GOOD if entry.is_best else "")


def _bare_name(entry: Entry) -> Part:
    """No two strategies have the same."""
    return _name(replace(entry, drafter=""))


def _whole_name(entry: Entry) -> Part:
    return _name(entry, _WIDEST_DRAFTER)


def _rate(entry: Entry) -> Part:
    rate = entry.figures.decode_tokens_per_second
    return _NOTHING if rate is None else (speed_text(rate), "")


def _speedup(entry: Entry) -> Part:
    if entry.strategy == "target":
        return _NOTHING if entry.figures.decode_tokens_per_second is None else ("1.00×", "")
    found = entry.standing
    if found is None:
        return _NOTHING
    match found.verdict:
        case Verdict.FASTER:
            return (found.marked, GOOD)
        case Verdict.OPEN:
            return (found.marked, "")
        case Verdict.SHORT | Verdict.UNCHECKED:
            return (f"{found.marked}, {found.doubt}", "")
    return (f"{found.marked}, {found.verdict.value}", WARN)


def _bare_speedup(entry: Entry) -> Part:
    """Without the words that a note below the rows has, or the figure itself."""
    found, whole = entry.standing, _speedup(entry)
    if found is None or entry.strategy == "target":
        return whole
    return (f"{found.marked} {found.word}" if found.verdict is Verdict.SHORT else found.marked, whole[1])


def _cost(entry: Entry, value: float | None, unit: str = "") -> Part:
    return (f"–{UNPREDICTED}", QUIET) if entry.costs.missing == TIMES_VARY else _number(value, ".2f", unit)


def _count(count: Callable[[RunFigures], int]) -> Callable[[Entry], Part]:
    return lambda entry: _number(count(entry.figures) if entry.figures.drafted else None, "d")


def _verdict(entry: Entry, is_short: bool = False) -> Part:
    end = entry.figures.end
    if end is not None and end.reason is EndReason.ERROR:
        return ("failed", BAD)
    if entry.lossless is None:
        return ("not checked", QUIET)
    if is_short and (entry.strategy != "target" or entry.lossless.status not in _AGREES):
        ties = f"≈ {entry.lossless.ties} near-tie{'' if entry.lossless.ties == 1 else 's'}"
        match entry.lossless.status:
            case LosslessStatus.IDENTICAL:
                return ("✓ identical", GOOD)
            case LosslessStatus.NEAR_TIES:
                return (ties, WARN)
            case LosslessStatus.DIFFERENT:
                return ("✗ DIFFERENT", BAD)
            case _ if "distribution" in (entry.lossless.detail or "distribution"):
                return ("~ same distribution", QUIET)
    return lossless_part(entry.lossless, entry.strategy == "target")


_AGREES = LosslessStatus.IDENTICAL, LosslessStatus.NOT_APPLICABLE


def _shares(entry: Entry) -> Part:
    """Where the decode time went."""
    run = entry.figures
    if not run.decode_seconds:
        return _NOTHING
    parts = (run.draft_seconds, run.verify_seconds, run.other_seconds)
    return (" / ".join(f"{part / run.decode_seconds:.0%}" for part in parts), "")


_REST, _MORE = 3, 9
"""Ranks: below the first are the columns that the table is for; from the second on what is said at greater length."""

COLUMNS = (
    Column("strategy", 0, _bare_name, is_number=False, more=((_REST, _name), (_MORE, _whole_name))),
    Column("tok/s", 1, _rate),
    Column("speedup", 2, _bare_speedup, more=((2, _speedup),)),
    Column("predicted", 5, lambda entry: _cost(entry, entry.costs.predicted_speedup, "×")),
    Column("α", 3, lambda entry: _number(entry.figures.acceptance_rate, ".2f")),
    Column("τ", 4, lambda entry: _number(entry.figures.tokens_per_target_call, ".2f")),
    Column("c", 7, lambda entry: _cost(entry, entry.costs.cost_ratio)),
    Column("v", 8, lambda entry: _cost(entry, entry.costs.verify_ratio)),
    Column("lossless", 6, lambda entry: _verdict(entry, is_short=True), is_number=False, more=((_MORE, _verdict),)),
    Column("drafted", 10, _count(lambda run: run.drafted)),
    Column("accepted", 11, _count(lambda run: run.accepted)),
    Column("rejected", 12, _count(lambda run: run.rejected)),
    Column("unverified", 13, _count(lambda run: run.unverified)),
    Column("wasted", 14, lambda entry: _number(entry.figures.wasted_rate, ".0%")),
    Column("prefill s", 15, lambda entry: _number(entry.figures.prefill_seconds or None, ".2f")),
    Column("draft / verify / other", 16, _shares),
)
_LEAST_HINT = len(f" +{len(COLUMNS)} ")
