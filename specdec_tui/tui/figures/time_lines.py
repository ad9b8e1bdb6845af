"""Where the time of a run went, as one bar, its parts in seconds and a sentence: pure functions to lines."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from specdec_tui.decoding.figures import OF_THE_DRAFTER, RunFigures
from specdec_tui.decoding.reliability import ms_text
from specdec_tui.decoding.shares import Part, Shares, shares
from specdec_tui.decoding.standing import Verdict, standing
from specdec_tui.decoding.time_verdict import time_verdict
from specdec_tui.tui.figures.chart_lines import Ink, Line, cells, percent

LOOKS = {
    Part.DRAFT: ("▒", Ink.DRAFTING),
    Part.TARGET: ("█", Ink.VERIFYING),
    Part.WIRE: ("━", Ink.WIRE),
    Part.REST: ("░", Ink.HOST),
    Part.PREFILL: ("▄", Ink.READING),
    Part.CAPTURE: ("≡", Ink.CAPTURING),
}
"""The glyph and colour of a part: either tells it from the others."""

_TOTAL = 9  # cells of the seconds behind a bar
_NAME = 15
_LEAST_BAR = 8
_LEAST_FOR_ROWS, _LEAST_FOR_DETAIL = 2 + _NAME + _TOTAL + 6, 48  # columns
_INKS = {Verdict.FASTER: Ink.GOOD, Verdict.SLOWER: Ink.POOR, Verdict.DISTURBED: Ink.FAIR}

Beside = Sequence[tuple[str, Shares]]
"""Strategies and where their time went."""


def time_lines(
    run: RunFigures, baseline: RunFigures | None, wall: float, width: int, height: int, beside: Beside = ()
) -> list[Line]:
    """At most `height` lines. `wall`: seconds of a full bar, in all panes the same.

    `beside`: the other panes' runs, this one's among them, where these are not in sight; they have room before the
    parts have a row each. The sentence comes before what tells the parts, and the bar before both.
    """
    found = shares(run)
    said = _sentence(run, baseline, width, max(1, height - 1))
    if not found.total:
        return said[: max(0, height)]
    bars = [_bar_line("", found, wall, width)]
    if len(beside) > 1 and height >= len(beside) + len(said) + 1:
        longest = max(len(name) for name, _ in beside)
        names = [("▸" if name == run.strategy else " ") + name.ljust(longest + 1) for name, _ in beside]
        bars = [_bar_line(name, one, wall, width) for name, (_, one) in zip(names, beside, strict=True)]
    room = height - len(bars) - len(said)
    rows = _rows(run, found, wall, width)
    has_room = len(rows) <= room and width >= _LEAST_FOR_ROWS
    parts = rows if has_room else _legend(run, found, width, room)
    airy = room >= len(parts) + 2
    return [*bars, *[[]] * airy, *parts, *[[]] * airy, *said][: max(0, height)]


def _sentence(run: RunFigures, baseline: RunFigures | None, width: int, height: int) -> list[Line]:
    verdict = None if run.strategy == "target" else standing(run, baseline)
    ink = Ink.VALUE if verdict is None else _INKS.get(verdict.verdict, Ink.VALUE)
    lines = wrap(time_verdict(run, baseline), max(1, width), break_on_hyphens=False) or [""]
    if len(lines) > height:
        lines = [*lines[: height - 1], lines[height - 1][: max(0, width - 1)] + "…"]
    return [[(line, ink)] for line in lines]


def _bar_line(name: str, found: Shares, wall: float, width: int) -> Line:
    room = width - len(name) - _TOTAL
    total = seconds_text(found.total)
    if room < _LEAST_BAR:
        return [(name, Ink.LABEL), (total, Ink.VALUE)]
    return [(name, Ink.LABEL), *bar_of(found, wall, room), (total.rjust(_TOTAL), Ink.VALUE)]


def bar_of(found: Shares, wall: float, room: int) -> Line:
    """The parts one behind another, `room` cells for `wall` seconds; what is longer ends in ▸."""
    line: Line = []
    until, used = 0.0, 0
    for part, seconds in found.parts:
        until += seconds
        end = min(room, round(until / wall * room) if wall else 0)
        glyph, ink = LOOKS[part]
        line += [(glyph * (end - used), ink)] * (end > used)
        used = end
    if wall and round(found.total / wall * room) > room and line:
        text, ink = line[-1]
        line[-1] = (text[:-1] + "▸", ink)
    return [*line, (" " * (room - used), Ink.LABEL)]


def _rows(run: RunFigures, found: Shares, wall: float, width: int) -> list[Line]:
    """A row for each part that took time, and the sum with what a full bar stands for."""
    lines: list[Line] = []
    for part, seconds in found.parts:
        if not seconds and (part is Part.CAPTURE or (part is Part.WIRE and not run.by_calls)):
            continue
        if not seconds and run.served and part in _NOT_SPLIT:
            continue
        glyph, ink = LOOKS[part]
        share = percent(seconds / found.total)
        line: Line = [(f"{glyph} ", ink), (_name(part, run).ljust(_NAME), Ink.LABEL)]
        line += [(seconds_text(seconds).rjust(_TOTAL), Ink.VALUE), (share.rjust(6), Ink.VALUE)]
        if width >= _LEAST_FOR_DETAIL and (detail := _detail(part, seconds, run)):
            line.append((f"  {detail}", Ink.LABEL))
        lines.append(line if cells(line) <= width else line[:-1])
    # The sum says what these are shares of: those of the table are of decoding alone.
    total: Line = [
        ("  " + "with prefill".ljust(_NAME), Ink.LABEL),
        (seconds_text(found.total).rjust(_TOTAL), Ink.VALUE),
    ]
    total.append((percent(1.0).rjust(6), Ink.VALUE))
    bar = f"  a full bar is {seconds_text(wall)}"
    scale = next((text for text in (f"{bar} in all panes", bar) if cells(total) + len(text) <= width), "")
    return [*lines, [*total, (scale, Ink.LABEL)]]


def _legend(run: RunFigures, found: Shares, width: int, height: int) -> list[Line]:
    """The same parts one behind another, in as many words as there are rows for."""
    lines: list[Line] = []
    for words in (2, 1, 0):  # glyph and seconds, with the name, with the share
        lines = [[]]
        for part, seconds in found.parts:
            if not seconds:
                continue
            glyph, ink = LOOKS[part]
            entry: Line = [(glyph, ink), (f" {_name(part, run)}" * (words > 0), Ink.LABEL)]
            entry.append((f" {seconds_text(seconds)}", Ink.VALUE))
            entry += [(f" {percent(seconds / found.total)}", Ink.VALUE)] * (words > 1)
            if lines[-1] and cells(lines[-1]) + 2 + cells(entry) > width:
                lines.append([])
            lines[-1] += [("  ", Ink.LABEL), *entry] if lines[-1] else entry
        if len(lines) <= height and all(cells(line) <= width for line in lines):
            break
    return lines[: max(0, height)]


_NOT_SPLIT = Part.DRAFT, Part.REST
"""Of a server's own run these are in its rounds, with an unknown share."""


