"""A trace holds no more than the app can make; what is beyond is refused in one line that says where and what."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded import full_trace, long_events, trace_of

from specdec_tui.decoding.records import DraftsProposed, Notice, RoundVerified, RunStarted, Status, Step, Token
from specdec_tui.settings import SettingError, parse_value
from specdec_tui.traces import bounds
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace, TraceError, trace_lines

LINES = [json.loads(line) for line in trace_lines(full_trace())]
START, NOTICE, PREFILL, PROPOSED, VERIFIED, ENDED, CHECKED = 1, 3, 4, 5, 6, 9, 10


def refusal(tmp_path: Path, lines: list[Any]) -> str:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250
    return str(caught.value)


def changed(line: int, **fields: Any) -> list[Any]:
    return [*LINES[:line], {**LINES[line], **fields}, *LINES[line + 1 :]]


def draft(**fields: Any) -> dict[str, Any]:
    return {**LINES[VERIFIED]["drafts"][0], **fields}


@pytest.mark.parametrize(("name", "most"), [("gamma", bounds.MOST_DRAFTS), ("max_new_tokens", bounds.MOST_TOKENS)])
def test_bounds_are_those_of_the_settings(name: str, most: int) -> None:
    assert parse_value(name, str(most)) == most
    with pytest.raises(SettingError):
        parse_value(name, str(most + 1))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (changed(START, gamma=33), "line 2: field 'gamma' must be a whole number of at most 32"),
        (changed(START, max_new_tokens=32_769), "line 2: field 'max_new_tokens' must be a whole number"),
        (changed(START, prompt_text="x" * (2**23 + 1)), "line 2: field 'prompt_text' must be a text of at most 8,"),
        (changed(NOTICE, message="x" * 10_001), "line 4: field 'message' must be a text of at most 10,000 characters"),
        (changed(PREFILL, texts=["x" * 10**6]), "line 5: field 'texts[0]' must be a text of at most 65,536 characters"),
        (changed(PREFILL, passes=[[1, 0.1]] * 33), "line 5: field 'passes' must be a list of at most 32 entries"),
        (
            changed(PREFILL, passes=[[1, 0.1], [1, 0.2]]),
            "line 5: field 'passes[1][0]' must be more than the tokens of the",
        ),
        (changed(PREFILL, passes=[[0, 0.1]]), "line 5: field 'passes[0][0]' must be a whole number"),
        (changed(PREFILL, passes=[[1, -0.1]]), "line 5: field 'passes[0][1]' must be a number"),
        (
            changed(PREFILL, pass_limit=LINES[PREFILL]["pass_limit"] | {"bytes_per_second": 0.0}),
            "line 5: field 'pass_limit.bytes_per_second' must be a number",
        ),
        (
            changed(PREFILL, pass_limit=LINES[PREFILL]["pass_limit"] | {"multiply_adds": 0}),
            "line 5: field 'pass_limit.multiply_adds' must be a whole number from 1 on",
        ),
        (
            changed(VERIFIED, drafts=[draft()] * 20_000, texts=["x"] * 20_001),
            "line 7: field 'drafts' must be a list of at most 32 entries",
        ),
        (
            changed(VERIFIED, drafts=[draft(insight={"target_top": [[1, 0.1]] * 65})]),
            "line 7: field 'drafts[0].insight.target_top' must be a list of at most 64 entries",
        ),
        (changed(VERIFIED, drafts=[draft(position=10**7)]), "'drafts[0].position' must be a whole number of at most"),
        (changed(VERIFIED, round=10**6), "line 7: field 'round' must be a whole number"),
        (changed(ENDED, answer="x" * (2**21 + 1)), "line 10: field 'answer' must be a text of at most 2,097,152"),
        (
            [*LINES[:3], *[LINES[NOTICE]] * 10**5, *LINES[4:]],
            "line 36: field 'event' comes too often: 'speculative' has at most 32 of its kind",
        ),
        ([*LINES[:-1], LINES[CHECKED]], "line 12: field 'event' comes too often: 'speculative' has at most 1"),
        (
            [LINES[0], *({**LINES[START], "strategy": f"s{i}"} for i in range(1000))],
            "line 258: field 'strategy' must be one of at most 256 different ones",
        ),
        (changed(START, strategy="s" * 101), "line 2: field 'strategy' must be a text of at most 100 characters"),
        (changed(0, prompt="x" * (2**23 + 1)), "line 1: field 'prompt' must be a text of at most 8,"),
        (changed(0, strategies={f"s{i}": {} for i in range(10**5)}), "line 1: field 'strategies' holds too much"),
        (changed(0, strategies={f"s{i}": {} for i in range(257)}), "'strategies' must be an object of at most 256"),
        (changed(0, settings={"gamma": [4] * 10**6}), "'settings' holds too much: a header has at most 20,000"),
        (changed(0, environment={"x" * 10_001: 1}), "line 1: field 'environment' must hold texts of at most 10,000"),
        (changed(0, created="9" * 101), "line 1: field 'created' must be a text of at most 100 characters"),
    ],
)
def test_what_no_run_can_hold_is_refused_with_line_field_and_bound(
    lines: list[Any], message: str, tmp_path: Path
) -> None:
    assert message in refusal(tmp_path, lines)


@pytest.mark.parametrize("number", ["1e999", "NaN", "Infinity", "-Infinity", "9" * 5000])
def test_numbers_that_are_none_are_refused(number: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = list(trace_lines(full_trace()))
    lines[VERIFIED] = json.dumps(LINES[VERIFIED] | {"verify_seconds": "here"}).replace('"here"', number) + "\n"
    path.write_text("".join(lines))
    with pytest.raises(TraceError, match="line 7: "):
        read_trace(path)


def test_rounds_and_the_text_of_a_run_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.loads(line) for line in trace_lines(trace_of(tuple(long_events("target", 30))))]
    del lines[0]["events"]
    monkeypatch.setattr("specdec_tui.traces.order.LONGEST_ANSWER", 100)
    assert "field 'texts' must have at most 100 characters in a run" in refusal(tmp_path, lines)
    monkeypatch.setattr("specdec_tui.traces.order.MOST_TOKENS", 12)
    monkeypatch.setattr("specdec_tui.traces.order.LONGEST_ANSWER", 1000)
    assert "line 16: field 'event' comes too often: 'target' has at most 12" in refusal(tmp_path, lines)


def test_the_largest_of_everything_is_read(tmp_path: Path) -> None:
    most = bounds.MOST_DRAFTS
    top = tuple((2**53, 1.0) for _ in range(bounds.MOST_ALTERNATIVES))
    (start, _, notice, prefill, _, verified, *_, ended, checked, finished) = full_trace().events
    assert isinstance(start, Step) and isinstance(start.record, RunStarted)
    assert isinstance(verified, Step) and isinstance(verified.record, RoundVerified)
    insight = verified.record.drafts[0].insight
    assert insight is not None
    seen = replace(insight, target_top=top)
    drafts = tuple(Token(2**53, Status.UNVERIFIED if i else Status.REJECTED, 1 + i, insight=seen) for i in range(most))
    proposed = tuple(replace(draft, status=Status.PENDING) for draft in drafts)
    correction = Token(2**53, Status.RESAMPLED, 1)
    events = (
        replace(start, record=replace(start.record, gamma=most, max_new_tokens=bounds.MOST_TOKENS)),
        *(Step(start.strategy, Notice(f"{i}" + "x" * 9_000)) for i in range(bounds.MOST_NOTICES)),
        prefill,
        Step(start.strategy, DraftsProposed(0, proposed), ("y",) * most),
        replace(
            verified,
            record=replace(verified.record, drafts=drafts, emitted=correction),
            texts=("y" * (bounds.LONGEST_ANSWER // most - 10),) * most + ("",),
        ),
        ended,
        checked,
        finished,
    )
    trace = trace_of(events, "p" * bounds.LONGEST_PROMPT)
    path = tmp_path / "run.jsonl"
    path.write_text("".join(trace_lines(Trace(trace.header, events))))
    assert read_trace(path) == trace
    assert notice not in events
