"""Events to and from JSON objects, one object a line of a trace.

A step is written flat: `event` is the kind of its record, beside it stand the strategy, the record's
own fields under their names, and the step's texts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

from specdec_tui.decoding.records import (
    Capturing,
    Checked,
    DraftsProposed,
    EndReason,
    Event,
    Finished,
    Lossless,
    LosslessStatus,
    Notice,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Step,
    Token,
    tokens_of,
)
from specdec_tui.traces.tokens import decode_token, encode_token
from specdec_tui.traces.values import BadField, choice, listed, mapping, number, shown, switch, text, texts, whole
from specdec_tui.traces.values import optional_number as optional

_REASONS = {str(reason): reason for reason in EndReason}
_VERDICTS = {str(status): status for status in LosslessStatus}


def encode_event(event: Event) -> dict[str, Any]:
    """`event` as a JSON object. Numbers that are not finite are still in it: `values.plain` sees to them."""
    match event:
        case Step():
            return _encode_step(event)
        case Checked(strategy=strategy, lossless=found):
            verdict: dict[str, Any] = {"status": found.status.value, "ties": found.ties}
            verdict["first_divergence"] = found.first_divergence
            verdict |= {"gap": found.gap, "detail": found.detail}
            return {"event": "checked", "strategy": strategy, "lossless": verdict}
        case Finished(cancelled=cancelled):
            return {"event": "finished", "cancelled": cancelled}
    assert_never(event)


def decode_event(table: Any) -> Event:
    """The event of a parsed line. BadField says which field is missing or wrong; unknown fields are ignored."""
    if type(table) is not dict:
        raise BadField("event", f"is missing: a line must be a JSON object, not {shown(table)}")
    kind = text(table, "event")
    if kind in _RECORDS:
        return _decode_step(kind, table)
    if kind == "checked":
        return Checked(text(table, "strategy"), _decode_verdict(mapping(table, "lossless")))
    if kind == "finished":
        return Finished(switch(table, "cancelled"))
    raise BadField("event", f"must be one of {', '.join(EVENTS)}, not {shown(kind)}")


def _encode_step(step: Step) -> dict[str, Any]:
    record = step.record
    table: dict[str, Any] = {"event": _KINDS[type(record)], "strategy": step.strategy}
    match record:
        case RunStarted():
            if record.strategy != step.strategy:
                table["run"] = record.strategy
            table |= {"prompt_tokens": record.prompt_tokens, "gamma": record.gamma}
            table["max_new_tokens"] = record.max_new_tokens
        case Capturing():
            pass
        case PrefillDone(token=token):
            table["token"] = None if token is None else encode_token(token)
            table |= {"seconds": record.seconds, "capture_seconds": record.capture_seconds}
        case DraftsProposed():
            table |= {"round": record.round, "drafts": [encode_token(token) for token in record.drafts]}
        case RoundVerified(emitted=emitted):
            table |= {"round": record.round, "drafts": [encode_token(token) for token in record.drafts]}
            table["emitted"] = None if emitted is None else encode_token(emitted)
            table |= {"draft_seconds": record.draft_seconds, "verify_seconds": record.verify_seconds}
            table["other_seconds"] = record.other_seconds
        case Notice(message=message):
            table["message"] = message
        case RunEnded(reason=reason, message=message):
            table |= {"reason": reason.value, "message": message}
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


def _decode_step(kind: str, table: dict[str, Any]) -> Step:
    strategy = text(table, "strategy")
    record = _RECORDS[kind](table)
    pieces = texts(table, "texts") if "texts" in table else ()
    if kind in _WITH_TOKENS and len(pieces) != (count := len(tokens_of(record))):
        raise BadField("texts", f"must hold one text for each of the {count} tokens, not {len(pieces)}")
    prompt_text = text(table, "prompt_text") if "prompt_text" in table else ""
    answer = text(table, "answer") if "answer" in table else ""
    alternatives = _alternatives(mapping(table, "alternatives")) if "alternatives" in table else ()
    return Step(strategy, record, pieces, prompt_text, answer, alternatives)


def _alternatives(table: dict[str, Any]) -> tuple[tuple[int, str], ...]:
    for name in table:
        if not (name.isascii() and name.isdecimal() and len(name) < 17):
            raise BadField("alternatives", f"must map token ids to texts, not {shown(name)}")
    return tuple((int(name), text(table, name)) for name in table)


def _started(table: dict[str, Any]) -> RunStarted:
    name = text(table, "run" if "run" in table else "strategy")
    return RunStarted(name, whole(table, "prompt_tokens"), whole(table, "gamma"), whole(table, "max_new_tokens"))


def _prefill(table: dict[str, Any]) -> PrefillDone:
    capturing = number(table, "capture_seconds") if "capture_seconds" in table else 0.0
    return PrefillDone(_optional_token(table, "token"), number(table, "seconds"), capturing)


def _proposed(table: dict[str, Any]) -> DraftsProposed:
    return DraftsProposed(whole(table, "round"), _drafts(table))


def _verified(table: dict[str, Any]) -> RoundVerified:
    return RoundVerified(
        whole(table, "round"),
        _drafts(table),
        _optional_token(table, "emitted"),
        number(table, "draft_seconds"),
        number(table, "verify_seconds"),
        number(table, "other_seconds"),
    )


def _drafts(table: dict[str, Any]) -> tuple[Token, ...]:
    return tuple([decode_token(draft) for draft in listed(table, "drafts")])


def _optional_token(table: dict[str, Any], field: str) -> Token | None:
    value = table.get(field)
    return None if value is None else decode_token(value)


def _decode_verdict(table: dict[str, Any]) -> Lossless:
    return Lossless(
        choice(table, "status", _VERDICTS),
        whole(table, "ties"),
        None if table.get("first_divergence") is None else whole(table, "first_divergence"),
        None if table.get("gap") is None else optional(table, "gap"),
        text(table, "detail") if "detail" in table else "",
    )


_RECORDS: dict[str, Callable[[dict[str, Any]], Record]] = {
    "run_started": _started,
    "capturing": lambda table: Capturing(),
    "prefill_done": _prefill,
    "drafts_proposed": _proposed,
    "round_verified": _verified,
    "notice": lambda table: Notice(text(table, "message")),
    "run_ended": lambda table: RunEnded(choice(table, "reason", _REASONS), text(table, "message")),
}
_KINDS: dict[type[Record], str] = {
    RunStarted: "run_started",
    Capturing: "capturing",
    PrefillDone: "prefill_done",
    DraftsProposed: "drafts_proposed",
    RoundVerified: "round_verified",
    Notice: "notice",
    RunEnded: "run_ended",
}
_WITH_TOKENS = frozenset({"prefill_done", "drafts_proposed", "round_verified"})
EVENTS = (*_RECORDS, "checked", "finished")
