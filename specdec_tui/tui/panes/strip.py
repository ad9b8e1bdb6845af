"""One line that names all panes where only one has room: their speedups, which is in front, a click away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from specdec_tui.decoding.standing import Verdict
from specdec_tui.tui.figures.words import BAD, GOOD, QUIET, WARN, PaneState
from specdec_tui.tui.panes.pane import StrategyPane

_STYLES = {Verdict.FASTER: GOOD, Verdict.SLOWER: WARN, Verdict.DISTURBED: WARN}


@dataclass(frozen=True, slots=True)
class Tab:
    """What the strip says of a pane: its speedup, or the word for how it is."""

    number: int
    strategy: str
    word: str
    style: str
    remarks: str = ""
    """What the marks of the speedup mean."""


def tab_of(pane: StrategyPane) -> Tab:
    """The tab of a pane: what the pane shows, no newer and no older, and with the same verdict."""
    found, speed = pane.told
    if pane.has_class("-failed"):
        return Tab(pane.number, pane.strategy, "✗", BAD)
    if found is not None and found.verdict in (Verdict.SHORT, Verdict.UNCHECKED):
        return Tab(pane.number, pane.strategy, found.word, "")
    if found is not None:
        return Tab(pane.number, pane.strategy, found.marked, _STYLES.get(found.verdict, ""), found.remarks)
    if speed is not None:
        return Tab(pane.number, pane.strategy, f"{speed:.0f}/s", "")
    return Tab(pane.number, pane.strategy, "" if pane.state is PaneState.IDLE else "…", QUIET)


def strip_line(tabs: Sequence[Tab], front: str, width: int) -> tuple[Content, list[tuple[int, int, str]]]:
    """The line, and which of its cells (first, behind the last) belong to which strategy.

    Names are whole; where they do not fit, those behind give way to their numbers, the longest first, then their
    figures go, and then the name in front, which its pane's title has too.
    What marks mean stands at the end where there is room: the pane in front says it too.
    """
    behind = sorted((tab.strategy for tab in tabs if tab.strategy != front), key=len, reverse=True)
    every = {tab.strategy for tab in tabs}
    fewer = [({front, *behind[left_out:]}, every) for left_out in range(len(behind) + 1)]
    for names, figures in (*fewer, ({front}, {front}), (set[str](), {front}), (set[str](), set[str]())):
        told = [_told(tab, tab.strategy in names, tab.strategy in figures) for tab in tabs]
        if sum(cell_len("".join(words)) + 2 for words in told) <= width:
            break
    parts: list[str | tuple[str, str]] = []
    spans: list[tuple[int, int, str]] = []
    at = 0
    for tab, (name, word) in zip(tabs, told, strict=True):
        ground = " on $panel bold" if tab.strategy == front else ""
        mark = "▸" if tab.strategy == front else " "
        parts += [(mark + name, f"$foreground{ground}"), (word, (tab.style or "$foreground") + ground)]
        parts.append((" ", ground.strip()))
        spans.append((at, at + cell_len(name + word) + 2, tab.strategy))
        at = spans[-1][1]
    remarks = dict.fromkeys(remark for tab in tabs for remark in tab.remarks.split(", ") if remark)
    meaning = f" {', '.join(remarks)}"
    if remarks and at + cell_len(meaning) <= width:
        parts.append((meaning, QUIET))
    return Content.assemble(*parts), spans


def _told(tab: Tab, with_name: bool, with_word: bool) -> tuple[str, str]:
    """Number and name, and the figure behind them."""
    name = f"{tab.number} {tab.strategy}" if with_name else str(tab.number)
    return name, f" {tab.word}" if with_word and tab.word else ""


class PaneStrip(Widget):
    """Posts `Picked` when a tab is clicked."""

    class Picked(Message):
        def __init__(self, strategy: str) -> None:
            super().__init__()
            self.strategy = strategy

    def __init__(self) -> None:
        super().__init__(id="pane-strip")
        self._tabs: Sequence[Tab] = ()
        self._front = ""

    def show(self, tabs: Sequence[Tab], front: str) -> None:
        """Tell of these panes, one of which is in front."""
        if (tuple(tabs), front) != (self._tabs, self._front):
            self._tabs, self._front = tuple(tabs), front
            self.refresh()

    def render(self) -> Content:
        return strip_line(self._tabs, self._front, self.size.width)[0]

    def on_click(self, event: events.Click) -> None:
        event.stop()
        place = event.get_content_offset(self)
        for begin, end, strategy in strip_line(self._tabs, self._front, self.size.width)[1]:
            if place is not None and begin <= place.x < end:
                self.post_message(self.Picked(strategy))
