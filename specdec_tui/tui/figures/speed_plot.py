"""Tokens per second over time, a run's against the target's: textual-plot in the app's colours."""

from __future__ import annotations

from math import floor, log10
from typing import TYPE_CHECKING

from rich.style import Style
from textual_plot import HiResMode

from specdec_tui.tui.figures.plot import Plot

if TYPE_CHECKING:
    from specdec_tui.decoding.course import RunCourse
    from specdec_tui.tui.figures.scale import Scale


def ticks(top: float, most: int) -> list[float]:
    """Even ticks from 0 up to `top` > 0, in steps of 1, 2 or 5 times a power of ten.

    At most `most`, but never one alone: where there is no room for such steps, 0 and the largest round number.
    """
    least = top / max(1, most - 1)
    power = 10.0 ** floor(log10(least))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= least * (1 - 1e-9))
    if step > top:
        power = 10.0 ** floor(log10(top))
        return [0.0, floor(top / power) * power]
    return [index * step for index in range(floor(top / step * (1 + 1e-9)) + 1)]


class SpeedPlot(Plot):
    """Draws only when told to."""

    def show(
        self, run: RunCourse, baseline: RunCourse | None, style: Style, baseline_style: Style, scale: Scale
    ) -> None:
        """Plot both, thinned out to the columns there are; the target's line is dotted.

        The `scale` covers them.
        """
        columns = max(2, self.size.width - self.margin_left - 2)
        own = run.speeds(columns)
        theirs = [] if baseline is None or baseline is run else baseline.speeds(columns)
        self.clear()
        # Both axes from zero, and the same in all panes: a small difference must not look like a large one.
        self.set_xlimits(0.0, scale.seconds)
        self.set_ylimits(0.0, scale.top)
        self.set_xticks(ticks(scale.seconds, columns // 6))
        self.set_yticks(ticks(scale.top, self.size.height // 2))
        if theirs:
            x, y = zip(*theirs, strict=True)
            self.scatter(x, y, marker="•", marker_style=str(baseline_style))
        if own:
            x, y = zip(*(own if len(own) > 1 else [(0.0, own[0][1]), *own]), strict=True)
            self.plot(x, y, line_style=str(style), hires_mode=HiResMode.BRAILLE)

        self.render()  # now: drawn while the screen is painted, the canvases would be painted twice
