"""The runs that were kept: open one, race it, compare some, delete them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from specdec_tui.traces.format import TraceError, TraceHeader
from specdec_tui.traces.store import Entry, TraceStore
from specdec_tui.tui.commands.dialog import Dialog
from specdec_tui.tui.commands.header import local_time, one_row, size
from specdec_tui.tui.screens.compare import CompareScreen


@dataclass(frozen=True, slots=True)
class Chosen:
    """A trace to open, and whether to race it at once."""

    path: Path
    race: bool = False


class HistoryScreen(Dialog[Chosen]):
    """Dismisses with the trace to show, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("R", "race", show=False),
        Binding("space", "mark", show=False),
        Binding("c", "compare", show=False),
        Binding("d,delete", "delete", show=False),
        Binding("h", "close", show=False),
    ]

    class Listed(Message):
        """The folder was read, in a thread of its own."""

        def __init__(self, entries: Sequence[Entry]) -> None:
            super().__init__()
            self.entries = entries

    def __init__(self, store: TraceStore) -> None:
        super().__init__()
        self._store = store
        self._entries: list[Entry] = []
        self._marked: set[Path] = set()
        self._doomed: set[Path] = set()

    def compose(self) -> ComposeResult:
        with Vertical(id="history") as box:
            box.border_title = "History"
            box.border_subtitle = "enter opens · R races · space marks · c compares · d deletes · escape closes"
            yield OptionList(id="history-list", markup=False)
            yield Static("reading…", id="history-note", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        self.post_message(self.Listed(self._store.entries()))

    def on_history_screen_listed(self, message: Listed) -> None:
        self._entries = list(message.entries)
        self._fill(0)

    def on_resize(self) -> None:
        if self._entries:
            self._fill(self.query_one(OptionList).highlighted or 0)

    def _fill(self, highlighted: int) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        width = max(20, options.size.width - 4)
        options.add_options([Option(_line(e, width, e.path in self._marked)) for e in self._entries])
        if self._entries:
            options.highlighted = min(highlighted, len(self._entries) - 1)
            self._tell()
        else:
            self._say(f"No runs are kept yet in {self._store.folder}")

    def _say(self, text: str) -> None:
        self.query_one("#history-note", Static).update(one_row(text))

    def _tell(self) -> None:
        total = sum(entry.size for entry in self._entries)
        marked = f" · {len(self._marked)} marked" if self._marked else ""
        self._say(f"{len(self._entries)} kept, {size(total)}, in {self._store.folder}{marked}")

    @property
    def _current(self) -> Entry | None:
        highlighted = self.query_one(OptionList).highlighted
        return self._entries[highlighted] if highlighted is not None and self._entries else None

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._doomed.clear()

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._open(race=False)

    def action_race(self) -> None:
        self._open(race=True)

    def _open(self, *, race: bool) -> None:
        if (entry := self._current) is None:
            return
        if entry.header is None:
            self._say(entry.problem)
        else:
            self.dismiss(Chosen(entry.path, race))

    def action_mark(self) -> None:
        """Mark or unmark the trace under the cursor, for comparing and deleting."""
        if (entry := self._current) is not None:
            self._marked ^= {entry.path}
            at = self.query_one(OptionList).highlighted or 0
            self._fill(min(at + 1, len(self._entries) - 1))

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
        self._entries = [entry for entry in self._entries if entry.path.exists()]
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


def _line(entry: Entry, width: int, marked: bool) -> Content:
    """Time, prompt, pair and the best speedup, in as many cells as there are."""
    mark = "✓ " if marked else "  "
    header = entry.header
    if header is None:
        return Content.assemble(
            mark,
            (one_row(entry.path.name), "bold"),
            "  ",
            (one_row(entry.problem.removeprefix(f"{entry.path.name}: ")), "$text-error"),
        )
    when = local_time(header.created)[5:]
    right = "  ".join(part for part in (_pair(header) if width >= 100 else "", _best(header)) if part)
    room = max(4, width - len(mark) - len(when) - 4 - cell_len(right))
    prompt = one_row(header.prompt)
    shown = set_cell_size(prompt, room) if cell_len(prompt) <= room else set_cell_size(prompt, room - 1) + "…"
    return Content.assemble(mark, (when, "$text-muted"), "  ", (shown, "bold"), "  ", (right, "$text-muted"))


def _pair(header: TraceHeader) -> str:
    pair = header.pair()
    return "" if pair is None else one_row(pair.target.name)[:32]


def _best(header: TraceHeader) -> str:
    """The fastest strategy beside the target, and its speedup; of a run that broke off, that it did."""
    others = {n: figures for n, figures in header.strategies.items() if n not in ("target", "drafter")}
    if any(figures.get("finish_reason", "") is None for figures in header.strategies.values()):
        return "not ended"
    rated = [(figures["speedup"], name) for name, figures in others.items() if figures.get("speedup")]
    if not rated:
        return ", ".join(one_row(name) for name in header.strategies)[:32]
    speedup, name = max(rated)
    return f"{one_row(name)} {speedup:.2f}×"
