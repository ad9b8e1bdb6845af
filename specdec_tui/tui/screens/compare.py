"""Several kept runs side by side: the figures of every strategy, and the settings that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import DataTable, Static

from specdec_tui.setting_kinds import format_value
from specdec_tui.settings import flag_of
from specdec_tui.several_drafters import labelled, labels
from specdec_tui.traces.format import TraceHeader
from specdec_tui.traces.standings import words
from specdec_tui.tui.commands.dialog import Dialog
from specdec_tui.tui.commands.header import local_time, one_row
from specdec_tui.tui.screens.history_rows import speed, temperature

_WORDS = ("strategy", "clock", "lossless")
_COLUMNS = ("strategy", "run", "tok/s", "speedup", "clock", "α", "τ", "tokens", "lossless")
_LEAST_FIRST = ("tokens", "lossless", "tok/s", "τ", "α", "clock", "speedup")
"""What is left out where there is no room for all, the first first."""
_LONGEST_PROMPT = 60
_WIDEST, _FRAME = 120, 6  # columns of the dialog, and of its border, padding and scroll bar
_TOLD = ("gamma", "processor", "temperature", "max_new_tokens")
"""Settings that every run is told with."""


class CompareScreen(Dialog[None]):
    """Rows are grouped by strategy, so that the same strategy's runs stand below each other."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("c,q", "close", show=False)]

    def __init__(self, headers: Sequence[TraceHeader]) -> None:
        super().__init__()
        self._headers = list(headers)

    def compose(self) -> ComposeResult:
        with Vertical(id="compare") as box:
            box.border_title = "Compare"
            box.border_subtitle = "escape closes"
            yield Static(id="compare-runs")
            yield DataTable[Text](id="compare-table", cursor_type="none", cell_padding=0)

    def on_resize(self, event: events.Resize) -> None:
        room, most = min(_WIDEST, event.size.width) - _FRAME, max(1, event.size.height // 3)
        runs = self.query_one("#compare-runs", Static)
        told = Content("\n").join(legend(self._headers, room))
        if told.get_height({}, room) > most:  # figures are what a person is here for
            told = Content("\n").join(line.truncate(room, ellipsis=True) for line in short_legend(self._headers, room))
        runs.update(told)
        runs.styles.max_height = min(12, most)
        cells = rows(self._headers)
        if len(fitting(cells, room)) < len(_COLUMNS):  # the legend names the drafters, too
            cells = rows(self._headers, with_drafters=False)
        shown = fitting(cells, room)
        table = self.query_one("#compare-table", DataTable)
        table.clear(columns=True)
        titles = [Text(" " * (c != _COLUMNS[0]) + c, justify="left" if c in _WORDS else "right") for c in shown]
        table.add_columns(*titles)
        for row in cells:
            first, *others = (row[_COLUMNS.index(column)] for column in shown)
            table.add_row(first, *(Text.assemble(" ", cell, justify=cell.justify) for cell in others))
        left_out = [column for column in _COLUMNS if column not in shown]
        words = f"escape closes · no room for {', '.join(left_out)}" if left_out else "escape closes"
        short = f"escape closes · {len(left_out)} have no room"
        self.query_one("#compare").border_subtitle = words if cell_len(words) <= room else short


def fitting(cells: Sequence[Sequence[Text]], width: int) -> list[str]:
    """The columns that stand whole side by side in so many cells."""
    shown = list(_COLUMNS)
    sizes = {
        column: 1 + max(len(column), *(row[place].cell_len for row in cells)) if cells else 1 + len(column)
        for place, column in enumerate(_COLUMNS)
    }
    for column in _LEAST_FIRST:
        if sum(sizes[name] for name in shown) - 1 > width:
            shown.remove(column)
    return shown


def letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def legend(headers: Sequence[TraceHeader], width: int = _WIDEST) -> list[Content]:
    """Two lines for each run: its letter, time and prompt; γ, temperature and length, the pair, other differences.

    Where the second is more than `width` cells for one of them, only that is told of γ, temperature and length in which
    the runs differ.
    """
    lines = _legend(headers, width, whole=True)
    return lines if all(line.cell_length <= width for line in lines[1::2]) else _legend(headers, width, whole=False)


def short_legend(headers: Sequence[TraceHeader], width: int) -> list[Content]:
    """One line for each run: its letter, in what it differs from others, and its prompt."""
    facts = _facts(headers, whole=False)
    return [
        Content.assemble(
            (f"{letter(index)} ", "bold"), (f"{told}  " * bool(told), "$text-muted"), _prompt(header, width)
        )
        for index, (header, told) in enumerate(zip(headers, facts, strict=True))
    ]


def _legend(headers: Sequence[TraceHeader], width: int, whole: bool) -> list[Content]:
    lines = []
    for index, (header, facts) in enumerate(zip(headers, _facts(headers, whole, with_pair=True), strict=True)):
        when = local_time(header.created)
        room = width - len(f"A {when} ")
        lines.append(
            Content.assemble((f"{letter(index)} ", "bold"), (f"{when} ", "$text-muted"), _prompt(header, room))
        )
        lines.append(Content.assemble("  ", (facts, "$text-muted")))
    return lines


def _prompt(header: TraceHeader, room: int) -> str:
    """As many of its words as fit into `room` cells; where these are few, into more than a line."""
    whole = one_row(header.prompt)
    cut = str(Content(whole).truncate(max(_LONGEST_PROMPT, room), ellipsis=True))
    words = cut.rpartition(" ")[0]
    at_a_word = cut == whole or whole.startswith(f"{cut[:-1]} ")
    return cut if at_a_word or len(words) < len(cut) // 2 else f"{words}…"


def _facts(headers: Sequence[TraceHeader], whole: bool, with_pair: bool = False) -> list[str]:
    """Of each run γ, temperature and length, the pair, and other settings that differ.

    Not `whole`: those of the first three that differ. The pair is there where it differs, too, or asked for.
    """
    differing = [
        name
        for name in sorted({name for header in headers for name in header.settings})
        if name not in _TOLD and len({str(header.settings.get(name)) for header in headers}) > 1
    ]
    told = [_told(header) for header in headers]
    shown = [whole or len(set(values)) > 1 for values in zip(*told, strict=True)]
    pairs = ["" if (pair := header.pair()) is None else one_row(pair.name) for header in headers]
    with_pair = with_pair or len(set(pairs)) > 1
    found = []
    for index, header in enumerate(headers):
        values = [f"{flag_of(name)} {_value(header.settings[name])}" for name in differing if name in header.settings]
        settings = [value for value, is_shown in zip(told[index], shown, strict=True) if is_shown]
        parts = *settings, pairs[index] * with_pair, *map(one_row, values)
        found.append(" · ".join(part for part in parts if part))
    return found


def _told(header: TraceHeader) -> tuple[str, ...]:
    """γ, how and how warm is drawn, and the length; nothing of a run that does not tell."""
    settings, known = header.run_settings(), header.settings
    warmth = temperature(header)
    how = settings.processor if "processor" in known and warmth != "greedy" else ""
    return (
        f"γ {settings.gamma}" if "gamma" in known else "",
        "" if warmth == "–" else warmth if warmth == "greedy" else f"T {warmth}",
        "" if how == "multinomial" else how,
        f"{settings.max_new_tokens} tokens" if "max_new_tokens" in known else "",
    )


def rows(headers: Sequence[TraceHeader], with_drafters: bool = True) -> list[list[Text]]:
    found = []
    drafters = [labels(header.pair()) if with_drafters else {} for header in headers]
    for name in dict.fromkeys(name for header in headers for name in header.runs):
        for index, header in enumerate(headers):
            if (figures := header.strategies.get(name)) is None:
                continue
            measured = figures.get("decode_tokens_per_second")
            speedup = ("1.00×" if measured else "–") if name == "target" else speed(header, name)
            cells = [
                _number(measured, ".1f"),
                Text(speedup, justify="right"),
                Text(words(header).get(name, "")),
                _number(figures.get("acceptance_rate"), ".2f"),
                _number(figures.get("tokens_per_target_call"), ".2f"),
                _number(figures.get("new_tokens"), "d"),
            ]
            verdict = figures.get("lossless") or {}
            lossless = Text(one_row(str(verdict.get("status", "not checked")).replace("_", " ")))
            found.append(
                [Text(one_row(labelled(name, drafters[index]))), Text(letter(index), justify="right"), *cells, lossless]
            )
    return found


def _number(value: Any, form: str) -> Text:
    known = isinstance(value, int | float)
    return Text(format(value, form) if known else "–", justify="right")


def _value(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else format_value(value)
