"""Events to the lines of a trace, one JSON object each; `codec` reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, assert_never

from specdec_tui.decoding.records import (
    Beam,
    Capturing,
    Checked,
    DraftsProposed,
    Event,
    Finished,
    Notice,
    Origin,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Step,
)
from specdec_tui.traces.tokens import encode_token

KINDS: dict[type[Record], str] = {
    RunStarted: "run_started",
    Capturing: "capturing",
    PrefillDone: "prefill_done",
    DraftsProposed: "drafts_proposed",
    RoundVerified: "round_verified",
    Notice: "notice",
    RunEnded: "run_ended",
}


_WHERE_TRUE = "alone", "beams", "own_tokens", "served"


def encode_event(event: Event) -> dict[str, Any]:
    """`event` as a JSON object. Numbers that are not finite are still in it: `values.plain` sees to them."""
    match event:
        case Step():
            return _encode_step(event)
        case Checked(strategy=strategy, lossless=found):
            verdict: dict[str, Any] = {"status": found.status.value, "ties": found.ties}
            verdict["first_divergence"] = found.first_divergence
            verdict |= {"gap": found.gap, "detail": found.detail}
            if found.distance is not None:
                verdict["distance"] = asdict(found.distance)
            return {"event": "checked", "strategy": strategy, "lossless": verdict}
        case Finished(cancelled=cancelled):
            return {"event": "finished", "cancelled": cancelled}
    assert_never(event)


def _encode_step(step: Step) -> dict[str, Any]:
    record = step.record
    table: dict[str, Any] = {"event": KINDS[type(record)], "strategy": step.strategy}
    match record:
        case RunStarted():
            if record.strategy != step.strategy:
                table["run"] = record.strategy
            table |= {"prompt_tokens": record.prompt_tokens, "gamma": record.gamma}
            table["max_new_tokens"] = record.max_new_tokens
            table |= {name: value for name in _WHERE_TRUE if (value := getattr(record, name))}
            if record.origin is not None:
                table["origin"] = _encode_origin(record.origin)
        case Capturing():
            pass
        case PrefillDone(token=token):
            table["token"] = None if token is None else encode_token(token)
            table |= {"seconds": record.seconds, "capture_seconds": record.capture_seconds}
            table |= {name: True for name in ("captured", "recomputes", "by_calls") if getattr(record, name)}
            table |= encode_beams(record.beams) | encode_calls(record)
            if record.passes:
                table["passes"] = record.passes
            if record.pass_limit is not None:
                table["pass_limit"] = asdict(record.pass_limit)
        case DraftsProposed():
            table |= {"round": record.round, "drafts": [encode_token(token) for token in record.drafts]}
            if record.kept:
                table["kept"] = record.kept
        case RoundVerified(emitted=emitted):
            table |= {"round": record.round, "drafts": [encode_token(token) for token in record.drafts]}
            table["emitted"] = None if emitted is None else encode_token(emitted)
            table |= {"draft_seconds": record.draft_seconds, "verify_seconds": record.verify_seconds}
            table["other_seconds"] = record.other_seconds
            if record.settled:
                table["settled"] = [encode_token(token) for token in record.settled]
            table |= encode_beams(record.beams) | encode_calls(record)
            if record.untold != 0:
                table["untold"] = record.untold
        case Notice(message=message):
            table["message"] = message
        case RunEnded(reason=reason, message=message):
            table |= {"reason": reason.value, "message": message}
            if record.unplaced is not None:
                table["unplaced"] = record.unplaced
        case _:
            assert_never(record)
    if step.texts:
        table["texts"] = step.texts
    if step.prompt_text:
        table["prompt_text"] = step.prompt_text
    if step.answer:
        table["answer"] = step.answer
    if step.alternatives:
        table["alternatives"] = {str(token): piece for token, piece in step.alternatives}
    return table


def encode_beams(beams: Sequence[Beam]) -> dict[str, Any]:
    """`beams` with the texts of a search; of a run that is none, nothing."""
    found = []
    for beam in beams:
        table: dict[str, Any] = {"ids": beam.ids, "score": beam.score}
        found.append(table | {name: value for name in ("before", "ended") if (value := getattr(beam, name))})
    return {"beams": found} if found else {}


def encode_calls(record: PrefillDone | RoundVerified) -> dict[str, Any]:
    """What a record tells of calls to a server; of a target that is here, nothing."""
    return {name: value for name in ("wire_seconds", "calls") if (value := getattr(record, name))}


def _encode_origin(origin: Origin) -> dict[str, Any]:
    table: dict[str, Any] = {"parent": origin.parent, "position": origin.position}
    if origin.token is not None:
        table["token"] = origin.token
    table |= {"changes": dict(origin.changes)} if origin.changes else {}
    return table | ({"swept": True} if origin.swept else {})
