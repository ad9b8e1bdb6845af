"""The columns of the comparison table: what each says of a strategy, and the order in which they get room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size

from specdec_tui.decoding.costs import TIMES_VARY, UNPREDICTED, Costs
from specdec_tui.decoding.records import EndReason, Lossless, LosslessStatus
from specdec_tui.decoding.standing import Standing, Verdict
from specdec_tui.doors.characters import visible
from specdec_tui.tui.figures.pinned import Changes, cell
from specdec_tui.tui.figures.words import BAD, GOOD, QUIET, WARN, Part, lossless_part, speed_text

if TYPE_CHECKING:
    from specdec_tui.decoding.figures import RunFigures

_NOTHING = ("–", "")
_LONGEST_DRAFTER, _WIDEST_DRAFTER = 12, 40
"""Cells of a drafter's name, with little room and with much."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row and what it is compared with."""

    strategy: str
    figures: RunFigures
    lossless: Lossless | None
    baseline: RunFigures | None
    standing: Standing | None
    costs: Costs
    is_best: bool = False
    drafter: str = ""
    changes: Changes | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """`rank`: the lower, the sooner it has room. What is in `more` takes its place where that has room, too."""

    title: str
    rank: float
    cell: Callable[[Entry], Part]
    is_number: bool = True
    more: tuple[tuple[float, Callable[[Entry], Part]], ...] = ()

    @property
    def longest(self) -> Callable[[Entry], Part]:
        return self.more[-1][1] if self.more else self.cell


def _number(value: float | None, form: str, unit: str = "") -> Part:
    return _NOTHING if value is None else (format(value, form) + unit, "")


def _name(entry: Entry, longest: int = _LONGEST_DRAFTER) -> Part:
    drafter = visible(entry.drafter)
    if cell_len(drafter) > longest:
        drafter = set_cell_size(drafter, longest - 1) + "…"
    told = f"{visible(entry.strategy)} · {drafter}" if drafter else visible(entry.strategy)
    return (f"{'★' if entry.is_best else ' '} {told}", GOOD if entry.is_best else "")


def _bare_name(entry: Entry) -> Part:
    """No two strategies have the same."""
    return _name(replace(entry, drafter=""))


def _whole_name(entry: Entry) -> Part:
    return _name(entry, _WIDEST_DRAFTER)


def _rate(entry: Entry) -> Part:
    rate = entry.figures.decode_tokens_per_second
    return _NOTHING if rate is None else (speed_text(rate), "")


def _speedup(entry: Entry) -> Part:
    if entry.strategy == "target":
        return _NOTHING if entry.figures.decode_tokens_per_second is None else ("1.00×", "")
    if entry.figures.is_what_if:
        return ("what-if", QUIET)
    found = entry.standing
    if found is None:
        return _NOTHING
    match found.verdict:
        case Verdict.FASTER:
            return (found.marked, GOOD)
        case Verdict.OPEN:
            return (found.marked, "")
        case Verdict.SHORT | Verdict.UNCHECKED:
            return (f"{found.marked}, {found.doubt}", "")
    return (f"{found.marked}, {found.verdict.value}", WARN)


def _bare_speedup(entry: Entry) -> Part:
    """Without the words that a note below the rows has, or the figure itself."""
    found, whole = entry.standing, _speedup(entry)
    if found is None or entry.strategy == "target":
        return whole
    return (f"{found.marked} {found.word}" if found.verdict is Verdict.SHORT else found.marked, whole[1])


def _cost(entry: Entry, value: float | None, unit: str = "") -> Part:
    return (f"–{UNPREDICTED}", QUIET) if entry.costs.missing == TIMES_VARY else _number(value, ".2f", unit)


def _count(count: Callable[[RunFigures], int], *, is_known: bool = False) -> Callable[[Entry], Part]:
    """A number of drafts; `is_known`: also where not all drafts of a run are told."""

    def cell(entry: Entry) -> Part:
        run = entry.figures
        return _number(count(run) if run.drafted and (is_known or run.drafts_are_told) else None, "d")

    return cell


