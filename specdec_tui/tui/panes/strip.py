"""One line that names all panes where only one has room: their speedups, which is in front, a click away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from specdec_tui.decoding.figures import OTHER_TEXTS
from specdec_tui.decoding.standing import Verdict
from specdec_tui.settings import SPECULATIVE
from specdec_tui.tui.figures.words import BAD, GOOD, QUIET, SO_FAR, WARN

if TYPE_CHECKING:
    from specdec_tui.tui.panes.pane import StrategyPane

_STYLES = {Verdict.FASTER: GOOD, Verdict.SLOWER: WARN, Verdict.DISTURBED: WARN}

_STILL, _OTHER_TEXT = "…", "≠ text"


@dataclass(frozen=True, slots=True)
class Tab:
    """What the strip says of a pane: its speedup, or the word for how it is."""

    number: int | str
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
        if pane.strategy in OTHER_TEXTS:  # its speedup beside the others would be taken for one of theirs
            return Tab(pane.number, pane.strategy, _OTHER_TEXT, QUIET)
        word, remarks = found.marked, [found.remarks] * bool(found.marks)
        if pane.told_so_far:
            word, remarks = word + _STILL, [*remarks, f"{_STILL} {SO_FAR}"]
        return Tab(pane.number, pane.strategy, word, _STYLES.get(found.verdict, ""), ", ".join(remarks))
    if speed is not None:
        return Tab(pane.number, pane.strategy, f"{speed:.0f}/s", "")
    return Tab(pane.number, pane.strategy, "" if pane.state.is_empty else "…", QUIET)


def strip_line(tabs: Sequence[Tab], front: str, width: int) -> tuple[Content, list[tuple[int, int, str]]]:
    """The line, and which of its cells (first, behind the last) belong to which strategy.

    Where names do not fit, those behind are `brief`, and then give way to their numbers, the longest first; a further
    drafter's stays, for its number tells nobody which it is. Then figures behind go, and names come back as far as
    they fit without them; at last the figure in front goes, too, whose pane has it.
    What marks mean stands at the end where there is room: the pane in front says it too.
    """
    for names, figures in _ways(tabs, front):
        told = [_told(tab, names.get(tab.strategy, ""), tab.strategy in figures) for tab in tabs]
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


def _ways(tabs: Sequence[Tab], front: str) -> Iterator[tuple[dict[str, str], set[str]]]:
    """The names, by strategy, and the strategies with a figure: from all that can be told to the least."""
    every = {tab.strategy for tab in tabs}
    fewer = list(_fewer_names([tab.strategy for tab in tabs], front))
    further = fewer.index({name: brief(name) for name in every if name == front or name in SPECULATIVE[1:]})
    yield from ((names, every) for names in fewer[: further + 1])
    yield from ((names, {front}) for names in fewer)
    yield from ((names, set[str]()) for names in fewer[-2:])


def _fewer_names(strategies: Sequence[str], front: str) -> Iterator[dict[str, str]]:
    names = {name: name for name in strategies}
    yield dict(names)
    behind = sorted((name for name in names if name != front), key=lambda name: -len(name))
    further = [name for name in behind if name in SPECULATIVE[1:]]
    for name in behind:
        names[name] = brief(name)
        yield dict(names)
    for name in sorted((name for name in behind if name not in further), key=lambda name: -len(brief(name))):
        del names[name]
        yield dict(names)
    names[front] = brief(front)
    yield dict(names)
    for name in (*further, front):
        del names[name]
        yield dict(names)


def brief(strategy: str) -> str:
    """A shorter name that no other strategy has."""
    return strategy.replace("speculative", "spec").replace("drafter-", "d-")


def _told(tab: Tab, name: str, with_word: bool) -> tuple[str, str]:
    """Number and name, and the figure behind them."""
    number = "" if name and isinstance(tab.number, str) else tab.number  # what-ifs have theirs in their names
    return f"{number} {name}".strip(), f" {tab.word}" if with_word and tab.word else ""


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
