"""Recording what a server streams with drafts of its own: a request, each event with its arrival, `/metrics` around it.

vLLM and llama.cpp are told apart by what they say of themselves. The key is sent, and is in no recording.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from specdec_tui.backends.remote.address import place_of
from specdec_tui.backends.remote.client import Client
from specdec_tui.backends.remote.errors import ServerError
from specdec_tui.doors import output, writing
from specdec_tui.settings import ModelChoice, SettingError, Settings, reason_of
from specdec_tui.traces.header import TraceError
from specdec_tui.traces.served import vllm
from specdec_tui.traces.served.recording import MARK, VERSION, parse_recording
from specdec_tui.traces.served.trace import trace_of
from specdec_tui.variables import api_key

_SETTLED_SECONDS, _GLANCE = 2.0, 0.1  # a server counts a token a moment after it has sent it


class _Version(msgspec.Struct):
    version: str


class _Props(msgspec.Struct):
    build_info: str
    model_alias: str = ""


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def record(file: Path, settings: Settings, choice: ModelChoice, prompt: str) -> int:
    """Write a recording of one answer. Exit status 0; 1, with a line, where the server or its stream is no use."""
    if not choice.target_url:
        raise SettingError("target-url: --record asks a server: give its address, like http://host:port/v1")
    try:
        writing.check(file)
    except OSError as error:
        raise SettingError(f"cannot write {file}: {reason_of(error)}") from None
    try:
        client = Client(choice.target_url, api_key())
    except ServerError as error:  # nothing was sent yet
        raise SettingError(str(error)) from None
    try:
        lines = list(_lines(client, settings, choice, prompt))
    except ServerError as error:
        output.complain(f"{place_of(choice.target_url)}: {error}")
        return 1
    finally:
        client.close()
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    try:
        writing.place(file, [text])
        trace_of(parse_recording(text, file.name))
    except OSError as error:
        output.complain(f"cannot write {file}: {reason_of(error)}")
        return 1
    except TraceError as error:
        output.complain(f"written, but no trace can be made of it: {error}")
        return 1
    events = sum("event" in line for line in lines)
    output.say(f"{file}: {events} events (make a trace of it: specdec-tui import FILE)")
    return 0


def _lines(client: Client, settings: Settings, choice: ModelChoice, prompt: str) -> Iterator[dict[str, Any]]:
    """The lines of a recording, as they come."""
    server, version, model = _who(client, choice.target)
    body = _of_vllm(model, settings) if server == "vllm" else _of_llama_cpp(settings)
    body["prompt"] = prompt
    moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    asked = {"server": server, "version": version, "model": model, "created": moment, "request": body}
    yield {MARK: VERSION, **asked}
    if metrics := _metrics(client):
        yield {"metrics": metrics}
    begin = time.perf_counter()
    for at, event in _events(client, "/completions" if server == "vllm" else "//completion", body):
        yield {"seconds": round(at - begin, 6), "event": event}
    if metrics:
        yield {"metrics": _settled(client)}


def _events(client: Client, path: str, body: dict[str, Any]) -> Iterator[tuple[float, dict[str, Any]]]:
    """Up to the end of the text, and what the server says behind it; not every server marks the end of its stream."""
    ended = False
    try:
        for at, event in client.stream(path, body, dict[str, Any]):
            ended = ended or event.get("stop") is True
            yield at, event
    except ServerError as error:
        if not ended or error.kind != "gone":
            raise


def _who(client: Client, wanted: str) -> tuple[str, str, str]:
    """Server, version and model. ServerError where it is none of those whose streams are understood."""
    if (version := _said(client, "//version", _Version)) is not None:
        names = [model.id for model in client.get("/models", _Models).body.data]
        if wanted and wanted not in names:
            raise ServerError(f"it has no model {wanted}: it has {', '.join(names[:5])}", "refused")
        return "vllm", version.version, wanted or names[0]
    if (props := _said(client, "//props", _Props)) is not None:
        return "llama.cpp", props.build_info, wanted or props.model_alias
    raise ServerError("it is neither vLLM nor llama.cpp: only their streams are understood", "refused")


def _said(client: Client, path: str, into: type[Any]) -> Any:
    """What the server says there; None where it has no such place, or something else there."""
    try:
        return client.get(path, into).body
    except ServerError as error:
        if error.status in (404, 405, 501) or error.kind == "answer":
            return None
        raise


def _drawing(settings: Settings) -> dict[str, Any]:
    """How the server is to draw: all of it, for what is left out it may have defaults of its own."""
    greedy, uses = settings.processor == "greedy", settings.processor
    return {
        "temperature": 0.0 if greedy else settings.temperature,
        "top_k": settings.top_k if uses in ("topk", "topknucleus") else 0,
        "top_p": settings.top_p if uses in ("nucleus", "topknucleus") else 1.0,
        "min_p": 0.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": settings.seed % 2**31,
        "stream": True,
    }


def _of_vllm(model: str, settings: Settings) -> dict[str, Any]:
    told = {"return_token_ids": True, "logprobs": 0, "stream_options": {"include_usage": True}}
    drawing = {"repetition_penalty": 1.0, **_drawing(settings)}
    return {"model": model, "max_tokens": settings.max_new_tokens, **drawing, **told}


def _of_llama_cpp(settings: Settings) -> dict[str, Any]:
    told = {"timings_per_token": True, "return_tokens": True}
    return {"n_predict": settings.max_new_tokens, "repeat_penalty": 1.0, **_drawing(settings), **told}


def _metrics(client: Client) -> str:
    """The lines of `/metrics` that a trace has a use for; empty where there are none."""
    try:
        text = client.text("//metrics")
    except ServerError as error:
        if error.status is None:
            raise
        return ""
    return "".join(f"{line}\n" for line in text.splitlines() if line.startswith(vllm.COUNTERS))


def _settled(client: Client) -> str:
    """The same once nothing moves any more."""
    text, until = _metrics(client), time.perf_counter() + _SETTLED_SECONDS
    while time.perf_counter() < until:
        time.sleep(_GLANCE)
        before, text = text, _metrics(client)
        if before == text:
            break
    return text
