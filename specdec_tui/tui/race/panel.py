"""The lanes of a race, and below them the round that the chosen strategy is at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from specdec_tui.tui.figures.words import QUIET

if TYPE_CHECKING:
    from specdec_tui.decoding.standing import Standing
    from specdec_tui.tui.race.lanes import Lane
    from specdec_tui.tui.race.race import Race

_ROUND_ROWS = 4  # a rule, and what is drafted, verified and kept


class RacePanel(Widget):
    """Draws what it was shown last; a click on a lane posts `Picked`."""

    class Picked(Message):
        def __init__(self, strategy: str) -> None:
            super().__init__()
            self.strategy = strategy

    def __init__(self) -> None:
        super().__init__(id="race")
        self._race: Race | None = None
        self._chosen = ""
        self._standings: Mapping[str, Standing | None] = {}
        self._lines: list[Content] = []
        self._lanes: list[Lane] = []
        self.display = False

    @property
    def height_wanted(self) -> int:
        """Rows of all it has to say."""
        return 0 if self._race is None else len(self._race.strategies) + _ROUND_ROWS

    def show(self, race: Race | None, chosen: str = "", standings: Mapping[str, Standing | None] | None = None) -> None:
        """Where a race is, None where there is none; `standings`: how the strategies stood once it is over."""
        is_other = (race is None) != (self._race is None)
        self._race, self._chosen, self._standings = race, chosen, standings or {}
        self._write()
        if is_other:
            self.refresh(layout=True)

    def on_resize(self, event: events.Resize) -> None:
        self._write()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self.height_wanted

    def render(self) -> Content:
        return Content("\n").join(self._lines)

    def _write(self) -> None:
        """Paints where something has changed: a clock alone changes nothing here."""
        width, height = self.content_size
        lines: list[Content] = []
        if self._race is not None and width and height:
            from specdec_tui.tui.race.lanes import lane_lines, lanes_of  # not at a start

            self._lanes = lanes_of(self._race, self._standings)
            self._lanes = in_sight(self._lanes, self._chosen, height)
            lines = lane_lines(self._lanes, self._race, self._chosen, width)
            if self._chosen:
                lines += self._round(self._race, width, height - len(lines))
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def _round(self, race: Race, width: int, rows: int) -> list[Content]:
        """As much of the round as has room: what is kept last, the rule first."""
        from specdec_tui.tui.race.round_text import chosen_words, round_lines

        moment = race.moment(self._chosen)
        title = f"─ {chosen_words(moment)} "
        rule = Content.styled(title + "─" * max(0, width - len(title)), QUIET).truncate(width)
        lines = [rule, *round_lines(moment, width)]
        return lines[max(0, len(lines) - rows) :] if rows > 0 else []

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        if place is not None and place.y < len(self._lanes):
            self.post_message(self.Picked(self._lanes[place.y].strategy))


def in_sight(lanes: Sequence[Lane], chosen: str, rows: int) -> list[Lane]:
    """As many lanes as there are rows, the chosen one among them."""
    if len(lanes) <= rows:
        return list(lanes)
    at = next((index for index, lane in enumerate(lanes) if lane.strategy == chosen), 0)
    first = max(0, min(at - rows + 1, len(lanes) - rows))
    return list(lanes[first : first + rows])
