"""What-ifs of a trace: what they go back to, and how further ones join it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import PAIR, child_events, comparison, full_events, trace_of

from specdec_tui.decoding.records import Finished, Origin
from specdec_tui.settings import SettingError, Settings
from specdec_tui.traces.bounds import MOST_STRATEGIES
from specdec_tui.traces.children import line_of, next_name, origins, settings_of, weights_of, with_children
from specdec_tui.traces.export import as_csv, as_json
from specdec_tui.traces.files import lines_that_read_back, read_trace, write_trace
from specdec_tui.traces.format import Trace, event_lines, header_line, new_header, parse_lines, trace_lines
from specdec_tui.traces.report import as_html

OWN = (5, 7, 9, 7)


def parent() -> Trace:
    return trace_of(full_events())


def test_a_line_goes_back_to_the_prompt_through_every_what_if_of_it() -> None:
    trace = parent()
    assert line_of(trace, "speculative").ids == OWN
    first = Origin("speculative", 2, 8, (("temperature", "0.5"),))
    trace = with_children(trace, child_events(first))
    line = line_of(trace, "speculative~1")
    assert (line.ids, line.own_from) == ((5, 7, 8, *OWN), 3)
    assert (line.prompt_text, line.prompt_tokens) == ("<user>Why?\n", 12)
    second = Origin("speculative~1", 4, 1, (*first.changes, ("gamma", "3")))
    trace = with_children(trace, child_events(second, "speculative~2"))
    assert line_of(trace, "speculative~2").ids == (5, 7, 8, 5, 1, *OWN)
    assert settings_of(trace, second.changes).temperature == 0.5
    assert origins(trace) == {"speculative~1": first, "speculative~2": second}
    assert next_name(trace, "speculative~1") == "speculative~3"
    with pytest.raises(KeyError):
        line_of(trace, "target")


def test_a_what_if_may_change_the_form_of_the_weights_and_no_other_choice_of_models() -> None:
    trace = parent()
    target = replace(PAIR.target, weights="packed", weight_forms=("packed", "expanded"))
    trace = replace(
        trace, header=new_header("p", trace.events, pair=replace(PAIR, target=target), settings=Settings(gamma=3))
    )
    changes = (("seed", "5"), ("weights", "expanded"))
    assert weights_of(trace, ()) == "packed" and weights_of(trace, changes) == "expanded"
    assert settings_of(trace, changes) == replace(settings_of(trace, ()), seed=5)
    whole = with_children(trace, child_events(Origin("speculative", 2, 8, changes)))
    assert origins(parse_lines(trace_lines(whole)))["speculative~1"].changes == changes
    told = {run["strategy"]: run["weights"] for run in json.loads(as_json(whole))["strategies"]}
    assert told == {"speculative": "packed", "speculative~1": "expanded"}
    assert "float32 (packed)" in as_html(whole) and "weights expanded" in as_html(whole)
    with pytest.raises(SettingError, match="'target', a setting that this version does not know"):
        settings_of(trace, (("target", "another"),))
    with pytest.raises(SettingError, match="weights: 'thin' is not valid"):
        settings_of(trace, (("weights", "thin"),))


def test_a_trace_with_what_ifs_is_read_as_it_was_written_and_claims_no_speedup_for_them(tmp_path: Path) -> None:
    trace = comparison()
    whole = with_children(
        trace, [*child_events(Origin("speculative", 2, 8, (("gamma", "3"),))), Finished(cancelled=True)]
    )
    assert whole.events[-1] == trace.events[-1]
    write_trace(tmp_path / "trace.jsonl", whole)
    assert read_trace(tmp_path / "trace.jsonl") == whole
    figures = whole.header.strategies
    assert figures["speculative~1"]["speedup"] is None and figures["speculative"]["speedup"] is not None
    assert figures["speculative"] == trace.header.strategies["speculative"]


def test_a_what_if_joins_a_run_that_was_cut_off() -> None:
    whole = parent()
    begun = {"speculative": {"finish_reason": None}, "ngram": {"finish_reason": None}}
    events = [event for event in whole.events if not isinstance(event, Finished)]
    lines = [header_line(replace(whole.header, strategies=begun), None), *event_lines(events)]
    trace = with_children(parse_lines(lines), child_events(Origin("speculative", 2, 8)))
    assert sorted(parse_lines(lines_that_read_back(trace)).header.strategies) == ["speculative", "speculative~1"]


def test_exports_and_lists_tell_what_ifs_from_the_runs() -> None:
    trace = with_children(comparison(), child_events(Origin("speculative", 2, 8, (("gamma", "3"),))))
    trace = with_children(trace, child_events(Origin("speculative", 0, None, (("gamma", "3"),), True), "speculative~2"))
    trace = with_children(trace, child_events(Origin("speculative", 0, None, (("gamma", "3"),)), "speculative~3"))
    html = as_html(trace)
    assert "speculative~1 · what-if of speculative from token 3 on, gamma 3" in html
    assert "sweeps (1)" in html and "speculative~2" not in html
    assert "speculative~3 · what-if of speculative from token 1 on, gamma 3" in html, "no sweep made that one"
    assert "speculative~2" not in trace.header.strategies and "speculative~3" in trace.header.strategies
    told = {one["strategy"]: one for one in json.loads(as_json(trace))["strategies"]}
    assert told["speculative"]["origin"] is None and told["speculative~1"]["origin"]["position"] == 2
    assert {row[0] for row in csv.reader(as_csv(trace).splitlines())} >= {"speculative", "speculative~1"}
    assert list(trace.header.runs) == ["target", "speculative", "ngram"]


def test_a_trace_that_is_full_takes_no_more() -> None:
    trace = parent()
    for number in range(MOST_STRATEGIES - 1):
        assert next_name(trace, "speculative") == f"speculative~{number + 1}"
        trace = with_children(trace, child_events(Origin("speculative", 0), f"speculative~{number + 1}")[:1])
    assert next_name(trace, "speculative") == ""
