"""The charts of a run's rounds, in full and in one row each: accepted lengths, positions, latencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.tui.figures.chart_layout import Chart
from specdec_tui.tui.figures.chart_lines import (
    Ink,
    Line,
    acceptance_verdict,
    bar_rows,
    cells,
    percent,
    recent_name,
    speed_text,
)
from specdec_tui.tui.figures.words import sparkline

LATEST_ROUNDS = 10
_LABEL = 12
_NO_DRAFTS = "no drafts"


def applicable(figures: RunFigures) -> tuple[Chart, ...]:
    """The charts that a run has anything for, most important first."""
    if not figures.rounds:
        return ()
    return tuple(Chart) if figures.drafted else (Chart.SPEED, Chart.LATENCY)


def full_chart(
    chart: Chart, figures: RunFigures, window: RunFigures, baseline: RunFigures | None, width: int, height: int
) -> list[Line]:
    """At most `height` lines, the window's figures beside the run's.

    Of the speed over time only the heading, which is its legend too: the rest is a plot.
    """
    match chart:
        case Chart.SPEED:
            return [_speed_heading(figures, baseline, width)]
        case Chart.LENGTHS:
            titles = ("accepted drafts, share of the rounds that had any", "accepted, rounds with drafts", "accepted")
            shares = length_shares(figures), length_shares(window)
            rows = [(str(i), run, now, Ink.RUN) for i, (run, now) in enumerate(_paired(*shares))]
        case Chart.POSITIONS:
            titles = ("acceptance of a draft if all before it were", "acceptance by position", "by position")
            shares = figures.conditional_acceptance, window.conditional_acceptance
            rows = [
                (str(i), run, now, Ink.LABEL if run is None else acceptance_verdict(run)[1])
                for i, (run, now) in enumerate(_paired(*shares), 1)
            ]
        case Chart.LATENCY:
            return _latency(figures, window, width, height)
    top = 1.0 if chart is Chart.POSITIONS else None
    return bar_rows(titles, rows, recent_name(window), width, height, top)


def compact_chart(chart: Chart, figures: RunFigures, width: int) -> Line:
    """A chart in one row; entries that do not fit are left out and their place is marked."""
    match chart:
        case Chart.LENGTHS:
            return _series("accepted", length_shares(figures), 0, width, lambda share: Ink.VALUE)
        case Chart.POSITIONS:
            return _series("by position", figures.conditional_acceptance, 1, width, lambda s: acceptance_verdict(s)[1])
        case Chart.LATENCY:
            return _compact_latency(figures, width)
    return []


def length_shares(figures: RunFigures) -> list[float | None]:
    """At index n: share of the rounds with drafts in which exactly n of them were accepted."""
    counts = figures.accepted_lengths
    total = sum(counts)
    return [count / total for count in counts] if total else []


def _paired(run: Sequence[float | None], now: Sequence[float | None]) -> list[tuple[float | None, float | None]]:
    return [(share, now[i] if i < len(now) else None) for i, share in enumerate(run)]


def _series(label: str, shares: Sequence[float | None], first: int, width: int, ink: Callable[[float], Ink]) -> Line:
    line: Line = [(label.ljust(_LABEL), Ink.LABEL)]
    for number, share in enumerate(shares, first):
        value = Ink.LABEL if share is None else ink(share)
        entry: Line = [(f"{number}: ", Ink.LABEL), (percent(share), value), ("  ", Ink.LABEL)]
        more = number - first < len(shares) - 1
        if cells(line) + cells(entry) + (1 if more else -2) > width:
            return [*line, ("…", Ink.LABEL)]
        line += entry
    return line if shares else [*line, (_NO_DRAFTS, Ink.LABEL)]


def _speed_heading(figures: RunFigures, baseline: RunFigures | None, width: int) -> Line:
    line: Line = [("tokens/s over time (s)", Ink.LABEL)] if width >= 44 else [("tok/s", Ink.LABEL)]
    # Only the lines that the plot has: those of runs with rounds.
    speeds = [("⠤⠒ run", figures, Ink.RUN)]
    if baseline is not None and baseline is not figures:
        speeds.append(("•• target", baseline, Ink.BASELINE))
    for name, run, ink in speeds:
        entry: Line = [("  ", Ink.LABEL), (name, ink)]
        if width >= 60:
            entry.append((f" {speed_text(run.decode_tokens_per_second)}", ink))
        if cells(line) + cells(entry) <= width:
            line += entry
    return line


def ms_text(seconds: float) -> str:
    ms = seconds * 1000
    if ms >= 1e6:
        return f"{ms:.0e}"
    return f"{ms:.2f}" if ms < 1 else f"{ms:.1f}" if ms < 1000 else f"{ms:.0f}"


def _latency(figures: RunFigures, window: RunFigures, width: int, height: int) -> list[Line]:
    """A bar for each of the last rounds, drafting then verifying, and the means of the window and of the run."""
    means = [
        (name, _mean(run.draft_seconds, run.rounds), _mean(run.verify_seconds, run.rounds))
        for name, run in ((recent_name(window), window), ("run", figures))
    ]
    latest = figures.course.latest(min(LATEST_ROUNDS, max(0, height - 1 - len(means))))
    rows = [(str(record.round + 1), record.draft_seconds, record.verify_seconds) for record in latest]
    rows = (rows + means)[: max(0, height - 1)]
    label = max(len(name) for name, *_ in rows) if rows else 0
    room = max(0, width - label - 1 - 7 - 8)
    scale = max([draft + verify for _, draft, verify in rows], default=0.0) or 1.0
    title = next(t for t in ("ms of the last rounds", "ms a round", "ms") if len(t) < width - 7 - 8 or t == "ms")
    lines: list[Line] = [
        [
            (title.ljust(label + 1 + room), Ink.LABEL),
            ("▒draft".rjust(7), Ink.DRAFTING),
            ("█verify".rjust(8), Ink.VERIFYING),
        ]
    ]
    for name, draft, verify in rows:
        drafting = round(draft / scale * room)
        verifying = round((draft + verify) / scale * room) - drafting
        lines.append(
            [
                (f"{name:>{label}} ", Ink.LABEL),
                ("▒" * drafting, Ink.DRAFTING),
                ("█" * verifying, Ink.VERIFYING),
                (" " * (room - drafting - verifying), Ink.LABEL),
                (ms_text(draft).rjust(7), Ink.VALUE),
                (ms_text(verify).rjust(8), Ink.VALUE),
            ]
        )
    return lines[: max(0, height)]


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


def _compact_latency(figures: RunFigures, width: int) -> Line:
    latest = figures.course.latest(LATEST_ROUNDS)
    drafts = [record.draft_seconds for record in latest]
    verifies = [record.verify_seconds for record in latest]
    top = round(max([*drafts, *verifies], default=0.0) * 1e9)
    series = [("verify ", verifies, Ink.VERIFYING)]
    if figures.drafted:
        series.insert(0, ("draft ", drafts, Ink.DRAFTING))
    means = [ms_text(_mean(sum(times), len(times))) for _, times, _ in series]
    numbers = sum(len(name) + len(mean) + 3 for (name, _, _), mean in zip(series, means, strict=True)) - 2
    label = f"ms, last {len(latest)}".ljust(_LABEL)
    if len(label) + numbers > width:  # a number cut short would be another number
        label = "ms "
    line: Line = [(label, Ink.LABEL)]
    # The newest rounds, as many of both sides as there is room for; means are of all ten.
    count = (width - len(label) - numbers) // len(series)
    for (name, times, ink), mean in zip(series, means, strict=True):
        gap = "" if len(line) == 1 else "  "
        bars = sparkline([round(t * 1e9) for t in times[-count:]], top) if count > 0 else ""
        line += [(f"{gap}{name}", Ink.LABEL), (f"{mean} ", Ink.VALUE), (bars, ink)]
    return line