def _name(part: Part, run: RunFigures) -> str:
    if part is Part.TARGET and run.by_calls:
        return "server"
    if part is Part.TARGET and run.served:
        return "whole rounds"
    return "drafter" if part is Part.TARGET and run.strategy in OF_THE_DRAFTER else part.value


def _detail(part: Part, seconds: float, run: RunFigures) -> str:
    """What a part comes of."""
    match part:
        case Part.TARGET if run.served:
            return f"{_counted(run.rounds, 'round')} of {ms_text(seconds / max(1, run.rounds))}, not split"
        case Part.DRAFT if run.drafted:
            return f"{_counted(run.drafted, 'draft')} of {ms_text(seconds / run.drafted)}"
        case Part.TARGET if run.by_calls and run.rounds:
            asked = "token" if run.strategy == "target" else "call"
            return f"{_counted(run.rounds, asked)} of {ms_text(seconds / run.rounds)}"
        case Part.WIRE if run.calls:
            return f"{_counted(run.calls, 'round trip')} of {ms_text(seconds / run.calls)}"
        case Part.TARGET if run.rounds:
            what = ("step", "steps") if run.searches else ("pass", "passes")
            told = f"{run.rounds} {what[run.rounds != 1]} of {ms_text(seconds / run.rounds)}"
            return told if run.searches else f"{told} in rounds"  # the prefill's own pass has a row of its own
        case Part.REST if run.rounds:
            return f"{ms_text(seconds / run.rounds)} a round"
        case Part.PREFILL:
            return _counted(run.prompt_tokens, "prompt token")
        case Part.CAPTURE:
            return "once for a shape"
    return ""


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def seconds_text(seconds: float) -> str:
    """`12 ms`, `1.23 s`, `123 s`; of nothing `0 s`."""
    if not seconds:
        return "0 s"
    if seconds < 0.1:
        return ms_text(seconds)
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s" if seconds < 1e6 else f"{seconds:.0e} s"
