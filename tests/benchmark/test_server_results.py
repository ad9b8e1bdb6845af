"""A benchmark whose target is on a server: what its table, its notes and its JSON have besides, and others have not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measured_engine import INFO
from server_runs import drafting, target

from specdec_tui.backends.pair import SERVED_BY
from specdec_tui.benchmark.report import as_json, as_sheet, note_lines
from specdec_tui.benchmark.run import Result
from specdec_tui.benchmark.statistics import summarize
from specdec_tui.decoding.latency import CALL_FIGURES
from specdec_tui.settings import Settings

SETTINGS = Settings(added_latency=30)


def results(wires: tuple[float, ...]) -> list[Result]:
    """A prompt for each of these latencies, with the target beside it."""
    found = []
    for prompt, wire in enumerate(wires):
        plain, run = target(), drafting(wire=wire)
        for figures in (plain, run):
            found.append(Result(figures.strategy, prompt, 0, "", 0, figures, baseline=plain))
    return found


def test_what_the_target_is_made_of_is_not_told() -> None:
    info = replace(INFO, target=replace(INFO.target, device=f"{SERVED_BY}there:8000", parameters=0, memory_bytes=0))
    told = as_json(found := results((30.0,)), summarize(found), info, SETTINGS, {}, {})["models"]["target"]
    assert [told[name] for name in ("quantization", "parameters", "memory_bytes")] == [None] * 3


def test_every_result_has_its_way_and_calls_beside_the_other_parts_and_they_add_up() -> None:
    report = as_json(found := results((30.0, 30.0)), summarize(found), INFO, SETTINGS, {}, {})
    assert report["settings"]["added_latency"] == 30
    for result in report["results"]:
        parts = [result[f"{name}_seconds"] for name in ("draft", "verify", "other", "wire")]
        assert sum(parts) == pytest.approx(result["decode_seconds"])
    run = report["results"][1]
    assert run["wire_seconds"] == pytest.approx(1.2) and run["calls"] == 40 and run["calls_per_round"] == 1
    assert run["break_even_latency_seconds"] == pytest.approx(0.046)
    plain, summary = report["summary"]
    assert summary["wire_seconds"] == pytest.approx(0.030) and summary["calls_per_round"] == 1
    assert summary["break_even_latency_seconds"] == pytest.approx(0.046)
    assert plain["calls_per_round"] is None and report["results"][0]["calls_per_round"] is None
    assert plain["wire_seconds"] == 0 and plain["break_even_latency_seconds"] is None


def test_the_table_has_calls_and_way_of_a_round_and_a_line_says_from_which_latency_on_drafting_loses() -> None:
    found = results((100.0, 100.0))
    sheet = as_sheet(found, summaries := summarize(found), INFO)
    row = dict(zip(sheet.headings, sheet.rows[1], strict=True))
    assert (row["calls a round"], row["wire a round (ms)"]) == ("1.00", "100")
    stream = dict(zip(sheet.headings, sheet.rows[0], strict=True))
    assert (stream["calls a round"], stream["wire a round (ms)"]) == ("–", "–")
    assert "speculative: drafting loses from 46 ms of latency on (now 100 ms)" in note_lines(found, summaries)


def test_without_a_server_there_is_nothing_of_it() -> None:
    found = results((0.0,))
    for result in found:
        result.figures._by_calls = False
    report = as_json(found, summaries := summarize(found), INFO, SETTINGS, {}, {})
    assert not any(name in table for table in (*report["results"], *report["summary"]) for name in CALL_FIGURES)
    assert not any("calls" in heading or "wire" in heading for heading in as_sheet(found, summaries, INFO).headings)
    assert not any("latency" in line for line in note_lines(found, summaries))
