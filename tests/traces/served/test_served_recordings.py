"""Files that are no recordings, or damaged ones, are refused in one line that says what is wrong."""

import json
from typing import Any

import pytest
from streams import counted, llama_events, metrics, recorded, text_of, vllm_events

from specdec_tui.traces.header import TraceError
from specdec_tui.traces.served.recording import parse_recording
from specdec_tui.traces.served.trace import trace_of


def refused(lines: list[dict[str, Any]], server: str = "vllm", **asked: Any) -> str:
    with pytest.raises(TraceError) as caught:
        trace_of(recorded(lines, server, **asked))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a recording"),
        ("[]\n", "not a recording"),
        ('{"specdec_tui_trace": 1}\n', "not a recording"),
        ("{" * 100_000, "not a recording"),
        ('{"specdec_tui_recording": 1}\n', "'server' is missing"),
        (text_of([], "sglang"), "the server must be one of vllm, llama.cpp, not 'sglang'"),
        (text_of([]).replace('recording": 1', 'recording": 2'), "made by a newer specdec-tui"),
        (text_of([], prompt=[1, 2]), "'request.prompt' must be a text"),
        (text_of([], temperature=-1), "'request.temperature' must be"),
        (text_of([]), "totals alone tell of no round"),
        (text_of([metrics(0, 0, 0, 0), metrics(1, 4, 2, 9)]), "totals alone tell of no round"),
        (text_of([{"seconds": 1}]), 'it must have "seconds" and "event"'),
        (text_of([{"event": {}}]), 'it must have "seconds" and "event"'),
        (text_of([{"seconds": -1, "event": {}}]), "'seconds' must be a number from 0 on"),
        (text_of([{"seconds": 0, "event": []}]), "'event' must be an object"),
        (text_of([{"seconds": 2, "event": {}}, {"seconds": 1, "event": {}}]), "line 3: 1 seconds come behind 2"),
        (text_of([]) + '{"seconds": NaN, "event": {}}\n', "line 2: it is not JSON"),
        (text_of([]) + '{"seconds": 1e999, "event": {}}\n', "line 2: field 'seconds' must be a finite number"),
        (text_of([]) + '{"seconds": 1, "event": {"choi', "line 2: it is not JSON"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(text: str, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        parse_recording(text, "run.jsonl")
    assert str(caught.value).startswith("run.jsonl: ") and message in str(caught.value)


def test_a_stream_of_vllm_that_was_cut_off_is_refused() -> None:
    assert "cut off: no event says why" in refused(vllm_events([1, 1, 1])[:2])


def test_an_answer_of_vllm_that_was_not_streamed_is_refused() -> None:
    assert 'record a streamed answer ("stream": true)' in refused(vllm_events([9]))
    assert "no event has tokens" in refused([{"seconds": 1, "event": {"object": "list"}}])


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("token_ids", None, 'record with "return_token_ids": true'),
        ("token_ids", [-1], "'choices[0].token_ids[0]' must be a whole number from 0 on"),
        ("token_ids", ["x"], "must be a whole number, not a text"),
        ("index", 1, "one of several answers"),
    ],
)
def test_an_event_of_vllm_with_other_tokens_is_refused(place: str, value: object, message: str) -> None:
    lines = vllm_events([1, 1])
    lines[1]["event"]["choices"][0][place] = value
    assert message in refused(lines)


@pytest.mark.parametrize("asked", [{"n": 2}, {"best_of": 3}, {"n_cmpl": "2"}])
def test_a_request_for_several_answers_is_refused(asked: dict[str, Any]) -> None:
    (name,) = asked
    assert f"line 1: {name} is {asked[name]!r}: a run is one answer" in refused(vllm_events([1, 1]), **asked)


@pytest.mark.parametrize("value", ["1e999", "9" * 5000, "[" * 100_000 + "]" * 100_000])
def test_a_field_of_a_request_that_nothing_can_read_is_refused_in_one_line(value: str) -> None:
    text = text_of(vllm_events([1, 1]), stop="HERE").replace('"HERE"', value)
    with pytest.raises(TraceError) as error:
        trace_of(parse_recording(text, "run.jsonl"))
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_a_server_that_failed_is_told() -> None:
    failed = {"seconds": 9, "event": {"error": {"message": "out of memory\n"}}}
    assert "the server failed" in refused([*vllm_events([1, 1])[:1], failed])
    assert "the server failed" in refused([*llama_events([])[:1], failed | {"seconds": 9}], "llama.cpp")


