"""Exports: everything is in them, and nothing in them bites the program that opens them."""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from recorded import comparison, full_trace, search_events, trace_of

from specdec_tui.backends.pair import SERVED_BY
from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Lossless,
    LosslessStatus,
    Notice,
    PrefillDone,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.traces.export import COLUMNS, OF_CALLS, as_csv, as_json
from specdec_tui.traces.format import Trace, TraceHeader, trace_lines
from specdec_tui.traces.report import as_html


def one_token(text: str, strategy: str = "target") -> Trace:
    prefill = Step(strategy, PrefillDone(Token(1, Status.SAMPLED, 0), 0.2), (text,))
    return trace_of((Step(strategy, RunStarted(strategy, 1, 0, 1)), prefill))


def test_json_tells_nothing_of_what_a_target_on_a_server_is_made_of() -> None:
    trace = full_trace()
    served = trace.header.models["target"] | {"device": f"{SERVED_BY}there:8000", "parameters": 0, "memory_bytes": 0}
    header = replace(trace.header, models=trace.header.models | {"target": served})
    models = json.loads(as_json(Trace(header, trace.events)))["models"]
    assert [models["target"][name] for name in ("quantization", "parameters", "memory_bytes")] == [None] * 3
    assert models["drafter"]["parameters"] == 16_000_000 and models["target"]["name"] == "a/target"


def test_json_holds_header_figures_and_every_token_of_every_round() -> None:
    whole = json.loads(as_json(full_trace()))
    assert whole["prompt"] == "Why is the sky blue?" and whole["models"]["target"]["name"] == "a/target"
    assert whole["texts"]["7"] == " the"
    (run,) = whole["strategies"]
    assert (run["strategy"], run["new_tokens"], run["accepted"], run["rounds"]) == ("speculative", 4, 2, 2)
    assert run["token_ids"] == [5, 7, 9, 7] and run["text"] == "Since" and run["prompt_text"] == "<user>Why?\n"
    assert run["lossless"]["status"] == "near_ties"
    assert [token["text"] for token in run["verified"][0]["tokens"]] == [" the", "\u2028x", "", "雲\n"]
    assert run["verified"][0]["tokens"][0]["insight"]["target_top"] == [[7, 0.6], [8, 1 / 3]]
    assert run["prefill"][0]["seconds"] == 0.123456789012345


def test_json_has_what_a_reader_must_know_of_each_run() -> None:
    told = Step("target", Notice("fewer drafts"))
    started = Step("target", RunStarted("target", 1, 0, 1))
    (run,) = json.loads(as_json(trace_of((started, told, Step("target", RunEnded(EndReason.CANCELLED))))))["strategies"]
    assert run["notices"] == ["fewer drafts"]


def test_json_has_the_figures_of_the_benchmark_under_its_names() -> None:
    run = json.loads(as_json(comparison()))["strategies"][1]
    names = "prompt_tokens new_tokens token_ids text finish_reason prefill_seconds decode_seconds rounds drafted"
    names += " decode_tokens_per_second accepted rejected unverified acceptance_rate tokens_per_target_call"
    names += " accepted_lengths conditional_acceptance draft_seconds verify_seconds other_seconds lossless"
    assert set(names.split()) <= set(run)


def test_csv_has_one_row_for_each_token_and_its_sums_are_right() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(full_trace()))))
    assert [row["status"] for row in rows] == ["sampled", "accepted", "rejected", "unverified", "resampled", "accepted"]
    assert [row["round"] for row in rows] == ["", "0", "0", "0", "0", "1"]
    assert rows[4]["text"] == "雲\n" and rows[2]["text"] == "␤x"
    assert float(rows[1]["p"]) == 0.1 and float(rows[1]["target_entropy"]) == 0.1 + 0.2
    assert sum(float(row["draft_seconds"] or 0) for row in rows) == 0.003
    assert list(rows[0]) == [*COLUMNS, *OF_CALLS]
    assert [row["wire_seconds"] for row in rows] == ["", "0.03", "", "", "", "0.0"]
    assert [row["calls"] for row in rows] == ["", "1", "", "", "", "0"]
    assert list(next(csv.DictReader(io.StringIO(as_csv(comparison()))))) == list(COLUMNS)


