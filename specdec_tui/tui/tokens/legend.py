"""One line that says what the colours, styles and glyphs of the tokens mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from rich.cells import cell_len
from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from specdec_tui.decoding.records import Status
from specdec_tui.tui.tokens.style import GLYPHS, TOKEN_CLASSES

_ORDER = (
    Status.ACCEPTED,
    Status.REJECTED,
    Status.UNVERIFIED,
    Status.RESAMPLED,
    Status.BONUS,
    Status.SAMPLED,
    Status.PENDING,
)
_LEFT_OUT_FIRST = (
    Status.PENDING,
    Status.SAMPLED,
    Status.BONUS,
    Status.UNVERIFIED,
    Status.RESAMPLED,
    Status.REJECTED,
)
"""What tells least of a text comes first."""
_MORE = " …"
_NEVER_JUDGED = " (behind a refusal, never judged)", " (not judged)"
"""What is told of unverified drafts where there is room: the one fate whose name does not say what happened."""


class Legend(Widget):
    """As many whole words as fit, the most telling ones; no line where nothing in sight shows tokens at all."""

    COMPONENT_CLASSES: ClassVar[set[str]] = set(TOKEN_CLASSES.values())

    def __init__(self) -> None:
        super().__init__()
        self._statuses: frozenset[Status] | None = frozenset()
        self._words: Mapping[Status, str] = {}

    def explain(self, statuses: frozenset[Status] | None, words: Mapping[Status, str] | None = None) -> None:
        """Name these fates, those in sight, some by other words than their own. None: no tokens can stand there."""
        if (statuses, words or {}) != (self._statuses, self._words):
            self._statuses, self._words = statuses, words or {}
            self.display = statuses is not None
            self.refresh()

    def render(self) -> Content:
        styles = {status: self.get_visual_style(name) for status, name in TOKEN_CLASSES.items()}
        return legend(self.content_size.width, self._statuses or (), styles, self._words)


def legend(
    width: int, statuses: Collection[Status], styles: Mapping[Status, Style], words: Mapping[Status, str] | None = None
) -> Content:
    """The states that fit into `width` cells in whole words; `…` where others are left out."""
    names = {status: status.value for status in Status} | dict(words or {})
    shown = [status for status in _ORDER if status in statuses]
    room = width - _cells([names[status] for status in shown]) if Status.UNVERIFIED in statuses else 0
    meaning = next((words for words in _NEVER_JUDGED if cell_len(words) <= room), "")
    names[Status.UNVERIFIED] += meaning
    for status in _LEFT_OUT_FIRST:
        if _cells([names[status] for status in shown]) + cell_len(_MORE) * (len(shown) < len(statuses)) <= width:
            break
        shown = [other for other in shown if other is not status]
    if _cells([names[status] for status in shown]) > width:
        return Content("")
    gap = "  " if _cells([names[status] for status in shown]) + len(shown) - 1 + cell_len(_MORE) <= width else " "
    parts: list[tuple[str, Style | str]] = []
    for status in shown:
        style = styles[status]
        name, told = names[status], meaning if status is Status.UNVERIFIED else ""
        parts += [(gap * bool(parts), ""), (f"{GLYPHS[status]} ", style + Style(strike=False))]
        parts += [(name.removesuffix(told), style), (told, "$text-muted")]
    is_more = len(shown) < len(statuses) and _cells([names[status] for status in shown]) + cell_len(_MORE) <= width
    return Content.assemble(*parts, _MORE * is_more)


def _cells(names: Collection[str]) -> int:
    """With a blank between two."""
    return sum(2 + cell_len(name) + 1 for name in names) - 1