@pytest.mark.parametrize(
    ("counts", "told", "message"),
    [
        ([1, 3], None, "nothing says that these are drafts"),
        ([1, 3], [(1, 4)], "its events are no steps"),  # two steps came as one
        ([1, 3, 3], [(2, 4), (3, 4), (2, 4)], "its events are no steps"),
        ([1, 3], [(2, 1)], "its events are no steps"),
        ([1, 3, 2], [(1, 4), (2, 4)], "its events are no steps"),
    ],
)
def test_steps_that_the_server_counted_otherwise_are_refused(
    counts: list[int], told: list[tuple[int, int]] | None, message: str
) -> None:
    last = {} if told is None else {"metrics": counted(told)}
    assert message in refused(vllm_events(counts, **last), max_tokens=sum(counts))


def test_counters_that_others_moved_too_are_refused() -> None:
    lines = [metrics(0, 0, 0, 0), *vllm_events([1, 3]), metrics(1, 4, 2, 40)]
    assert "/metrics counted 40 tokens, the stream has 4" in refused(lines, max_tokens=4)


@pytest.mark.parametrize("value", ["NaN", "-1.0", "1e999", "x"])
def test_counters_that_are_no_numbers_are_refused(value: str) -> None:
    after = {"metrics": metrics(1, 4, 2, 4)["metrics"].replace("} 4.0", f"}} {value}")}
    assert "must be a number from 0 on" in refused([*vllm_events([1, 3]), after], max_tokens=4)


def test_more_tokens_than_were_asked_for_are_refused() -> None:
    assert "more than the 2 that were asked for" in refused(vllm_events([1, 1, 1], "stop"), max_tokens=2)


def test_an_answer_of_llama_cpp_that_was_not_streamed_is_refused() -> None:
    whole = {"content": " one", "tokens": [1, 2], "stop": True, "stop_type": "limit", "timings": {"draft_n": 4}}
    assert "totals alone tell of no round" in refused([{"seconds": 1, "event": whole}], "llama.cpp")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"timings": None}, 'record with "timings_per_token": true'),
        ({"tokens": []}, 'record with "return_tokens": true'),
        ({"tokens": [1, 2]}, 'record with "return_tokens": true'),
        ({"timings": {"predicted_n": 9, "predicted_ms": -1}}, "'predicted_ms' must be"),
        ({"timings": {"predicted_n": 3, "predicted_ms": 0.5}}, "go back"),
        ({"timings": {"predicted_n": 3, "predicted_ms": 1e5, "draft_n": 1, "draft_n_accepted": 2}}, "go back"),
    ],
)
def test_an_event_of_llama_cpp_without_what_a_trace_needs_is_refused(change: dict[str, Any], message: str) -> None:
    lines = llama_events([(0, 0), (0, 0)])
    lines[-2]["event"] |= change
    assert message in refused(lines, "llama.cpp", n_predict=3)


def test_a_stream_of_llama_cpp_that_lacks_a_token_is_refused() -> None:
    """It sends none that ends inside of a character."""
    lines = llama_events([(4, 2), (4, 4)])
    del lines[2]
    assert "not every token was sent" in refused(lines, "llama.cpp", n_predict=9)


def test_a_step_of_llama_cpp_that_was_checked_twice_is_refused() -> None:
    lines = llama_events([(4, 2), (0, 0)])
    lines[-2]["event"]["timings"] = lines[-3]["event"]["timings"]
    assert "checked this step twice" in refused(lines, "llama.cpp", n_predict=5)


def test_more_drafts_than_a_trace_can_hold_are_refused() -> None:
    assert "at most 32" in refused(llama_events([(48, 0)]), "llama.cpp", n_predict=2)


def test_what_llama_cpp_tells_of_the_prompt_on_its_way_is_no_token() -> None:
    lines = llama_events([(4, 4)])
    on_its_way = {"content": "", "tokens": [0], "prompt_progress": {"total": 3}, "timings": {"prompt_n": -1}}
    trace = trace_of(recorded([{"seconds": 0, "event": on_its_way}, *lines], "llama.cpp", n_predict=6))
    assert trace.header.strategies["llama-cpp"]["new_tokens"] == 6


def test_the_last_step_of_llama_cpp_may_be_cut_by_the_end() -> None:
    trace = trace_of(recorded(llama_events([(4, 4)], cut=2), "llama.cpp", n_predict=4))
    told = trace.header.strategies["llama-cpp"]
    assert (told["drafted"], told["accepted"], told["finish_reason"]) == (3, 3, "length")


def test_the_texts_of_a_recording_are_its_own_and_json() -> None:
    assert json.loads(text_of([]).splitlines()[0])["specdec_tui_recording"] == 1
