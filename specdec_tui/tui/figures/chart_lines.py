"""What charts say in words, numbers and bars: pure functions from figures to lines of coloured parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from rich.cells import cell_len

from specdec_tui.decoding.figures import OTHER_TEXTS, RunFigures
from specdec_tui.decoding.standing import RECOMPUTES, Verdict, standing
from specdec_tui.tui.figures.scale import Scale, round_number
from specdec_tui.tui.figures.words import OTHER_TEXT, SO_FAR, is_so_far, speed_text


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
    HOST = "charts--host"
    WIRE = "charts--wire"
    READING = "charts--reading"
    CAPTURING = "charts--capturing"


ChartPart = tuple[str, Ink]
Line = list[ChartPart]

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LABEL, _VALUE, _WORD, _NOW = 13, 9, 8, 7
_TAIL = 10 + _NOW
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


def gauge(share: float, width: int, ink: Ink, mark: float | None = None, until: float | None = None) -> Line:
    """A bar on its track, with a mark at a share of it; hatched on to `until`, where its end is uncertain.

    What is longer than the track ends in ▸.
    """
    full = round(min(1.0, max(0.0, share)) * width)
    hatched = max(0, round(min(1.0, until) * width) - full) if until is not None else 0
    rest = width - full - hatched
    track = list("█" * full + "▒" * hatched + "░" * rest)
    inks = [ink] * (full + hatched) + [Ink.REST] * rest
    if width and max(share, until or 0.0) > 1 + 1e-9:
        track[-1] = "▸"
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


def rate_text(rate: float | None) -> str:
    """Of an acceptance rate, everywhere."""
    return "–" if rate is None else f"{rate:.2f}"


def acceptance_verdict(alpha: float) -> tuple[str, Ink]:
    """A word and a colour for an acceptance rate: below 0.50 low, below 0.75 fair, else high."""
    return ("low", Ink.POOR) if alpha < 0.5 else ("fair", Ink.FAIR) if alpha < 0.75 else ("high", Ink.GOOD)


def gauge_lines(
    figures: RunFigures,
    window: RunFigures,
    baseline: RunFigures | None,
    is_target: bool,
    width: int,
    scale: Scale,
) -> list[Line]:
    """Acceptance, speedup and tokens/s: of the whole run, and of its window of last rounds."""
    if not figures.rounds:
        return [[("no rounds yet", Ink.LABEL)]]
    if not is_target:
        drafting = _acceptance(figures, window, width), _speedup(figures, window, baseline, width, scale)
        return [*drafting, _speed(figures, window, baseline, width, scale)]
    said = "no drafts to judge: the baseline of the other panes"
    shown = said if len(said) <= width else "no drafts to judge"
    return [_speed(figures, window, None, width, scale), [(shown, Ink.LABEL)]]


def _acceptance(figures: RunFigures, window: RunFigures, width: int) -> Line:
    alpha = figures.acceptance_rate
    if alpha is None:
        when = "no drafts in this run" if figures.end is not None else "no drafts so far"
        if not figures.drafts_are_told:
            when = "not told"
        return [("acceptance α".ljust(_LABEL), Ink.LABEL), (when, Ink.LABEL)]
    word, ink = acceptance_verdict(alpha)
    tail = _recent(window, rate_text(window.acceptance_rate))
    return _row("acceptance α", gauge(alpha, _room(width), ink), rate_text(alpha), word, ink, tail, width)


_SPEEDUP_INKS = {Verdict.FASTER: Ink.GOOD, Verdict.SLOWER: Ink.POOR}
_SPEEDUP_WORDS = {Verdict.DISTURBED: "clock disturbed", Verdict.OPEN: ""}


def _speedup(figures: RunFigures, window: RunFigures, baseline: RunFigures | None, width: int, scale: Scale) -> Line:
    found = standing(figures, baseline)
    if baseline is None or found is None:
        why = "no rounds of the target yet"
        if baseline is None:
            why = "no run of the target to compare with"
        elif figures.own_tokens:
            why = "its tokens are not the target's"
        elif figures.searches and figures.end is None:
            why = "told when the search has ended"
        return [("speedup".ljust(_LABEL), Ink.LABEL), (why, Ink.LABEL)]
    top = scale.speedup
    ink = _SPEEDUP_INKS.get(found.verdict, Ink.VALUE)
    low, high = found.range
    bar = gauge(low / top, _room(width), ink, 1 / top, high / top)
    now = None if found.is_disturbed else standing(window, baseline)
    word = _SPEEDUP_WORDS.get(found.verdict, found.verdict.value)
    if not word and RECOMPUTES in found.marks:
        word = "target recomputes"
    if not word and figures.strategy in OTHER_TEXTS:
        word = OTHER_TEXT
    if is_so_far(figures, baseline) and not found.doubt:
        word = f"{word} {SO_FAR}".strip()
    tail = [] if found.is_disturbed else _recent(window, "–" if now is None or now.is_disturbed else now.text)
    return _row(f"speedup 0–{top:g}×", bar, found.marked, word, ink, tail, width)


def _speed(figures: RunFigures, window: RunFigures, baseline: RunFigures | None, width: int, scale: Scale) -> Line:
    rate = figures.decode_tokens_per_second
    if rate is None:
        return [("tokens/s".ljust(_LABEL), Ink.LABEL), ("no measurable time yet", Ink.LABEL)]
    theirs = None if baseline is None else baseline.decode_tokens_per_second
    top = scale.top or round_number(rate) or 1.0  # the axis of the plot ends there too
    bar = gauge(rate / top, _room(width), Ink.RUN, min(1.0, theirs / top) if theirs else None)
    tail = _recent(window, speed_text(window.decode_tokens_per_second))
    line = _row(f"tok/s 0–{top:g}", bar, speed_text(rate), "", Ink.RUN, tail, width)
    more: Line = [("  ┃ target ", Ink.LABEL), (speed_text(theirs), Ink.BASELINE)]
    return line + more if theirs and cells(line) + cells(more) <= width else line


def recent_name(window: RunFigures) -> str:
    return f"last {window.rounds}"


def _recent(window: RunFigures, value: str) -> Line:
    return [(f"  {recent_name(window):>7} ", Ink.LABEL), (value.rjust(_NOW), Ink.VALUE)]


def _room(width: int) -> int:
    """Cells of a gauge's bar; none where they would be too few to read."""
    room = width - _LABEL - _VALUE - _WORD - _TAIL
    return min(_WIDEST_GAUGE, room) if room >= _LEAST_GAUGE else 0