def _verdict(entry: Entry, is_short: bool = False) -> Part:
    end = entry.figures.end
    if end is not None and end.reason is EndReason.ERROR:
        return ("failed", BAD)
    if entry.lossless is None:
        return ("not checked", QUIET)
    if is_short and (entry.strategy != "target" or entry.lossless.status not in _AGREES):
        ties = f"≈ {entry.lossless.ties} near-tie{'' if entry.lossless.ties == 1 else 's'}"
        match entry.lossless.status:
            case LosslessStatus.IDENTICAL:
                return ("✓ identical", GOOD)
            case LosslessStatus.NEAR_TIES:
                return (ties, WARN)
            case LosslessStatus.DIFFERENT:
                return ("✗ DIFFERENT", BAD)
            case _ if "distribution" in (entry.lossless.detail or "distribution"):
                return ("~ same distribution", QUIET)
    return lossless_part(entry.lossless, entry.strategy == "target")


_AGREES = LosslessStatus.IDENTICAL, LosslessStatus.NOT_APPLICABLE


def _shares(entry: Entry) -> Part:
    """Where the decode time went."""
    run = entry.figures
    if not run.decode_seconds or run.served:
        return _NOTHING
    wire = [run.wire_seconds] * run.by_calls
    parts = (run.draft_seconds, run.verify_seconds, *wire, run.other_seconds)
    return (" / ".join(f"{part / run.decode_seconds:.0%}" for part in parts), "")


def _wire(entry: Entry) -> Part:
    """The share of the decode time that was spent on the way to a server."""
    run = entry.figures
    return _number(run.wire_seconds / run.decode_seconds, ".0%") if run.has_calls and run.decode_seconds else _NOTHING


LATER, _MORE = 3, 9
"""Ranks: below the first are the columns that the table is for; from the second on what is said at greater length."""

COLUMNS = (
    Column("strategy", 0, _bare_name, is_number=False, more=((LATER, _name), (_MORE, _whole_name))),
    Column("tok/s", 1, _rate),
    Column("speedup", 2, _bare_speedup, more=((2, _speedup),)),
    Column("predicted", 5, lambda entry: _cost(entry, entry.costs.predicted_speedup, "×")),
    Column("α", 3, lambda entry: _number(entry.figures.acceptance_rate, ".2f")),
    Column("τ", 4, lambda entry: _number(entry.figures.tokens_per_target_call, ".2f")),
    Column("c", 7, lambda entry: _cost(entry, entry.costs.cost_ratio)),
    Column("v", 8, lambda entry: _cost(entry, entry.costs.verify_ratio)),
    Column("lossless", 6, lambda entry: _verdict(entry, is_short=True), is_number=False, more=((_MORE, _verdict),)),
    Column("drafted", 10, _count(lambda run: run.drafted)),
    Column("accepted", 11, _count(lambda run: run.accepted, is_known=True)),
    Column("rejected", 12, _count(lambda run: run.rejected)),
    Column("unverified", 13, _count(lambda run: run.unverified)),
    Column("wasted", 14, lambda entry: _number(entry.figures.wasted_rate, ".0%")),
    Column("prefill s", 15, lambda entry: _number(entry.figures.prefill_seconds or None, ".2f")),
    Column("draft / verify / other", 16, _shares),
)


_OF_CALLS = (
    *(column for column in COLUMNS if column.cell is not _shares),
    Column("wire", 6.5, _wire),
    Column("calls/round", 8.5, lambda entry: _number(entry.figures.calls_per_round, ".2f")),
    Column("draft / server / wire / other", 16, _shares),
)
"""Of a table with a target on a server."""


def _change(figure: str, rank: float) -> Column:
    def bare(entry: Entry) -> Part:
        return cell(entry.changes, figure)

    def with_noise(entry: Entry) -> Part:
        return cell(entry.changes, figure, with_noise=True)

    return Column(f"Δ {figure}", rank, bare, more=((_MORE + rank, with_noise),))


_CHANGES = {
    name: _change(name, rank)
    for name, rank in (("tok/s", LATER), ("speedup", LATER), ("α", LATER + 0.1), ("τ", LATER + 0.2))
}
"""Of a later run than a pinned one: each beside its figure, and before what is not compared."""


def columns_of(entries: Sequence[Entry]) -> tuple[Column, ...]:
    """Those that a table of these has."""
    columns = _OF_CALLS if any(entry.figures.by_calls for entry in entries) else COLUMNS
    if all(entry.changes is None for entry in entries):
        return columns
    pairs = ((column, _CHANGES.get(column.title)) for column in columns)
    return tuple(column for pair in pairs for column in pair if column is not None)
