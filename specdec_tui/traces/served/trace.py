"""The trace of a server's run, beside that of the same server without drafts where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from specdec_tui.decoding.records import (
    Checked,
    DraftsProposed,
    Event,
    Finished,
    Lossless,
    LosslessStatus,
    Notice,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
    first_difference,
)
from specdec_tui.doors.characters import named
from specdec_tui.settings import SERVED
from specdec_tui.traces.baseline import SERVED_BY
from specdec_tui.traces.format import Trace, TraceError, new_header
from specdec_tui.traces.served import llama_cpp, vllm
from specdec_tui.traces.served.changes import sentence_of
from specdec_tui.traces.served.recording import Recording, Request
from specdec_tui.traces.served.steps import ServedRun, ServedStep

_VLLM, _LLAMA_CPP = SERVED
_READERS = {"vllm": (_VLLM, vllm.served_run), "llama.cpp": (_LLAMA_CPP, llama_cpp.served_run)}


def trace_of(recording: Recording, baseline: Recording | None = None) -> Trace:
    """The run under its server's name; `baseline`, of the same server without drafts, as `target`. TraceError."""
    strategy, served_run = _READERS[recording.asked.server]
    run = served_run(recording)
    events: list[Event] = []
    verdict = Lossless(LosslessStatus.NOT_APPLICABLE, detail="no run of the server without drafts to compare with")
    if baseline is not None:
        plain = _plain(recording, baseline)
        events += _events("target", plain, run.gamma, baseline)
        verdict = _verdict(run, plain, recording.asked.request.temperature == 0)
    events += _events(strategy, run, run.gamma, recording)
    if baseline is not None:
        told = "a server's own run: its tokens were not checked here"
        events.append(Checked("target", Lossless(LosslessStatus.NOT_APPLICABLE, detail=told)))
    events += [Checked(strategy, verdict), Finished()]
    server = {SERVED_BY: recording.server, "model": recording.asked.model}
    header = new_header(run.prompt, events, environment=server, created=_created(recording))
    return Trace(replace(header, settings=_settings(recording, run)), tuple(events))


def _plain(recording: Recording, baseline: Recording) -> ServedRun:
    """The baseline's run. TraceError where it can be none of the other."""
    own, other = recording.asked, baseline.asked
    for what in ("server", "model"):
        if getattr(own, what) != getattr(other, what):
            raise TraceError(f"{baseline.name}: no baseline of {recording.name}: the {what} is another one")
    for what in Request.__struct_fields__:
        if getattr(own.request, what) != getattr(other.request, what):
            raise TraceError(f"{baseline.name}: no baseline of {recording.name}: the {what} is another one")
    for what in (*recording.changes, *baseline.changes):
        if recording.changes.get(what) != baseline.changes.get(what):
            raise TraceError(f"{baseline.name}: no baseline of {recording.name}: the {named(what)} is another one")
    plain = _READERS[baseline.asked.server][1](baseline)
    if any(step.accepted or step.drafted for step in plain.steps):
        raise TraceError(f"{baseline.name}: no baseline: the server drafted; record it without speculative decoding")
    return replace(plain, steps=tuple(replace(step, drafted=0) for step in plain.steps), unplaced=None)


def _verdict(run: ServedRun, plain: ServedRun, greedy: bool) -> Lossless:
    if not greedy:
        return Lossless(LosslessStatus.NOT_APPLICABLE, detail="the server drew its tokens: not checked here")
    found = first_difference(run.ids, plain.ids)
    if found is None:
        return Lossless(LosslessStatus.IDENTICAL)
    told = f"another token than without drafts at {found + 1}: not told whether by a near tie"
    return Lossless(LosslessStatus.NOT_APPLICABLE, first_divergence=found, detail=told)


def _events(strategy: str, run: ServedRun, gamma: int, recording: Recording) -> Iterator[Event]:
    asked = recording.asked.request
    length = asked.max_tokens or asked.n_predict or len(run.ids)
    if len(run.ids) > length:
        raise TraceError(f"{recording.name}: {len(run.ids):,} tokens, more than the {length:,} that were asked for")
    started = RunStarted(strategy, run.prompt_tokens, gamma, length, alone=True, served=True)
    yield Step(strategy, started, prompt_text=run.prompt)
    who = f"{run.server} ({recording.asked.model})" if recording.asked.model else run.server
    yield Step(strategy, Notice(f"{who} by itself: {run.told[0]}"))
    for told in (*([sentence_of(recording.changes)] if recording.changes else ()), *run.told[1:]):
        yield Step(strategy, Notice(told))
    yield Step(strategy, PrefillDone(Token(run.first.ids[0], Status.SAMPLED, 0), run.first.seconds), run.first.texts)
    position = 1
    for number, step in enumerate(run.steps):
        if drafts := _drafts(step, position, Status.PENDING):
            yield Step(strategy, DraftsProposed(number, drafts), step.texts[: step.accepted])
        yield Step(strategy, _round(number, step, position), step.texts)
        position += len(step.ids)
    yield Step(strategy, RunEnded(run.reason, run.message, run.unplaced), answer=run.answer)


def _round(number: int, step: ServedStep, position: int) -> RoundVerified:
    emitted = None
    if len(step.ids) > step.accepted:
        is_plain = step.untold is None or not step.drafted
        status = Status.SAMPLED if is_plain else Status.RESAMPLED if step.untold else Status.BONUS
        emitted = Token(step.ids[-1], status, position + step.accepted)
    drafts = _drafts(step, position, Status.ACCEPTED)
    return RoundVerified(number, drafts, emitted, 0.0, step.seconds, 0.0, untold=step.untold)


def _drafts(step: ServedStep, position: int, status: Status) -> tuple[Token, ...]:
    return tuple(Token(id, status, position + index) for index, id in enumerate(step.ids[: step.accepted]))


def _settings(recording: Recording, run: ServedRun) -> dict[str, Any]:
    """What was asked for, under the names of our settings."""
    asked = recording.asked.request
    top_k, top_p = asked.top_k or None, None if asked.top_p == 1 else asked.top_p
    both, one = "topknucleus" if top_p else "topk", "nucleus" if top_p else "multinomial"
    processor = "greedy" if not asked.temperature else both if top_k else one
    told = {"temperature": asked.temperature, "top_k": top_k, "top_p": top_p, "seed": asked.seed}
    return {
        "gamma": run.gamma,
        "max_new_tokens": asked.max_tokens or asked.n_predict or len(run.ids),
        "processor": processor,
        "chat": False,
        **{name: value for name, value in told.items() if value is not None},
    }


def _created(recording: Recording) -> datetime:
    try:
        moment = datetime.fromisoformat(recording.asked.created)
    except ValueError:
        raise TraceError(f"{recording.name}: line 1: created must be a time like 2026-11-30T12:00:00Z") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
