"""The line above the panes: what they show, what waits, how far a race is."""

from __future__ import annotations

from textual.content import Content

from specdec_tui.tui.app.race import Race
from specdec_tui.tui.commands.header import one_row


def run_line(last_prompt: str, waiting: str, opened: str, race: Race | None) -> Content:
    """`opened` tells of the trace in the panes, where they show one."""
    if race is not None:
        clock = f"race {race.speed:g}×  {race.seconds:.1f} of {race.length:.1f} s"
        return Content.assemble((clock, "bold $text-accent"), ("  , slower  . faster  R ends", "$text-muted"))
    if waiting:
        line = Content.assemble(("waiting  ", "$text-warning"), one_row(waiting))
    else:
        line = Content.assemble(("› ", "bold $text-primary"), one_row(last_prompt))
    return Content.assemble((f"{opened} ", "$text-accent"), line) if opened else line
