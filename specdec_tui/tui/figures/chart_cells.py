"""The charts of a run's rounds, in full and in one row each: accepted lengths, positions, latencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from specdec_tui.decoding.course import WINDOW_ROUNDS
from specdec_tui.tui.figures.chart_layout import Chart
from specdec_tui.tui.figures.chart_lines import (
    Ink,
    Line,
    acceptance_verdict,
    bar_rows,
    cells,
    percent,
    rate_text,
    recent_name,
)
from specdec_tui.tui.figures.pass_chart import compact_passes, full_passes
from specdec_tui.tui.figures.words import sparkline, speed_text

if TYPE_CHECKING:
    from specdec_tui.decoding.figures import RunFigures
    from specdec_tui.decoding.records import RoundVerified
    from specdec_tui.tui.figures.scale import Scale

LATEST_ROUNDS = 10
_LABEL = 13
_NO_DRAFTS = "no drafts"
_LEAST_FOR_BARS = 21  # columns for bars and their labels, beside the numbers of all parts


def applicable(figures: RunFigures) -> tuple[Chart, ...]:
    """The charts that a run has anything for, most important first."""
    if not figures.rounds:
        return ()
    return tuple(Chart) if figures.drafted else (Chart.SPEED, Chart.LATENCY, Chart.PASSES)


def full_chart(
    chart: Chart,
    figures: RunFigures,
    window: RunFigures,
    baseline: RunFigures | None,
    width: int,
    height: int,
    scale: Scale,
) -> list[Line]:
    """At most `height` lines, the window's figures beside the run's.

    Of the speed over time only the heading, which is its legend too: the rest is a plot.
    """
    recent = recent_name(window)
    match chart:
        case Chart.SPEED:
            return [_speed_heading(figures, baseline, width, scale)]
        case Chart.LENGTHS:
            what = "accepted drafts, share of the rounds that had any"
            titles = (f"{what}, bars 0–100 %", what, "accepted, rounds with drafts", "accepted")
            shares = length_shares(figures), length_shares(window)
            rows = [(str(i), run, now, Ink.RUN) for i, (run, now) in enumerate(_paired(*shares))]
            return bar_rows(titles, rows, recent, width, height, percent)
        case Chart.POSITIONS:
            what = "acceptance of a draft if all before it were"
            titles = (f"{what}, bars 0–1", what, "acceptance by position", "by position")
            shares = figures.conditional_acceptance, window.conditional_acceptance
            rows = [
                (str(i), run, now, Ink.LABEL if run is None else acceptance_verdict(run)[1])
                for i, (run, now) in enumerate(_paired(*shares), 1)
            ]
            return bar_rows(titles, rows, recent, width, height, rate_text)
        case Chart.LATENCY:
            return _latency(figures, window, plain_step(baseline), width, height, scale)
        case Chart.PASSES:
            return full_passes(figures, width, height)


def compact_chart(chart: Chart, figures: RunFigures, baseline: RunFigures | None, width: int, scale: Scale) -> Line:
    """A chart in one row; entries that do not fit are left out and their place is marked."""
    match chart:
        case Chart.LENGTHS:
            return _series("accepted", length_shares(figures), 0, width, percent, lambda share: Ink.VALUE)
        case Chart.POSITIONS:
            verdict = acceptance_verdict
            return _series("by position", figures.conditional_acceptance, 1, width, rate_text, lambda s: verdict(s)[1])
        case Chart.LATENCY:
            return _compact_latency(figures, plain_step(baseline), width, scale)
        case Chart.PASSES:
            return compact_passes(figures, "pass of n".ljust(_LABEL), width)
    return []


def plain_step(baseline: RunFigures | None) -> float | None:
    """Mean seconds of the target's own step, a pass over one token: as its own pane has it, and all bars of means."""
    return _mean(baseline.verify_seconds, baseline.rounds) if baseline is not None and baseline.rounds else None


def length_shares(figures: RunFigures) -> list[float | None]:
    """At index n: share of the rounds with drafts in which exactly n of them were accepted."""
    counts = figures.accepted_lengths
    total = sum(counts)
    return [count / total for count in counts] if total else []


def _paired(run: Sequence[float | None], now: Sequence[float | None]) -> list[tuple[float | None, float | None]]:
    return [(share, now[i] if i < len(now) else None) for i, share in enumerate(run)]


