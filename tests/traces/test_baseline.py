"""Which earlier run of the target a run without one may be measured against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import comparison, long_events, trace_of

from specdec_tui.decoding.figures import speedup
from specdec_tui.decoding.records import Finished
from specdec_tui.decoding.reliability import WORDS
from specdec_tui.traces.baseline import is_comparable, last_baseline, measured_against
from specdec_tui.traces.export import as_json
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace, TraceError, parse_lines, trace_lines
from specdec_tui.traces.store import TraceStore
from specdec_tui.traces.summary import AGAINST, figures_of
from specdec_tui.tui.screens.history_rows import best


def alone(second: int = 30) -> Trace:
    """A run of `speculative` without the target."""
    return trace_of((*long_events("speculative", 40), Finished()), "another prompt", second=second)


def test_the_same_pair_on_the_same_machine_with_the_same_steps_is_comparable_whatever_was_drafted() -> None:
    earlier, later = comparison().header, alone().header
    assert is_comparable(earlier, later)
    drafted_otherwise = {**later.settings, "gamma": 9, "rule": "block", "seed": 1, "schedule": "sequential"}
    assert is_comparable(earlier, replace(later, settings=drafted_otherwise))


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("settings", "cache", False),
        ("settings", "capture", False),
        ("settings", "insight", False),
        ("settings", "processor", "topk"),
        ("models", "target", {"name": "b/target"}),
        ("models", "drafter", None),
        ("environment", "threads", 4),
        ("environment", "versions", {"torch": "9"}),
    ],
)
def test_another_pair_machine_version_or_step_is_not_comparable(part: str, name: str, value: object) -> None:
    later = alone().header
    changed = replace(later, **{part: {**getattr(later, part), name: value}})
    assert not is_comparable(comparison().header, changed)


def test_a_target_of_another_device_or_precision_is_not_comparable() -> None:
    later = alone().header
    for name in ("device", "dtype", "quantization"):
        target = {**later.models["target"], name: "other"}
        assert not is_comparable(comparison().header, replace(later, models={**later.models, "target": target}))


def test_a_run_that_was_stopped_is_too_short_or_came_later_is_no_baseline() -> None:
    whole, later = comparison().header, alone().header
    target = whole.strategies["target"]
    for wrong in ({"finish_reason": "cancelled"}, {"new_tokens": 3}, {"finish_reason": None}):
        assert not is_comparable(replace(whole, strategies={"target": {**target, **wrong}}), later)
    assert not is_comparable(replace(whole, created="2026-11-29T00:00:00Z"), later)
    assert not is_comparable(later, later)  # no target in it


def test_a_much_longer_prompt_is_another_matter() -> None:
    whole, later = comparison().header, alone().header
    own = later.strategies["speculative"]
    for tokens, fine in ((12 + 256, True), (12 + 257, False)):
        longer = replace(later, strategies={"speculative": {**own, "prompt_tokens": tokens}})
        assert is_comparable(whole, longer) is fine


def test_figures_against_a_borrowed_baseline_stay_in_the_trace_and_say_from_when_it_was(tmp_path: Path) -> None:
    """Its speedup, prediction and reliability were null: the history had a dash for it."""
    store = TraceStore(tmp_path)
    store.save(comparison())
    baseline = last_baseline(alone().header, [], store)
    assert baseline is not None
    kept = read_trace(store.save(measured_against(alone(), baseline)))
    beside = comparison().header.strategies["speculative"]
    (figures,) = kept.header.strategies.values()
    assert figures["baseline_created"] == comparison().header.created and "baseline_created" in beside
    assert figures["speedup"] == pytest.approx(speedup(baseline.figures, figures_of(kept.events)["speculative"]))
    assert figures["predicted_speedup"] and figures["reliability"]["word"] in WORDS
    assert best(kept.header) == f"speculative {figures['speedup']:.2f}× vs. earlier"
    (exported,) = json.loads(as_json(kept))["strategies"]
    assert {key: exported[key] for key in AGAINST} == {key: figures[key] for key in AGAINST}
    # Traces of before say nothing of it, and read as they did.
    (before,) = alone().header.strategies.values()
    old = Trace(replace(kept.header, strategies={"speculative": _without(before, "baseline_created")}), kept.events)
    assert parse_lines(trace_lines(old)) == old and best(old.header) == "speculative"
    with pytest.raises(TraceError, match="baseline_created"):
        broken = replace(kept.header, strategies={"speculative": {**figures, "baseline_created": 7}})
        parse_lines(trace_lines(Trace(broken, kept.events)))


def _without(figures: Mapping[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in figures.items() if key != name}


def test_the_newest_comparable_run_is_found_in_this_session_or_among_the_kept_ones(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    assert last_baseline(alone().header, [], store) is None
    old = comparison()
    store.save(old)
    new = Trace(replace(old.header, created="2026-11-28T12:00:20Z"), old.events)
    path = store.save(new)
    store.save(alone(25))
    found = last_baseline(alone().header, [], store)
    assert found is not None and found.created == new.header.created
    assert found.figures.strategy == "target" and found.figures.rounds == 120
    recent = Trace(replace(old.header, created="2026-11-28T12:00:28Z"), old.events)
    found = last_baseline(alone().header, [recent], store)
    assert found is not None and found.created == recent.header.created
    path.write_text(path.read_text()[:-200])  # damaged: the one before it
    found = last_baseline(alone().header, [], store)
    assert found is not None and found.created == old.header.created
