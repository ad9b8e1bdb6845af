"""vLLM's own speculative decoding, from its stream of `/v1/completions` with `return_token_ids`.

An event has the tokens of one step of the engine. How many drafts the steps had is in `metrics.speculative_decoding` of
the last event (`--per-request-spec-decode-metrics`), else in what `/metrics` counted meanwhile. Source: vLLM 0.32,
`entrypoints/openai/completion/serving.py`, `v1/metrics/stats.py` and `v1/spec_decode/metrics.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Annotated, Any

import msgspec

from specdec_tui.decoding.records import STOP_STRING, EndReason
from specdec_tui.traces.bounds import LONGEST_PIECE, MOST_TOKENS
from specdec_tui.traces.header import TraceError
from specdec_tui.traces.served.drafted import Counts, Placed, place
from specdec_tui.traces.served.recording import Count, Drafts, Recording, bad, convert
from specdec_tui.traces.served.steps import ServedRun, ServedStep, texts_of
from specdec_tui.traces.values import shown

_Text = Annotated[str, msgspec.Meta(max_length=LONGEST_PIECE)]
_Ids = Annotated[tuple[Count, ...], msgspec.Meta(max_length=MOST_TOKENS)]
_Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Numbers = Annotated[tuple[Drafts, ...], msgspec.Meta(max_length=MOST_TOKENS)]


class _Logprobs(msgspec.Struct):
    tokens: Annotated[list[_Text], msgspec.Meta(max_length=MOST_TOKENS)] = []


class _Choice(msgspec.Struct):
    index: int = 0
    text: _Text = ""
    token_ids: _Ids | None = None
    prompt_token_ids: list[Count] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class _Speculative(msgspec.Struct):
    num_spec_steps: Count
    num_draft_tokens: Count
    num_accepted_draft_tokens: Count
    num_spec_tokens: Drafts
    per_step_accepted: _Numbers | None = None
    per_step_drafted: _Numbers | None = None


class _Metrics(msgspec.Struct):
    speculative_decoding: _Speculative | None = None
    time_to_first_token_ms: _Milliseconds | None = None
    generation_time_ms: _Milliseconds | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    metrics: _Metrics | None = None
    error: Any = None


@dataclass(slots=True)
class _Chunk:
    ids: tuple[int, ...]
    text: str
    pieces: list[str] | None
    until: float


@dataclass(slots=True)
class _Stream:
    """What the events of a recording say together."""

    chunks: list[_Chunk]
    prompt_tokens: int = 0
    end: _Choice | None = None
    metrics: _Metrics = field(default_factory=_Metrics)


def served_run(recording: Recording) -> ServedRun:
    """TraceError where events are not those of such a stream, or its counts contradict its tokens."""
    stream = _read(recording)
    first, *rest = stream.chunks
    if len(first.ids) > 1:
        told = f"the first event with tokens has {len(first.ids)}: it is no step"
        raise TraceError(f'{recording.name}: {told}: record a streamed answer ("stream": true)')
    counts = _counts(stream, recording)
    accepted = [len(chunk.ids) - 1 for chunk in rest]
    cut = 0
    if counts is not None and rest and counts.accepted > sum(accepted):
        cut = counts.accepted - sum(accepted[:-1])  # accepted in the last step, of which the end left some out
        accepted[-1] = cut
    placed = _placed(accepted, counts, recording)
    pairs = zip(pairwise(stream.chunks), placed.drafted, strict=True)
    steps = [_step(before, chunk, drafted) for (before, chunk), drafted in pairs]
    if cut:
        kept = len(rest[-1].ids)
        steps[-1] = ServedStep(rest[-1].ids, _texts(rest[-1]), steps[-1].seconds, kept, kept)
    reason, message = _reason(stream, recording)
    return ServedRun(
        server=recording.server,
        prompt=recording.asked.request.prompt,
        prompt_tokens=stream.prompt_tokens,
        gamma=max([0 if counts is None else counts.gamma, *(step.accepted for step in steps)]),
        first=ServedStep(first.ids, _texts(first), first.until),
        steps=tuple(steps),
        reason=reason,
        message=message,
        answer="".join(chunk.text for chunk in stream.chunks),
        unplaced=placed.unplaced,
        told=tuple(_told(counts, placed, cut, steps, stream.metrics)),
    )


def _read(recording: Recording) -> _Stream:
    stream = _Stream([])
    for one in recording.arrived:
        event = convert(one.event, _Event, recording, one.line)
        if event.error is not None:
            raise bad(recording.name, one.line, f"the server failed: {shown(event.error)}")
        if event.metrics is not None:
            stream.metrics = event.metrics
        for choice in event.choices:
            if choice.index or len(event.choices) > 1:
                raise bad(recording.name, one.line, "it is one of several answers: record one alone")
            if choice.token_ids is None:
                raise bad(recording.name, one.line, 'it has no token ids: record with "return_token_ids": true')
            if stream.end is not None:
                raise bad(recording.name, one.line, "it comes behind the end of the text")
            stream.prompt_tokens = stream.prompt_tokens or len(choice.prompt_token_ids or ())
            stream.end = choice if choice.finish_reason is not None else None
            pieces = None if choice.logprobs is None else choice.logprobs.tokens
            if choice.token_ids:
                stream.chunks.append(_Chunk(choice.token_ids, choice.text, pieces, one.seconds))
            elif choice.text and stream.chunks:  # was held back, as a beginning of a stop string is
                last = stream.chunks[-1]
                last.text, last.pieces = last.text + choice.text, None
    if not stream.chunks:
        raise TraceError(f"{recording.name}: no event has tokens: record a streamed answer of /v1/completions")
    if stream.end is None:
        raise TraceError(f"{recording.name}: cut off: no event says why the text ended")
    if sum(len(chunk.ids) for chunk in stream.chunks) > MOST_TOKENS:
        raise TraceError(f"{recording.name}: more than {MOST_TOKENS:,} tokens: a run has at most so many")
    return stream


def _step(before: _Chunk, chunk: _Chunk, drafted: int | None) -> ServedStep:
    return ServedStep(chunk.ids, _texts(chunk), chunk.until - before.until, len(chunk.ids) - 1, drafted)


def _texts(chunk: _Chunk) -> tuple[str, ...]:
    return texts_of(chunk.pieces, chunk.text, len(chunk.ids))


def _reason(stream: _Stream, recording: Recording) -> tuple[EndReason, str]:
    assert stream.end is not None
    match stream.end.finish_reason:
        case "stop" if isinstance(stream.end.stop_reason, str):
            return EndReason.END_TOKEN, STOP_STRING
        case "stop":
            return EndReason.END_TOKEN, ""
        case "length":
            total = sum(len(chunk.ids) for chunk in stream.chunks)
            is_full = recording.asked.request.max_tokens in (None, total)
            return (EndReason.LENGTH, "") if is_full else (EndReason.CONTEXT, "the server's context is full")
        case "abort":
            return EndReason.CANCELLED, ""
    return EndReason.ERROR, f"the server ended it: {shown(stream.end.finish_reason)}"


def _counts(stream: _Stream, recording: Recording) -> Counts | None:
    """Of the run itself where the server told them, else of what `/metrics` counted meanwhile; None without either."""
    if (own := stream.metrics.speculative_decoding) is not None:
        each = tuple(zip(own.per_step_accepted or (), own.per_step_drafted or (), strict=False))
        sums = own.num_spec_steps, own.num_draft_tokens, own.num_accepted_draft_tokens
        return Counts(*sums, own.num_spec_tokens, each)
    if not recording.after:
        return None
    before, after = (_counters(text, recording) for text in (recording.before, recording.after))
    found = {name: after[name] - before.get(name, 0) for name in after}
    tokens = sum(len(chunk.ids) for chunk in stream.chunks)
    if (counted := found.get(_TOKENS, tokens)) != tokens:
        told = f"/metrics counted {counted:,} tokens, the stream has {tokens:,}"
        raise TraceError(f"{recording.name}: {told}: record when nobody else asks the server")
    steps, drafted, accepted = (found.get(f"{_DRAFTS}{name}_total", 0) for name in _SUMS)
    places = sum(name.startswith(_PLACES) for name in after)
    return Counts(steps, drafted, accepted, places)


_TOKENS, _DRAFTS = "vllm:generation_tokens_total", "vllm:spec_decode_num_"
COUNTERS = _TOKENS, _DRAFTS
"""How the lines of `/metrics` begin that are read here."""
_SUMS = "drafts", "draft_tokens", "accepted_tokens"
_PLACES = f"{_DRAFTS}accepted_tokens_per_pos_total "
_COUNTER = re.compile(r"(vllm:\w+_total)(?:\{([^\n]*)\})? (\S+)")
_PLACE = re.compile(r'position="(\d{1,4})"')


def _counters(text: str, recording: Recording) -> dict[str, int]:
    """The counters of `/metrics` summed over engines and models, those of places under their name and the place."""
    found: dict[str, int] = {}
    for name, labels, written in _COUNTER.findall(text):
        if name != _TOKENS and not name.startswith(_DRAFTS):
            continue
        try:
            value = float(written)
        except ValueError:
            value = -1.0
        if not isfinite(value) or not 0 <= value < 2**53:
            raise TraceError(f"{recording.name}: /metrics has {name} {shown(written)}: it must be a number from 0 on")
        place = _PLACE.search(labels)
        key = f"{name} {place[1]}" if place else name
        found[key] = found.get(key, 0) + int(value)
    return found


def _placed(accepted: Sequence[int], counts: Counts | None, recording: Recording) -> Placed:
    if counts is None and not any(accepted):
        return Placed((None,) * len(accepted))
    if counts is None:
        told = "steps have several tokens, and nothing says that these are drafts"
        raise TraceError(f"{recording.name}: {told}: record /metrics before and after the stream")
    placed = place(accepted, counts)
    if placed is None:
        told = f"the server counted {counts.accepted:,} accepted drafts in {counts.steps:,} steps"
        raise TraceError(
            f"{recording.name}: {told}, the stream has {sum(accepted):,} in {len(accepted):,}: its events are no steps"
        )
    return placed


def _told(counts: Counts | None, placed: Placed, cut: int, steps: Sequence[ServedStep], metrics: _Metrics) -> list[str]:
    told = ["a round took what passed between arrivals, drafting and checking in one"]
    if counts is not None and counts.steps:
        told.append(
            f"it counted {counts.drafted:,} drafts in {counts.steps:,} steps, {counts.accepted:,} of them accepted"
        )
    unknown = placed.drafted.count(None)
    if placed.unplaced is not None:
        rounds, drafts = placed.unplaced
        told.append(f"{drafts:,} refused drafts were in {rounds:,} of {unknown:,} steps: it is not told in which")
    elif unknown:
        told.append(
            f"how many drafts {unknown:,} of its steps had is not told, so there is no α: "
            "vLLM tells with --per-request-spec-decode-metrics detailed"
        )
    if cut:
        kept = steps[-1].accepted
        told.append(f"of {cut} drafts accepted in the last step the text has {kept}: only these are counted here")
    first, rest = metrics.time_to_first_token_ms, metrics.generation_time_ms
    if first is not None and rest is not None:
        told.append(f"its own clock: the first token after {first:.1f} ms, all others {rest:.1f} ms later")
    return told
