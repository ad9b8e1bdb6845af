"""One line that says what the colours, styles and glyphs of the tokens mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from rich.cells import cell_len
from textual.content import Content
from textual.style import Style
from textual.widget import Widget

from specdec_tui.decoding.records import EMITTED, Status
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
_SHORT_WORDS = {
    Status.ACCEPTED: "acc",
    Status.REJECTED: "rej",
    Status.UNVERIFIED: "unver",
    Status.RESAMPLED: "resam",
    Status.BONUS: "bonus",
    Status.SAMPLED: "plain",
    Status.PENDING: "pend",
}


class Legend(Widget):
    """Whole words where they fit, short ones where they do not; nothing, and no line, where no tokens stand."""

    COMPONENT_CLASSES: ClassVar[set[str]] = set(TOKEN_CLASSES.values())

    def __init__(self) -> None:
        super().__init__()
        self._statuses = EMITTED

    def explain(self, statuses: frozenset[Status]) -> None:
        """Name these fates: those that can stand in what is shown."""
        if statuses != self._statuses:
            self._statuses = statuses
            self.display = bool(statuses)
            self.refresh()

    def render(self) -> Content:
        styles = {status: self.get_visual_style(name) for status, name in TOKEN_CLASSES.items()}
        return legend(self.content_size.width, self._statuses, styles)


def legend(width: int, statuses: Collection[Status], styles: Mapping[Status, Style]) -> Content:
    """The longest form of the legend that fits into `width` cells, cut at its end if none does."""
    whole = {status: status.value for status in _ORDER if status in statuses}
    short = {status: _SHORT_WORDS[status] for status in whole}
    for words, gap in ((whole, "  "), (whole, " "), (short, "  "), (short, " ")):
        if sum(2 + cell_len(word) + len(gap) for word in words.values()) - len(gap) <= width:
            break
    parts: list[tuple[str, Style | str]] = []
    used = 0
    for status, word in words.items():
        cells = 2 + cell_len(word) + (len(gap) if parts else 0)
        if used + cells > width:
            break
        if parts:
            parts.append((gap, ""))
        style = styles[status]
        parts += [(f"{GLYPHS[status]} ", style + Style(strike=False)), (word, style)]
        used += cells
    return Content.assemble(*parts)
