"""How far away a server may be: the latency below which drafting for its target pays. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specdec_tui.decoding.costs import costs
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.reliability import ms_text, reliability
from specdec_tui.decoding.stretch import in_common


@dataclass(frozen=True, slots=True)
class Latency:
    """Of a round trip, in seconds: `limit`, at which drafting is as fast as the target's stream, and as it is `now`."""

    limit: float
    now: float

    @property
    def text(self) -> str:
        if self.limit <= 0:
            return "drafting loses at any latency"
        if self.now < self.limit:
            return f"drafting wins below {ms_text(self.limit)} of latency (now {ms_text(self.now)})"
        return f"drafting loses from {ms_text(self.limit)} of latency on (now {ms_text(self.now)})"


def break_even_latency(tokens: float, steps: float, step: float, wire: float) -> Latency:
    """L* = τ·s − d − V: the round trip with which a mean round takes as long as its tokens do in a stream.

    `tokens` τ of a round, `steps` what it takes in plain steps of `step` s seconds, of which `wire` seconds are the way
    there and back now; without these it is d + V: drafting, the server's time, and draws. Taken for granted: each round
    is one call and pays the way once, a token of a stream that is open never does, and nothing else changes with the
    distance.
    """
    return Latency(tokens * step - (steps * step - wire), wire)


CALL_FIGURES = ("wire_seconds", "calls", "calls_per_round", "break_even_latency_seconds")
"""Of a run whose target is on a server, in JSON."""


def call_figures(run: RunFigures, baseline: RunFigures | None) -> dict[str, Any]:
    """The figures of `CALL_FIGURES` by their names, of the rounds alone; nothing of a run without a server."""
    if not run.by_calls:
        return {}
    far = latency(run, baseline)
    values = run.wire_seconds, run.calls, run.calls_per_round, None if far is None else far.limit
    return dict(zip(CALL_FIGURES, values, strict=True))


def latency(run: RunFigures, baseline: RunFigures | None) -> Latency | None:
    """By the medians of a run (`costs`); None of one that asks no server, or that nothing can be predicted of."""
    told, clock = costs(run, baseline), reliability(run, baseline)
    if clock is not None and clock.word == "short":  # a few rounds may say the opposite of what was measured
        return None
    if not run.by_calls or baseline is None or told.predicted_speedup is None:
        return None
    own, other = in_common(run.course, baseline.course)
    step = other.target_seconds(0)
    if told.tokens is None or told.steps is None or not step:
        return None
    return break_even_latency(told.tokens, told.steps, step, own.wire_seconds)
