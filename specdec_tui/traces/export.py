"""A trace for other programs: one JSON object, or a table of tokens as comma-separated values."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from specdec_tui.backends.pair import known
from specdec_tui.decoding.costs import without_disturbed
from specdec_tui.decoding.passes import as_table
from specdec_tui.decoding.records import (
    Notice,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Step,
    Token,
    beams_of,
    tokens_of,
)
from specdec_tui.doors.characters import json_text, visible
from specdec_tui.several_drafters import drafter_of
from specdec_tui.traces.children import origins, weights_of
from specdec_tui.traces.compared import Compared, compared
from specdec_tui.traces.encoding import encode_beams, encode_calls
from specdec_tui.traces.format import MARK, VERSION, Trace, TraceHeader
from specdec_tui.traces.summary import AGAINST, figures_of, summarise
from specdec_tui.traces.tokens import encode_token
from specdec_tui.traces.values import plain

COLUMNS = (
    "strategy",
    "round",
    "position",
    "token_id",
    "text",
    "status",
    "p",
    "q",
    "acceptance",
    "draw",
    "target_entropy",
    "drafter_entropy",
    "draft_seconds",
    "verify_seconds",
    "other_seconds",
    "reliability",
    "speedup",
    "speedup_low",
    "speedup_high",
    "marks",
    "baseline_created",
    "drafter",
)
OF_CALLS = ("wire_seconds", "calls")
"""Columns of a trace with a target on a server, behind the others."""

# Signs that make a spreadsheet read a cell as a formula, in half and full width, also behind blanks that it drops.
_FORMULA = re.compile(r"[\t\r\n]*[=+\-@＝＋－＠]")


def as_json(trace: Trace) -> str:
    """One object: the header's fields, then per strategy its figures, text and rounds with their tokens.

    Figures have the names of `specdec-tui bench --json`, and are summed up from the events; those against
    a baseline of another time are the header's. `origin` is null but for what-ifs. `weights`: the form of the
    target's in that run; empty where it had no choice.
    """
    header = {field.name: getattr(trace.header, field.name) for field in fields(TraceHeader)}
    header["models"] = {
        role: known(model) if isinstance(model, Mapping) else model for role, model in trace.header.models.items()
    }
    figures, children = summarise(trace.events), origins(trace)
    for name, own in figures.items():
        if trace.header.is_borrowed(name):
            own.update(without_disturbed({key: trace.header.strategies[name].get(key) for key in AGAINST}))
    strategies = [
        {
            "strategy": name,
            "drafter": _drafter(trace.header, name),
            "origin": children.get(name),
            "weights": weights_of(trace, children[name].changes if name in children else ()),
            **figures[name],
            "notices": [step.record.message for step in steps if isinstance(step.record, Notice)],
            "prompt_text": "".join(step.prompt_text for step in steps if isinstance(step.record, RunStarted)),
            "text": "".join(step.answer for step in steps if isinstance(step.record, RunEnded)),
            "token_ids": [token.id for step in steps for token in _kept(step)],
            "prefill": [_passed(step) for step in steps if isinstance(step.record, PrefillDone)],
            "verified": [_passed(step) for step in steps if isinstance(step.record, RoundVerified)],
        }
        for name, steps in steps_of(trace).items()
    ]
    texts = {str(index): text for index, text in trace.texts.items()}
    whole = {MARK: VERSION, **header, "strategies": strategies, "texts": texts}
    return json_text(plain(whole)) + "\n"


def as_csv(trace: Trace) -> str:
    """One row a token of the prefill (its round is empty) and of every round counted from 0, in `COLUMNS`.

    Texts that a spreadsheet would read as formulas have an apostrophe before them, and characters that a
    terminal obeys are the symbols that the app shows: token ids and the JSON are exact. The seconds are those
    of the whole round and stand on its first row alone, so that a sum over the column is right. From `reliability`
    on all is of the whole run, and empty where it cannot be told: its word, its speedup (of a disturbed run the
    interval alone), what marks the app has beside it, of what other time the baseline is, and which model drafted.
    Where a target is on a server `OF_CALLS` come behind it all: seconds of the round on the way, and its round trips.
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    figures = figures_of(trace.events)
    asks = any(run.by_calls for run in figures.values())
    writer.writerow((*COLUMNS, *OF_CALLS) if asks else COLUMNS)
    found = compared(trace.header, figures)
    for name, steps in steps_of(trace).items():
        told = (*_told(found[name]), _cell(_drafter(trace.header, name) or ""))
        for step in steps:
            for index, row in enumerate(_rows(_cell(name), step)):
                writer.writerow([*row, *told, *(_way(step.record, index == 0) if asks else ())])
    return written.getvalue()


