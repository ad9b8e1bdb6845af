"""Recording a server: what it is asked, what of its stream is written, and what a person sees when it fails."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from faulty_server import Answer, Call, FaultyServer, Wire, broken_off, refusal

from specdec_tui.backends.remote import tries
from specdec_tui.cli import main
from specdec_tui.traces.served.recording import read_recording
from specdec_tui.traces.served.trace import trace_of

KEY = "sk-recorded-7Qx"
COUNTS = {"num_spec_steps": 1, "num_draft_tokens": 4, "num_accepted_draft_tokens": 2, "num_spec_tokens": 4}


def vllm_chunk(ids: Sequence[int], finish: str | None = None) -> dict[str, Any]:
    pieces = [f" {id}" for id in ids]
    choice = {"text": "".join(pieces), "token_ids": ids, "logprobs": {"tokens": pieces}, "finish_reason": finish}
    return {"choices": [{"index": 0, **choice}]}


VLLM = [
    vllm_chunk([5]),
    vllm_chunk([6, 7, 8], "length"),
    {"choices": [], "metrics": {"speculative_decoding": COUNTS}},
]


def llama_event(number: int, step: int, drafted: int, kept: int) -> dict[str, Any]:
    timings = {"predicted_n": number, "predicted_ms": step * 10.0, "draft_n": drafted, "draft_n_accepted": kept}
    return {"content": f" {number}", "tokens": [number], "stop": False, "timings": timings}


LLAMA = [
    llama_event(1, 0, 0, 0),
    llama_event(2, 1, 3, 1),
    llama_event(3, 1, 3, 1),
    {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "tokens_evaluated": 4},
]


def vllm(call: Call) -> Answer:
    match call.path:
        case "/version":
            return Answer({"version": "0.32.0"})
        case "/v1/models":
            return Answer({"data": [{"id": "m"}]})
        case "/metrics":
            return Answer(b'# HELP x\nvllm:generation_tokens_total{engine="0"} 4.0\nvllm:other 1.0\n')
        case "/v1/completions":
            return Answer(events=VLLM, gap=0.3)
    return Answer({"detail": "Not Found"}, 404)


def llama(call: Call) -> Answer:
    match call.path:
        case "/props":
            return Answer({"build_info": "b1234", "model_alias": "m"})
        case "/completion":
            return Answer(events=LLAMA)
    return Answer({"error": {"message": "File Not Found"}}, 404)


def without_a_mark_at_its_end(wire: Wire, answer: Answer) -> None:
    wire.send(answer.head())
    *events, _, end = [*answer.pieces()]
    for piece in [*events, end]:
        wire.send(piece)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setenv("SPECDEC_TUI_API_KEY", KEY)
    monkeypatch.setattr(tries, "_FIRST_WAIT", 0.005)
    with FaultyServer(vllm) as server:
        yield server


def recorded(server: FaultyServer, file: Path, *more: str) -> int:
    return main(["import", str(file), "--record", "--target-url", server.url, "--prompt", "Count.", *more])


def test_a_stream_of_vllm_is_written_as_it_comes_and_its_key_is_not(server: FaultyServer, tmp_path: Path) -> None:
    assert recorded(server, tmp_path / "run.jsonl", "--max-new-tokens", "4", "--processor", "greedy") == 0
    text = (tmp_path / "run.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["event"] for line in lines if "event" in line] == VLLM
    arrivals = [line["seconds"] for line in lines if "event" in line]
    assert arrivals[1] - arrivals[0] > 0.05, "the first one waited for the second"
    assert [line["metrics"] for line in lines if "metrics" in line] == [
        'vllm:generation_tokens_total{engine="0"} 4.0\n'
    ] * 2
    assert KEY not in text
    (asked,) = [call for call in server.calls if call.path == "/v1/completions"]
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert lines[0]["request"] == asked.body
    wanted = {"temperature": 0.0, "max_tokens": 4, "prompt": "Count.", "stream": True, "return_token_ids": True}
    assert wanted.items() <= asked.body.items()
    recording = read_recording(tmp_path / "run.jsonl")
    assert trace_of(recording).header.strategies["vllm"]["drafted"] == 4
    assert not recording.changes, "it asked for what the settings do not tell"


def test_a_server_that_says_the_key_everywhere_brings_it_into_no_recording(
    server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def echoing(call: Call) -> Answer:
        match call.path:
            case "/version":
                return Answer({"version": f"0.32.0+{KEY}"})
            case "/v1/models":
                return Answer({"data": [{"id": f"m-{KEY}"}]})
            case "/metrics":
                return Answer(f'vllm:generation_tokens_total{{engine="{KEY}"}} 4.0\n'.encode())
        return Answer(events=[{"id": KEY, **event, "again": KEY.upper()} for event in VLLM])

    server.model = echoing
    assert recorded(server, tmp_path / "run.jsonl", "--max-new-tokens", "4") == 0
    told = "".join([(tmp_path / "run.jsonl").read_text(), *capsys.readouterr()])
    assert KEY.lower() not in told.lower() and told.count("[key]") == 3 + 2 + 2 * len(VLLM)


def test_how_to_draw_is_told_in_full(server: FaultyServer, tmp_path: Path) -> None:
    """What is left out a server would take from the model's own configuration."""
    drawing = "--processor", "topknucleus", "--temperature", "0.9", "--top-k", "7", "--top-p", "0.8", "--seed", "3"
    assert recorded(server, tmp_path / "run.jsonl", *drawing) == 0
    (asked,) = [call.body for call in server.calls if call.path == "/v1/completions"]
    told = {name: asked[name] for name in ("temperature", "top_k", "top_p", "min_p", "seed")}
    assert told == {"temperature": 0.9, "top_k": 7, "top_p": 0.8, "min_p": 0.0, "seed": 3}
    penalties = {name: value for name, value in asked.items() if "penalty" in name}
    assert penalties == {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


def test_a_stream_of_llama_cpp_needs_no_mark_at_its_end(server: FaultyServer, tmp_path: Path) -> None:
    server.model = llama
    server.fails(without_a_mark_at_its_end, path="/completion")
    assert recorded(server, tmp_path / "run.jsonl", "--max-new-tokens", "3") == 0
    (asked,) = [call.body for call in server.calls if call.path == "/completion"]
    assert {"n_predict": 3, "timings_per_token": True, "return_tokens": True}.items() <= asked.items()
    penalties = {name: value for name, value in asked.items() if "penalty" in name}
    assert penalties == {"repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}
    recording = read_recording(tmp_path / "run.jsonl")
    told = trace_of(recording).header.strategies["llama-cpp"]
    assert (told["drafted"], told["accepted"], told["new_tokens"]) == (3, 1, 3)
    assert not recording.changes, "it asked for what the settings do not tell"


@pytest.mark.parametrize(
    ("path", "fault", "message"),
    [
        ("/v1/completions", refusal(401, "no"), "the server refuses the key"),
        ("/v1/completions", broken_off(1), "the server"),
        ("/version", refusal(404), "it is neither vLLM nor llama.cpp"),
        ("/models", refusal(500, "busy"), "busy"),
    ],
)
def test_a_server_that_fails_is_one_line_and_no_file(
    server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, fault: Any, message: str
) -> None:
    server.fails(fault, path=path)
    assert recorded(server, tmp_path / "run.jsonl") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line and f"127.0.0.1:{server.port}" in line and KEY not in line
    assert not (tmp_path / "run.jsonl").exists()


def test_a_model_that_the_server_has_not_is_refused_with_those_it_has(
    server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recorded(server, tmp_path / "run.jsonl", "--target", "other") == 1
    assert "it has no model other: it has m" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt", "x"], "target-url: --record asks a server"),
        (["--target-url", "http://127.0.0.1:1/v1"], "prompt: --record needs one"),
        (["--target-url", "ftp://x", "--prompt", "x"], "target-url: 'ftp://x' is not valid"),
        (["--target-url", "http://127.0.0.1:1/v1", "--prompt", "x", "--top-k", "-1"], "top-k"),
    ],
)
def test_a_recording_needs_an_address_and_a_prompt(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", str(tmp_path / "run.jsonl"), "--record", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_stream_that_is_no_use_is_told_at_once_and_kept(
    server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.model = lambda call: Answer(events=[vllm_chunk([5, 6], "length")]) if call.body else vllm(call)
    assert recorded(server, tmp_path / "run.jsonl") == 1
    assert "written, but no trace can be made of it" in capsys.readouterr().err
    assert (tmp_path / "run.jsonl").exists()


def test_where_nothing_can_be_written_no_server_is_asked(
    server: FaultyServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert recorded(server, tmp_path / "none" / "run.jsonl") == 2
    assert "cannot write" in capsys.readouterr().err and not server.calls
