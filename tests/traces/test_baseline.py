"""Which earlier run of the target a run without one may be measured against."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import comparison, long_events, slower, trace_of, with_changed_pace

from specdec_tui.decoding.figures import speedup
from specdec_tui.decoding.records import Finished
from specdec_tui.decoding.reliability import WORDS
from specdec_tui.decoding.standing import Standing, standing
from specdec_tui.traces.baseline import is_comparable, last_baseline, measured_against, of_trace
from specdec_tui.traces.export import as_csv, as_json
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace, TraceError, TraceHeader, parse_lines, trace_lines
from specdec_tui.traces.report import as_html
from specdec_tui.traces.standings import standings
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


def test_a_target_whose_weights_had_another_form_is_not_comparable() -> None:
    earlier, later = comparison().header, alone().header

    def formed(header: TraceHeader, form: str | None) -> TraceHeader:
        return replace(header, models={**header.models, "target": {**header.models["target"], "weights": form}})

    assert not is_comparable(formed(earlier, "expanded"), formed(later, "packed"))
    assert is_comparable(formed(earlier, "packed"), formed(later, "packed"))
    assert is_comparable(formed(earlier, None), formed(later, "expanded")), "older versions knew no other form"


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
    assert figures["reliability"]["word"] == "unchecked"  # of another time, and no one-token pass to compare
    assert best(kept.header) == f"speculative ~{figures['speedup']:.2f}× vs. earlier"
    (exported,) = json.loads(as_json(kept))["strategies"]
    assert {key: exported[key] for key in AGAINST} == {key: figures[key] for key in AGAINST}
    # Traces of before say nothing of it, and read as they did.
    (before,) = alone().header.strategies.values()
    old = Trace(replace(kept.header, strategies={"speculative": _without(before, "baseline_created")}), kept.events)
    assert parse_lines(trace_lines(old)) == old and best(old.header) == "speculative alone"
    with pytest.raises(TraceError, match="baseline_created"):
        broken = replace(kept.header, strategies={"speculative": {**figures, "baseline_created": 7}})
        parse_lines(trace_lines(Trace(broken, kept.events)))


def borrowed(run: Trace, earlier: Trace) -> tuple[Trace, Standing]:
    """A run without the target, measured against an earlier one, and how the app tells it."""
    baseline = of_trace(earlier)
    assert baseline is not None
    (figures,) = figures_of(run.events).values()
    measured = measured_against(run, baseline)
    found = standing(figures, baseline.figures)
    assert found is not None
    return measured, found


@pytest.mark.parametrize("case", ["unchecked", "disturbed", "step times vary", "over the text both have"])
def test_exports_tell_of_a_borrowed_baseline_what_the_app_tells(case: str) -> None:
    """CSV had an empty word and no ratio, HTML dashes, where the pane said `2.59× vs. target of 12:00`."""
    run, earlier = alone(), comparison()
    if case == "disturbed":
        earlier = slower(earlier, "target", 3)
    if case == "step times vary":
        run, earlier = with_changed_pace(run), with_changed_pace(earlier)
    if case == "over the text both have":
        earlier = trace_of((*long_events("target", 70), Finished()))
        run = trace_of((*run.events[:-20], *slower(run, "speculative", 3).events[-20:]), "another prompt", second=30)
    trace, found = borrowed(run, earlier)
    assert found.word == ("disturbed" if case == "disturbed" else "unchecked")
    kept = parse_lines(trace_lines(trace))
    for one in (trace, kept):
        row = next(csv.DictReader(io.StringIO(as_csv(one))))
        assert row["reliability"] == found.word and row["marks"] == found.marks
        assert row["baseline_created"] == earlier.header.created
        assert row["speedup"] == ("" if found.is_disturbed else str(found.ratio))
        ends = (str(end) if found.is_disturbed else "" for end in (found.low, found.high))
        assert (row["speedup_low"], row["speedup_high"]) == tuple(ends)
        page = html.unescape(re.sub("<[^>]*>", "", as_html(one)))
        marks = f" {found.marks}" * bool(found.marks)
        assert f"{found.text}{marks} vs. target of {earlier.header.created}" in page
        assert (found.reason in page) and ("step times vary" in page) == (case == "step times vary")
        figures = trace.header.strategies["speculative"]
        assert (f"{figures['predicted_speedup'] or 0:.2f}× (" in page) == (figures["predicted_speedup"] is not None)
    if case == "over the text both have":
        assert found.marks == "‡" and "‡ speculative: over the text both have" in page
    (own,) = standings(kept.header).values()
    assert own == found


def test_marks_that_nobody_knows_are_left_out_of_a_kept_run() -> None:
    trace, found = borrowed(alone(), comparison())
    figures = {**trace.header.strategies["speculative"], "marks": "†\x1b[31m?"}
    (own,) = standings(replace(trace.header, strategies={"speculative": figures})).values()
    assert own == replace(found, marks="†")
    with pytest.raises(TraceError, match="marks"):
        broken = replace(trace.header, strategies={"speculative": {**figures, "marks": ["†"]}})
        parse_lines(trace_lines(Trace(broken, trace.events)))


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