def _way(record: Record, is_first: bool) -> tuple[float | str, ...]:
    """What `OF_CALLS` has of a round, on its first row."""
    return (record.wire_seconds, record.calls) if is_first and isinstance(record, RoundVerified) else ("", "")


def _told(found: Compared) -> tuple[Any, ...]:
    """A run's word, speedup, its ends, marks and baseline."""
    one = found.standing
    if one is None:
        return ("",) * 6
    ends = ("" if end is None else end for end in (one.low, one.high))
    return one.word, "" if one.is_disturbed else one.ratio, *ends, one.marks, _cell(found.since)


def _drafter(header: TraceHeader, strategy: str) -> str | None:
    """The name of the model that drafted, or that wrote alone."""
    falls_back = header.settings.get("ngram_unknown") == "drafter"
    found = None if (pair := header.pair()) is None else drafter_of(strategy, pair, falls_back=falls_back)
    return None if found is None else found.name


def steps_of(trace: Trace) -> dict[str, list[Step]]:
    """The steps of each strategy in their order, strategies in the order in which their runs began."""
    found: dict[str, list[Step]] = {}
    for event in trace.events:
        if isinstance(event, Step):
            found.setdefault(event.strategy, []).append(event)
    return found


def pairs_of(step: Step) -> list[tuple[Token, str]]:
    """Each token of a step with its text, which is empty where the step has none for it."""
    tokens = tokens_of(step.record)
    return list(zip(tokens, (*step.texts, *[""] * len(tokens)), strict=False))


def _kept(step: Step) -> tuple[Token, ...]:
    match step.record:
        case PrefillDone():
            return tokens_of(step.record)
        case RoundVerified():
            return step.record.new_tokens
    return ()


def _passed(step: Step) -> dict[str, Any]:
    """The tokens of one target pass with their texts, and its clock readings in seconds."""
    record = step.record
    tokens = [{**encode_token(token), "text": text} for token, text in pairs_of(step)]
    beams = encode_beams(beams_of(record))
    match record:
        case PrefillDone(seconds=seconds, capture_seconds=capturing):
            clock = {"seconds": seconds, "capture_seconds": capturing, **encode_calls(record)}
            passes = as_table(record.passes, record.pass_limit) if record.passes else {}
            return {**clock, "tokens": tokens, **beams, **passes}
        case RoundVerified():
            return {
                "round": record.round,
                "draft_seconds": record.draft_seconds,
                "verify_seconds": record.verify_seconds,
                "other_seconds": record.other_seconds,
                **encode_calls(record),
                "tokens": tokens,
                **beams,
                **({} if record.untold == 0 else {"untold": record.untold}),
            }
    raise AssertionError("a pass is a prefill or a round")


def _rows(strategy: str, step: Step) -> Iterator[list[Any]]:
    record = step.record
    match record:
        case PrefillDone():
            count: int | str = ""
            clock: tuple[float | str, ...] = ("", "", "")
        case RoundVerified():
            count = record.round
            clock = (record.draft_seconds, record.verify_seconds, record.other_seconds)
        case _:
            return
    for token, text in pairs_of(step):
        insight = token.insight
        entropies = (None, None) if insight is None else (insight.target_entropy, insight.drafter_entropy)
        numbers = plain([token.p, token.q, token.acceptance, token.draw, *entropies])
        cells = [strategy, count, token.position, token.id, _cell(text), token.status.value]
        yield [*cells, *("" if number is None else number for number in numbers), *clock]
        clock = ("", "", "")


def _cell(text: str) -> str:
    safe = visible(text)
    return "'" + safe if _FORMULA.match(text) else safe
