"""Verdicts on rounds made by hand."""

from __future__ import annotations

import pytest
import torch

from specdec_tui.decoding import rules
from specdec_tui.decoding.device_rules import RULES as DEVICE_RULES
from specdec_tui.decoding.device_rules import Chance, Drafts
from specdec_tui.decoding.rules import RULES, Verdict, chosen, residual
from specdec_tui.decoding.sampling import Dice, Sampler

P = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.0, 0.0, 1.0]])
Q = torch.tensor([[0.2, 0.6, 0.2], [0.4, 0.3, 0.3]])


def dice(seed: int = 0) -> Dice:
    return Dice(seed, 3, torch.device("cpu"))


def test_chosen_reads_p_and_q_of_a_mixed_proposal() -> None:
    p, q = chosen([1, 2], [None, Q[1]], P)
    assert p == pytest.approx([0.3, 0.8]) and q == pytest.approx([1.0, 0.3])
    p, q = chosen([1, 2], [Q[0], None], P)
    assert p == pytest.approx([0.3, 0.8]) and q == pytest.approx([0.6, 1.0])
    assert chosen([0], [None], P)[1] == [1.0]


def test_residual_is_what_p_has_over_q() -> None:
    assert residual(P[0], Q[0], 1).tolist() == pytest.approx([0.3, 0.0, 0.0])
    assert residual(P[0], Q[0], 1, 0.8).tolist() == pytest.approx([0.2, 0.0, 0.0])
    assert residual(P[0], None, 1).tolist() == pytest.approx([0.5, 0.0, 0.2])
    assert P[0].tolist() == pytest.approx([0.5, 0.3, 0.2]), "p itself stays as it is"


def test_an_empty_residual_falls_back_to_p() -> None:
    assert torch.equal(residual(P[0], P[0], 0), P[0])
    assert torch.equal(residual(P[2], None, 2), P[2])


@pytest.mark.parametrize("name", ["rejection", "block", "skip-adjustment"])
def test_drafts_that_the_target_cannot_say_are_never_kept(name: str) -> None:
    p = torch.tensor([[0.0, 1.0, 0.0]] * 3)
    for seed in range(50):
        verdict = RULES[name].verify([0, 1], [None, None], p, 0, dice(seed), True)
        assert (verdict.accepted, verdict.emitted) == (0, 1)
        verdict = RULES[name].verify([0, 1], list(Q), p, 0, dice(seed), True)
        assert (verdict.accepted, verdict.emitted) == (0, 1)


def test_a_draw_of_exactly_zero_does_not_let_the_impossible_through() -> None:
    assert rules.leading_acceptances([0.0], [0.5], [0.0]) == 0
    assert rules.leading_acceptances([0.1, 0.0], [0.5, 1.0], [0.0, 0.0]) == 1


@pytest.mark.parametrize("name", ["rejection", "block", "skip-adjustment"])
def test_drafts_are_always_kept_where_both_models_agree(name: str) -> None:
    p = torch.softmax(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)), -1)
    for seed in range(50):
        verdict = RULES[name].verify([2, 0], list(p[:2]), p, 0, dice(seed), True)
        assert verdict.accepted == 2


@pytest.mark.parametrize("name", RULES)
def test_no_bonus_is_drawn_where_none_is_asked_for(name: str) -> None:
    certain = torch.tensor([[0.0, 1.0, 0.0]] * 2)
    verdict = RULES[name].verify([1], [None], certain, 0, dice(), False)
    assert (verdict.accepted, verdict.emitted) == (1, None)
    assert RULES[name].verify([1], [None], certain, 0, dice(), True).emitted == 1


def test_greedy_compares_ids_and_takes_the_lowest_of_a_tie() -> None:
    logits = torch.tensor([[1.0, 5.0, 5.0], [7.0, 1.0, 7.0], [0.0, 0.0, 2.0]])
    verdict = rules.GREEDY.verify([1, 0], [None, None], logits, 0, dice(), True)
    assert verdict == Verdict(2, 2, [1.0, 1.0], [1.0, 1.0], [1.0, 1.0], [None, None])
    verdict = rules.GREEDY.verify([2, 0], [None, None], logits, 0, dice(), True)
    assert (verdict.accepted, verdict.emitted, verdict.p) == (0, 1, [0.0, 1.0])


