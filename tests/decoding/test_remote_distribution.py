"""A target that tells only its best alternatives is sampled as exactly as one that is here."""

from __future__ import annotations

import pytest
import torch
from answering import AnsweringTable
from tiny_drafters import KINDS, make_drafter
from tiny_models import table_model
from truth import agrees, some

from specdec_tui.decoding import remote_rules
from specdec_tui.decoding.sampling import Sampler

VOCAB = 5
TARGET = table_model(11, VOCAB, spread=0.9, rare=0)
CLOSE = table_model(12, VOCAB, spread=1.2, like=TARGET)
FAR = table_model(13, VOCAB, spread=1.2)
PROMPT = [1, 2, 3, 1, 0, 2, 1, 3, 2]
END = frozenset({0})

SAMPLERS = {
    "multinomial": Sampler("multinomial", 1.0),
    "multinomial-0.8": Sampler("multinomial", 0.8),
    "topk": Sampler("topk", 1.2, top_k=2),
    "topk-beyond": Sampler("topk", 1.2, top_k=3),
    "nucleus": Sampler("nucleus", 0.9, top_p=0.7),
    "nucleus-hot": Sampler("nucleus", 1.4, top_p=0.75),
    "topknucleus": Sampler("topknucleus", 1.5, top_k=4, top_p=0.9),
    "min-p": Sampler("multinomial", 1.1, min_p=0.3),
}
KNOWN = 3
"""Alternatives that the server tells of five tokens: what nucleus keeps often lies within them, and often does not."""
COVERED = (("lookup", "nucleus"), ("lookup", "multinomial-0.8"))
"""Of those that are kept by `some`, what hotter nuclei and other temperatures try as well."""


def lossless(kind: str, processor: str, rule: str = "rejection", few: int = 1000, **how: bool) -> bool:
    server = AnsweringTable(TARGET, KNOWN, **how)

    def make():
        return None if kind == "none" else make_drafter(kind, TARGET, CLOSE if processor == "topk" else FAR)

    return agrees(few, server, PROMPT, make, SAMPLERS[processor], rule=rule, end_ids=END)


@pytest.mark.parametrize(
    ("kind", "processor"),
    [
        *(
            pytest.param(*one.values, marks=[*one.marks, *[pytest.mark.large] * (one.values in COVERED)])
            for one in some(("none", "model", "lookup"), tuple(SAMPLERS))
        ),
        *(
            pytest.param(kind, processor, marks=pytest.mark.large)
            for kind in KINDS
            for processor in SAMPLERS
            if kind not in ("model", "lookup")
        ),
    ],
)
def test_the_first_tokens_are_distributed_as_the_target_says(kind: str, processor: str) -> None:
    assert lossless(kind, processor)


@pytest.mark.parametrize("kind", ["model", pytest.param("lookup", marks=pytest.mark.large)])
def test_whole_blocks_are_judged_where_every_place_is_known(kind: str) -> None:
    assert lossless(kind, "topk", "block")


def test_some_places_of_a_round_are_decided_here_and_others_by_the_server() -> None:
    """Else the two ways were never mixed in the tests above."""
    found = set()
    for last in range(VOCAB):
        told = AnsweringTable(TARGET, KNOWN)._told([1, last], KNOWN, 0, ())
        found.add(remote_rules.places([told], SAMPLERS["nucleus"], AnsweringTable(TARGET, KNOWN))[0].row is None)
    assert found == {True, False}


@pytest.mark.large
def test_mutant_that_judges_by_draws_of_one_chance_is_caught() -> None:
    """As where a seed is sent: the draws of all places of a call would hang together."""
    assert not lossless("model", "multinomial", few=1000, same_chance=True)


@pytest.mark.large
def test_mutant_that_takes_what_is_told_for_all_there_is_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(told, sampler: Sampler, width: int) -> torch.Tensor:
        row = torch.full((width,), -torch.inf)
        row[list(told.ids)] = torch.tensor(told.logprobs, dtype=torch.float32)
        return sampler.probabilities(row[None])[0]

    monkeypatch.setattr(remote_rules, "distribution", cut)
    assert not lossless("model", "multinomial", few=300)


@pytest.mark.large
def test_mutant_that_chooses_how_to_judge_a_whole_round_by_its_last_place_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = remote_rules.places

    def all_or_none(told, sampler: Sampler, target):
        found = right(told, sampler, target)
        known = found[-1].row is not None
        return found if known else [remote_rules.Place(place.told, None) for place in found]

    monkeypatch.setattr("specdec_tui.decoding.remote_run.places", all_or_none)
    assert not lossless("model", "nucleus", few=4000)


@pytest.mark.large
def test_mutant_that_draws_again_after_a_refusal_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_rules, "residual", lambda p, q, draft, weight=1.0: p)
    assert not lossless("lookup", "topk", few=500)
