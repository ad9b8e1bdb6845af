"""A few sentences above the panes, that explain what stands in them."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from specdec_tui.tui.figures.words import in_rows

_ROWS = ((34, 9), (24, 6), (0, 5))
"""Of a screen with so many rows at least, the most that sentences may take: panes need the others."""


class ExplainingPanel(Widget):
    """As high as its sentences; of those that are said only where there is room the ones that fit.

    What has no room although it is to be said ends in `…`.
    """

    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__(id="explaining")
        self.display = False
        self._needed = ""
        self._also: tuple[str, ...] = ()
        self._text = Content()
        self._rows = 0

    def explain(self, title: str, keys: str, text: str, also: Sequence[str] = ()) -> None:
        """Say this, and `also` as far as there is room.

        All of it is our own words, or went through a door: none is read as markup.
        """
        self.name_keys(title, keys)
        self._needed, self._also, self.display = text, tuple(also), True
        self._fit()

    def name_keys(self, title: str, keys: str) -> None:
        """The same sentences, but other keys lead on."""
        self.border_title = Content.assemble((title, "bold"), f"  {keys}" if keys else "")

    def leave(self) -> None:
        self.display = False

    @property
    def text(self) -> str:
        return self._text.plain

    def on_resize(self, event: events.Resize) -> None:
        self._fit()

    def _fit(self) -> None:
        self._text = self._fitting(self.content_size.width)
        rows = self._rows_at(self.content_size.width)
        self.refresh(layout=rows != self._rows)
        self._rows = rows

    def _fitting(self, width: int) -> Content:
        """The sentences for a width: a sentence that does not fit is left out."""
        text, most = Content(self._needed), next(most for rows, most in _ROWS if self.app.size.height >= rows)
        for sentence in self._also:
            longer = Content(f"{text.plain} {sentence}")
            if width <= 0 or len(longer.wrap(width)) > most:
                continue
            text = longer
        return text

    def _rows_at(self, width: int) -> int:
        most = next(most for rows, most in _ROWS if self.app.size.height >= rows)
        return min(most, max(1, len(self._text.wrap(width)))) if width > 0 else 1

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._text = self._fitting(width)
        return self._rows_at(width)

    def render(self) -> Content:
        width, rows = self.content_size
        return in_rows(self._text, width, rows)
