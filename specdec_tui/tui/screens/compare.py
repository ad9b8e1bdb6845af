"""Several kept runs side by side: the figures of every strategy, and the settings that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import DataTable, Static

from specdec_tui.settings import flag_of, format_value
from specdec_tui.traces.format import TraceHeader
from specdec_tui.traces.standings import words
from specdec_tui.tui.commands.dialog import Dialog
from specdec_tui.tui.commands.header import local_time, one_row
from specdec_tui.tui.screens.history_rows import speed

_COLUMNS = ("strategy", "run", "tok/s", "speedup", "clock", "α", "τ", "tokens", "lossless")
_LONGEST_PROMPT = 60


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
            yield Static(Content("\n").join(legend(self._headers)), id="compare-runs")
            table: DataTable[Text] = DataTable(id="compare-table", cursor_type="none", cell_padding=1)
            table.add_columns(
                *(Text(c, justify="left" if c in ("strategy", "clock", "lossless") else "right") for c in _COLUMNS)
            )
            table.add_rows(rows(self._headers))
            yield table


def letter(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else str(index + 1)


def legend(headers: Sequence[TraceHeader]) -> list[Content]:
    """A line for each run: its letter, time, pair, prompt, and the settings in which the runs differ."""
    differing = [
        name
        for name in sorted({name for header in headers for name in header.settings})
        if len({str(header.settings.get(name)) for header in headers}) > 1
    ]
    lines = []
    for index, header in enumerate(headers):
        pair = header.pair()
        names = "" if pair is None else " + ".join(m.name for m in (pair.target, pair.drafter) if m is not None)
        values = [f"{flag_of(name)} {_value(header.settings[name])}" for name in differing if name in header.settings]
        prompt = one_row(header.prompt)
        prompt = prompt if len(prompt) <= _LONGEST_PROMPT else prompt[: _LONGEST_PROMPT - 1] + "…"
        facts = " · ".join(part for part in (one_row(names), *map(one_row, values)) if part)
        when = local_time(header.created)
        lines.append(Content.assemble((f"{letter(index)} ", "bold"), (f"{when} ", "$text-muted"), prompt))
        lines.append(Content.assemble("  ", (facts, "$text-muted")))
    return lines


def rows(headers: Sequence[TraceHeader]) -> list[list[Text]]:
    found = []
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
            found.append([Text(one_row(name)), Text(letter(index), justify="right"), *cells, lossless])
    return found


def _number(value: Any, form: str) -> Text:
    known = isinstance(value, int | float)
    return Text(format(value, form) if known else "–", justify="right")


def _value(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else format_value(value)
