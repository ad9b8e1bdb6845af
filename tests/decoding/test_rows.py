"""What the compiled functions keep and draw, against plain sorting and adding up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from specdec_tui.decoding import kept_kernels, kernels
from specdec_tui.decoding.rows import Few, Rest, Whole, dense, processed
from specdec_tui.decoding.rules import RULES, residual
from specdec_tui.decoding.sampling import Dice, Sampler, draw_id

WIDE = 5000
SAMPLERS = [
    Sampler("topk", 0.7, top_k=1),
    Sampler("topk", 1.0, top_k=50),
    Sampler("topk", 1.3, top_k=900),
    Sampler("nucleus", 0.7, top_p=0.9),
    Sampler("nucleus", 1.0, top_p=0.95),
    Sampler("nucleus", 2.5, top_p=0.9999),
    Sampler("nucleus", 0.1, top_p=0.01),
    Sampler("topknucleus", 0.8, top_k=40, top_p=0.8),
    Sampler("multinomial", 0.9, min_p=0.05),
    Sampler("topk", 1.0, top_k=60, min_p=0.1),
    Sampler("nucleus", 1.0, top_p=0.95, min_p=0.02),
    Sampler("topknucleus", 1.0, top_k=300, top_p=0.9, min_p=0.01),
    Sampler("multinomial", 0.8, typical_p=0.9),
    Sampler("multinomial", 1.5, typical_p=0.2),
    Sampler("topknucleus", 1.0, top_k=200, top_p=0.95, min_p=0.001, typical_p=0.7),
]


def all_logits(width: int = WIDE) -> Iterator[tuple[str, torch.Tensor]]:
    chance = torch.Generator().manual_seed(width)
    some = torch.randn(width, generator=chance)
    yield "random", some * 3
    yield "peaked", torch.where(torch.arange(width) == 77 % width, 40.0, some)
    yield "heavy", torch.randn(width, generator=chance).mul(2).exp().clamp(max=60)
    yield "tied", (some * 3).round()
    yield "tied in halves", (some * 2).bfloat16().float()
    yield "flat", torch.zeros(width)
    yield "nearly flat", some * 1e-4
    yield "two levels", torch.where(torch.arange(width) % 3 == 0, 2.0, -1.0)
    yield (
        "masked",
        torch.where(torch.rand(width, generator=chance) < 0.9, -torch.inf, some * 3).index_fill(
            0, torch.tensor([0]), 1.0
        ),
    )
    yield "one is left", torch.full((width,), -torch.inf).index_fill(0, torch.tensor([width - 1]), 3.0)
    yield "far", some * 1e4
    yield "huge", some * 1e37
    yield "tiny", some * 1e-40
    yield "shifted", some * 3 + 3e4
    yield "falling", torch.linspace(20, -20, width)


def kept_of(logits: torch.Tensor, sampler: Sampler) -> tuple[set[int], bool]:
    """The ids of a chance above 0, by sorting in float64; and whether an edge is too near to another set to tell."""
    scaled = ((logits - logits.amax()) / sampler.divisor).double()  # float32 is what ties are told by
    keep, sure = torch.ones_like(scaled, dtype=torch.bool), True
    if sampler.uses_top_k:
        keep = scaled >= scaled.sort(descending=True).values[min(sampler.top_k, len(scaled)) - 1]

    def smallest(key: torch.Tensor, mass: torch.Tensor, share: float) -> torch.Tensor:
        nonlocal sure
        order = key.sort(descending=True).indices
        running = mass[order].cumsum(0)
        last = min(int((running < share).sum()), len(order) - 1)
        edge = key[order][last]
        # Behind a whole group of ties lies the mass that counts.
        ends = torch.cat((running[key[order] > edge][-1:], running[key[order] >= edge][-1:]))
        sure &= bool((ends - share).abs().min() > 3e-6)
        return key >= edge

    if sampler.uses_top_p:
        mass = torch.where(keep, scaled, -torch.inf).softmax(0)
        keep &= smallest(torch.where(keep, scaled, -torch.inf), mass, sampler.top_p)
    if sampler.uses_min_p:
        keep &= scaled >= float(np.float32(math.log(sampler.min_p)))
    if sampler.uses_typical_p:
        mass = torch.where(keep, scaled, -torch.inf).softmax(0)
        surprise = -mass.log()
        apart = (surprise - (surprise * mass).nan_to_num(0.0).sum()).abs().float().nan_to_num(posinf=3e38).double()
        keep &= smallest(-apart, mass, sampler.typical_p)
        edge = float(apart[keep].max())
        # Tokens on both sides of the entropy, or the rounding of it, may be as far from it.
        near = (apart - edge).abs() < 1e-5 * (1 + edge)
        sure &= len(set(apart[near].tolist())) <= 1
    weights = torch.where(keep, scaled, -torch.inf).exp()
    return set((weights > 1e-37).nonzero()[:, 0].tolist()), sure


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@pytest.mark.parametrize("width", [1, 7, 129, WIDE])
def test_what_is_kept_is_what_sorting_keeps(sampler: Sampler, width: int) -> None:
    told = 0
    for name, logits in all_logits(width):
        (row,) = processed(sampler, logits[None])
        assert isinstance(row, Few)
        assert row.ids.tolist() == sorted(set(row.ids.tolist())), name
        assert float(row.chances.astype(np.float64).sum()) == pytest.approx(1, abs=1e-5)
        wanted, sure = kept_of(logits, sampler)
        if sure:
            told += 1
            assert set(row.ids.tolist()) == wanted, name
            scaled = ((logits - logits.amax()) / sampler.divisor).double()
            exact = scaled[row.ids.tolist()].softmax(0)
            assert row.chances.tolist() == pytest.approx(exact.tolist(), rel=1e-6, abs=1e-30), name
    assert told >= 8


@pytest.mark.parametrize("sampler", [s for s in SAMPLERS if not s.uses_typical_p], ids=repr)
def test_what_is_kept_is_what_tensors_keep(sampler: Sampler) -> None:
    for name, logits in all_logits():
        (row,) = processed(sampler, logits[None])
        other = sampler.probabilities(logits[None])[0]
        if kept_of(logits, sampler)[1]:
            # Tensors add up in float32, which is off by as much where thousands tie.
            assert torch.allclose(dense(row), other, rtol=2e-5, atol=1e-30), name
            assert torch.equal(dense(row) > 1e-37, other > 1e-37), name


def test_an_edge_that_is_off_by_one_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kept_kernels.narrow

    def off(*arguments: Any) -> Any:
        ids, chances = right(*arguments)
        least = chances.argmin()
        return np.delete(ids, least), np.delete(chances, least)

    monkeypatch.setattr(kept_kernels, "narrow", off)
    with pytest.raises(AssertionError):
        test_what_is_kept_is_what_sorting_keeps(Sampler("nucleus", 0.7, top_p=0.9), WIDE)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1e-38, 1e-300, 50.0])
def test_a_whole_distribution_is_the_softmax(temperature: float) -> None:
    sampler = Sampler("multinomial", temperature)
    for name, logits in all_logits():
        (row,) = processed(sampler, logits[None])
        assert isinstance(row, Whole)
        scaled = (logits.double() - float(logits.amax())) / sampler.divisor
        exact = scaled.softmax(0)
        ids = [0, 1, 77, WIDE - 1, int(logits.argmax())]
        assert [row[i] for i in ids] == pytest.approx(exact[ids].tolist(), rel=1e-5, abs=1e-30), name
        pieces = [float(part.sum()) for part in exact.split(kernels.PIECE)]
        assert (row.sums / row.total).tolist() == pytest.approx(pieces, rel=1e-6, abs=1e-9), name


@pytest.mark.parametrize("worst", [math.nan, -math.nan, math.inf])
@pytest.mark.parametrize("sampler", [Sampler("multinomial"), Sampler("nucleus", top_p=0.9)], ids=repr)
def test_logits_that_are_no_numbers_give_a_row_that_tells(worst: float, sampler: Sampler) -> None:
    for place in (0, 130, 299):
        logits = torch.zeros(2, 300)
        logits[1, place] = worst
        sound, row = processed(sampler, logits)
        assert not isinstance(sound, torch.Tensor) and isinstance(row, torch.Tensor) and bool(row.isnan().any())
        with pytest.raises(FloatingPointError, match="finite"):
            draw_id(row, 0.5)
    (row,) = processed(sampler, torch.full((1, 300), -torch.inf))
    assert isinstance(row, torch.Tensor) and bool(row.isnan().any())


PAIRS = [Sampler("multinomial", 0.9), Sampler("nucleus", 0.9, top_p=0.8), Sampler("topk", 1.2, top_k=30)]


def two_rows(sampler: Sampler) -> tuple[Any, Any]:
    chance = torch.Generator().manual_seed(3)
    logits = torch.randn(2500, generator=chance) * 2
    other = logits + torch.randn(2500, generator=chance)
    return processed(sampler, logits[None])[0], processed(sampler, other[None])[0]


@pytest.mark.parametrize("sampler", PAIRS, ids=repr)
def test_draws_and_residuals_are_those_of_tensors_at_the_same_number(sampler: Sampler) -> None:
    p, q = two_rows(sampler)
    draft = q.draw(0.3)
    whole = dense(p), dense(q)
    for rest, wanted in (
        (p, whole[0]),
        (residual(p, q, draft), residual(*whole, draft)),
        (residual(p, q, draft, 0.7), residual(*whole, draft, 0.7)),
        (residual(p, None, draft), residual(whole[0], None, draft)),
    ):
        assert isinstance(rest, Few | Whole | Rest) and isinstance(wanted, torch.Tensor)
        assert torch.allclose(dense(rest), wanted, rtol=1e-5, atol=1e-8)
        running = wanted.double().cumsum(0)
        for uniform in [0.0, *torch.rand(300, generator=torch.Generator().manual_seed(1)).tolist(), 1 - 2**-53]:
            token = draw_id(rest, uniform)
            assert float(wanted[token]) > 0
            # The one whose part of the running sum holds the number, but for rounding at its ends.
            place, slack = float(running[-1]) * (1 - uniform), 1e-6
            assert float(running[token]) >= place - slack and float(running[token] - wanted[token]) <= place + slack
    assert p.spare(q, 0.7) == pytest.approx(float((whole[0] * 0.7 - whole[1]).clamp(min=0).sum()), rel=1e-4)


@pytest.mark.parametrize("sampler", PAIRS, ids=repr)
def test_where_nothing_is_left_p_stands_in(sampler: Sampler) -> None:
    p, _ = two_rows(sampler)
    assert [draw_id(residual(p, p, 3), u) for u in (0.1, 0.5)] == [draw_id(p, u) for u in (0.1, 0.5)]
    only = torch.full((1, 2000), -torch.inf)
    only[0, 1999] = 0.0
    (one,) = processed(sampler, only)
    assert draw_id(residual(one, None, 1999), 0.4) == 1999


@pytest.mark.parametrize("sampler", PAIRS, ids=repr)
@pytest.mark.parametrize("wanted", ["draw", "rest", "rest of a token"])
def test_draws_are_distributed_as_the_weights_say(sampler: Sampler, wanted: str) -> None:
    chance = torch.Generator().manual_seed(5)
    logits = torch.randn(2, 12, generator=chance).repeat_interleave(150, 1)[:, :1700]  # twelve groups, over two pieces
    p, q = processed(replace(sampler, top_k=450), logits)
    rest = {"draw": p, "rest": residual(p, q, 0), "rest of a token": residual(p, None, 20)}[wanted]
    expected = [float(part.sum()) for part in dense(rest).double().split(150)]
    dice = Dice(11, 1700, torch.device("cpu"))
    found = np.bincount([draw_id(rest, u) // 150 for u in dice.uniforms(20_000)], minlength=12)
    at = [i for i, value in enumerate(expected) if value > 0]
    assert found.sum() == found[at].sum()
    scale = 20_000 / sum(expected)
    assert chisquare(found[at], [expected[i] * scale for i in at]).pvalue > 1e-4


@pytest.mark.parametrize("sampler", PAIRS, ids=repr)
def test_a_coupled_draw_is_the_same_as_of_a_tensor(sampler: Sampler) -> None:
    p, _ = two_rows(sampler)
    dice = Dice(7, 2500, torch.device("cpu"))
    own = [RULES["coupled"].draw(p, place, dice) for place in range(40)]
    assert own == [RULES["coupled"].draw(dense(p), place, dice) for place in range(40)]
    assert len(set(own)) > 5


def test_the_best_places_of_blocks_bound_what_is_kept_at_every_width() -> None:
    for width in (127, 128, 129, 255, 256, 257, 1023, 1025):
        logits = torch.zeros(width)
        logits[-1] = 5.0
        logits[0] = 4.0
        row: Any = processed(Sampler("topk", top_k=2), logits[None])[0]
        assert row.ids.tolist() == [0, width - 1]


@pytest.mark.parametrize("width", [3, 130, WIDE])
@pytest.mark.parametrize("temperature", [1.0, 0.3, 7.0])
def test_a_survey_tells_the_entropy_and_the_best_of_a_softmax(width: int, temperature: float) -> None:
    for name, logits in all_logits(width):
        ids, weights = np.empty(10, np.int64), np.empty(10, np.float32)
        best, total, entropy, count = kernels.survey(logits.numpy(), np.float32(temperature), ids, weights)
        scaled = ((logits - logits.amax()) / temperature).double()
        p = scaled.softmax(-1)
        assert best == float(logits.amax()), name
        assert 1 / total == pytest.approx(float(p.amax()), rel=1e-6), name
        assert entropy == pytest.approx(float(torch.special.entr(p).sum()), rel=2e-6, abs=2e-7), name
        # A stable sort: of equal logits the lowest id is the first.
        wanted = (-logits).sort(stable=True).indices[:10]
        assert count == len(wanted) and ids[:count].tolist() == wanted.tolist(), name
        assert weights[:count] / total == pytest.approx(p[wanted].numpy(), rel=2e-6, abs=1e-37), name


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_survey_of_what_is_no_softmax_tells_nothing(wrong: float) -> None:
    logits = np.full(300, -math.inf, np.float32)
    logits[200] = wrong
    assert math.isnan(kernels.survey(logits, np.float32(1), np.empty(10, np.int64), np.empty(10, np.float32))[0])
