"""Greedy output of every strategy is the target's own, token for token; mutants are not."""

from __future__ import annotations

import itertools

import pytest
import torch
from tiny_drafters import KINDS, make_drafter
from tiny_models import FunctionModel, emitted, ended, rounds, run, table_model

from specdec_tui.decoding import loop, rules
from specdec_tui.decoding import run as round_by_round
from specdec_tui.decoding.drafters import Drafter, ModelDrafter
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore
from specdec_tui.decoding.records import EndReason, Status
from specdec_tui.decoding.rules import Verdict
from specdec_tui.decoding.sampling import Sampler

VOCAB = 7


def restless_model(seed: int, like: FunctionModel | None = None) -> FunctionModel:
    """Depends on the last six tokens, so that it does not run into a cycle; `like` agrees half the time."""
    rows: dict[tuple[int, ...], torch.Tensor] = {}

    def row(ids: list[int]) -> torch.Tensor:
        key = tuple(ids[-6:])
        if key not in rows:
            mixed = seed
            for token in key:
                mixed = (mixed * 1_000_003 + token + 1) % 2**31
            own = torch.randn(VOCAB, generator=torch.Generator().manual_seed(mixed))
            rows[key] = own if like is None else own + 1.2 * like.row(ids)
        return rows[key]

    return FunctionModel(VOCAB, row)


RESTLESS = restless_model(1)
CYCLIC = table_model(2, VOCAB)
MODELS = {
    "restless": (RESTLESS, restless_model(3, RESTLESS)),
    "cyclic": (CYCLIC, table_model(4, VOCAB, like=CYCLIC)),
}
PROMPT = [3, 1, 4, 1, 5, 2, 6, 5, 3, 5]
LENGTH = 40


def reference(target: FunctionModel) -> list[int]:
    """Greedy decoding in two lines, without the package."""
    text = list(PROMPT)
    for _ in range(LENGTH):
        text.append(int(target.row(text).argmax()))
    return text[len(PROMPT) :]


def ngram(storage: str, filler: int, unknown: str, model: FunctionModel) -> NgramDrafter:
    fallback = ModelDrafter(model, VOCAB) if unknown == "drafter" else None
    return NgramDrafter(NgramStore(3, storage), filler, fallback)


@pytest.mark.each_value
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("gamma", [0, 1, 2, 4, 7, 50])
@pytest.mark.parametrize("kind", [*KINDS, "none"])
def test_every_drafter_writes_what_the_target_writes(name: str, gamma: int, kind: str) -> None:
    target, model = MODELS[name]
    for use_cache, rule in ((True, "rejection"), (False, "block"), (True, "coupled"), (True, "skip-adjustment")):
        drafter = None if kind == "none" else make_drafter(kind, target, model)
        records = run(
            target, PROMPT, drafter, gamma=gamma, max_new_tokens=LENGTH, use_cache=use_cache, rule=rule, seed=gamma
        )
        assert emitted(records) == reference(target)
        assert ended(records).reason is EndReason.LENGTH


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("storage", "filler", "unknown", "gamma"),
    itertools.product(["basic", "onelevel"], [0, 3], ["stop", "drafter"], [1, 4, 50]),
)
def test_every_ngram_setting_writes_what_the_target_writes(
    name: str, storage: str, filler: int, unknown: str, gamma: int
) -> None:
    target, model = MODELS[name]
    drafter = ngram(storage, filler, unknown, model)
    for _ in range(2):  # the second run meets a store that knows the first
        assert emitted(run(target, PROMPT, drafter, gamma=gamma, max_new_tokens=LENGTH)) == reference(target)


@pytest.mark.parametrize("kind", KINDS)
def test_the_tiny_models_make_rounds_of_every_fate(kind: str) -> None:
    """Otherwise equality would prove little: drafts must be accepted and rejected."""
    target, model = MODELS["restless"]
    seen = {
        token.status
        for gamma in (1, 3)
        for record in rounds(run(target, PROMPT, make_drafter(kind, target, model), gamma=gamma, max_new_tokens=200))
        for token in (*record.drafts, *([record.emitted] if record.emitted else []))
    }
    assert {Status.ACCEPTED, Status.REJECTED, Status.UNVERIFIED, Status.RESAMPLED, Status.BONUS} <= seen


