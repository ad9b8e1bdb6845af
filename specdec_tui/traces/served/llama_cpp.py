"""llama.cpp's own speculative decoding, from the stream of its server's `/completion`.

With `timings_per_token` every token has an event of its own, with what was counted so far; the tokens of a step have
the same clock readings. Source: llama.cpp, `tools/server/server-context.cpp` (`post_decode`, `send_partial_response`)
and `server-task.cpp` (`result_timings::to_json`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any

import msgspec

from specdec_tui.decoding.records import STOP_STRING, EndReason
from specdec_tui.traces.bounds import LONGEST_PIECE, MOST_DRAFTS, MOST_TOKENS
from specdec_tui.traces.header import TraceError
from specdec_tui.traces.served.recording import Count, Recording, bad, convert
from specdec_tui.traces.served.steps import ServedRun, ServedStep
from specdec_tui.traces.values import shown

_Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _Timings(msgspec.Struct):
    predicted_n: Count
    predicted_ms: _Milliseconds
    prompt_n: Count = 0
    prompt_ms: _Milliseconds = 0.0
    cache_n: Count = 0
    draft_n: Count = 0
    draft_n_accepted: Count = 0


class _Event(msgspec.Struct):
    content: Annotated[str, msgspec.Meta(max_length=LONGEST_PIECE)] = ""
    tokens: list[Count] | None = None
    stop: bool = False
    stop_type: str = ""
    tokens_evaluated: Count = 0
    timings: Any = None
    prompt_progress: Any = None
    error: Any = None


@dataclass(frozen=True, slots=True)
class _Told:
    """A token with its text, in which line it stands, and what the server had counted by then."""

    line: int
    id: int
    text: str
    timings: _Timings

    @property
    def moment(self) -> tuple[float, int, int]:
        """The same for all tokens of a step."""
        return self.timings.predicted_ms, self.timings.draft_n, self.timings.draft_n_accepted


def served_run(recording: Recording) -> ServedRun:
    """TraceError where events are not those of such a stream, or its counts contradict its tokens."""
    tokens, end = _read(recording)
    groups = [list(group) for _, group in groupby(tokens, key=lambda token: token.moment)]
    (first, *more), *rest = groups
    if more or first.timings.draft_n:
        raise bad(recording.name, first.line, "the first token must stand alone: it is that of the prompt")
    steps: list[ServedStep] = []
    before, total = first, 1
    for index, group in enumerate(rest):
        total += len(group)
        steps.append(_step(before, group, total, index == len(rest) - 1, recording))
        before = group[-1]
    reason, message = _reason(end, total, recording)
    prompt = first.timings
    return ServedRun(
        server=recording.server,
        prompt=recording.asked.request.prompt,
        prompt_tokens=end.tokens_evaluated or prompt.prompt_n + prompt.cache_n,
        gamma=max((step.drafted or 0 for step in steps), default=0),
        first=ServedStep((first.id,), (first.text,), prompt.prompt_ms / 1e3),
        steps=tuple(steps),
        reason=reason,
        message=message,
        answer="".join(token.text for token in tokens),
        told=("a round took what its own clock says, drafting and checking in one", *_counted(before.timings)),
    )


def _read(recording: Recording) -> tuple[list[_Told], _Event]:
    """All tokens, and the event that says why the text ended."""
    tokens: list[_Told] = []
    end: _Event | None = None
    for one in recording.arrived:
        event = convert(one.event, _Event, recording, one.line)
        if event.error is not None:
            raise bad(recording.name, one.line, f"the server failed: {shown(event.error)}")
        if event.prompt_progress is not None:  # has the place of a token, and none in it
            continue
        if end is not None:
            raise bad(recording.name, one.line, "it comes behind the end of the text")
        if event.stop:
            end = event
        elif event.tokens or event.content:
            tokens.append(_token(event, recording, one.line))
    if not tokens:
        told = "totals alone tell of no round" if end is not None else "no event has a token"
        raise TraceError(f'{recording.name}: {told}: record a streamed answer of /completion ("stream": true)')
    if end is None:
        raise TraceError(f"{recording.name}: cut off: no event says why the text ended")
    if len(tokens) > MOST_TOKENS:
        raise TraceError(f"{recording.name}: more than {MOST_TOKENS:,} tokens: a run has at most so many")
    return tokens, end


def _token(event: _Event, recording: Recording, line: int) -> _Told:
    if event.tokens is None or len(event.tokens) != 1:
        raise bad(recording.name, line, 'it must have one token: record with "return_tokens": true')
    if event.timings is None:
        raise bad(recording.name, line, 'it has no timings: record with "timings_per_token": true')
    return _Told(line, event.tokens[0], event.content, convert(event.timings, _Timings, recording, line))


def _step(before: _Told, group: Sequence[_Told], total: int, is_last: bool, recording: Recording) -> ServedStep:
    """`total`: tokens up to its last. Where the end of the text cut the last step, its drafts are those in the text."""
    then, now = before.timings, group[-1].timings
    drafted, accepted = now.draft_n - then.draft_n, now.draft_n_accepted - then.draft_n_accepted
    seconds = (now.predicted_ms - then.predicted_ms) / 1e3
    line, count = group[0].line, len(group)
    if seconds < 0 or not 0 <= accepted <= drafted:
        raise bad(recording.name, line, "its times or its counts of drafts go back")
    if drafted > MOST_DRAFTS:
        raise bad(recording.name, line, f"{drafted:,} drafts in a step: a trace holds at most {MOST_DRAFTS}")
    if is_last and count <= accepted:
        drafted = accepted = count
    elif count == accepted + 2 and drafted:
        raise bad(recording.name, line, "the server checked this step twice: it cannot take back part of a step")
    elif count != accepted + 1 or now.predicted_n > total:
        told = f"{accepted} accepted drafts and {count} token{'s' * (count != 1)} in a step"
        raise bad(recording.name, line, f"{told}: not every token was sent, as inside of a character")
    ids, texts = tuple(token.id for token in group), tuple(token.text for token in group)
    return ServedStep(ids, texts, seconds, accepted, drafted)


def _reason(end: _Event, total: int, recording: Recording) -> tuple[EndReason, str]:
    match end.stop_type:
        case "eos":
            return EndReason.END_TOKEN, ""
        case "word":
            return EndReason.END_TOKEN, STOP_STRING
        case "limit":
            is_full = recording.asked.request.n_predict in (None, total)
            return (EndReason.LENGTH, "") if is_full else (EndReason.CONTEXT, "the server's context is full")
    raise TraceError(f"{recording.name}: the last event must have a stop_type: eos, word or limit")


def _counted(last: _Timings) -> list[str]:
    return [f"it counted {last.draft_n:,} drafts, {last.draft_n_accepted:,} of them accepted"] if last.draft_n else []
