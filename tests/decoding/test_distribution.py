"""Sampling is lossless: the joint distribution of the first tokens, and the mutants that must fail it."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from scipy.stats import chisquare
from tiny_drafters import KINDS, make_drafter
from tiny_models import table_model
from truth import agrees, some

from specdec_tui.decoding import rules
from specdec_tui.decoding import run as round_by_round
from specdec_tui.decoding.rows import dense
from specdec_tui.decoding.sampling import Dice, Sampler, draw_id

VOCAB = 4
TARGET = table_model(11, VOCAB, spread=0.9, rare=0)
CLOSE = table_model(12, VOCAB, spread=1.2, like=TARGET)
FAR = table_model(13, VOCAB, spread=1.2)
# The store and the index know something to draft at once, right after the prefill.
PROMPT = [1, 2, 3, 1, 0, 2, 1, 3, 2]
END = frozenset({0})

SAMPLERS = {
    "multinomial": Sampler("multinomial", 0.9),
    "topk": Sampler("topk", 1.2, top_k=3),
    "nucleus": Sampler("nucleus", 1.1, top_p=0.85),
    "topknucleus": Sampler("topknucleus", 1.5, top_k=3, top_p=0.9),
}
LOSSLESS = tuple(name for name, rule in rules.RULES.items() if rule.lossless)


def lossless(kind: str, processor: str, rule: str, few: int = 1000, end_ids: frozenset[int] = END) -> bool:
    def make():
        return make_drafter(kind, TARGET, CLOSE if processor == "topk" else FAR)

    return agrees(few, TARGET, PROMPT, make, SAMPLERS[processor], rule=rule, end_ids=end_ids)


@pytest.mark.parametrize(("kind", "rule", "processor"), some(KINDS, LOSSLESS, tuple(SAMPLERS), one_in=6))
def test_the_first_tokens_are_distributed_as_the_target_says(kind: str, processor: str, rule: str) -> None:
    assert lossless(kind, processor, rule)


@pytest.mark.parametrize("processor", SAMPLERS)
def test_decoding_without_a_drafter_is_distributed_as_the_target_says(processor: str) -> None:
    assert agrees(1000, TARGET, PROMPT, lambda: None, SAMPLERS[processor], rule="rejection", end_ids=END)


@pytest.mark.parametrize("rule", [pytest.param("rejection", marks=pytest.mark.large), "block"])
def test_the_distribution_holds_without_end_tokens(rule: str) -> None:
    assert lossless("model", "multinomial", rule, end_ids=frozenset())


@pytest.mark.parametrize(
    "kind", ["model", *(pytest.param(kind, marks=pytest.mark.large) for kind in ("ngram", "lookup"))]
)
def test_skip_adjustment_fails_the_test_that_the_lossless_rules_pass(kind: str) -> None:
    assert not lossless(kind, "multinomial", "skip-adjustment")


@pytest.mark.parametrize(("rule", "expected"), [("rejection", 10 / 9), ("block", 11 / 9)])
def test_accepted_drafts_match_the_example_of_the_block_verification_paper(rule: str, expected: float) -> None:
    p = torch.tensor([[1 / 3, 2 / 3]] * 3)
    q = list(torch.tensor([[2 / 3, 1 / 3]] * 2))
    dice, blocks, total = Dice(5, 2, torch.device("cpu")), 6000, 0
    for _ in range(blocks):
        drafts = [draw_id(row, dice.uniform()) for row in q]
        total += rules.RULES[rule].verify(drafts, q, p, 0, dice, True).accepted
    # Five standard errors: a block's accepted drafts deviate by less than one.
    assert abs(total / blocks - expected) < 5 / blocks**0.5


@pytest.mark.large
def test_mutant_wrong_residual_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(p: torch.Tensor, q: torch.Tensor, draft: int, weight: float = 1.0) -> torch.Tensor:
        return (dense(q) - dense(p)).clamp(min=0.0)

    monkeypatch.setattr(rules, "residual", wrong)
    # Fewer runs than elsewhere: they are enough to find it.
    assert not lossless("model", "multinomial", "rejection", few=250)
    assert not lossless("model", "multinomial", "block", few=250)


def two_tokens_of_a_block_are_right(rounds: int = 12_000) -> bool:
    """One block by hand, whose first draft is often kept by the joint test although p < q there."""
    p = torch.tensor([[0.3, 0.6, 0.1], [0.8, 0.15, 0.05], [0.2, 0.3, 0.5]])
    q = list(torch.tensor([[0.6, 0.2, 0.2], [0.1, 0.1, 0.8]]))
    dice, counts = Dice(17, 3, torch.device("cpu")), Counter[tuple[int, int]]()
    for _ in range(rounds):
        drafts = [draw_id(row, dice.uniform()) for row in q]
        verdict = rules.verify_block(drafts, q, p, 0, dice, True)
        text = [*drafts[: verdict.accepted], verdict.emitted, draw_id(p[1], dice.uniform())]
        counts[text[0], text[1]] += 1
    cells = list(itertools.product(range(3), repeat=2))
    expected = [float(p[0, a] * p[1, b]) * rounds for a, b in cells]
    scale = rounds / sum(expected)
    return chisquare([counts[cell] for cell in cells], [x * scale for x in expected]).pvalue >= 1e-4


@pytest.mark.large
def test_mutant_residual_without_its_weight_is_caught_under_block(monkeypatch: pytest.MonkeyPatch) -> None:
    assert two_tokens_of_a_block_are_right()
    right = rules.residual
    monkeypatch.setattr(rules, "residual", lambda p, q, draft, weight=1.0: right(p, q, draft, 1.0))
    assert not two_tokens_of_a_block_are_right()


@pytest.mark.large
def test_mutant_double_draw_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing anew from all of p at a mismatch emits a one-hot draft with probability p(2 − p)."""
    monkeypatch.setattr(rules, "residual", lambda p, q, draft, weight=1.0: p)
    assert not lossless("ngram", "multinomial", "rejection")
    assert not lossless("lookup", "multinomial", "rejection")


@pytest.mark.large
def test_mutant_acceptance_of_any_likely_draft_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def generous(p: list[float], q: list[float], draws: list[float]) -> int:
        return len(list(itertools.takewhile(lambda x: x > 0.2, p)))

    monkeypatch.setattr(rules, "leading_acceptances", generous)
    assert not lossless("model", "multinomial", "rejection")


@pytest.mark.large
def test_mutant_rewind_off_by_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_by_round, "kept_length", lambda base, accepted: base + accepted)
    assert not lossless("model", "multinomial", "rejection")
