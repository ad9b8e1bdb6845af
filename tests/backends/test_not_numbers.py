"""A draft whose keys and values are no numbers is a draft like any other: refused, and forgotten."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
import torch
from tiny_transformers import tiny_model

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.lean.model import LeanModel
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.drafters import Drafter, DraftSetup, ModelDrafter, Proposal
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.records import EndReason, Notice, PrefillDone, Record, RoundVerified, RunEnded, Status
from specdec_tui.decoding.sampling import Sampler

BAD = 319
PROMPT = [(37 * i + 5) % BAD for i in range(12)]
GREEDY = Sampler("greedy")
KINDS = ("llama", "gemma2", "gpt2")  # masks that are added to scores, and masks that choose


class BadDrafter:
    """Drafts a token without a name among others: first, in the middle, last, or not at all."""

    notice = goes_step_by_step = ""

    def start(self, ids: Sequence[int], setup: DraftSetup) -> None:
        pass

    def propose(self, ids: Sequence[int], most: int, position: int) -> Proposal:
        drafts = [7, 5, 6, 8, 9, 10, 11, 12][:most]
        if (place := position % 4) < len(drafts):
            drafts[place] = BAD
        return Proposal(drafts, [None] * len(drafts))

    def settle(self, ids: Sequence[int], kept: int, scores: torch.Tensor) -> None:
        pass

    def synchronize(self) -> None:
        pass


def bad_model(kind: str, **overrides: Any) -> Any:
    """A model with one token that makes everything not a number, and that it never says itself."""
    model = tiny_model(kind, **overrides)
    with torch.no_grad():
        model.get_input_embeddings().weight[BAD] = torch.nan
        model.get_output_embeddings().weight[BAD] = 0
    return model


def run(target: Any, drafter: Drafter | None = None, **settings: Any) -> list[Record]:
    settings = {"sampler": GREEDY, "gamma": 4, "max_new_tokens": 16} | settings
    records = list(decode(target, PROMPT, strategy="tested", drafter=drafter, **settings))
    assert records[-1] == RunEnded(EndReason.LENGTH)
    json.dumps([asdict(record) for record in records], allow_nan=False)
    return records


def ids_of(records: list[Record]) -> list[int]:
    first = next(r.token.id for r in records if isinstance(r, PrefillDone) and r.token is not None)
    return [first] + [t.id for r in records if isinstance(r, RoundVerified) for t in r.new_tokens]


@pytest.mark.each_value
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_the_targets_own(kind: str, use_cache: bool) -> None:
    target = TransformersModel(bad_model(kind))
    for sampler, rule in ((GREEDY, "rejection"), (Sampler("nucleus", 1.0, top_p=0.9), "coupled")):
        settings: dict[str, Any] = {"sampler": sampler, "rule": rule, "use_cache": use_cache, "insight": True}
        records = run(target, BadDrafter(), **settings)
        assert ids_of(records) == ids_of(run(target, **settings))
        drafted = [t for r in records if isinstance(r, RoundVerified) for t in r.drafts]
        assert any(t.id == BAD for t in drafted)
        assert all(t.status is not Status.ACCEPTED for t in drafted if t.id == BAD)


@pytest.mark.parametrize("gamma", [4, 8, 20])
def test_the_fast_pass_of_the_cpu_goes_on_as_well(gamma: int) -> None:
    target = LeanModel.of(bad_model("llama"))
    assert ids_of(run(target, BadDrafter(), gamma=gamma)) == ids_of(run(target))


CHOICES = (
    (GREEDY, "rejection"),
    (Sampler("multinomial", 1.0), "rejection"),
    (Sampler("topk", 1.0, top_k=20), "block"),
    (Sampler("nucleus", 1.0, top_p=0.9), "coupled"),
)


@pytest.mark.parametrize(
    ("kind", "at"),
    [
        pytest.param(kind, at, marks=[pytest.mark.large] * (kind != KINDS[1 + at % 2]))
        for kind, at in itertools.product(KINDS, range(len(CHOICES)))
    ],
)
def test_a_captured_run_goes_on_and_says_so_and_the_next_one_is_captured_again(kind: str, at: int) -> None:
    """`make test` takes each choice with one kind of mask, and each kind of mask with two choices."""
    sampler, rule = CHOICES[at]
    target, programs = TransformersModel(bad_model(kind)), Programs()
    settings: dict[str, Any] = {"sampler": sampler, "rule": rule, "seed": 5}
    plain = ids_of(run(target, BadDrafter(), **settings))
    for _ in range(2):
        records = run(target, BadDrafter(), programs=programs, **settings)
        assert ids_of(records) == plain
        assert [r.message for r in records if isinstance(r, Notice)] == [
            "goes on step by step: scores of a captured round are not numbers (NaN)"
        ]
    clean = run(target, programs=programs, **settings)
    assert ids_of(clean) == ids_of(run(target, **settings))
    assert not any(isinstance(record, Notice) for record in clean)


@pytest.mark.parametrize("rule", ["rejection", "block", "coupled"])
def test_a_drafter_model_goes_on_with_the_same_draws(rule: str) -> None:
    """The drafter likes the bad token: its rounds are captured until one holds it, and go on at the same dice."""
    target, likes = TransformersModel(bad_model("llama")), tiny_model("llama")
    with torch.no_grad():
        likes.get_output_embeddings().weight[BAD] *= 3
        likes.get_output_embeddings().weight[BAD] += 0.1
    settings: dict[str, Any] = {"sampler": Sampler("topk", 1.5, top_k=40), "rule": rule, "max_new_tokens": 40}
    stopped = 0
    for seed in range(2):
        texts = []
        for programs in (None, Programs()):
            drafter = ModelDrafter(TransformersModel(likes), 320)
            records = run(target, drafter, programs=programs, seed=seed, **settings)
            texts.append(ids_of(records))
            stopped += any(isinstance(record, Notice) for record in records)
        assert texts[0] == texts[1]
    assert stopped > 0


def test_a_target_without_numbers_still_ends_its_run() -> None:
    model = bad_model("llama")
    target = TransformersModel(model)
    for programs in (None, Programs()):
        records = list(
            decode(target, [1, BAD, 2], strategy="tested", sampler=GREEDY, max_new_tokens=4, programs=programs)
        )
        end = records[-1]
        assert isinstance(end, RunEnded) and end.reason is EndReason.ERROR and "not numbers" in end.message
