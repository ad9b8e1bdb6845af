"""A kept run as a line of a list: what was asked, with which settings, what came of it. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size
from textual.content import Content

from specdec_tui.decoding.figures import DRAFT_NOTHING
from specdec_tui.decoding.records import EndReason
from specdec_tui.decoding.reliability import DOUBTS
from specdec_tui.decoding.standing import Verdict
from specdec_tui.several_drafters import labelled, labels
from specdec_tui.traces.format import TraceHeader
from specdec_tui.traces.standings import best_of, standings, words
from specdec_tui.traces.store import Entry
from specdec_tui.tui.commands.header import local_time, one_row
from specdec_tui.tui.figures.words import BAD, GOOD, QUIET, WARN, Part

_GAP = "  "
_LONGEST_PROMPT = 1000  # of characters in a line, and of those that are searched ten times as many


@dataclass(frozen=True, slots=True)
class Column:
    """`rank`: the lower, the sooner it has room."""

    title: str
    rank: int
    cell: Callable[[TraceHeader], str]
    is_number: bool = True


def told_of(header: TraceHeader) -> str:
    """The strategy whose figures stand for a run: the best beside target and drafter, else the first there is."""
    others = (name for name in header.runs if name not in DRAFT_NOTHING)
    return best_of(header) or next(others, next(iter(header.runs), ""))


def best(header: TraceHeader) -> str:
    """The best strategy and its speedup; of a run that has none, why in two words."""
    return _best(header, one_row, " vs. earlier")


def _best(header: TraceHeader, name_of: Callable[[str], str], earlier: str) -> str:
    if any(figures.get("finish_reason", "") is None for figures in header.runs.values()):
        return "not ended"
    if name := best_of(header):
        return f"{name_of(name)} {speed(header, name, earlier)}"
    if ends := {word for figures in header.runs.values() if (word := _end(figures)[0])}:
        return "failed" if "failed" in ends else "stopped"
    if header.runs:
        return "no speedup" if len(header.runs) > 1 else f"{name_of(next(iter(header.runs)))} alone"
    return ""


def _end(figures: Mapping[str, Any]) -> Part:
    """In a word how a run ended that did not come to its end."""
    match figures.get("finish_reason", ""):
        case EndReason.ERROR:
            return "failed", BAD
        case EndReason.CANCELLED:
            return "stopped" if figures.get("prompt_tokens") else "not begun", WARN
        case None:
            return "not ended", WARN
    return "", ""


def _short_best(header: TraceHeader) -> str:
    return _best(header, one_row, EARLIER)


def _shortest_best(header: TraceHeader) -> str:
    return _best(header, _brief, EARLIER)


def _brief(name: str) -> str:
    name = one_row(name)
    return name if cell_len(name) <= _LONGEST_NAME else set_cell_size(name, 4) + "."


def speed(header: TraceHeader, strategy: str, earlier: str = " vs. earlier") -> str:
    """A kept speedup, with `earlier` where it is over an earlier run of the target.

    Where the clock was disturbed it is an interval; `~` where the run was too short to tell or could not be checked.
    """
    if (found := standings(header).get(strategy)) is None:
        return "–"
    is_open = bool(found.doubt) and not found.is_disturbed
    return "~" * is_open + found.marked + earlier * header.is_borrowed(strategy)


def clock(header: TraceHeader) -> str:
    """Whether the clocks of all strategies can be believed: a word, or of how many; nothing where nobody looked."""
    told = Counter(words(header).values())
    if len(told) < 2:
        return next(iter(told), "–")
    return ", ".join(f"{told[word]} of {told.total()} {word}" for word in DOUBTS if told[word])


def _short_clock(header: TraceHeader) -> str:
    """The worst word, and of how many."""
    told = Counter(words(header).values())
    worst = next((word for word in DOUBTS if told[word]), "steady" if told else "–")
    return worst if len(told) < 2 else f"{told[worst]} {worst}"


def _clock_mark(header: TraceHeader) -> str:
    """The worst, as a mark; with how many they are where there are others."""
    told = Counter(words(header).values())
    worst, mark = next(((word, mark) for word, mark in _MARKS.items() if told[word]), ("", "–"))
    return mark if len(told) < 2 else f"{told[worst]}{mark}"


def figures_line(header: TraceHeader) -> Content:
    """Every strategy of a run with its speedup, and whatever keeps that from being what it seems."""
    told, found = words(header), standings(header)
    drafters = labels(header.pair())
    parts: list[Part] = []
    for name, figures in header.runs.items():
        one, (end, style) = found.get(name), _end(figures)
        if one is None and not end and name == "target":
            continue
        parts += [(" · " * bool(parts), QUIET), (one_row(labelled(name, drafters)), "")]
        if one is not None:
            parts.append((f" {speed(header, name, EARLIER)}", GOOD if one.verdict is Verdict.FASTER else ""))
            doubt = DOUBTS.get(told.get(name, ""), "")
            parts.append((f" {doubt}" * bool(doubt), WARN))
        parts.append((f" {end}", style) if end else (" no speedup" * (one is None), QUIET))
    if not parts and header.runs:
        parts.append(("target alone: nothing was compared with it", QUIET))
    elif not found and "target" not in header.runs:
        parts.append((" · no run of target to compare with" * bool(parts), QUIET))
    if added := len(header.strategies) - len(header.runs):
        parts.append((f" · {added} what-if{'s' * (added > 1)}", QUIET))
    remarks = dict.fromkeys(one.remarks for one in found.values() if one.marks)
    if any(header.is_borrowed(name) for name in found):
        remarks[f"{EARLIER} over an earlier run of target"] = None
    return Content.assemble(*parts, *((f" · {remark}", WARN) for remark in remarks))


def pair(header: TraceHeader) -> str:
    """The names of the models."""
    found = header.pair()
    return "–" if found is None else one_row(found.name)[:40]


def temperature(header: TraceHeader) -> str:
    settings = header.run_settings()
    if "processor" not in header.settings:
        return "–"
    return "greedy" if settings.processor == "greedy" or not settings.temperature else f"{settings.temperature:g}"


def _rounded_temperature(header: TraceHeader) -> str:
    told = temperature(header)
    return told if told == "–" else "0" if told == "greedy" else f"{float(told):.2g}"


def _setting(name: str) -> Callable[[TraceHeader], str]:
    return lambda header: str(getattr(header.run_settings(), name)) if name in header.settings else "–"


def _figure(name: str, form: str) -> Callable[[TraceHeader], str]:
    def cell(header: TraceHeader) -> str:
        value = header.runs.get(told_of(header), {}).get(name)
        return format(value, form) if isinstance(value, int | float) else "–"

    return cell


COLUMNS = (
    Column("when", 0, lambda header: local_time(header.created)[5:], is_number=False),
    Column("prompt", 1, lambda header: one_row(header.prompt[:_LONGEST_PROMPT]), is_number=False),
    Column("pair", 9, pair, is_number=False),
    Column("γ", 5, _setting("gamma")),
    Column("T", 6, temperature),
    Column("length", 7, _setting("max_new_tokens")),
    Column("tokens", 8, _figure("new_tokens", "d")),
    Column("α", 4, _figure("acceptance_rate", ".2f")),
    Column("speedup", 2, best, is_number=False),
    Column("clock", 3, clock, is_number=False),
)
_LAST_OF_A_RUN = 7
"""The highest rank of what is told of every run, in short words where there is no room for long ones."""
EARLIER = "*"
"""In short for a speedup over an earlier run of the target."""
_LONGEST_NAME = 7  # of a strategy, where there is the least room
_MARKS = {"disturbed": "✗", "short": "~", "unchecked": "?", "steady": "✓"}
_SHORT = {
    "T": Column("T", 6, lambda header: temperature(header).replace("greedy", "0")),
    "length": Column("len", 7, _setting("max_new_tokens")),
    "speedup": Column("speedup", 2, _short_best, False),
    "clock": Column("clock", 3, _short_clock, False),
}
_SHORT_NAMES = _SHORT | {"speedup": Column("speedup", 2, _shortest_best, False)}
_SHORTEST = _SHORT_NAMES | {
    "T": Column("T", 6, _rounded_temperature),
    "clock": Column("clock", 3, _clock_mark, False),
}
_WHOLE_WORDS = {
    "T": _SHORT["T"],
    "speedup": Column("speedup", 2, lambda header: _best(header, lambda name: "", EARLIER).strip(), False),
    "clock": _SHORT["clock"],
}
_FORMS: tuple[tuple[dict[str, Column], int], ...] = (
    ({}, 20),
    (_SHORT, 7),
    (_SHORT_NAMES, 7),
    (_SHORTEST, 6),
    (_WHOLE_WORDS, 6),
)
"""What stands in the place of columns, and the least that is left to the prompt: as soon as a run's columns fit.

