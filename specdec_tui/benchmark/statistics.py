"""From single results to a summary per strategy: medians with their spread, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from specdec_tui.benchmark.run import Result
from specdec_tui.decoding.costs import NAMES, costs


@dataclass(frozen=True, slots=True)
class Spread:
    """Median over the prompts, each by the median of its repeats; lowest and highest of all single runs."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a speedup can be believed: `disturbed` or `short` where more than half of its runs are."""

    word: str
    reason: str


@dataclass(frozen=True, slots=True)
class Summary:
    """One strategy over all prompts and repeats; None where a figure does not exist.

    `remainder`: measured speedup / predicted − 1. `recomputes`: whether the target keeps nothing of the text.
    """

    strategy: str
    decode_tokens_per_second: Spread | None
    speedup: Spread | None
    acceptance_rate: float | None
    tokens_per_target_call: float | None
    cost_ratio: float | None
    verify_ratio: float | None
    predicted_speedup: float | None
    remainder: float | None
    reliability: Verdict | None
    runs: int
    disturbed_runs: int
    recomputes: bool


def summarize(results: Sequence[Result]) -> list[Summary]:
    """A summary per strategy, in the order of first appearance.

    A speedup compares a run with the target's run of the same turn in the same repeat. Acceptance and
    tokens per target call pool all tokens; cost ratio, verify ratio and prediction are medians over the
    undisturbed runs, and left out where most are disturbed.
    """
    names = list(dict.fromkeys(r.strategy for r in results))
    return [_summary(name, [r for r in results if r.strategy == name]) for name in names]


def _summary(name: str, runs: Sequence[Result]) -> Summary:
    judged = sum(r.figures.judged for r in runs)
    calls = sum(r.figures.target_calls for r in runs)
    disturbed = [r for r in runs if r.is_disturbed]
    verdict = _verdict(runs, disturbed)
    own = [] if verdict is not None and verdict.word == "disturbed" else [costs(r.figures, r.baseline) for r in runs]
    told = {figure: _median([getattr(found, figure) for found in own]) for figure in NAMES}
    return Summary(
        strategy=name,
        decode_tokens_per_second=_spread(runs, lambda r: r.figures.decode_tokens_per_second),
        speedup=_speedups(runs),
        acceptance_rate=sum(r.figures.accepted for r in runs) / judged if judged else None,
        tokens_per_target_call=sum(r.figures.new_tokens for r in runs) / calls if calls else None,
        **told,
        reliability=verdict,
        runs=len(runs),
        disturbed_runs=len(disturbed),
        recomputes=any(r.figures.recomputes for r in runs),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _verdict(runs: Sequence[Result], disturbed: Sequence[Result]) -> Verdict | None:
    words = [found.word for r in runs if (found := r.reliability) is not None]
    if not words:
        return None
    if not disturbed and words.count("short") * 2 > len(words):
        return Verdict("short", next(found.reason for r in runs if (found := r.reliability) and found.word == "short"))
    told = [found.reason for r in disturbed if (found := r.reliability) is not None]
    reason = f"{len(disturbed)} of {len(runs)} runs, e.g. {told[0]}" if len(runs) > 1 and told else "".join(told)
    return Verdict("disturbed" if 2 * len(disturbed) > len(runs) else "steady", reason)


def _speedups(runs: Sequence[Result]) -> Spread | None:
    """Disturbed runs count for the median only where a prompt has no others; their whole interval is in the spread."""
    steady = {_prompt(r) for r in runs if not r.is_disturbed}
    found = _spread([r for r in runs if not r.is_disturbed or _prompt(r) not in steady], lambda r: r.speedup)
    ends = [end for r in runs if r.is_disturbed and (told := r.reliability) for end in (told.low, told.high)]
    known = [end for end in (*ends, *(r.speedup for r in runs)) if end is not None]
    return None if found is None else Spread(found.median, min(known), max(known))


def _spread(runs: Sequence[Result], figure: Callable[[Result], float | None]) -> Spread | None:
    by_prompt: dict[tuple[int, int], list[float]] = {}
    for result in runs:
        value = figure(result)
        if value is not None:
            by_prompt.setdefault(_prompt(result), []).append(value)
    values = [value for repeats in by_prompt.values() for value in repeats]
    medians = [median(repeats) for repeats in by_prompt.values()]
    return Spread(median(medians), min(values), max(values)) if medians else None


def _prompt(result: Result) -> tuple[int, int]:
    return result.prompt_index, result.turn