def test_coupled_keeps_a_draft_exactly_when_it_is_the_targets_own_draw() -> None:
    rule = RULES["coupled"]
    for seed in range(30):
        own = [rule.draw(P[i], 10 + i, dice(seed)) for i in range(3)]
        verdict = rule.verify(own[:2], list(Q), P, 10, dice(seed), True)
        assert (verdict.accepted, verdict.emitted) == (2, own[2])
        wrong = (own[1] + 1) % 3
        verdict = rule.verify([own[0], wrong], list(Q), P, 10, dice(seed), True)
        assert (verdict.accepted, verdict.emitted) == (1, own[1])


def test_block_numbers_follow_the_papers_recursion() -> None:
    drafts = [1, 0]
    verdict = RULES["block"].verify(drafts, list(Q), P, 0, dice(), True)
    weight = 0.3 / 0.6
    spare = sum(max(0.0, weight * float(p) - float(q)) for p, q in zip(P[1], Q[1], strict=True))
    last = min(1.0, weight * 0.1 / 0.4)
    assert verdict.acceptance == pytest.approx([spare / (spare + 1 - weight), last])


def test_every_rule_is_the_same_comparison_under_greedy() -> None:
    for name in RULES:
        assert rules.rule_for(name, Sampler("nucleus", 0.0, top_p=0.5)) is rules.GREEDY
        assert rules.rule_for(name, Sampler("multinomial", 0.5)) is RULES[name]
    assert [name for name, rule in RULES.items() if not rule.lossless] == ["skip-adjustment"]


@pytest.mark.parametrize("size", [1e-7, -1e-7, 3e-8])
def test_models_that_differ_by_rounding_alone_agree_under_block(size: float) -> None:
    """What rounding leaves of nothing, over what it leaves of nothing, is no chance of acceptance."""
    q = torch.softmax(torch.randn(4, 3, generator=torch.Generator().manual_seed(1)), -1)
    p = q + size * torch.tensor([1.0, -1.0, 0.5])
    for drafts in ([2, 0, 1, 2], [0, 0, 0, 0], [1, 1, 2, 0]):
        wide = torch.cat((p, p[:1]))
        verdict = RULES["block"].verify(drafts, list(q), wide, 0, dice(), True)
        assert verdict.accepted == 4
        assert [value for value in verdict.acceptance if value is not None] == pytest.approx([1.0] * 4, abs=2e-6)
        uniforms = torch.full((5,), 0.9, dtype=torch.float64)
        chance = Chance(uniforms, dice().noise, torch.zeros(1, dtype=torch.int64))
        on_device = DEVICE_RULES["block"].verify(Drafts(torch.tensor(drafts), q, torch.tensor([4])), wide, chance)
        assert on_device.accepted.tolist() == [4]
        assert on_device.numbers[2].tolist() == pytest.approx([1.0] * 4, abs=2e-6)


@pytest.mark.parametrize("name", ["rejection", "block", "skip-adjustment", "coupled"])
def test_on_a_device_no_draft_is_accepted_by_a_row_that_is_no_numbers(name: str) -> None:
    p = P.clone()
    p[0] = torch.nan
    chance = Chance(torch.full((3,), 0.5, dtype=torch.float64), dice().noise, torch.zeros(1, dtype=torch.int64))
    verdict = DEVICE_RULES[name].verify(Drafts(torch.tensor([1, 2]), Q, torch.tensor([2])), p, chance)
    assert verdict.accepted.tolist() == [0] and not verdict.sound.item()


@pytest.mark.parametrize("name", ["rejection", "block", "skip-adjustment", "coupled"])
def test_rows_that_are_no_numbers_behind_a_refused_draft_change_nothing(name: str) -> None:
    nan = torch.full((3,), torch.nan)
    p = torch.stack((torch.tensor([0.0, 1.0, 0.0]), nan, nan))
    for seed in range(20):
        verdict = RULES[name].verify([0, 1], list(Q), p, 0, dice(seed), True)
        assert (verdict.accepted, verdict.emitted) == (0, 1)
