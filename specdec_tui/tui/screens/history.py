"""The runs that were kept: find one, open it, race it, export it, compare some, delete them."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from specdec_tui.traces.format import TraceError
from specdec_tui.traces.store import Entry, TraceStore
from specdec_tui.tui.commands.dialog import Dialog
from specdec_tui.tui.commands.header import one_row, size
from specdec_tui.tui.screens.compare import CompareScreen
from specdec_tui.tui.screens.history_rows import figures_line, matching, table

_LONGEST_PROMPT = 2000  # of characters under the list
_OTHER_ROWS = 11  # of the dialog: frame, heading, filter, figures, prompt, note
_LEAST_ROWS, _MOST_ROWS = 3, 24

Purpose = Literal["show", "race", "export"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A trace to open, and what for."""

    path: Path
    purpose: Purpose = "show"


_HINTS = (
    "↵ open · / filter · R race · e export · space mark · c compare · d delete",
    "↵ open · / filter · space mark · c compare · d delete",
    "/ filter · space mark · c compare · d delete",
    "space mark · c compare · d delete",
)


class RunList(OptionList):
    """Tells when it has another width: the screen has it sooner, and its list then still the old one."""

    class Resized(Message):
        """Lines for the old width do not fit any more."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())


class HistoryScreen(Dialog[Chosen]):
    """Dismisses with the trace to show, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("R", "open('race')", show=False),
        Binding("e", "open('export')", show=False),
        Binding("slash", "find", show=False),
        Binding("down", "to_list", show=False),
        Binding("space", "mark", show=False),
        Binding("c", "compare", show=False),
        Binding("d,delete", "delete", show=False),
        Binding("H", "close", show=False),
    ]

    class Listed(Message):
        """The folder was read, in a thread of its own; or why it cannot be, or holds no more."""

        def __init__(self, entries: Sequence[Entry], problem: str = "") -> None:
            super().__init__()
            self.entries, self.problem = entries, problem

    def __init__(self, store: TraceStore) -> None:
        super().__init__()
        self._store = store
        self._entries: list[Entry] = []
        self._problem = ""
        self._shown: list[Entry] = []
        self._marked: set[Path] = set()
        self._doomed: set[Path] = set()
        self._width = 0  # that the lines are made for

    def compose(self) -> ComposeResult:
        with Vertical(id="history") as box:
            box.border_title = "History"
            box.border_subtitle = _HINTS[0]
            yield Static("", id="history-heading", markup=False)
            yield RunList(id="history-list", markup=False)
            yield Input(placeholder="any words: a prompt, a model, γ 4, disturbed", id="history-filter", compact=True)
            yield Static("", id="history-figures", markup=False)
            yield Static("", id="history-prompt", markup=False)
            yield Static("reading…", id="history-note", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).display = False
        self.query_one(OptionList).focus()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        problem = self._store.problem
        self.post_message(self.Listed(self._store.entries(), f"No runs can be kept: {problem}" if problem else ""))

    def on_history_screen_listed(self, message: Listed) -> None:
        self._entries, self._problem = list(message.entries), message.problem
        self._fill(0)

    @on(RunList.Resized)
    def _fit(self) -> None:
        options, box = self.query_one(OptionList), self.query_one("#history")
        room = box.size.width - 2  # the corners keep a line beside them
        box.border_subtitle = next((hint for hint in _HINTS if len(hint) <= room), _HINTS[-1])
        if self._entries and options.size.width != self._width:
            self._fill(options.highlighted or 0)

    def _fill(self, highlighted: int) -> None:
        options, query = self.query_one(OptionList), self.query_one(Input).value
        self._shown = matching(self._entries, query) if query.strip() else list(self._entries)
        options.clear_options()
        room = self.size.height * 9 // 10 - _OTHER_ROWS
        options.styles.max_height = min(_MOST_ROWS, max(_LEAST_ROWS, room))  # else what stands below has no place
        self._width = options.size.width
        width = max(20, self._width - 4)
        heading, lines = table(self._shown, [entry.path in self._marked for entry in self._shown], width)
        self.query_one("#history-heading", Static).update(heading)
        options.add_options([Option(line) for line in lines])
        if self._shown:
            options.highlighted = min(highlighted, len(self._shown) - 1)
        self._tell()
        self._preview()

    def _say(self, text: str) -> None:
        self.query_one("#history-note", Static).update(one_row(text))

    def _tell(self) -> None:
        if self._problem or not self._entries:
            self._say(self._problem or f"No runs are kept yet in {self._store.folder}")
            return
        total = sum(entry.size for entry in self._entries)
        found = f"{len(self._shown)} of " if len(self._shown) < len(self._entries) else ""
        marked = f" · {len(self._marked)} marked" if self._marked else ""
        self._say(f"{found}{len(self._entries)} kept, {size(total)}, in {self._store.folder}{marked}")

    def _preview(self) -> None:
        """The figures of all strategies of the run under the cursor, and its whole prompt; of a bad file, why."""
        entry = self._current
        header = None if entry is None else entry.header
        problem = "" if entry is None else one_row(entry.problem)
        self.query_one("#history-figures", Static).update(problem if header is None else figures_line(header))
        self.query_one("#history-prompt", Static).update(
            "" if header is None else one_row(header.prompt[:_LONGEST_PROMPT])
        )

    @property
    def _current(self) -> Entry | None:
        highlighted = self.query_one(OptionList).highlighted
        return self._shown[highlighted] if highlighted is not None and self._shown else None

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._doomed.clear()
        self._preview()

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_open("show")

    def action_open(self, purpose: Purpose) -> None:
        """Answer with the trace under the cursor."""
        if (entry := self._current) is None:
            return
        if entry.header is None:
            self._say(entry.problem)
        else:
            self.dismiss(Chosen(entry.path, purpose))

    def action_find(self) -> None:
        """Go to the line that filters."""
        box = self.query_one(Input)
        box.display = True
        box.focus()

    @on(Input.Changed)
    def _filtered(self, event: Input.Changed) -> None:
        event.stop()
        self._fill(0)

    @on(Input.Submitted)
    def _found(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_to_list()

    def action_to_list(self) -> None:
        self.query_one(OptionList).focus()

    def action_close(self) -> None:
        """One step: out of the filter, then out of the list."""
        box = self.query_one(Input)
        if not box.display:
            self.dismiss(None)
            return
        box.value = ""
        box.display = False
        self.query_one(OptionList).focus()

    def action_mark(self) -> None:
        """Mark or unmark the trace under the cursor, for comparing and deleting."""
        if (entry := self._current) is not None:
            self._marked ^= {entry.path}
            at = self.query_one(OptionList).highlighted or 0
            self._fill(min(at + 1, len(self._shown) - 1))

    def action_compare(self) -> None:
        chosen = [e.header for e in self._entries if e.path in self._marked and e.header is not None]
        if len(chosen) < 2:
            self._say("Mark two or more runs with the space bar, then press c")
        else:
            self.app.push_screen(CompareScreen(chosen))

    def action_delete(self) -> None:
        """Pressed twice: delete the marked traces, or the one under the cursor."""
        current = self._current
        wanted = self._marked or ({current.path} if current is not None else set())
        if not wanted:
            return
        if self._doomed != wanted:
            self._doomed = set(wanted)
            what = "this run" if len(wanted) == 1 else f"these {len(wanted)} runs"
            self._say(f"d again deletes {what} for good")
            return
        at = self.query_one(OptionList).highlighted or 0
        problems = [problem for path in wanted if (problem := self._delete(path))]
        self._entries = [entry for entry in self._entries if os.path.exists(entry.path)]
        self._marked.clear()
        self._doomed.clear()
        self._fill(at)
        if problems:
            self._say(problems[0])

    def _delete(self, path: Path) -> str:
        try:
            self._store.delete(path)
        except TraceError as error:
            return str(error)
        return ""
