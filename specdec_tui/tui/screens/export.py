"""Where a run is written to, and as what."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from specdec_tui.settings import parse_path
from specdec_tui.traces.export import as_csv, as_json
from specdec_tui.traces.format import Trace
from specdec_tui.traces.report import as_html
from specdec_tui.tui.commands.command import EXPORTS
from specdec_tui.tui.commands.dialog import Dialog
from specdec_tui.tui.commands.header import local_time, one_row

_KINDS = {
    "json": "everything, for programs",
    "csv": "a row for every token, for spreadsheets",
    "svg": "a picture of the screen as it is now",
    "html": "a report for the browser: text, charts, table, environment",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A format and a file."""

    kind: str
    path: Path

    @classmethod
    def of(cls, kind: str, name: str) -> Target:
        """ValueError, in one line, when there is no such format or the file cannot be written."""
        if kind not in EXPORTS:
            raise ValueError(f"export: '{kind}' is not valid: give one of {', '.join(EXPORTS)}")
        if not name.strip():
            raise ValueError("export: give the name of a file")
        path = parse_path(name)
        try:
            path = path.resolve()  # a link stays one, and what it points to is written
            if path.is_dir() or not path.parent.is_dir():
                reason = "is a folder" if path.is_dir() else f"is in a folder that does not exist: {path.parent}"
                raise ValueError(f"export: {path} {reason}: give a file in an existing folder")
            if path.exists() and not path.is_file():
                raise ValueError(f"export: {path} is a device, not a file: give a file in an existing folder")
        except (OSError, RuntimeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ValueError(f"export: {name[:60]}: {reason}: give a file in an existing folder") from None
        return cls(kind, path)

    def text_of(self, trace: Trace, picture: str) -> str:
        match self.kind:
            case "json":
                return as_json(trace)
            case "csv":
                return as_csv(trace)
            case "html":
                return as_html(trace)
        # Textual names fonts on the network: looking at a picture must not tell anyone.
        return re.sub(r"@font-face\s*{[^}]*}\s*", "", picture)


def proposed_name(trace: Trace, kind: str) -> str:
    """A file beside where the app was started, named by the time of the run."""
    when = re.sub(r"\W+", "-", local_time(trace.header.created), flags=re.ASCII).strip("-")
    return f"specdec-{when}.{kind}"


class ExportScreen(Dialog[Target]):
    """Dismisses with a format and a file that can be written, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move('cursor_down')", show=False, priority=True),
        Binding("up", "move('cursor_up')", show=False, priority=True),
    ]

    def __init__(self, trace: Trace, kind: str = "", name: str = "", kinds: Sequence[str] = EXPORTS) -> None:
        super().__init__()
        self._kinds = tuple(kinds)
        self._wanted = name
        self._trace = trace
        self._kind = kind if kind in kinds else self._kinds[-1]
        self._asked = ""

    def compose(self) -> ComposeResult:
        with Vertical(id="export") as box:
            box.border_title = "Export"
            box.border_subtitle = "↑ ↓ format · enter writes · escape closes"
            kinds = OptionList(
                *(
                    Option(Content.assemble((f"{kind:<6}", "bold"), (_KINDS[kind], "$text-muted")))
                    for kind in self._kinds
                ),
                id="export-kinds",
                markup=False,
            )
            kinds.can_focus = False
            yield kinds
            yield Input(
                self._wanted or proposed_name(self._trace, self._kind),
                id="export-file",
                compact=True,
                select_on_focus=False,
            )
            yield Static("", id="export-note", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = self._kinds.index(self._kind)
        self.query_one(Input).focus()
        if self._wanted:
            self._write(self._wanted)

    def action_move(self, how: str) -> None:
        getattr(self.query_one(OptionList), f"action_{how}")()

    @on(OptionList.OptionHighlighted)
    def _changed(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        old, self._kind = self._kind, self._kinds[event.option_index]
        box = self.query_one(Input)
        if box.value.endswith(f".{old}"):
            box.value = box.value.removesuffix(old) + self._kind
            box.action_end()

    @on(Input.Changed)
    def _named(self, event: Input.Changed) -> None:
        """A name that ends as those of another format asks for that one."""
        event.stop()
        kind = event.input.value.rpartition(".")[2]  # the event's own may be of before another format was chosen
        if kind in self._kinds and kind != self._kind:
            self.query_one(OptionList).highlighted = self._kinds.index(kind)

    @on(OptionList.OptionSelected)
    def _clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._write(self.query_one(Input).value)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self._write(event.value)

    def _write(self, name: str) -> None:
        try:
            target = Target.of(self._kind, name)
        except ValueError as error:
            self._note(str(error))
            return
        if os.path.exists(target.path) and self._asked != str(target.path):
            self._asked = str(target.path)
            self._note(f"{target.path} exists already: enter again writes over it")
            return
        self.dismiss(target)

    def _note(self, text: str) -> None:
        self.query_one("#export-note", Static).update(one_row(text))
