"""The enumerated truth about a tiny model's first tokens, and the test of samples against it.

Written without the package: plain loops over sorted lists, in double precision.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from tiny_models import FunctionModel, run_lazily

from specdec_tui.decoding.controls import NO_CONTROLS, Controls
from specdec_tui.decoding.drafters import Drafter
from specdec_tui.decoding.records import PrefillDone, RoundVerified
from specdec_tui.decoding.sampling import Sampler

LENGTH = 3
Text = tuple[int, ...]


def process(logits: list[float], sampler: Sampler) -> list[float]:
    """Temperature, top-k, top-p, min-p, typical-p, then softmax. Assumes that no two finite logits are equal."""
    scaled = [value / sampler.temperature for value in logits]
    order = sorted(range(len(scaled)), key=lambda token: -scaled[token])
    if sampler.processor in ("topk", "topknucleus") and sampler.top_k:
        order = order[: sampler.top_k]
    mass = {token: math.exp(scaled[token] - scaled[order[0]]) for token in order}
    if sampler.processor in ("nucleus", "topknucleus"):
        total, running, kept = sum(mass.values()), 0.0, []
        for token in order:
            kept.append(token)
            running += mass[token] / total
            if running >= sampler.top_p:
                break
        order = kept
    order = [token for token in order if mass[token] >= sampler.min_p * mass[order[0]]]
    if sampler.typical_p < 1:
        total = sum(mass[token] for token in order)
        surprise = {token: -math.log(mass[token] / total) for token in order if mass[token] > 0}
        entropy = sum(value * mass[token] / total for token, value in surprise.items())
        running, kept = 0.0, []
        for token in sorted(surprise, key=lambda token: abs(surprise[token] - entropy)):
            kept.append(token)
            running += mass[token] / total
            if running >= sampler.typical_p:
                break
        order = kept
    total = sum(mass[token] for token in order)
    return [mass[token] / total if token in order else 0.0 for token in range(len(scaled))]


Change = Callable[[list[float], list[int], int], list[float]]
"""What logits become behind a text whose first tokens, so many, are the prompt's."""


def joint(
    target: FunctionModel, prompt: list[int], sampler: Sampler, end_ids: frozenset[int], change: Change
) -> dict[Text, float]:
    """The probability of each text of `LENGTH` tokens, or fewer where an end token closes it."""
    found: dict[Text, float] = {}

    def grow(text: Text, probability: float) -> None:
        if len(text) == LENGTH or (text and text[-1] in end_ids):
            found[text] = probability
            return
        known = [*prompt, *text]
        for token, p in enumerate(process(change(target.row(known).tolist(), known, len(prompt)), sampler)):
            if p > 0:
                grow((*text, token), probability * p)

    grow((), 1.0)
    return found


class RememberingSampler(Sampler):
    """The same distribution, worked out once per row of a tiny model: thousands of runs get cheap."""

    def probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        key = (*(getattr(self, field.name) for field in fields(self)), logits.shape, logits.numpy().tobytes())
        if key not in _remembered:
            _remembered[key] = super().probabilities(logits)
        return _remembered[key]


_remembered: dict[Any, torch.Tensor] = {}


def first_tokens(records: Iterator[Any]) -> Text:
    """The first `LENGTH` new tokens of a run, which is then dropped."""
    got: list[int] = []
    for record in records:
        if isinstance(record, PrefillDone) and record.token:
            got.append(record.token.id)
        elif isinstance(record, RoundVerified):
            got += [token.id for token in record.new_tokens]
        if len(got) >= LENGTH:
            break
    return tuple(got[:LENGTH])


def p_value(
    target: FunctionModel,
    prompt: list[int],
    make: Callable[[], Drafter | None],
    sampler: Sampler,
    *,
    rule: str,
    seeds: range,
    end_ids: frozenset[int],
    controls: Controls = NO_CONTROLS,
    change: Change = lambda logits, text, prompt: logits,
) -> float:
    """Chi-square of the first tokens of one run per seed against the enumerated truth.

    Six new tokens and three drafts a round, so that the tokens counted come from full rounds too.
    0.0 when a run says what the target cannot say. Rare texts are pooled.
    """
    truth = joint(target, prompt, sampler, end_ids, change)
    fast = RememberingSampler(*(getattr(sampler, field.name) for field in fields(sampler)))
    settings: dict[str, Any] = {"rule": rule, "gamma": 3, "max_new_tokens": 6, "end_ids": end_ids, "controls": controls}
    counts = Counter(
        first_tokens(run_lazily(target, prompt, make(), sampler=fast, seed=seed, **settings)) for seed in seeds
    )
    if set(counts) - set(truth):
        return 0.0
    observed, expected, rare = [], [], [0.0, 0.0]
    for text, probability in truth.items():
        if probability * len(seeds) < 5:
            rare[0] += counts[text]
            rare[1] += probability * len(seeds)
        else:
            observed.append(float(counts[text]))
            expected.append(probability * len(seeds))
    if rare[1] > 0:
        observed.append(rare[0])
        expected.append(rare[1])
    scale = sum(observed) / sum(expected)
    return float(chisquare(observed, [value * scale for value in expected]).pvalue)


def agrees(few: int, *arguments: Any, **settings: Any) -> bool:
    """The rule fixed beforehand: a p-value under 1e-3 must repeat on new seeds, three times as many."""
    if p_value(*arguments, seeds=range(few), **settings) >= 1e-3:
        return True
    return p_value(*arguments, seeds=range(10**6, 10**6 + 3 * few), **settings) >= 1e-3


def some(*lists: Sequence[str], one_in: int = 3) -> list[Any]:
    """All combinations, of which one in so many is not large; with every word of each list among them, if it can be."""
    combined = itertools.product(*map(enumerate, lists))
    return [
        pytest.param(*(word for _, word in one), marks=[pytest.mark.large] * (sum(at for at, _ in one) % one_in > 0))
        for one in combined
    ]
