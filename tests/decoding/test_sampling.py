"""Processed distributions, draws and noise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from truth import process

from specdec_tui.decoding.sampling import MOST_NOISE, PositionNoise, Sampler, best_ids, draw_id

CPU = torch.device("cpu")
PROCESSORS = ("multinomial", "topk", "nucleus", "topknucleus")


@pytest.mark.each_value
@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("width", [5, 3000])
def test_the_distribution_is_the_one_worked_out_by_sorting(processor: str, width: int) -> None:
    logits = torch.randn(3, width, generator=torch.Generator().manual_seed(width)) * 2
    for temperature, top_k, top_p in itertools.product((0.3, 2.5), (1, 400), (0.1, 0.9, 0.9999)):
        sampler = Sampler(processor, temperature, top_k, top_p)
        before = logits.clone()
        p = sampler.probabilities(logits)
        for row, values in zip(p.tolist(), logits.tolist(), strict=True):
            assert row == pytest.approx(process(values, sampler), abs=1e-5)
        assert torch.equal(logits, before)


def test_a_flat_nucleus_wider_than_the_first_look_is_found() -> None:
    p = Sampler("nucleus", 1.0, top_p=0.5).probabilities(torch.linspace(0, 1e-3, 5000))
    assert int((p > 0).sum()) == pytest.approx(2500, abs=2)
    assert float(p.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("sampler", [Sampler("topk", 1.0, top_k=2), Sampler("nucleus", 1.0, top_p=0.3)])
def test_every_token_that_ties_at_the_edge_is_kept(sampler: Sampler) -> None:
    logits = torch.full((2000,), -9.0)
    logits[7] = 1.0
    logits[100:1100] = 0.5  # a tie that reaches beyond the first candidates looked at
    p = sampler.probabilities(logits)
    assert set(p.nonzero()[:, 0].tolist()) == {7, *range(100, 1100)}


def test_temperature_comes_before_top_p() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0])
    cold, hot = (Sampler("nucleus", t, top_p=0.7).probabilities(logits) for t in (0.3, 3.0))
    assert (cold > 0).tolist() == [True, False, False]
    assert (hot > 0).tolist() == [True, True, False]


def test_top_k_zero_and_top_p_one_keep_everything() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    plain = Sampler("multinomial", 0.8).probabilities(logits)
    assert torch.equal(Sampler("topknucleus", 0.8, 0, 1.0).probabilities(logits), plain)


def test_top_k_beyond_the_vocabulary_keeps_everything() -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1))
    plain = Sampler("multinomial", 0.8).probabilities(logits)
    assert torch.allclose(Sampler("topk", 0.8, 1000).probabilities(logits), plain)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("temperature", [1e-38, 1e-45, 1e-46, 1e-300, 5e-324])
def test_a_temperature_that_float32_rounds_to_zero_gives_the_best_token(processor: str, temperature: float) -> None:
    logits = torch.randn(3, 3000, generator=torch.Generator().manual_seed(1))
    p = Sampler(processor, temperature, 400, 0.9).probabilities(logits)
    assert p.argmax(-1).tolist() == logits.argmax(-1).tolist()
    assert p.amax(-1).tolist() == [1.0] * 3 and bool((p.sum(-1) == 1).all())


def test_a_tiny_temperature_gives_the_best_token_and_no_nan() -> None:
    for processor in PROCESSORS:
        p = Sampler(processor, 1e-40, 3, 0.9).probabilities(torch.tensor([1.0, 90.0, 3.0]))
        assert p.tolist() == [0.0, 1.0, 0.0]


def test_temperature_zero_is_greedy_and_greedy_is_one_hot_at_the_lowest_id() -> None:
    logits = torch.tensor([[0.0, 5.0, 5.0], [3.0, 1.0, 2.0]], dtype=torch.float64)
    for sampler in (Sampler("greedy", 0.7), Sampler("nucleus", 0.0, top_p=0.9)):
        assert sampler.is_greedy
        assert sampler.probabilities(logits).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_half_precision_logits_give_float32_probabilities() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        p = Sampler("nucleus", 0.7, top_p=0.9).probabilities(torch.randn(100).to(dtype))
        assert p.dtype == torch.float32 and float(p.sum()) == pytest.approx(1, abs=1e-5)


def test_masked_logits_get_probability_zero() -> None:
    logits = torch.tensor([1.0, -torch.inf, 0.5, -torch.inf])
    for processor in PROCESSORS:
        p = Sampler(processor, 0.9, 3, 0.99).probabilities(logits)
        assert p[1] == p[3] == 0 and float(p.sum()) == pytest.approx(1)


def test_inference_tensors_are_welcome() -> None:
    with torch.inference_mode():
        logits = torch.randn(2, 300)
    for processor in PROCESSORS:
        assert Sampler(processor, 0.9, 3, 0.99).probabilities(logits).sum(-1).tolist() == pytest.approx([1, 1])
    assert len(best_ids(logits)) == 2


def test_the_best_id_is_the_lowest_on_a_tie_for_every_type() -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        assert best_ids(torch.tensor([[1, 4, 4, 0], [2, 2, 2, 2]]).to(dtype)) == [1, 0]


def test_a_draw_inverts_the_running_sum_and_never_meets_zero_weight() -> None:
    weights = torch.tensor([0.0, 1.0, 0.0, 3.0, 0.0])
    assert draw_id(weights, 0.0) == 3
    assert draw_id(weights, 0.7499) == 3
    assert draw_id(weights, 0.7501) == 1
    assert draw_id(weights, 1 - 2**-53) == 1


def test_a_draw_from_nan_is_an_error_not_a_token() -> None:
    with pytest.raises(FloatingPointError, match="finite"):
        draw_id(torch.tensor([0.5, torch.nan, 0.5]), 0.3)


def test_noise_belongs_to_seed_and_position_alone() -> None:
    first, second = PositionNoise(3, 100, CPU), PositionNoise(3, 100, CPU)
    later = first.at(5)
    second.at(9)
    assert torch.equal(second.at(5), later)
    assert not torch.equal(first.at(6), later)
    assert not torch.equal(PositionNoise(4, 100, CPU).at(5), later)
    assert not torch.equal(PositionNoise(4, 100, CPU).at(4), first.at(5)), "seed + position would collide"


def test_noise_is_exponential_and_streams_are_unrelated() -> None:
    noise = PositionNoise(0, 20_000, CPU)
    rows = np.stack([noise.at(position).numpy() for position in range(4)])
    assert rows.min() > 0
    for row in rows:
        assert kstest(row, "expon").pvalue > 1e-4
    correlations = np.corrcoef(rows)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 5 / 20_000**0.5


def test_noise_is_kept_within_a_bound_and_made_again_alike() -> None:
    noise = PositionNoise(1, 10, CPU)
    first = noise.at(0)
    for position in range(1, 3 * MOST_NOISE):
        noise.at(position)
    assert len(noise._kept) == MOST_NOISE
    assert torch.equal(noise.at(0), first)
