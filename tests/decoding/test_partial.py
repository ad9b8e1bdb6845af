"""A distribution of which the best tokens are known is told where that decides it, and only there."""

from __future__ import annotations

import pytest
import torch
from answering import with_mass
from tiny_models import table_model
from truth import process

from specdec_tui.decoding.partial import distribution
from specdec_tui.decoding.sampling import Sampler

SAMPLERS = [
    Sampler("multinomial", 0.7),
    Sampler("topk", 1.3, top_k=3),
    Sampler("nucleus", 0.6, top_p=0.8),
    Sampler("nucleus", 1.0, top_p=0.9),
    Sampler("nucleus", 1.7, top_p=0.6),
    Sampler("topknucleus", 0.9, top_k=4, top_p=0.8),
    Sampler("multinomial", 0.9, min_p=0.2),
    Sampler("nucleus", 0.9, top_p=0.7, min_p=0.3),
    Sampler("topk", 1.3, top_k=4, typical_p=0.6),
    Sampler("multinomial", 1e-5),
]


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_what_is_told_is_the_distribution_over_all_tokens(sampler: Sampler) -> None:
    model, told = table_model(3, 12, spread=1.5), 0
    for first in range(12):
        for last in range(12):
            logits = model.row([first, last]).double()
            expected = process(logits.tolist(), sampler)
            for known in range(1, 13):
                found = distribution(with_mass(logits.softmax(-1).tolist(), known), sampler, 12)
                if found is not None:
                    told += 1
                    assert torch.allclose(found.double(), torch.tensor(expected, dtype=torch.float64), atol=2e-5)
                else:
                    assert known < 12
    assert told >= 144


@pytest.mark.parametrize("temperature", [0.5, 0.9, 1.0, 1.5])
def test_whatever_the_unknown_tokens_are_it_is_the_same_or_it_is_not_told(temperature: float) -> None:
    """The same best tokens with the rest spread evenly, and with as much of it as can be in few."""
    best = [0.4, 0.2, 0.1, 0.05]
    even, heaped = [0.025] * 10, [0.05] * 5 + [0.0] * 5
    agreed = 0
    for top_p in [part / 50 for part in range(1, 50)]:
        sampler = Sampler("nucleus", temperature, top_p=top_p)
        found = distribution(with_mass([*best, *even], 4), sampler, 14)
        truths = [
            process([torch.tensor(max(p, 1e-300), dtype=torch.float64).log().item() for p in row], sampler)
            for row in ([*best, *[p + i * 1e-9 for i, p in enumerate(even)]],)
        ]
        heap = sampler.probabilities(torch.tensor([*best, *heaped]).log()[None])[0]
        spread = sampler.probabilities(torch.tensor([*best, *even]).log()[None])[0]
        if found is not None:
            agreed += 1
            assert torch.allclose(found, spread, atol=1e-5) and torch.allclose(found, heap, atol=1e-5)
            assert torch.allclose(found.double(), torch.tensor(truths[0], dtype=torch.float64), atol=1e-5)
    assert 5 < agreed < 49


def test_as_many_as_top_k_are_not_enough_where_more_may_tie() -> None:
    row = [0.4, 0.2, 0.2, 0.2]
    assert distribution(with_mass(row, 2), Sampler("topk", 1.0, top_k=2), 4) is None
    assert distribution(with_mass(row, 3), Sampler("topk", 1.0, top_k=2), 4) is None
    whole = distribution(with_mass(row, 4), Sampler("topk", 1.0, top_k=2), 4)
    assert whole is not None and whole.tolist() == pytest.approx(row)


def test_nothing_is_told_of_all_tokens_from_some() -> None:
    assert distribution(with_mass([0.9, 0.05, 0.05], 2), Sampler("multinomial", 1.0), 3) is None
