"""From single results to a summary per strategy: medians with their spread, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from specdec_tui.benchmark.run import Result
from specdec_tui.decoding.figures import cost_ratio, prediction, speedup, verify_ratio


@dataclass(frozen=True, slots=True)
class Spread:
    """Median over the prompts, with the lowest and highest prompt. A prompt counts by the median of its repeats."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Summary:
    """One strategy over all prompts and repeats; None where a figure does not exist."""

    strategy: str
    decode_tokens_per_second: Spread | None
    speedup: Spread | None
    acceptance_rate: float | None
    tokens_per_target_call: float | None
    cost_ratio: float | None
    verify_ratio: float | None
    predicted_speedup: float | None


def summarize(results: Sequence[Result]) -> list[Summary]:
    """A summary per strategy, in the order of first appearance.

    A speedup compares a run with the target's run of the same turn in the same repeat. Acceptance and
    tokens per target call pool all tokens; cost ratio, verify ratio and prediction are medians over the runs.
    """
    baselines = {_place(r): r for r in results if r.strategy == "target"}
    names = list(dict.fromkeys(r.strategy for r in results))
    return [_summary(name, [r for r in results if r.strategy == name], baselines) for name in names]


def _place(result: Result) -> tuple[int, int, int]:
    return result.prompt_index, result.turn, result.repeat


def _summary(name: str, runs: Sequence[Result], baselines: dict[tuple[int, int, int], Result]) -> Summary:
    pairs = [(r, baselines[_place(r)].figures) for r in runs if _place(r) in baselines]
    judged = sum(r.figures.judged for r in runs)
    calls = sum(r.figures.target_calls for r in runs)
    acceptance = sum(r.figures.accepted for r in runs) / judged if judged else None
    return Summary(
        strategy=name,
        decode_tokens_per_second=_spread([(r, r.figures.decode_tokens_per_second) for r in runs]),
        speedup=_spread([(r, speedup(base, r.figures)) for r, base in pairs]),
        acceptance_rate=acceptance,
        tokens_per_target_call=sum(r.figures.new_tokens for r in runs) / calls if calls else None,
        cost_ratio=_median([cost_ratio(r.figures, base) for r, base in pairs]),
        verify_ratio=_median([verify_ratio(r.figures, base) for r, base in pairs]),
        predicted_speedup=_median([prediction(r.figures, base) for r, base in pairs]),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _spread(values: Sequence[tuple[Result, float | None]]) -> Spread | None:
    by_prompt: dict[tuple[int, int], list[float]] = {}
    for result, value in values:
        if value is not None:
            by_prompt.setdefault((result.prompt_index, result.turn), []).append(value)
    medians = [median(repeats) for repeats in by_prompt.values()]
    return Spread(median(medians), min(medians), max(medians)) if medians else None
