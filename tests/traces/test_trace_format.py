"""The format: what is written is read back exactly, and nothing that a record carries is left out."""

import json
import math
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import get_args

import pytest
from recorded import (
    PAIR,
    child_events,
    comparison,
    full_events,
    full_trace,
    search_events,
    served_events,
    slower,
    trace_of,
)

from specdec_tui.decoding import records
from specdec_tui.decoding.records import (
    Event,
    Finished,
    Insight,
    Origin,
    PrefillDone,
    Record,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.settings import Settings
from specdec_tui.traces.export import as_json
from specdec_tui.traces.format import (
    Trace,
    TraceError,
    TraceHeader,
    new_header,
    parse_header,
    parse_lines,
    summarise,
    trace_lines,
)


def test_a_trace_with_every_kind_of_record_is_read_back_exactly() -> None:
    trace = full_trace()
    assert parse_lines(trace_lines(trace)) == trace


def test_the_trace_of_a_search_is_read_back_exactly() -> None:
    trace = trace_of((*search_events(), Finished()))
    assert parse_lines(trace_lines(trace)) == trace


def test_the_trace_of_a_server_s_own_run_is_read_back_exactly() -> None:
    trace = trace_of((*served_events(), Finished()))
    assert parse_lines(trace_lines(trace)) == trace


def test_the_full_trace_of_these_tests_uses_every_field_of_every_record() -> None:
    """So a field added to records.py fails here until the format carries it."""
    met: dict[str, set[str]] = {}

    def walk(value: object) -> None:
        if isinstance(value, tuple):
            for part in value:
                walk(part)
        elif is_dataclass(value) and not isinstance(value, type):
            seen = met.setdefault(type(value).__name__, set())
            for field in fields(value):
                part = getattr(value, field.name)
                if part != field.default and part is not None:
                    seen.add(field.name)
                walk(part)

    what_if = child_events(Origin("speculative", 2, 9, (("gamma", "3"),), True))
    walk((*full_events(), *search_events(), *what_if, *served_events()))
    kinds = [*get_args(Record), records.Beam, Step, records.Checked, Finished, records.Lossless, Token]
    assert {kind.__name__: {field.name for field in fields(kind)} for kind in kinds} == {
        kind.__name__: met.get(kind.__name__, set()) for kind in kinds
    }


def test_floats_keep_their_last_bit() -> None:
    values = (0.1 + 0.2, 1 / 3, 5e-324, 1 - 2**-53, 1e-17)
    event = Step("target", PrefillDone(Token(1, Status.SAMPLED, 0, *values[:4]), values[4]), ("a",))
    events = (Step("target", RunStarted("target", 1, 0, 1)), event)
    assert parse_lines(trace_lines(trace_of(events))).events == events


def of_insight(insight: Insight) -> tuple[Event, ...]:
    token = Token(1, Status.SAMPLED, 0, insight=insight)
    return (Step("target", RunStarted("target", 1, 0, 1)), Step("target", PrefillDone(token, 0.5), ("a",)))


def test_every_field_of_insight_is_read_back_exactly() -> None:
    insight = Insight(0.1 + 0.2, 1e-17, ((7, 0.6), (8, 1 / 3)), ((8, 0.5),), ((9, 1.0),))
    assert not any(getattr(insight, field.name) == field.default for field in fields(Insight))
    events = of_insight(insight)
    assert parse_lines(trace_lines(trace_of(events))).events == events


def test_of_an_insight_that_is_no_number_the_rest_is_kept() -> None:
    events = of_insight(Insight(float("nan"), 1.5, ((7, float("nan")), (8, 0.5))))
    assert parse_lines(trace_lines(trace_of(events))).events == of_insight(Insight(None, 1.5, ((8, 0.5),)))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_never_written(value: float) -> None:
    odd = Token(1, Status.SAMPLED, 0, value, value, value, value, Insight(value, value, ((1, value),)))
    events = (Step("target", RunStarted("target", 1, 0, 1)), Step("target", PrefillDone(odd, value), ("a",)))
    trace = Trace(TraceHeader("2026", "0", "p", {}, {}, {}, {"load": value}), events)
    lines = list(trace_lines(trace))
    assert not any(word in line for line in lines for word in ("NaN", "Infinity"))
    read = parse_lines(lines)
    prefill = read.events[1].record  # type: ignore[union-attr]
    assert isinstance(prefill, PrefillDone) and prefill.token is not None
    assert (prefill.token.p, prefill.token.draw, prefill.seconds) == (None, None, 0.0)


def test_unknown_fields_are_ignored() -> None:
    trace = full_trace()
    lines = [json.dumps({**json.loads(line), "later": [1, {"x": None}]}) + "\n" for line in trace_lines(trace)]
    assert parse_lines(lines) == trace


def test_a_run_named_unlike_its_step_keeps_both_names() -> None:
    events = (Step("ngram 2", RunStarted("ngram", 1, 0, 1)), Step("ngram 2", RunEnded(records.EndReason.ERROR)))
    assert parse_lines(trace_lines(trace_of(events))).events == events


def test_the_header_alone_says_how_fast_each_strategy_was() -> None:
    header = parse_header(next(trace_lines(comparison())))
    assert list(header.strategies) == ["target", "speculative", "ngram"]
    figures = header.strategies["speculative"]
    assert figures["acceptance_rate"] == pytest.approx(80 / 112)
    assert figures["speedup"] == pytest.approx((3 / 0.059) / (1 / 0.051))
    assert figures["lossless"]["status"] == "identical" and figures["finish_reason"] == "length"


def test_the_header_alone_says_whether_each_clock_could_be_believed() -> None:
    header = parse_header(next(trace_lines(comparison())))
    told = header.reliability("speculative")
    assert told is not None and told.is_steady and told.low == pytest.approx(2.5, abs=0.2)
    figures = header.strategies["speculative"]
    assert set(figures["reliability"]) == {"word", "reason", "low", "high"}
    assert figures["remainder"] == pytest.approx(0, abs=0.02) and figures["recomputes"] is False
    assert header.reliability("nobody") is None


def test_the_header_tells_no_costs_that_come_from_a_disturbed_clock() -> None:
    """The machine was three times as slow while the target ran: v was 0.34 and 3.00× predicted."""
    slow = slower(comparison(), "target", 3)
    figures = parse_header(next(trace_lines(trace_of(slow.events)))).strategies["speculative"]
    assert figures["reliability"]["word"] == "disturbed" and figures["reliability"]["reason"]
    (exported,) = (own for own in json.loads(as_json(slow))["strategies"] if own["strategy"] == "speculative")
    for told in (figures, exported):
        assert {told[name] for name in ("cost_ratio", "verify_ratio", "predicted_speedup", "remainder")} == {None}


@pytest.mark.parametrize(
    "told", [{"word": "fine", "reason": ""}, {"word": "steady"}, "steady", {"word": "steady", "reason": "", "low": "x"}]
)
def test_a_header_with_another_reliability_is_damaged_and_one_without_is_old(told: object) -> None:
    table = json.loads(next(trace_lines(comparison())))
    table["strategies"]["ngram"]["reliability"] = told
    with pytest.raises(TraceError, match="line 1: field"):
        parse_header(json.dumps(table))
    del table["strategies"]["ngram"]["reliability"]
    assert parse_header(json.dumps(table)).reliability("ngram") is None
    assert parse_header(json.dumps(table)).reliability("target") is not None


def test_the_header_gives_back_the_pair_and_the_settings() -> None:
    header = parse_header(next(trace_lines(full_trace())))
    assert header.pair() == PAIR
    assert header.run_settings() == Settings(gamma=3)
    target = replace(PAIR.target, weights="packed-int8", weight_forms=("packed", "expanded", "packed-int8"))
    formed = replace(PAIR, target=target)
    header = parse_header(next(trace_lines(Trace(new_header("p", (), pair=formed), ()))))
    assert header.models["target"]["weights"] == "packed-int8" and header.pair() == formed
    strange = {**header.models, "target": {**header.models["target"], "weights": 3, "weight_forms": "packed"}}
    assert replace(header, models=strange).pair() == PAIR


def test_settings_and_models_that_make_no_sense_fall_back_instead_of_failing() -> None:
    header = TraceHeader(
        "", "", "", {}, {"target": {"name": 3}}, {"gamma": -1, "rule": ["x", 2], "top_k": None, "no": 1}
    )
    assert header.pair() is None
    assert header.run_settings() == Settings()


def test_a_prompt_without_events_makes_a_trace() -> None:
    trace = Trace(new_header("p", ()), ())
    assert parse_lines(trace_lines(trace)) == trace and summarise(()) == {}


def test_the_reader_of_the_documentation_reads_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "trace-format.md").read_text(encoding="utf-8")
    (tmp_path / "run.jsonl").write_text("".join(trace_lines(trace_of(full_events()))), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(guide.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out.splitlines() == [
        "speculative 0 0.05 [' the', '雲\\n']",
        "speculative 1 0.06 [' end']",
    ]


def test_the_documentation_names_every_field_of_events_and_tokens() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "trace-format.md").read_text(encoding="utf-8")
    met: set[str] = set()
    for line in trace_lines(full_trace()):
        table = json.loads(line)
        met |= set(table)
        for token in (*table.get("drafts", ()), table.get("emitted"), table.get("token"), table.get("lossless")):
            met |= set(token or ()) | set((token or {}).get("insight", ()))
    assert {name for name in met if f"`{name}`" not in guide} == set()
