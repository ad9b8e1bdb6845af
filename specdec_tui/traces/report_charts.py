"""The charts of a report: what they plot is computed here, how they are drawn is in `charts`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import RoundVerified, Step
from specdec_tui.several_drafters import labelled
from specdec_tui.traces.charts import Bar, Series, bar_chart, line_chart
from specdec_tui.traces.markup import element

WINDOW = 8  # rounds over which a speed is taken: one round alone jumps between 1 and γ+1 tokens
_MOST_POINTS = 160
_FULL = 1.15  # of an axis for shares: room for the number above a bar of 1


def rounds_of(steps: Sequence[Step]) -> list[RoundVerified]:
    return [step.record for step in steps if isinstance(step.record, RoundVerified)]


def speed_over_time(rounds: Sequence[RoundVerified]) -> list[tuple[float, float]]:
    """(decode seconds so far, tokens per second over the last rounds), thinned out evenly."""
    ends, totals = [0.0], [0]
    for record in rounds:
        ends.append(ends[-1] + record.seconds)
        totals.append(totals[-1] + len(record.new_tokens))
    window = max(WINDOW, len(rounds) // _MOST_POINTS * 2)
    points: list[tuple[float, float]] = []
    for last in _thinned(range(min(window, len(rounds)), len(rounds) + 1)):
        first = max(0, last - window)
        seconds = ends[last] - ends[first]
        if seconds > 0:
            points.append((ends[last], (totals[last] - totals[first]) / seconds))
    return points


Points = list[tuple[float, float]]


def latency(rounds: Sequence[RoundVerified]) -> tuple[Points, Points, Points]:
    """(round from 1, milliseconds) of drafting, of the target pass, and of the way to a server.

    Many rounds are medians of neighbours.
    """
    size = -(-len(rounds) // _MOST_POINTS) or 1
    drafting: Points = []
    verifying: Points = []
    away: Points = []
    for start in range(0, len(rounds), size):
        part = rounds[start : start + size]
        middle = fmean(range(start + 1, start + len(part) + 1))
        drafting.append((middle, median(record.draft_seconds for record in part) * 1e3))
        verifying.append((middle, median(record.verify_seconds for record in part) * 1e3))
        away.append((middle, median(record.wire_seconds for record in part) * 1e3))
    return drafting, verifying, away


def speed_chart(runs: Mapping[str, Sequence[Step]], tones: Mapping[str, str], drafters: Mapping[str, str]) -> str:
    series = [
        Series(labelled(name, drafters), speed_over_time(rounds_of(steps)), tones[name]) for name, steps in runs.items()
    ]
    return line_chart(f"Speed over time (last {WINDOW} rounds or more)", "decode seconds", "tokens/s", series)


@dataclass(frozen=True, slots=True)
class Scale:
    """How far the axes of all strategies' charts reach, so that they can be compared: rounds, milliseconds."""

    rounds: float
    milliseconds: float


def common_scale(runs: Mapping[str, Sequence[Step]]) -> Scale:
    points = [point for steps in runs.values() for line in latency(rounds_of(steps)) for point in line]
    return Scale(max((x for x, _ in points), default=0), max((y for _, y in points), default=0))


def run_charts(steps: Sequence[Step], figures: RunFigures, tone: str, scale: Scale) -> str:
    """What one strategy's drafts were worth and what its rounds cost; empty where there were no drafts."""
    if not figures.drafted:
        return ""
    lengths = figures.accepted_lengths
    total = sum(lengths)
    kept = [Bar(str(count), times / total, f"{times / total:.0%}") for count, times in enumerate(lengths) if total]
    rates = enumerate(figures.conditional_acceptance, 1)
    conditional = [Bar(str(place), rate, f"{rate:.2f}") for place, rate in rates if rate is not None]
    drafting, verifying, away = latency(rounds_of(steps))
    target = Series("server" if figures.by_calls else "target pass", verifying, "tone-0")
    wire = [Series("wire", away, "tone-6" if tone == "tone-7" else "tone-7")] if figures.by_calls else []
    parts = [target, Series("drafting", drafting, tone), *wire]
    charts = (
        bar_chart("Accepted drafts of a round", "accepted drafts", "share of rounds", kept, tone, top=_FULL),
        bar_chart(
            "Acceptance of a draft, all before it accepted", "draft of a round", "", conditional, tone, top=_FULL
        ),
        line_chart(
            "What a round costs",
            "round",
            "ms",
            [Series("whole rounds", verifying, "tone-0")] if figures.served else parts,
            right=scale.rounds,
            top=scale.milliseconds,
        ),
    )
    return element("div", *charts, class_="charts")


def _thinned(places: range) -> list[int]:
    every = max(1, len(places) // _MOST_POINTS)
    kept = list(places[::every])
    return kept if not places or kept[-1] == places[-1] else [*kept, places[-1]]
