"""What charts say in words, numbers and bars: pure functions from figures to lines of coloured parts."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import ceil

from rich.cells import cell_len

from specdec_tui.decoding.figures import RunFigures, speedup


class Ink(StrEnum):
    """What a part of a chart stands for; the value is its component class in the style sheet."""

    LABEL = "charts--label"
    VALUE = "charts--value"
    GOOD = "charts--good"
    FAIR = "charts--fair"
    POOR = "charts--poor"
    RUN = "charts--run"
    BASELINE = "charts--baseline"
    DRAFTING = "charts--drafting"
    VERIFYING = "charts--verifying"
    REST = "charts--rest"


ChartPart = tuple[str, Ink]
Line = list[ChartPart]

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LABEL, _VALUE, _WORD, _TAIL = 12, 7, 8, 17
_LEAST_GAUGE, _WIDEST_GAUGE = 6, 40


def cells(line: Line) -> int:
    return sum(cell_len(text) for text, _ in line)


def padded(line: Line, width: int) -> Line:
    """A line of exactly `width` cells; what does not fit is cut off."""
    kept: Line = []
    left = width
    for text, ink in line:
        if left > 0:
            kept.append((text[:left], ink))  # labels and bars are all one cell a character
            left -= min(left, len(text))
    return [*kept, (" " * left, Ink.LABEL)] if left else kept


def bar(share: float, width: int) -> str:
    """A bar of `width` cells, `share` (0…1) of them full, in eighths of a cell."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


def gauge(share: float, width: int, ink: Ink, mark: float | None = None) -> Line:
    """A bar on its track, with a mark at a share of it."""
    full = round(min(1.0, max(0.0, share)) * width)
    track = list("█" * full + "░" * (width - full))
    inks = [ink] * full + [Ink.REST] * (width - full)
    if mark is not None and width:
        place = min(width - 1, max(0, round(mark * width)))
        track[place], inks[place] = "┃", Ink.VALUE
    line: Line = []
    for character, colour in zip(track, inks, strict=True):
        if line and line[-1][1] is colour:
            line[-1] = (line[-1][0] + character, colour)
        else:
            line.append((character, colour))
    return line


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}".replace("%", " %")


def acceptance_verdict(alpha: float) -> tuple[str, Ink]:
    """A word and a colour for an acceptance rate: below 0.50 low, below 0.75 fair, else high."""
    return ("low", Ink.POOR) if alpha < 0.5 else ("fair", Ink.FAIR) if alpha < 0.75 else ("high", Ink.GOOD)


def gauge_lines(
    figures: RunFigures, window: RunFigures, baseline: RunFigures | None, is_target: bool, width: int
) -> list[Line]:
    """Acceptance, speedup and tokens/s: of the whole run, and of its window of last rounds."""
    if not figures.rounds:
        return [[("no rounds yet", Ink.LABEL)]]
    lines = [] if is_target else [_acceptance(figures, window, width), _speedup(figures, window, baseline, width)]
    lines.append(_speed(figures, window, None if is_target else baseline, width))
    if is_target:
        said = "no drafts to judge: the baseline of the other panes"
        lines.append([(said if len(said) <= width else "no drafts to judge", Ink.LABEL)])
    return lines


def _acceptance(figures: RunFigures, window: RunFigures, width: int) -> Line:
    alpha = figures.acceptance_rate
    if alpha is None:
        when = "no drafts in this run" if figures.end is not None else "no drafts so far"
        return [("acceptance".ljust(_LABEL), Ink.LABEL), (when, Ink.LABEL)]
    word, ink = acceptance_verdict(alpha)
    tail = percent(window.acceptance_rate)
    return _row("acceptance", alpha, None, ink, percent(alpha), word, _recent(window, tail), width)


