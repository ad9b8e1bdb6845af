"""Tokens and what both models thought of them, to and from JSON objects. Plain code: a trace holds very many."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from specdec_tui.decoding.records import Insight, Status, Token
from specdec_tui.traces.values import MOST, BadField, checked_number, choice, shown, whole

_INTEGERS, _FLOATS = {int}, {float}
_STATUSES = {str(status): status for status in Status}

# A field of Insight is a number or a table of alternatives; its default tells which. So a new one needs no code.
ALTERNATIVES = tuple(f.name for f in fields(Insight) if f.default == ())
ENTROPIES = tuple(f.name for f in fields(Insight) if f.default != ())


def encode_token(token: Token) -> dict[str, Any]:
    """The token under its fields' names; what is None is left out, and so is a number that is not finite."""
    table: dict[str, Any] = {"id": token.id, "status": token.status.value, "position": token.position}
    if token.p is not None and token.p - token.p == 0:
        table["p"] = token.p
    if token.q is not None and token.q - token.q == 0:
        table["q"] = token.q
    if token.acceptance is not None and token.acceptance - token.acceptance == 0:
        table["acceptance"] = token.acceptance
    if token.draw is not None and token.draw - token.draw == 0:
        table["draw"] = token.draw
    if token.insight is not None:
        table["insight"] = _encode_insight(token.insight)
    return table


def decode_token(table: Any) -> Token:
    """BadField names the field that is wrong; unknown fields are ignored."""
    if type(table) is not dict:
        raise BadField("token", f"must be an object, not {shown(table)}")
    get = table.get
    name, position = get("id"), get("position")
    if type(name) is not int or not 0 <= name <= MOST:
        name = whole(table, "id")
    if type(position) is not int or not 0 <= position <= MOST:
        position = whole(table, "position")
    status = choice(table, "status", _STATUSES)
    if len(table) == 3:  # most pending drafts: nothing more is known
        return Token(name, status, position)
    insight = get("insight")
    return Token(
        name,
        status,
        position,
        checked_number("p", get("p")),
        checked_number("q", get("q")),
        checked_number("acceptance", get("acceptance")),
        checked_number("draw", get("draw")),
        None if insight is None else _decode_insight(insight),
    )


def _encode_insight(insight: Insight) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in ENTROPIES:
        value = getattr(insight, name)
        if value is not None and value - value == 0:
            table[name] = value
    for name in ALTERNATIVES:
        pairs = getattr(insight, name)
        if pairs:
            # Flat, since a long trace has millions of them: lists of two would take twice the time to read.
            table[name] = [value for index, p in pairs for value in (index, p if p - p == 0 else None)]
    return table


def _decode_insight(table: Any) -> Insight:
    if type(table) is not dict:
        raise BadField("insight", f"must be an object or null, not {shown(table)}")
    found: dict[str, Any] = {}
    for name in ENTROPIES:
        if name in table:
            found[name] = checked_number(name, table[name])
    for name in ALTERNATIVES:
        if name in table:
            found[name] = _decode_alternatives(table, name)
    return Insight(**found)


def _decode_alternatives(table: Mapping[str, Any], name: str) -> tuple[tuple[int, float], ...]:
    flat = table[name]
    if type(flat) is not list or len(flat) % 2:
        raise BadField(name, f"must be a list of token ids, each with its probability behind it, not {shown(flat)}")
    if not flat:
        return ()
    ids, chances = flat[::2], flat[1::2]
    if {*map(type, ids)} != _INTEGERS or min(ids) < 0 or max(ids) > MOST:
        raise BadField(name, f"must have a token id at every other place, not {shown(ids)}")
    if {*map(type, chances)} != _FLOATS or not math.isfinite(sum(chances)):
        chances = [checked_number(name, value) or 0.0 for value in chances]
    return tuple(zip(ids, chances))  # noqa: B905 - as many of the one as of the other
