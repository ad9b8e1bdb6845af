"""From single results to a summary per strategy: medians with their spread, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from specdec_tui.benchmark.run import Result
from specdec_tui.decoding.figures import DRAFT_NOTHING
from specdec_tui.decoding.standing import BEYOND_TAU, MARKS


@dataclass(frozen=True, slots=True)
class Spread:
    """Median over the prompts, each by the median of its repeats; lowest and highest of all single runs."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a speedup can be believed: `disturbed` where half of its runs are or more, `short` where more than half.

    `reason` says of how many runs, and why.
    """

    word: str
    reason: str


@dataclass(frozen=True, slots=True)
class Summary:
    """One strategy over all prompts and repeats; None where a figure does not exist.

    The medians of speedup and prediction are over the same `compared_runs` of all `runs`; `no_prediction` says why
    there is none of the latter, empty where nothing hinders it. c and v are of the runs that have them. `remainder`:
    measured speedup / predicted − 1. `recomputes`: whether the target keeps nothing of the text. `marks`: those of any
    run, and one where the median is more than τ though no run's speedup is. Where the target is on a server
    `wire_seconds` are those of a round on the way, `calls_per_round` None of a stream, and
    `break_even_latency_seconds` the round trip from which on it is expected to be slower than the target.
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
    compared_runs: int
    disturbed_runs: int
    no_prediction: str
    recomputes: bool
    marks: str
    wire_seconds: float | None = None
    calls_per_round: float | None = None
    break_even_latency_seconds: float | None = None


def summarize(results: Sequence[Result]) -> list[Summary]:
    """A summary per strategy, in the order of first appearance.

    A speedup compares a run with the target's run of the same turn in the same repeat. Acceptance and
    tokens per target call pool all tokens; all other figures are medians over the prompts.
    """
    names = list(dict.fromkeys(r.strategy for r in results))
    return [_summary(name, [r for r in results if r.strategy == name]) for name in names]


def _summary(name: str, runs: Sequence[Result]) -> Summary:
    judged = sum(r.figures.judged for r in runs)
    calls = sum(r.figures.target_calls for r in runs if not r.figures.searches)
    verdict = _verdict(runs)
    compared, missing = _compared(runs, verdict)
    told = [] if _is_disturbed(verdict) else runs
    speedup = _speedups(runs, compared)
    tau = sum(r.figures.new_tokens for r in runs) / calls if calls else None
    asking = [r for r in runs if r.figures.by_calls]
    calling = [r.figures for r in runs if r.figures.has_calls]
    rounds = sum(figures.rounds for figures in calling)
    predicted = None if missing else _median(compared, lambda r: r.costs.predicted_speedup)
    return Summary(
        strategy=name,
        decode_tokens_per_second=_spread(runs, lambda r: r.figures.decode_tokens_per_second),
        speedup=speedup,
        acceptance_rate=sum(r.figures.accepted for r in runs) / judged if judged else None,
        tokens_per_target_call=tau,
        cost_ratio=_median(told, lambda r: r.costs.cost_ratio),
        verify_ratio=_median(told, lambda r: r.costs.verify_ratio),
        predicted_speedup=predicted,
        remainder=speedup.median / predicted - 1 if speedup and predicted else None,
        reliability=verdict,
        runs=len(runs),
        compared_runs=len(compared),
        disturbed_runs=sum(r.is_disturbed for r in runs),
        no_prediction=missing,
        recomputes=any(r.figures.recomputes for r in runs),
        marks=_marks(name, runs, speedup, tau),
        wire_seconds=_median(asking, lambda r: r.figures.wire_seconds / max(1, r.figures.rounds)),
        calls_per_round=sum(figures.calls for figures in calling) / rounds if rounds else None,
        break_even_latency_seconds=None if missing else _median(compared, lambda r: r.break_even_latency),
    )


