"""What the clocks of a run and of its baseline say of the cost of its rounds, and so of the speedup to expect.

Whoever shows or writes c, v, a prediction or its remainder asks here, so that none of them is ever drawn from
clocks that contradict each other. No torch here.

Definitions follow Leviathan et al. 2023 (arXiv 2211.17192): cost ratio c and the expected tokens per
round; v, the measured price of verifying a block, is our addition to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from specdec_tui.decoding.course import LEAST_SECONDS
from specdec_tui.decoding.figures import DRAFT_NOTHING, RunFigures, speedup
from specdec_tui.decoding.reliability import reliability
from specdec_tui.decoding.stretch import Stretch, in_common

NAMES = ("cost_ratio", "verify_ratio", "predicted_speedup", "remainder")
"""Of the figures in JSON."""
TIMES_VARY, CLOCK_DISTURBED = "step times vary", "clock disturbed"
"""Why there is nothing to tell: medians of different times make no round, though a ratio may hold that both runs' times
vary in alike; clocks that disagree say nothing."""
UNPREDICTED = "§"
"""Marks what is lacking for the former of these; tables tell it below."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What is to be expected of a run over a baseline, of the same stretch of text as the measured speedup.

    `cost_ratio` c: time per draft / time of a plain step, both medians. `verify_ratio` v: the target's side (pass and
    draws) of a full round of γ+1 tokens / that of a plain step, both medians. Of a target on a server the one is a call
    with its way, the other a token of a stream. Rounds cut short by the room left, by an end token or by a drafter
    without ideas verify fewer tokens and do not count. `predicted_speedup`: `tokens` of a mean round over `steps`, its
    cost in plain steps. `remainder`: by how much the measured speedup is above it, as a share of it; below it is
    negative.

    None where a figure does not exist: without a draft, a full round, a plain step to compare with. `missing`: why
    none of them is told, `TIMES_VARY` or `CLOCK_DISTURBED`, which is to stand in their place; else empty.
    """

    cost_ratio: float | None = None
    verify_ratio: float | None = None
    predicted_speedup: float | None = None
    remainder: float | None = None
    tokens: float | None = None
    steps: float | None = None
    missing: str = ""

    def named(self) -> dict[str, Any]:
        """The figures by their `NAMES`, and why there are none."""
        return {name: getattr(self, name) for name in NAMES} | {"no_prediction": self.missing}


def costs(run: RunFigures, baseline: RunFigures | None) -> Costs:
    """Of `run` against the target's own run. Takes bounded work however long the runs: ask at every repaint."""
    told = reliability(run, baseline)
    if told is not None and told.is_disturbed:
        return Costs(missing=CLOCK_DISTURBED)
    return measured_costs(run, baseline)


def shown_costs(run: RunFigures, baseline: RunFigures | None) -> Costs:
    """What a pane and a table have of a run: of a what-if, which is compared with no other, those by itself."""
    return costs_by_itself(run) if run.is_what_if else costs(run, baseline)


def costs_by_itself(run: RunFigures) -> Costs:
    """c, v and the speedup to expect of a run that is compared with no other, as a what-if is: by its own passes alone.

    A plain step is told by what passes of its model took before the clock: `verify_ratio` is that of a pass over γ+1
    tokens to one over a single token, and the plain step the run's own full round over it. None where such passes were
    not measured, or no round is full. Takes bounded work however long the run.
    """
    passes = dict(run.passes)
    own = Stretch(run.course, 0, run.course.rounds)
    plain, wide, full = passes.get(1), passes.get(run.gamma + 1), own.target_seconds(run.gamma)
    if not (plain and wide and full and run.drafted) or run.pads or run.recomputes or run.by_calls:
        return Costs()
    if own.times_vary:
        return Costs(missing=TIMES_VARY)
    step, drafting, counts = full * plain / wide, own.draft_step_seconds, own.draft_counts
    tokens = tokens_of_rounds(own.conditional_acceptance, counts, own.own_tokens_per_round)
    seconds = seconds_of_rounds(counts, lambda n: own.drafting_seconds(n) + (own.target_seconds(n) or 0.0))
    seconds = max(seconds, step, LEAST_SECONDS)
    ratio = None if drafting is None else drafting / step
    return Costs(ratio, wide / plain, tokens * step / seconds, None, tokens, seconds / step)


