"""Tokens and what both models thought of them, as JSON objects. Plain code: a trace holds very many."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from specdec_tui.decoding.records import Insight, Token

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


def _encode_insight(insight: Insight) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for name in ENTROPIES:
        value = getattr(insight, name)
        if value is not None and value - value == 0:
            table[name] = value
    for name in ALTERNATIVES:
        pairs = getattr(insight, name)
        if pairs:
            table[name] = [pair for pair in pairs if pair[1] - pair[1] == 0]
    return table