def _marks(name: str, runs: Sequence[Result], speedup: Spread | None, tau: float | None) -> str:
    """Of `standing.MARKS`: a speedup above the τ beside it is never without one."""
    found = {mark for run in runs for mark in run.marks}
    is_of_target = name not in DRAFT_NOTHING
    if is_of_target and not found and speedup and tau and round(speedup.median, 2) > round(tau, 2):
        found.add(BEYOND_TAU)
    return "".join(mark for mark in MARKS if mark in found)


def _compared(runs: Sequence[Result], verdict: Verdict | None) -> tuple[list[Result], str]:
    """The runs that speedup and prediction are both over, and why nothing can be predicted of any such.

    They are those that have a prediction: undisturbed, at one pace. Where that would leave a prompt without a
    run, a prediction would be of other prompts than the speedup is: then it is left out, and the speedup is over
    the undisturbed runs, and over disturbed ones of a prompt that has no others.
    """
    steady = {_prompt(r) for r in runs if not r.is_disturbed}
    clear = [r for r in runs if not r.is_disturbed or _prompt(r) not in steady]
    lacking = [r for r in runs if r.costs.missing]
    both = [r for r in clear if not r.costs.missing]
    if not _is_disturbed(verdict) and {_prompt(r) for r in both} == {_prompt(r) for r in runs}:
        return both, ""
    counts = Counter(r.costs.missing for r in lacking)
    return clear, ", ".join(f"{why}{_of(count, len(runs))}" for why, count in counts.items())


def _is_disturbed(verdict: Verdict | None) -> bool:
    return verdict is not None and verdict.word == "disturbed"


def _of(count: int, runs: int) -> str:
    return f" in {count} of {runs} runs" if runs > 1 else ""


def _verdict(runs: Sequence[Result]) -> Verdict | None:
    told = [found for r in runs if (found := r.reliability) is not None]
    if not told:
        return None
    disturbed = [found.reason for found in told if found.is_disturbed]
    if not disturbed:
        for word in ("short", "unchecked"):
            doubted = [found.reason for found in told if found.word == word]
            if 2 * len(doubted) > len(told):
                return Verdict(word, doubted[0])
    reason = "".join(disturbed[:1])
    if disturbed and len(runs) > 1:
        reason = f"{len(disturbed)} of {len(runs)} disturbed, e.g. {reason}"
    return Verdict("disturbed" if disturbed and 2 * len(disturbed) >= len(told) else "steady", reason)


def _speedups(runs: Sequence[Result], compared: Sequence[Result]) -> Spread | None:
    """The median is over the compared runs, the spread over all: of disturbed ones over their intervals."""
    middle = _median(compared, _allowed)
    ends = [end for r in runs if r.is_disturbed and (told := r.reliability) for end in (told.low, told.high)]
    known = [end for end in (*ends, *map(_allowed, runs)) if end is not None]
    return None if middle is None else Spread(middle, min(known), max(known))


def _allowed(result: Result) -> float | None:
    """The speedup of a run, or of a disturbed one no more than its tokens allow."""
    ratio, told = result.speedup, result.reliability
    if ratio is None or told is None or not told.is_disturbed or told.high is None:
        return ratio
    return min(ratio, told.high)


def _spread(runs: Sequence[Result], figure: Callable[[Result], float | None]) -> Spread | None:
    values, middle = [value for r in runs if (value := figure(r)) is not None], _median(runs, figure)
    return None if middle is None else Spread(middle, min(values), max(values))


def _median(runs: Sequence[Result], figure: Callable[[Result], float | None]) -> float | None:
    """Over the prompts, each by the median of its repeats."""
    by_prompt: dict[tuple[int, int], list[float]] = {}
    for result in runs:
        if (value := figure(result)) is not None:
            by_prompt.setdefault(_prompt(result), []).append(value)
    return median(median(repeats) for repeats in by_prompt.values()) if by_prompt else None


def _prompt(result: Result) -> tuple[int, int]:
    return result.prompt_index, result.turn