def test_exports_say_whether_the_clock_could_be_believed() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(comparison()))))
    assert {row["reliability"] for row in rows} == {"steady"}
    run = json.loads(as_json(comparison()))["strategies"][1]
    assert (run["reliability"]["word"], run["reliability"]["reason"]) == ("steady", "")
    (row,) = csv.DictReader(io.StringIO(as_csv(one_token("a"))))
    assert row["reliability"] == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r\n=1", "＝1"])
def test_texts_never_become_formulas_of_a_spreadsheet(text: str) -> None:
    (row,) = csv.DictReader(io.StringIO(as_csv(one_token(text)), newline=""))
    assert row["text"] == "'" + text.replace("\r", "␍")


@pytest.mark.parametrize("text", [" -", "a=b", "\n", "'", ""])
def test_other_texts_stay_as_they_are_in_csv(text: str) -> None:
    (row,) = csv.DictReader(io.StringIO(as_csv(one_token(text)), newline=""))
    assert row["text"] == text


def test_names_of_strategies_never_become_formulas_either() -> None:
    assert "'=HYPERLINK(" in as_csv(one_token("a", "=HYPERLINK(1)"))


@pytest.mark.parametrize("export", [as_csv, as_json])
def test_half_characters_and_zeros_can_be_written(export: object) -> None:
    written = export(one_token("\ud83d\0"))  # type: ignore[operator]
    assert written.encode() and "\0" not in written


OBEYED = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F))}
OBEYED = (OBEYED | {chr(code) for code in range(0x2066, 0x2070)}) - {"\n", "\t"}


@pytest.mark.parametrize("export", [as_csv, as_json, as_html, lambda trace: "".join(trace_lines(trace))])
def test_nothing_that_a_terminal_obeys_is_in_any_export(export: Callable[[Trace], str]) -> None:
    hostile = "".join(sorted(OBEYED)) + "x"
    trace = one_token(hostile, "target")
    names = {hostile: hostile, "target": {"name": hostile, hostile: hostile}, "notes": [hostile]}
    trace = replace(trace, header=replace(trace.header, prompt=hostile, models=names, environment=names))
    ended = Step("target", RunEnded(EndReason.ERROR, hostile), answer=hostile)
    noticed = Step("target", Notice(hostile))
    checked = Checked("target", Lossless(LosslessStatus.DIFFERENT, 0, 0, 1.0, hostile))
    written = export(replace(trace, events=(*trace.events, noticed, ended, checked)))
    assert not OBEYED & set(written)
    if written.startswith("{") and "\n " in written:
        whole = json.loads(written)
        assert whole["prompt"] == whole["strategies"][0]["text"] == hostile


def test_json_has_no_numbers_that_are_not_finite() -> None:
    trace = Trace(TraceHeader("", "", "", {}, {}, {}, {"load": float("nan")}), ())
    assert json.loads(as_json(trace), parse_constant=pytest.fail)["environment"] == {"load": None}


def test_every_export_of_a_search_has_its_text_and_json_its_beams() -> None:
    trace = trace_of(search_events())
    run = json.loads(as_json(trace))["strategies"][0]
    assert (run["text"], run["token_ids"], run["new_tokens"]) == ("The sky is blue", [20, 21, 22, 23], 4)
    assert run["tokens_per_target_call"] is None
    assert run["prefill"][0]["beams"] == [{"ids": [20], "score": -0.25}, {"ids": [30], "score": -0.5}]
    assert run["verified"][0]["beams"][1] == {"ids": [30, 31], "score": -0.75, "ended": True}
    assert [len(one["tokens"]) for one in run["verified"]] == [0, 2, 2] and "beams" not in run["verified"][2]
    assert len(as_csv(trace).splitlines()) == 1 + 4
    assert "token 1 · › settled" in as_html(trace) and "· › sampled" not in as_html(trace)
    assert all(f">{word}<" in as_html(trace) for word in (" The", " sky", " is", " blue"))