def _row(label: str, bar: Line, value: str, word: str, ink: Ink, tail: Line, width: int) -> Line:
    """Label with the bar's scale, bar, number, word, and the same of the window, in columns."""
    label = label if bar else label.partition(" ")[0]
    line: Line = [(label.ljust(_LABEL), Ink.LABEL), *bar]
    comma = "," * (bool(word) and bool(tail))
    line += [(f" {value}{comma}".rjust(_VALUE), ink), (f" {word}".ljust(_WORD), ink)]
    return line + tail if cells(line) + _TAIL <= width else line


def bar_rows(
    titles: Sequence[str],
    rows: Sequence[tuple[str, float | None, float | None, Ink]],
    recent: str,
    width: int,
    height: int,
    number: Callable[[float | None], str],
) -> list[Line]:
    """A chart of horizontal bars: label, bar and share of the whole run, share of the window.

    The first of `titles` that fits heads it. A full bar is a share of 1, so that panes can be compared.
    Of too many rows the last ones are left out, and their number is said.
    """
    label = max([2, *(len(name) for name, *_ in rows)])
    room = max(0, width - label - 1 - 7 - 8)
    title = next((t for t in titles if len(t) < width - 7 - 8), titles[-1])
    lines: list[Line] = [[(title.ljust(label + 1 + room), Ink.LABEL), (f"{'run':>7}{recent:>8}", Ink.LABEL)]]
    left_out = max(0, len(rows) - (height - 1))
    for name, share, now, ink in rows[: len(rows) - left_out - 1 if left_out else len(rows)]:
        lines.append(
            [
                (f"{name:>{label}} ", Ink.LABEL),
                (bar(share or 0.0, room), ink),
                (number(share).rjust(7), Ink.VALUE),
                (number(now).rjust(8), Ink.VALUE),
            ]
        )
    if left_out:
        lines.append([(f"{'…':>{label}} {left_out + 1} more", Ink.LABEL)])
    return lines[: max(0, height)]