def _speedup(figures: RunFigures, window: RunFigures, baseline: RunFigures | None, width: int) -> Line:
    ratio = None if baseline is None else speedup(baseline, figures)
    if baseline is None or ratio is None:
        why = "no run of the target to compare with"
        return [("speedup".ljust(_LABEL), Ink.LABEL), (why, Ink.LABEL)]
    now = speedup(baseline, window)
    word, ink = (
        ("slower", Ink.POOR) if ratio < 0.995 else ("faster", Ink.GOOD) if ratio > 1.005 else ("equal", Ink.FAIR)
    )
    # The scale ends at a whole number, so that bars of several panes can be compared at a glance.
    top = max(2, ceil(ratio))
    tail = "–" if now is None else f"{now:.2f}×"
    return _row("speedup", ratio / top, 1 / top, ink, f"{ratio:.2f}×", word, _recent(window, tail), width)


def _speed(figures: RunFigures, window: RunFigures, baseline: RunFigures | None, width: int) -> Line:
    rate = figures.decode_tokens_per_second
    if rate is None:
        return [("tokens/s".ljust(_LABEL), Ink.LABEL), ("no measurable time yet", Ink.LABEL)]
    theirs = None if baseline is None else baseline.decode_tokens_per_second
    top = max(rate, theirs or 0.0) or 1.0
    mark = theirs / top if theirs else None
    tail = _recent(window, speed_text(window.decode_tokens_per_second))
    line = _row("tokens/s", rate / top, mark, Ink.RUN, speed_text(rate), "", tail, width)
    more: Line = [("  ┃ target ", Ink.LABEL), (speed_text(theirs), Ink.BASELINE)]
    return line + more if theirs and cells(line) + cells(more) <= width else line


def speed_text(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}"


def recent_name(window: RunFigures) -> str:
    return f"last {window.rounds}"


def _recent(window: RunFigures, value: str) -> Line:
    return [(f"  {recent_name(window):>7} ", Ink.LABEL), (value.rjust(_VALUE), Ink.VALUE)]


def _row(label: str, share: float, mark: float | None, ink: Ink, value: str, word: str, tail: Line, width: int) -> Line:
    """Label, bar, number, word, and the same of the window; columns are the same in every row of a width."""
    room = width - _LABEL - _VALUE - _WORD - _TAIL
    drawn = min(_WIDEST_GAUGE, room) if room >= _LEAST_GAUGE else 0
    line: Line = [(label.ljust(_LABEL), Ink.LABEL), *gauge(share, drawn, ink, mark)]
    line += [(value.rjust(_VALUE), ink), (f" {word}".ljust(_WORD), ink)]
    return line + tail if cells(line) + _TAIL <= width else line


def bar_rows(
    titles: Sequence[str],
    rows: Sequence[tuple[str, float | None, float | None, Ink]],
    recent: str,
    width: int,
    height: int,
    top: float | None = None,
) -> list[Line]:
    """A chart of horizontal bars: label, bar and share of the whole run, share of the window.

    The first of `titles` that fits heads it. A full bar is `top`, else the largest share of the run.
    Of too many rows the last ones are left out, and their number is said.
    """
    label = max([2, *(len(name) for name, *_ in rows)])
    room = max(0, width - label - 1 - 7 - 8)
    title = next((t for t in titles if len(t) < width - 7 - 8), titles[-1])
    lines: list[Line] = [[(title.ljust(label + 1 + room), Ink.LABEL), (f"{'run':>7}{recent:>8}", Ink.LABEL)]]
    top = top or max([share or 0.0 for _, share, _, _ in rows], default=0.0) or 1.0
    left_out = max(0, len(rows) - (height - 1))
    for name, share, now, ink in rows[: len(rows) - left_out - 1 if left_out else len(rows)]:
        lines.append(
            [
                (f"{name:>{label}} ", Ink.LABEL),
                (bar((share or 0.0) / top, room), ink),
                (percent(share).rjust(7), Ink.VALUE),
                (percent(now).rjust(8), Ink.VALUE),
            ]
        )
    if left_out:
        lines.append([(f"{'…':>{label}} {left_out + 1} more", Ink.LABEL)])
    return lines[: max(0, height)]
