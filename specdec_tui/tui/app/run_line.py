"""The line above the panes: what they show, what waits, how far a race is, and what the app has to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.commands.table import key
from specdec_tui.tui.figures.words import in_rows

if TYPE_CHECKING:
    from specdec_tui.tui.app.notices import Notice
    from specdec_tui.tui.race.race import Race

# Beside a notice at least so much of the prompt is left, or none of it.
_LEAST_CELLS = 20
_BAR_CELLS = 24


class RunLine(Widget):
    """One row; more only where what is to be said is longer than the screen is wide."""

    def __init__(self) -> None:
        super().__init__(id="run-line")
        self._parts: Sequence[Content] = ()
        self._notices: Sequence[Notice] = ()
        self._line, self._rows = Content(), 1

    def show(self, parts: Sequence[Content], notices: Sequence[Notice] = ()) -> None:
        self._parts, self._notices = parts, notices
        self._write()

    def on_resize(self, event: events.Resize) -> None:
        self._write()

    def _write(self) -> None:
        width = self.content_size.width
        self._line = with_notices(self._parts, self._notices, width)
        rows = max(1, len(self._line.wrap(width))) if width else 1
        self.refresh(layout=rows != self._rows)  # a layout for every tick of a race would be dear
        self._rows = rows

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._rows

    def render(self) -> Content:
        return in_rows(self._line, *self.content_size)


def happening(
    last_prompt: str, waiting: str, running: bool, opened: str, race: Race | None, before: int | None = None
) -> list[Content]:
    """What the panes show, and what waits.

    `opened` tells of the trace in them, where they show one; `before`, how many of other tabs come before the run.
    """
    parts = []
    if race is not None:
        parts.append(race_clock(race))
    elif last_prompt and (running or not waiting):
        shown = Content.assemble(("› ", "bold $text-primary"), one_row(last_prompt))
        parts.append(Content.assemble((f"{opened} ", "$text-accent"), shown) if opened else shown)
    if before is not None:
        parts.append(Content.styled(f"waiting for another tab ({before} before you)", "bold $text-warning"))
    if waiting:
        parts.append(Content.assemble(("waiting  ", "$text-warning"), one_row(waiting)))
    return parts


def race_clock(race: Race) -> Content:
    """Whether a race plays, how fast, and where it is, in words and as a bar. Who is when, the lanes tell."""
    doing = f"{'over' if race.over else '▶' if race.playing else 'paused'} {race.speed:g}×"
    digits = 2 if race.length < 10 else 1
    clock = f"race {doing}  {race.seconds:.{digits}f} of {race.length:.{digits}f} s"
    clock += " with prefill" * race.over  # which the tokens/s of the ranking below are without
    done = int(_BAR_CELLS * race.seconds / race.length) if race.length else 0
    bar = ("━" * done, "$text-accent"), ("╺" * (done < _BAR_CELLS) + "─" * (_BAR_CELLS - done - 1), "$quiet")
    return Content.assemble((clock, "bold $text-accent"), "  ", *bar, (f"  {key('race')} ends", "$text-muted"))


def with_notices(parts: Sequence[Content], notices: Sequence[Notice], width: int) -> Content:
    """`parts` in one row, and the notices behind them; in their place where not much of them would be left."""
    if not notices:
        return side_by_side(parts, width)
    said = Content("\n").join([notice.content for notice in notices])
    room = width - said.cell_length - 2
    if len(notices) > 1 or room < _LEAST_CELLS:
        return said
    left = side_by_side(parts, room)
    return Content.assemble(left, " " * (room - left.cell_length + 2), said)


def side_by_side(parts: Sequence[Content], width: int) -> Content:
    """In one row; where they do not fit, what one leaves of its share is for the others."""
    gap = 2
    room = max(0, width - gap * (len(parts) - 1))
    share = room // max(1, len(parts))
    spare = sum(max(0, share - part.cell_length) for part in parts)
    return Content(" " * gap).join([part.truncate(share + spare, ellipsis=True) for part in parts])