def _series(
    label: str,
    shares: Sequence[float | None],
    first: int,
    width: int,
    text: Callable[[float | None], str],
    ink: Callable[[float], Ink],
) -> Line:
    line: Line = [(label.ljust(_LABEL), Ink.LABEL)]
    for number, share in enumerate(shares, first):
        value = Ink.LABEL if share is None else ink(share)
        entry: Line = [(f"{number}: ", Ink.LABEL), (text(share), value), ("  ", Ink.LABEL)]
        more = number - first < len(shares) - 1
        if cells(line) + cells(entry) + (1 if more else -2) > width:
            return [*line, ("…", Ink.LABEL)]
        line += entry
    return line if shares else [*line, (_NO_DRAFTS, Ink.LABEL)]


def _speed_heading(figures: RunFigures, baseline: RunFigures | None, width: int, scale: Scale) -> Line:
    """The longest that fits: where the axis ends in all panes, whatever the height of their plots, and the lines."""
    # Only the lines that the plot has: those of runs with rounds.
    speeds = [("⠤⠒ run", figures, Ink.RUN)]
    if baseline is not None and baseline is not figures:
        speeds.append(("•• target", baseline, Ink.BASELINE))
    names = [("  " + name, ink) for name, _, ink in speeds]
    full = [
        (f"{name} {speed_text(run.decode_tokens_per_second)}", ink)
        for (name, ink), (_, run, _) in zip(names, speeds, strict=True)
    ]
    top = f"0–{scale.top:g}"
    titles = f"tokens/s over time (s), {top} in all panes", f"tokens/s {top} over time (s)", f"tok/s {top}", "tok/s"
    lines = [[(title, Ink.LABEL), *entries] for title in titles for entries in (full, names)]
    return next((line for line in lines if cells(line) <= width), [(titles[-1], Ink.LABEL), *names[:1]])


def ms_text(seconds: float) -> str:
    ms = seconds * 1000
    if ms >= 1e6:
        return f"{ms:.0e}"
    return f"{ms:.2f}" if ms < 1 else f"{ms:.1f}" if ms < 1000 else f"{ms:.0f}"


Side = tuple[str, str, Ink, int]
"""A part of a round: its glyph, its name, its ink, and the cells of its numbers."""
_DRAFT: Side = ("▒", "draft", Ink.DRAFTING, 7)
_LOCAL: tuple[Side, ...] = (_DRAFT, ("█", "verify", Ink.VERIFYING, 8))
_BY_CALLS: tuple[Side, ...] = (_DRAFT, ("█", "server", Ink.VERIFYING, 8), ("━", "wire", Ink.WIRE, 7))

_SERVED: tuple[Side, ...] = (("█", "round", Ink.VERIFYING, 7),)


def _sides(figures: RunFigures) -> tuple[Side, ...]:
    """The parts of a round in the order in which they are drawn: of a target on a server the way is one.

    Of a server that drafted by itself there is nothing but the whole.
    """
    return _SERVED if figures.served else _BY_CALLS if figures.by_calls else _LOCAL


def _parts(of: RunFigures | RoundVerified, sides: Sequence[Side]) -> list[float]:
    """Their seconds."""
    return (
        [of.verify_seconds]
        if sides is _SERVED
        else [of.draft_seconds, of.verify_seconds, of.wire_seconds][: len(sides)]
    )


def _latency(
    figures: RunFigures, window: RunFigures, step: float | None, width: int, height: int, scale: Scale
) -> list[Line]:
    """A bar for each of the last rounds, its parts one behind another, and the means of the window and of the run.

    Where the window is the whole run, they are there once. A line across the bars is the target's own step: the
    mean of its passes over one token. Bars longer than the scale end in ▸.
    """
    sides = _sides(figures)
    means = [
        (name, [_mean(seconds, run.rounds) for seconds in _parts(run, sides)])
        for name, run in ((recent_name(window), window), ("run", figures))
        if run is figures or window.rounds < figures.rounds
    ]
    latest = figures.course.latest(min(LATEST_ROUNDS, max(0, height - 1 - len(means))))
    rows = [(str(record.round + 1), _parts(record, sides)) for record in latest]
    rows = (rows + means)[: max(0, height - 1)]
    label = len(f"last {WINDOW_ROUNDS}")  # of short runs too: the same milliseconds end in the same cell of all panes
    top = scale.round_seconds or 1.0
    widths = [cells for *_, cells in sides]
    narrow = width < _LEAST_FOR_BARS + sum(widths)
    room = max(0, width - label - 1 - (widths[0] if narrow else sum(widths)))
    mark = None if step is None else min(room - 1, round(step / top * room))
    lines = [_narrow_title(sides, width, step) if narrow else _latency_title(sides, label + 1 + room, scale, step)]
    for name, parts in rows:
        numbers = [sum(parts)] if narrow else parts
        line = [(f"{name:>{label}} ", Ink.LABEL), *_stacked(sides, [part / top for part in parts], room, mark)]
        line += [(ms_text(seconds).rjust(cells), Ink.VALUE) for seconds, cells in zip(numbers, widths, strict=False)]
        lines.append(line)
    return lines[: max(0, height)]


