"""One line that says what the colours, styles and glyphs of the tokens mean."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content
from textual.widget import Widget

from specdec_tui.decoding.records import Status
from specdec_tui.tui.tokens.style import GLYPHS

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
_TEXT_STYLES = {
    Status.REJECTED: " strike",
    Status.RESAMPLED: " bold",
    Status.BONUS: " bold",
    Status.UNVERIFIED: " italic",
}


class Legend(Widget):
    """The legend: whole words where they fit, short ones where they do not."""

    def render(self) -> Content:
        return legend(self.content_size.width)


def legend(width: int) -> Content:
    """The longest form of the legend that fits into `width` cells, cut at its end if none does."""
    whole = {status: status.value for status in _ORDER}
    for words, gap in ((whole, "  "), (whole, " "), (_SHORT_WORDS, "  "), (_SHORT_WORDS, " ")):
        if sum(2 + cell_len(word) + len(gap) for word in words.values()) - len(gap) <= width:
            break
    parts: list[tuple[str, str]] = []
    used = 0
    for status, word in words.items():
        cells = 2 + cell_len(word) + (len(gap) if parts else 0)
        if used + cells > width:
            break
        if parts:
            parts.append((gap, ""))
        colour = f"$token-{status.value}"
        parts += [(f"{GLYPHS[status]} ", colour), (word, colour + _TEXT_STYLES.get(status, ""))]
        used += cells
    return Content.assemble(*parts)
