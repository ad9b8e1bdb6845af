"""Figures in a header that its rounds contradict are damage, and never shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded import comparison, full_events, trace_of

from specdec_tui.decoding.records import DraftsProposed, PrefillDone, Step
from specdec_tui.traces.files import read_trace, write_trace
from specdec_tui.traces.format import Trace, TraceError

TRACE = comparison()
FIGURES = TRACE.header.strategies["speculative"]
CLAIMED = [name for name, value in FIGURES.items() if value is not None]


def another(value: Any) -> Any:
    """A value of the same kind that is wrong."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value * 1.01 + 1
        case str():
            return value + "x"
        case list():
            return [*value[:-1], another(value[-1])]
        case dict() if "word" in value:
            return value | {"word": "disturbed" if value["word"] == "steady" else "steady"}
        case dict():
            return value | {"status": "different"}
    raise AssertionError(value)


def read_with(path: Path, change: Callable[[dict[str, Any]], object], trace: Trace = TRACE) -> Trace:
    """A trace as it is read whose header was changed."""
    write_trace(path, trace)
    first, rest = path.read_text().split("\n", 1)
    header = json.loads(first)
    change(header)
    path.write_text(json.dumps(header) + "\n" + rest)
    return read_trace(path)


def test_a_header_that_agrees_is_read(tmp_path: Path) -> None:
    for trace in (TRACE, trace_of(full_events())):
        write_trace(tmp_path / "run.jsonl", trace)
        assert read_trace(tmp_path / "run.jsonl").header == trace.header


@pytest.mark.parametrize("name", CLAIMED)
def test_every_figure_that_the_rounds_contradict_is_told(name: str, tmp_path: Path) -> None:
    def change(header: dict[str, Any]) -> None:
        header["strategies"]["speculative"][name] = another(FIGURES[name])

    with pytest.raises(TraceError, match=rf"run.jsonl: damaged: header says {name} .+ for 'speculative', rounds say "):
        read_with(tmp_path / "run.jsonl", change)


def test_figures_of_a_strategy_without_rounds_are_damage(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="damaged: header says 'lookup' ran, there are no rounds of it"):
        read_with(tmp_path / "run.jsonl", lambda header: header["strategies"].update(lookup={"rounds": 3}))


def test_a_figure_of_another_version_is_compared_where_it_means_the_same(tmp_path: Path) -> None:
    def older(header: dict[str, Any]) -> None:
        header["app"] = "0.0.1"
        header["strategies"]["speculative"]["speedup"] *= 1.1

    def wrong(header: dict[str, Any]) -> None:
        older(header)
        header["strategies"]["speculative"]["accepted"] += 1

    assert read_with(tmp_path / "run.jsonl", older).events == TRACE.events
    with pytest.raises(TraceError, match="header says accepted "):
        read_with(tmp_path / "run.jsonl", wrong)


def test_a_run_that_was_being_written_has_no_figures_to_contradict(tmp_path: Path) -> None:
    def unfinished(header: dict[str, Any]) -> None:
        header["events"] = None
        header["strategies"] = {"speculative": {"finish_reason": None}, "lookup": {"finish_reason": None}}

    assert read_with(tmp_path / "run.jsonl", unfinished).events == TRACE.events


def _without_prefill(events: list[Any]) -> list[Any]:
    return [event for event in events if not (isinstance(event, Step) and isinstance(event.record, PrefillDone))]


def _doubled_drafts(events: list[Any]) -> list[Any]:
    at = next(i for i, e in enumerate(events) if isinstance(e, Step) and isinstance(e.record, DraftsProposed))
    return [*events[: at + 1], *events[at:]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without_prefill, "line 3: field 'event' must not come before 'prefill_done' of 'target'"),
        (_doubled_drafts, "field 'event' must not come twice for round 0 of 'speculative'"),
    ],
)
def test_rounds_without_prefill_and_drafts_proposed_twice_are_damage(
    change: Callable[[list[Any]], list[Any]], message: str, tmp_path: Path
) -> None:
    write_trace(tmp_path / "run.jsonl", Trace(TRACE.header, tuple(change(list(TRACE.events)))))
    with pytest.raises(TraceError, match=message):
        read_trace(tmp_path / "run.jsonl")