def _latency_title(sides: Sequence[Side], room: int, scale: Scale, step: float | None) -> Line:
    """The longest that fits, with the scale and what the line across the bars is, over columns of numbers."""
    bars = f"0–{scale.round_seconds * 1000:g}"
    target, where = ("", "") if step is None else (f"  ┃ target's mean {ms_text(step)}", "  ┃ target's mean")
    titles = f"ms of the last rounds, bars {bars}{target}", f"ms, bars {bars}{target}", f"ms {bars}{target}"
    title = next((title for title in (*titles, f"ms {bars}{where}", f"ms {bars}") if len(title) < room), "ms")
    return [
        (title.ljust(room), Ink.LABEL),
        *((f"{glyph}{name}".rjust(cells), ink) for glyph, name, ink, cells in sides),
    ]


def _narrow_title(sides: Sequence[Side], room: int, step: float | None) -> Line:
    """Over one column of numbers: all parts of a round together."""
    line: Line = [(f"{glyph}{name} ", ink) for glyph, name, ink, _ in sides]
    text, ink = line[-1]
    line[-1] = (text.rstrip(), ink)
    for target in () if step is None else (f" ┃target {ms_text(step)}", " ┃target"):
        if cells(line) + len(target) + 3 <= room:
            line.append((target, Ink.LABEL))
            break
    return [*line, ("ms".rjust(room - cells(line)), Ink.LABEL)]


def _stacked(sides: Sequence[Side], parts: Sequence[float], room: int, mark: int | None) -> Line:
    """Shares of `room` cells one behind another, and the mark on them."""
    cells: Line = []
    until = 0.0
    for (glyph, _, ink, _), part in zip(sides, parts, strict=True):
        until += part
        cells += [(glyph, ink)] * (min(room, round(until * room)) - len(cells))
    cells += [(" ", Ink.LABEL)] * (room - len(cells))
    if room and round(until * room) > room:
        cells[-1] = ("▸", cells[-1][1])
    if mark is not None and 0 <= mark < room:
        cells[mark] = ("┃", Ink.VALUE)
    return [("".join(text for text, _ in group), ink) for ink, group in groupby(cells, key=itemgetter(1))]


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


def _compact_latency(figures: RunFigures, step: float | None, width: int, scale: Scale) -> Line:
    latest = figures.course.latest(LATEST_ROUNDS)
    sides = _sides(figures)
    parts = [_parts(record, sides) for record in latest]
    top = round(scale.round_seconds * 1e9)
    series = [
        (f"{name} ", [one[place] for one in parts], ink)
        for place, (_, name, ink, _) in enumerate(sides)
        if figures.drafted or name != "draft"
    ]
    means = [ms_text(_mean(sum(times), len(times))) for _, times, _ in series]
    numbers = sum(len(name) + len(mean) + 3 for (name, _, _), mean in zip(series, means, strict=True)) - 2
    label = f"ms, last {len(latest)}".ljust(_LABEL)
    if len(label) + numbers > width:  # a number cut short would be another number
        label = "ms "
    target: Line = [] if step is None else [("  target's mean ", Ink.LABEL), (ms_text(step), Ink.BASELINE)]
    if len(label) + numbers + cells(target) > width:
        target = []
    line: Line = [(label, Ink.LABEL)]
    # The newest rounds, as many of both sides as there is room for; means are of all ten.
    count = (width - len(label) - numbers - cells(target)) // len(series)
    for (name, times, ink), mean in zip(series, means, strict=True):
        gap = "" if len(line) == 1 else "  "
        bars = sparkline([round(t * 1e9) for t in times[-count:]], top) if count > 0 else ""
        line += [(f"{gap}{name}", Ink.LABEL), (f"{mean} ", Ink.VALUE), (bars, ink)]
    return line + target
