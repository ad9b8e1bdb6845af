"""A what-if stands in the trace of its run as a child, and is refused where it can be none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from recorded import child_events, full_events, trace_of

from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Finished,
    Origin,
    PrefillDone,
    RunEnded,
    Step,
    strategy_of,
)
from specdec_tui.traces.children import with_children
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace, TraceError, trace_lines


def with_child(origin: Origin, name: str = "speculative~1", by: int | None = None) -> Trace:
    parent = [event for event in full_events() if isinstance(event, Step | Checked)]
    return trace_of((*parent, *child_events(origin, name, by), Finished()))


def written(path: Path, trace: Trace) -> Trace:
    path.write_text("".join(trace_lines(trace)))
    return read_trace(path)


@pytest.mark.parametrize(
    "origin",
    [
        Origin("speculative", 2, 9),
        Origin("speculative", 0, changes=(("gamma", "2"),)),
        Origin("speculative", 0, changes=(("gamma", "2"), ("insight", "off")), swept=True),
        Origin("speculative", 3, changes=(("processor", "multinomial"), ("temperature", "0.5"))),
    ],
)
def test_a_what_if_is_read_as_it_was_written(tmp_path: Path, origin: Origin) -> None:
    trace = with_child(origin)
    assert written(tmp_path / "trace.jsonl", trace) == trace
    assert strategy_of("speculative~1") == strategy_of("speculative") == "speculative"


@pytest.mark.parametrize(
    ("origin", "name", "by", "fault"),
    [
        (Origin("target", 0), "speculative~1", None, "'origin.parent' must be a run that began before, not 'target'"),
        (Origin("speculative", 999), "speculative~1", None, "'origin.position' must be at most the"),
        (Origin("speculative", 2, 9), "what-if", None, "'origin' must not stand in 'what-if'"),
        (Origin("speculative", 2, 9), "speculative~1", 2, "position' must be 3, not 2"),
        (Origin("speculative", 2, swept=True), "speculative~1", None, "'origin.swept' must be of a run from its first"),
        (
            Origin("speculative", 0, None, (("seed", "1"),), True),
            "speculative~1",
            None,
            "'origin.swept' must be of a run",
        ),
    ],
)
def test_what_can_be_no_child_is_refused(tmp_path: Path, origin: Origin, name: str, by: int | None, fault: str) -> None:
    with pytest.raises(TraceError) as refused:
        written(tmp_path / "trace.jsonl", with_child(origin, name, by))
    assert fault in str(refused.value)


def test_a_what_if_whose_given_text_ends_already_writes_nothing(tmp_path: Path) -> None:
    started, *_ = child_events(Origin("speculative", 2, 9))
    assert isinstance(started, Step)
    child = [
        started,
        Step("speculative~1", PrefillDone(None, 0.0)),
        Step("speculative~1", RunEnded(EndReason.END_TOKEN)),
    ]
    trace = with_children(trace_of(full_events()), child)
    assert written(tmp_path / "trace.jsonl", trace) == trace
    plain = [replace(step, strategy="target") for step in child]
    plain[0] = replace(plain[0], record=replace(plain[0].record, origin=None))
    with pytest.raises(TraceError, match="'end_token' means a token"):
        written(tmp_path / "trace.jsonl", with_children(trace_of(full_events()), plain))
