"""Drafts of another tokenizer leave the target's distribution as it is; planted faults do not."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from tiny_models import FunctionModel, rounds, run, table_model
from tiny_translation import tiny_translation
from truth import agrees

from specdec_tui.decoding import rules
from specdec_tui.decoding.choosing import ChoosingDrafter
from specdec_tui.decoding.drafters import Drafter, Proposal
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore
from specdec_tui.decoding.records import Status
from specdec_tui.decoding.retokenize import RetokenizeDrafter
from specdec_tui.decoding.sampling import Sampler
from specdec_tui.decoding.shared_vocabulary import SharedDrafter

VOCAB = 4
TARGET = table_model(21, VOCAB, spread=0.9, rare=0)
OTHER = table_model(22, 5, spread=1.2)
PROMPT = [1, 2, 3, 1, 0, 2, 1, 3, 2]
END = frozenset({0})
TRANSLATION = tiny_translation()
SAMPLERS = {
    "multinomial": Sampler("multinomial", 0.9),
    "topk": Sampler("topk", 1.2, top_k=2),
    "nucleus": Sampler("nucleus", 1.1, top_p=0.85),
    "topknucleus": Sampler("topknucleus", 1.5, top_k=3, top_p=0.9),
}
LOSSLESS = tuple(name for name, rule in rules.RULES.items() if rule.lossless)
WAYS = ("shared", "retokenize", "ngram-or-shared", "ngram-or-retokenize")


def make(way: str, model: FunctionModel = OTHER) -> Drafter:
    shared = SharedDrafter(model, VOCAB, TRANSLATION)
    retokenize = RetokenizeDrafter(model, TRANSLATION)
    match way:
        case "shared":
            return shared
        case "retokenize":
            return retokenize
        case "ngram-or-shared":
            return NgramDrafter(NgramStore(3, "onelevel"), 2, shared)
        case "ngram-or-retokenize":
            return NgramDrafter(NgramStore(3, "onelevel"), 2, retokenize)
        case "auto":
            return ChoosingDrafter(TARGET, TRANSLATION, shared, retokenize)
    raise AssertionError(way)


def lossless(way: str, processor: str = "multinomial", rule: str = "rejection", few: int = 600) -> bool:
    return agrees(few, TARGET, PROMPT, lambda: make(way), SAMPLERS[processor], rule=rule, end_ids=END)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("way", "rule", "processor"),
    [
        pytest.param(way, rule, processor, marks=[pytest.mark.large] * (processor != "multinomial" or "-" in way))
        for way, rule, processor in itertools.product(WAYS, LOSSLESS, SAMPLERS)
    ],
)
def test_the_first_tokens_are_distributed_as_the_target_says(way: str, rule: str, processor: str) -> None:
    assert lossless(way, processor, rule)


@pytest.mark.parametrize("processor", ["topk", "topknucleus"])
def test_the_narrowed_distribution_of_a_mapped_row_is_the_q_of_verification(processor: str) -> None:
    assert lossless("shared", processor)


@pytest.mark.parametrize("way", ["shared", "retokenize"])
def test_drafts_of_another_tokenizer_meet_every_fate(way: str) -> None:
    seen = {
        token.status
        for seed in range(30)
        for record in rounds(
            run(TARGET, PROMPT, make(way), sampler=SAMPLERS["multinomial"], seed=seed, gamma=3, max_new_tokens=40)
        )
        for token in record.drafts
    }
    assert seen == {Status.ACCEPTED, Status.REJECTED, Status.UNVERIFIED}


@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=[pytest.mark.large] * (rule == "rejection")) for rule in LOSSLESS]
)
def test_the_same_rule_stays_exact_with_what_auto_chooses(rule: str) -> None:
    assert lossless("auto", rule=rule, few=500)


@pytest.mark.large
def test_mutant_row_that_is_not_normalised_again_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drafter's own probabilities, cut to the tokens of both, and drawn from: each q is too small."""

    def own(self: SharedDrafter, text: Sequence[int], position: int) -> tuple[int, torch.Tensor] | None:
        ids = self._follower.alignment.behind(text)
        logits = None if ids is None else self._follower.logits(ids)
        if logits is None:
            return None
        row = self._running.sampler.probabilities(logits)[self._places].masked_fill(self._unshared, 0.0)
        return self._running.rule.draw(row, position, self._running.dice), row

    monkeypatch.setattr(SharedDrafter, "draft_one", own)
    assert not lossless("shared", few=200)
    assert not lossless("shared", rule="block", few=200)


@pytest.mark.large
def test_mutant_q_of_the_row_that_is_not_mapped_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def unmapped(self: SharedDrafter, text: Sequence[int], position: int) -> tuple[int, torch.Tensor] | None:
        drawn = right(self, text, position)
        ids = self._follower.alignment.behind(text)
        logits = None if ids is None else self._follower.logits(ids)
        if drawn is None or logits is None:
            return drawn
        return drawn[0], self._running.sampler.probabilities(logits[:VOCAB])

    right = SharedDrafter.draft_one
    monkeypatch.setattr(SharedDrafter, "draft_one", unmapped)
    assert not lossless("shared")


@pytest.mark.large
def test_mutant_draft_of_a_text_that_is_said_to_be_drawn_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written greedily has a one-hot q: with a distribution in its place too much is accepted."""

    def with_rows(self: RetokenizeDrafter, ids: Sequence[int], most: int, position: int) -> Proposal:
        proposal = right(self, ids, most, position)
        return Proposal(proposal.ids, [torch.full((VOCAB,), 1 / VOCAB) for _ in proposal.ids])

    right = RetokenizeDrafter.propose
    monkeypatch.setattr(RetokenizeDrafter, "propose", with_rows)
    assert not lossless("retokenize")