Where they fit in no form there are fewer columns, whose words are whole; of which strategy a speedup is stands below.
"""


def table(entries: Sequence[Entry], marked: Sequence[bool], width: int) -> tuple[Content, list[Content]]:
    """The heading and a line for each entry, as many whole columns as fit; the prompt has the room that is left."""
    headers = [entry.header for entry in entries if entry.header is not None]
    for instead, prompt in _FORMS:
        columns = [instead.get(column.title, column) for column in COLUMNS]
        shown, sizes = _fitting(columns, headers, prompt, width)
        if all(column in shown for column in columns if column.rank <= _LAST_OF_A_RUN):
            break
    shown = [column for column in columns if column in shown] or [columns[1]]
    others = sum(sizes[column.title] + len(_GAP) for column in shown if column.title != "prompt")
    sizes["prompt"] = max(4, width - 2 - others)
    heading = Content("  " + _GAP.join(_fitted(c.title, sizes[c.title], c.is_number) for c in shown))
    lines = [_line(entry, shown, sizes, mark, width) for entry, mark in zip(entries, marked, strict=True)]
    return heading.stylize("bold"), lines


def _fitting(
    columns: Sequence[Column], headers: Sequence[TraceHeader], prompt: int, width: int
) -> tuple[list[Column], dict[str, int]]:
    """What has room beside so many cells of the prompt, and the cells each column needs."""
    sizes = {c.title: max(map(cell_len, (c.title, *map(c.cell, headers)))) for c in columns if c.title != "prompt"}
    sizes["prompt"] = prompt
    shown: list[Column] = []
    for column in sorted(columns, key=lambda column: column.rank):
        if 2 + sum(sizes[c.title] + len(_GAP) for c in [*shown, column]) - len(_GAP) <= width:
            shown.append(column)
    return shown, sizes


def _line(entry: Entry, columns: Sequence[Column], sizes: dict[str, int], marked: bool, width: int) -> Content:
    mark = "✓ " if marked else "  "
    header = entry.header
    if header is None:
        name = one_row(entry.path.name)
        problem = one_row(
            entry.problem.removeprefix(f"cannot read {entry.path}: ").removeprefix(f"{entry.path.name}: ")
        )
        return Content.assemble(mark, (name, "bold"), _GAP, (problem, "$text-error"))
    parts: list[str | tuple[str, str]] = [mark]
    for index, column in enumerate(columns):
        style = {"prompt": "bold"}.get(column.title, "$text-muted")
        text = column.cell(header)
        if column.title == "clock" and ("disturbed" in text or "✗" in text):
            style = "$text-warning"
        parts += [_GAP if index else "", (_fitted(text, sizes[column.title], column.is_number), style)]
    return Content.assemble(*parts)


def _fitted(text: str, width: int, is_number: bool) -> str:
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "…"
    blank = " " * (width - cell_len(text))
    return blank + text if is_number else text + blank


def matching(entries: Sequence[Entry], query: str) -> list[Entry]:
    """Entries told of by the whole text (`γ 4`), else those told of by each of its words."""
    query = " ".join(query.lower().split())
    told = [(entry, _everything(entry)) for entry in entries]
    whole = [entry for entry, text in told if query in text]
    return whole or [entry for entry, text in told if all(word in text for word in query.split())]


def _everything(entry: Entry) -> str:
    header = entry.header
    if header is None:
        return f"{entry.path.name} {entry.problem}".lower()
    cells = [f"{column.title} {column.cell(header)} ·" for column in COLUMNS]
    settings = [f"{name.replace('_', '-')} {value} ·" for name, value in header.settings.items()]
    told = words(header)
    drafters = labels(header.pair())
    cells += [f"{labelled(name, drafters)} {told.get(name, '')} {speed(header, name)} ·" for name in header.runs]
    cells.append(one_row(header.prompt[: 10 * _LONGEST_PROMPT]))
    return " ".join([*cells, f"gamma {_setting('gamma')(header)} ·", *settings]).lower()