def without_disturbed(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Kept figures of a run by the same rule: other versions wrote what a disturbed clock said."""
    told = figures.get("reliability")
    if not isinstance(told, Mapping) or told.get("word") != "disturbed":
        return dict(figures)
    return {**figures, **{name: None for name in NAMES if name in figures}, "no_prediction": CLOCK_DISTURBED}


def kept_costs(figures: Mapping[str, Any]) -> Costs:
    """Those of a run whose figures were kept by their names in JSON."""
    told = without_disturbed(figures)
    return Costs(**{name: told.get(name) for name in NAMES}, missing=told.get("no_prediction") or "")


def measured_costs(run: RunFigures, baseline: RunFigures | None) -> Costs:
    """The same, whether clocks disagree or not.

    Modelled: how many tokens come out. A draft is taken to fare the same at its place of the round,
    however many follow it and whenever the round is. Measured: how many drafts rounds had, and medians
    of what drafting and the target's side (pass, draws, updates) take for each number of drafts, and of
    a plain step of the baseline. Medians, so what one hiccup took is in the speedup and not in here.

    A round is taken to cost no less than a plain step. With one α for all places and γ drafts in every round
    this is `predicted_speedup`. Nothing is told where the times of like steps vary within the runs:
    their ratio may hold, but medians of different times make no round.
    """
    if baseline is None or run.strategy == "target" or run.searches or run.served:
        return Costs()
    own, other = in_common(run.course, baseline.course)
    if not own.rounds or not other.rounds:
        return Costs()
    if not (run.recomputes or baseline.recomputes) and (own.times_vary or other.times_vary):
        return Costs(missing=TIMES_VARY)
    step = other.target_seconds(0)
    if not step:
        return Costs()
    drafting, full = own.draft_step_seconds, own.target_seconds(run.gamma)
    ratios = None if drafting is None else drafting / step, None if full is None else full / step
    if run.strategy in DRAFT_NOTHING:
        return Costs(*ratios)
    counts = own.draft_counts
    tokens = tokens_of_rounds(own.conditional_acceptance, counts, own.own_tokens_per_round)
    seconds = seconds_of_rounds(counts, lambda n: own.drafting_seconds(n) + (own.target_seconds(n) or 0.0))
    if not run.recomputes:
        seconds = max(seconds, step)  # reading more tokens cannot take less: where it seems so, the clock says it
    if seconds < LEAST_SECONDS:
        return Costs(*ratios, tokens=tokens)
    expected, measured = tokens * step / seconds, speedup(baseline, run)
    remainder = measured / expected - 1 if measured and expected else None
    return Costs(*ratios, expected, remainder, tokens, seconds / step)


def tokens_of_rounds(rates: Sequence[float], counts: Mapping[int, float], own_tokens: float) -> float:
    """Tokens of a mean round, from how drafts fared at each place of a round and how many there were of them.

    1 + Σ_n f(n) Σ_{i≤n} a(1)·…·a(i): f(n) is the share of rounds with n drafts (`counts`), a(i) the share of i-th
    drafts accepted where all before them were (`rates`), over rounds of every length. The 1 is the target's own
    token (`own_tokens`), which a round lacks that ended the text on a draft.
    """
    kept, reached = [0.0], 1.0
    for rate in rates:
        reached *= rate
        kept.append(kept[-1] + reached)
    drafted = sum(count * kept[min(n, len(kept) - 1)] for n, count in counts.items())
    return own_tokens + drafted / sum(counts.values())


def seconds_of_rounds(counts: Mapping[int, float], seconds: Callable[[int], float]) -> float:
    """Seconds of a mean round, from those of rounds with as many drafts."""
    return sum(count * seconds(n) for n, count in counts.items()) / sum(counts.values())


def expected_tokens_per_round(alpha: float, gamma: float) -> float:
    """(1 − α^(γ+1)) / (1 − α): tokens of a round whose drafts are each accepted with probability α."""
    return gamma + 1 if alpha >= 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def predicted_speedup(alpha: float, gamma: float, cost_ratio: float, verify_ratio: float) -> float:
    """Speedup the model of Leviathan et al. expects of γ drafts per round.

    Expected tokens per round over its cost in target steps, γ·c + v. γ may be a mean that is not
    whole. `verify_ratio` v > 0 is the measured price of the target pass over γ+1 tokens.
    """
    return expected_tokens_per_round(alpha, gamma) / (gamma * cost_ratio + verify_ratio)
