"""What a pass over n tokens costs against one over a single token, v(n): its knee, and what it could be at least.

A pass reads all weights once, however many tokens it is over, and multiplies each token with all of them. So it takes
no less than the longer of the two takes: the roofline of Williams et al. 2009 (doi 10.1145/1498765.1498785). No torch.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import PassLimit, PassSeconds

NEARLY = 1.15
"""Times a pass over one token: what takes no more costs nearly the same."""
_FAR, _BELOW = 1.5, 0.9  # times the limit: beyond the first something else binds, below the second it is none
_USUAL = 5  # tokens of a pass that is spoken of where a run has no drafts


def knee(passes: PassSeconds) -> int | None:
    """The most tokens up to which every measured pass takes at most 1.15 times what one over a single token does.

    In hundredths, as ratios are told: what reads 1.15 is no more than that. None where all of them do, so that it lies
    beyond, and where nothing was measured.
    """
    plain, found = dict(passes).get(1), 1
    for tokens, seconds in sorted(passes):
        if plain and round(seconds / plain, 2) > NEARLY:
            return found
        found = tokens
    return None


def reading_seconds(limit: PassLimit) -> float:
    """To read all weights once."""
    return limit.weight_bytes / limit.bytes_per_second


def adding_seconds(limit: PassLimit, tokens: int) -> float:
    """To multiply so many tokens with all weights."""
    return tokens * limit.multiply_adds / limit.multiply_adds_per_second


def limit_seconds(limit: PassLimit, tokens: int) -> float:
    """What a pass over so many tokens takes at least."""
    return max(reading_seconds(limit), adding_seconds(limit, tokens))


def bound_by_memory(limit: PassLimit) -> int:
    """The most tokens of a pass that the reading of weights bounds, and not the multiply-adds; 0: none."""
    return int(reading_seconds(limit) / adding_seconds(limit, 1))


def told_of(passes: PassSeconds, gamma: int) -> int:
    """Which of the measured numbers of tokens is spoken of: that of a round of γ drafts, or the next below; else 1."""
    wanted = gamma + 1 if gamma else _USUAL
    return max((tokens for tokens, _ in passes if tokens <= wanted), default=1)


def in_words(passes: PassSeconds, limit: PassLimit | None, gamma: int) -> tuple[str, ...]:
    """What a pass over the tokens of a round costs and why, in one sentence: the longest first, then shorter ones."""
    tokens, times = told_of(passes, gamma), dict(passes)
    cost = f"{_tokens(tokens)} cost {times[tokens] / times[1]:.2f}× one"
    if tokens == 1:
        cost = f"a token costs {times[1] * 1e3:.2f} ms"
    if limit is None:
        bend = knee(passes)
        most = max(times)
        why = f"no knee up to {_tokens(most)}" if bend is None else f"up to {_tokens(bend)} cost nearly what one does"
        return f"{cost}; {why}", cost
    over, turn = times[tokens] / limit_seconds(limit, tokens), bound_by_memory(limit)
    if over > _FAR:
        why = "neither memory nor multiply-adds bind"
    elif over < _BELOW:
        why = "it reads from a cache, or the machine was busy when its limits were measured"
    elif tokens <= turn:
        why = f"the memory binds, up to {_tokens(turn)}"
    elif turn:
        why = f"beyond {_tokens(turn)} the multiply-adds bind, not the memory"
    else:
        why = "the multiply-adds bind, not the memory"
    return f"{cost}, {over:.2f}× the limit: {why}", f"{cost}: {why}", f"{cost}, {over:.2f}× the limit", cost


def _tokens(count: int) -> str:
    return f"{count} token{'s' * (count != 1)}"


def limit_in_words(limit: PassLimit) -> str:
    """Where it comes from, for a person who wants to do the sum again."""
    reading, adding = reading_seconds(limit) * 1e3, adding_seconds(limit, 1) * 1e3
    threads = f"{limit.threads} thread{'s' * (limit.threads != 1)}"
    weights, rate = limit.weight_bytes / 1e6, limit.bytes_per_second / 1e9
    adds, pace = limit.multiply_adds / 1e6, limit.multiply_adds_per_second / 1e9
    return (
        f"limit: {weights:.1f} MB read at {rate:.1f} GB/s, {reading:.2f} ms, or "
        f"{adds:.1f} M {_kind_of_adds(limit)}multiply-adds a token at {pace:.1f} G/s, "
        f"{adding:.2f} ms each ({threads})"
    )


def _kind_of_adds(limit: PassLimit) -> str:
    if not limit.integer_adds:
        return "float32 "
    if limit.integer_adds == limit.multiply_adds:
        return "8-bit integer "
    return f"({limit.integer_adds / 1e6:.1f} M 8-bit integer, the others float32) "


def why_not_measured(figures: RunFigures) -> str:
    """Why nothing is known of a run's passes, in a few words; empty where it is."""
    if figures.passes:
        return ""
    if figures.served:
        return "a server drafted by itself: its passes are not told"
    if figures.by_calls:
        return "the target is on a server: each of its passes is a call"
    if figures.recomputes:
        return "every pass computes the whole text again"
    if figures.searches:
        return "a search goes on with several texts"
    if figures.is_captured:
        return "rounds are captured programs, whose passes are all over γ+1 tokens"
    return "the clock was disturbed, or passes are too slow"


def as_table(passes: PassSeconds, limit: PassLimit | None) -> dict[str, Any]:
    """JSON-ready: pairs [tokens, seconds] of what was measured and of the limit, the knee, and what the limit is of."""
    bounds = [] if limit is None else [[tokens, limit_seconds(limit, tokens)] for tokens, _ in passes]
    return {
        "pass_seconds": [list(one) for one in passes],
        "pass_limit_seconds": bounds,
        "knee": knee(passes),
        "pass_limit": None if limit is None else asdict(limit),
    }
