"""Runs against a target on a server, whose rounds took what is written here, in milliseconds."""

from __future__ import annotations

from dataclasses import replace

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import (
    EndReason,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Token,
)

STEP, DRAFT, SERVER, WIRE, OTHER = 20.0, 8.0, 25.0, 30.0, 1.0
"""A token of an open stream; the parts of a round with four drafts, three of them accepted: 64 ms for 4 tokens."""
TURN = 16
"""Tokens of a stream before other runs have their turn."""
_FATES = {"a": Status.ACCEPTED, "r": Status.REJECTED, "u": Status.UNVERIFIED}


def call(
    number: int, fates: str = "aaar", draft: float = DRAFT, server: float = SERVER, wire: float = WIRE
) -> RoundVerified:
    """A round of a strategy that drafts: one call."""
    drafts = tuple(Token(1, _FATES[fate], place) for place, fate in enumerate(fates))
    seconds = draft / 1e3, server / 1e3, OTHER / 1e3
    return RoundVerified(number, drafts, Token(2, Status.BONUS, 9), *seconds, wire_seconds=wire / 1e3, calls=1)


def streamed(number: int, step: float = STEP) -> RoundVerified:
    """A token of the target's stream; the first of each turn opens one, and is taken to take what others do."""
    return RoundVerified(number, (), Token(2, Status.SAMPLED, 9), 0.0, step / 1e3, 0.0, calls=int(number % TURN == 0))


def records_of(strategy: str, rounds: list[RoundVerified], gamma: int = 4, by_calls: bool = True) -> list[Record]:
    """A whole run: its prefill is a call too."""
    first = PrefillDone(Token(1, Status.SAMPLED, 0), 0.2)
    if by_calls:
        first = replace(first, by_calls=True, wire_seconds=WIRE / 1e3, calls=1)
    return [RunStarted(strategy, 7, gamma, 999), first, *rounds, RunEnded(EndReason.LENGTH)]


def figures_of(strategy: str, rounds: list[RoundVerified], gamma: int = 4, by_calls: bool = True) -> RunFigures:
    found = RunFigures()
    for record in records_of(strategy, rounds, gamma, by_calls):
        found.add(record)
    return found


def drafting(rounds: int = 40, wire: float = WIRE, server: float = SERVER) -> RunFigures:
    return figures_of("speculative", [call(number, wire=wire, server=server) for number in range(rounds)])


def target(tokens: int = 160) -> RunFigures:
    return figures_of("target", [streamed(number) for number in range(tokens)], 0)