SAMPLERS = [
    Sampler("multinomial", 0.8),
    Sampler("topk", 1.0, top_k=3),
    Sampler("nucleus", 1.3, top_p=0.8),
    Sampler("topknucleus", 0.7, top_k=4, top_p=0.9),
]


def coupled_text(drafter: Drafter | None, sampler: Sampler, seed: int, gamma: int, length: int = 60) -> list[int]:
    target = MODELS["restless"][0]
    settings = {"sampler": sampler, "rule": "coupled", "seed": seed, "gamma": gamma, "max_new_tokens": length}
    return emitted(run(target, PROMPT, drafter, **settings))


@pytest.mark.each_value
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler.processor)
@pytest.mark.parametrize("kind", KINDS)
def test_coupled_sampling_writes_the_autoregressive_text_at_the_same_seed(kind: str, sampler: Sampler) -> None:
    target, model = MODELS["restless"]
    for seed, gamma in ((0, 0), (1, 1), (2, 4), (3, 9), (2**63 - 1, 5)):
        drafter = make_drafter(kind, target, model)
        assert coupled_text(drafter, sampler, seed, gamma) == coupled_text(None, sampler, seed, 0)


def test_coupled_texts_of_different_seeds_differ() -> None:
    assert coupled_text(None, SAMPLERS[0], 1, 0) != coupled_text(None, SAMPLERS[0], 2, 0)


@pytest.mark.parametrize("rule", ["rejection", "block", "coupled", "skip-adjustment"])
def test_a_seed_repeats_its_text(rule: str) -> None:
    target, model = MODELS["restless"]

    def text(seed: int) -> list[int]:
        drafter = make_drafter("model", target, model)
        return emitted(run(target, PROMPT, drafter, sampler=SAMPLERS[0], rule=rule, seed=seed, max_new_tokens=40))

    assert text(7) == text(7) != text(8)


def test_insight_changes_no_token() -> None:
    target, model = MODELS["restless"]
    for sampler in (Sampler("greedy"), SAMPLERS[2]):
        texts = [
            emitted(run(target, PROMPT, make_drafter("model", target, model), sampler=sampler, insight=insight))
            for insight in (False, True)
        ]
        assert texts[0] == texts[1]


def still_equal(kind: str = "model") -> bool:
    target, model = MODELS["restless"]
    drafter = make_drafter(kind, target, model)
    return emitted(run(target, PROMPT, drafter, gamma=4, max_new_tokens=LENGTH)) == reference(target)


@pytest.mark.parametrize("error", [-1, 1])
def test_mutant_rewind_off_by_one_is_caught(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    assert still_equal()
    right = round_by_round.kept_length
    monkeypatch.setattr(round_by_round, "kept_length", lambda base, accepted: right(base, accepted) + error)
    assert not still_equal()


def test_mutant_missing_bonus_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its bonus a round keeps the last draft as the token to feed next, and feeds it twice."""
    right = rules.GREEDY.verify

    def no_bonus(drafts, q, p, position, dice, bonus):
        return right(drafts, q, p, position, dice, False)

    monkeypatch.setattr(loop, "rule_for", lambda name, sampler: rules.Rule(rules.draw_best, no_bonus))
    assert not still_equal()


def test_mutant_bonus_from_the_wrong_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rules.GREEDY.verify

    def wrong(drafts, q, p, position, dice, bonus):
        verdict = right(drafts, q, p, position, dice, bonus)
        row = max(verdict.accepted - 1, 0)
        return Verdict(verdict.accepted, int(p[row].argmax()), verdict.p, verdict.q, verdict.acceptance, verdict.draws)

    monkeypatch.setattr(loop, "rule_for", lambda name, sampler: rules.Rule(rules.draw_best, wrong))
    assert not still_equal()
