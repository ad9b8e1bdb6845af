"""Several kept runs side by side: the figures of every strategy, and the settings that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

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
            yield DataTable[Text](id="compare-table", cursor_type="none", cell_padding=1)

    def on_resize(self, event: events.Resize) -> None:
        room = min(_WIDEST, event.size.width) - _FRAME
        self.query_one("#compare-runs", Static).update(Content("\n").join(legend(self._headers, room)))
        cells = rows(self._headers)
        shown = fitting(cells, room)
        table = self.query_one("#compare-table", DataTable)
        table.clear(columns=True)
        table.add_columns(*(Text(c, justify="left" if c in _WORDS else "right") for c in shown))
        table.add_rows([row[_COLUMNS.index(column)] for column in shown] for row in cells)
        left_out = [column for column in _COLUMNS if column not in shown]
        told = f" · no room for {', '.join(left_out)}" if left_out else ""
        self.query_one("#compare").border_subtitle = f"escape closes{told}"


def fitting(cells: Sequence[Sequence[Text]], width: int) -> list[str]:
    """The columns that stand whole side by side in so many cells."""
    shown = list(_COLUMNS)
    sizes = {
        column: 2 + max(len(column), *(row[place].cell_len for row in cells)) if cells else 2 + len(column)
        for place, column in enumerate(_COLUMNS)
    }
    for column in _LEAST_FIRST:
        if sum(sizes[name] for name in shown) > width:
            shown.remove(column)
    return shown


def letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def legend(headers: Sequence[TraceHeader], width: int = _WIDEST) -> list[Content]:
    """Two lines for each run: its letter, time and prompt; γ, temperature and length, the pair, other differences.

    Where the second is more than `width` cells for one of them, only that is told of γ, temperature and length in which
    the runs differ.
    """
    lines = _legend(headers, whole=True)
    return lines if all(line.cell_length <= width for line in lines[1::2]) else _legend(headers, whole=False)


def _legend(headers: Sequence[TraceHeader], whole: bool) -> list[Content]:
    differing = [
        name
        for name in sorted({name for header in headers for name in header.settings})
        if name not in _TOLD and len({str(header.settings.get(name)) for header in headers}) > 1
    ]
    told = [_told(header) for header in headers]
    shown = [whole or len(set(values)) > 1 for values in zip(*told, strict=True)]
    lines = []
    for index, header in enumerate(headers):
        pair = header.pair()
        names = "" if pair is None else pair.name
        values = [f"{flag_of(name)} {_value(header.settings[name])}" for name in differing if name in header.settings]
        prompt = one_row(header.prompt)
        prompt = str(Content(prompt).truncate(_LONGEST_PROMPT, ellipsis=True))
        settings = [value for value, is_shown in zip(told[index], shown, strict=True) if is_shown]
        facts = " · ".join(part for part in (*settings, one_row(names), *map(one_row, values)) if part)
        when = local_time(header.created)
        lines.append(Content.assemble((f"{letter(index)} ", "bold"), (f"{when} ", "$text-muted"), prompt))
        lines.append(Content.assemble("  ", (facts, "$text-muted")))
    return lines


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


def rows(headers: Sequence[TraceHeader]) -> list[list[Text]]:
    found = []
    drafters = [labels(header.pair()) for header in headers]
    for name in dict.fromkeys(name for header in headers for name in header.strategies):
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
