"""Encoder-decoder models in the loop: the text of `generate`, exact rewinding, one pass of the encoder."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from tiny_encoder_decoders import ENCODER_DECODERS, MORE, tiny_encoder_decoder
from transformers import GenerationConfig

from specdec_tui.backends.cache import DecoderCache, RewindableLayer
from specdec_tui.backends.encoder_decoder import EncoderDecoderContext, EncoderDecoderModel
from specdec_tui.backends.generation_asks import settings_asked
from specdec_tui.backends.model import begin_of, longest_text
from specdec_tui.decoding import prompt as prompts
from specdec_tui.decoding.drafters import Drafter, ModelDrafter
from specdec_tui.decoding.lookup import LookupDrafter
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.lossless import check, near_tie_bound
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore
from specdec_tui.decoding.records import (
    EndReason,
    LosslessStatus,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    Status,
)
from specdec_tui.decoding.sampling import Sampler
from specdec_tui.run_settings import controls_of
from specdec_tui.settings import Settings

GREEDY = Sampler("greedy")
PROMPT = [(11 * i + 5) % 300 + 3 for i in range(20)]
LENGTH = 40
STRATEGIES = ("target", "speculative", "itself", "ngram", "ngram-or-model", "lookup")
large = pytest.mark.large


@cache
def model(kind: str, noise: float = 0.0) -> EncoderDecoderModel:
    """One model for all runs of this file: none may leave anything in it."""
    return EncoderDecoderModel(tiny_encoder_decoder(kind, noise))


@cache
def generated(kind: str, length: int = LENGTH) -> list[int]:
    """What transformers' own greedy decoding writes."""
    net = tiny_encoder_decoder(kind)
    ids = torch.tensor([PROMPT])
    asked = GenerationConfig(
        do_sample=False, max_new_tokens=length, decoder_start_token_id=net.config.decoder_start_token_id
    )
    return net.generate(ids, attention_mask=torch.ones_like(ids), generation_config=asked)[0, 1:].tolist()


def drafter_of(kind: str, strategy: str) -> Drafter | None:
    match strategy:
        case "speculative":
            return ModelDrafter(model(kind, 0.1), 320)
        case "itself":
            return ModelDrafter(model(kind), 320)
        case "ngram":
            return NgramDrafter(NgramStore(3), top_k_filler=3)
        case "ngram-or-model":
            return NgramDrafter(NgramStore(3, "onelevel"), 2, ModelDrafter(model(kind, 0.1), 320))
        case "lookup":
            return LookupDrafter(2)
    return None


def run(kind: str, strategy: str, prompt: Sequence[int] = PROMPT, **settings: Any) -> list[Record]:
    settings = {"sampler": GREEDY, "max_new_tokens": LENGTH} | settings
    return list(decode(model(kind), prompt, strategy=strategy, drafter=drafter_of(kind, strategy), **settings))


def new_ids(records: Sequence[Record]) -> list[int]:
    ids: list[int] = []
    for record in records:
        if isinstance(record, PrefillDone) and record.token is not None:
            ids.append(record.token.id)
        elif isinstance(record, RoundVerified):
            ids += [token.id for token in record.new_tokens]
    return ids


def statuses(records: Sequence[Record]) -> Iterator[Status]:
    for record in records:
        if isinstance(record, RoundVerified):
            yield from (token.status for token in record.drafts)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("gamma", "use_cache"),
    [
        (8, True),
        (3, False),
        *(pytest.param(*each, marks=large) for each in ((1, True), (3, True), (1, False), (8, False))),
    ],
)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[large] * (kind not in ("t5", "bart"))) for kind in ENCODER_DECODERS]
)
def test_every_strategy_writes_what_generate_writes(kind: str, strategy: str, gamma: int, use_cache: bool) -> None:
    records = run(kind, strategy, gamma=gamma, use_cache=use_cache)
    assert new_ids(records) == generated(kind)
    assert records[-1] == RunEnded(EndReason.LENGTH)


CONTROLLED: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 2.0},
    "ngrams": {"no_repeat_ngram_size": 2},
    "least": {"min_length": 12, "sequence_bias": [[[1], 1e4]]},
    "forced": {"forced_bos_token_id": 7, "forced_eos_token_id": 1},
    "banned": {"bad_words_ids": [[token] for token in range(100, 300)]},
}


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", CONTROLLED)
@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_controls_see_what_the_decoder_wrote_and_no_prompt_as_in_generate(kind: str, name: str, strategy: str) -> None:
    net, ids = tiny_encoder_decoder(kind), torch.tensor([PROMPT])
    theirs = net.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=LENGTH, **CONTROLLED[name]
    )[0, 1:].tolist()
    assert theirs != generated(kind)
    asked, applied = settings_asked(CONTROLLED[name])
    assert applied == CONTROLLED[name].keys()
    ends = frozenset({1})
    controls = controls_of(Settings(max_new_tokens=LENGTH), asked, ends, lambda word: [], begin_of(model(kind)))
    assert new_ids(run(kind, strategy, gamma=3, end_ids=ends, controls=controls)) == theirs


@pytest.mark.parametrize("kind", MORE)
def test_more_families_write_what_generate_writes(kind: str) -> None:
    assert model(kind).rewindable
    for strategy in ("target", "itself", "ngram"):
        assert new_ids(run(kind, strategy, gamma=3)) == generated(kind), strategy


def test_a_short_prompt_before_does_not_change_how_a_long_one_is_read() -> None:
    """BigBird reads short texts with full attention and would go on so."""
    tiny = model("bigbird_pegasus")
    fresh = tiny_encoder_decoder("bigbird_pegasus").get_encoder()(input_ids=torch.tensor([PROMPT])).last_hidden_state
    tiny.encode(PROMPT[:4])
    assert torch.allclose(tiny.encode(PROMPT).last_hidden_state, fresh, atol=1e-5)
    full = EncoderDecoderModel(tiny_encoder_decoder("bigbird_pegasus", attention_type="original_full"))
    assert not torch.allclose(full.encode(PROMPT).last_hidden_state, fresh, atol=1e-2)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[large] * (kind not in ("t5", "bart"))) for kind in ENCODER_DECODERS]
)
def test_the_texts_compared_are_no_single_token_and_drafts_have_every_fate(kind: str) -> None:
    assert len(set(generated(kind))) > 3
    fates = set(statuses([*run(kind, "speculative", gamma=3), *run(kind, "speculative", gamma=8)]))
    assert {Status.ACCEPTED, Status.REJECTED, Status.UNVERIFIED} <= fates
    assert set(statuses(run(kind, "itself", gamma=3))) == {Status.ACCEPTED}


@pytest.mark.parametrize("kind", ENCODER_DECODERS)
def test_inputs_are_those_of_generate_and_the_cache_is_kept(kind: str) -> None:
    made = model(kind)
    assert (made.rewindable, made.inputs.refused, made.inputs.unknown) == (True, "", "")
    assert made.vocab_size == 320 and not made.open().recomputes and made.open(use_cache=False).recomputes


@pytest.mark.parametrize("kind", ENCODER_DECODERS)
def test_what_was_rewound_has_never_been(kind: str) -> None:
    """Also where that lies beyond the largest distance that T5 tells from others, and down to the prompt."""
    context = model(kind).open()
    context.extend(PROMPT, keep=1)
    context.extend(range(30, 90), keep=1)
    for length in (70, 50, 49, 21, 20):
        context.rewind(length)
        assert context.length == length
        fresh = model(kind).open()
        fresh.extend(PROMPT, keep=1)
        again = context.extend([7, 8, 9], keep=3)
        context.rewind(length)
        assert torch.allclose(again, fresh.extend([*range(30, 10 + length), 7, 8, 9], keep=3), atol=1e-3)


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_context_rewound_into_its_prompt_reads_another_one(use_cache: bool) -> None:
    context = model("t5").open(use_cache=use_cache)
    context.extend(PROMPT, keep=1)
    context.extend([7, 8], keep=2)
    context.rewind(12)
    assert context.length == 12
    fresh = model("t5").open()
    assert torch.equal(context.extend([9, 9], keep=1), fresh.extend([*PROMPT[:12], 9, 9], keep=1))


@pytest.mark.each_value
@pytest.mark.parametrize("piece", [1, 7, 20])
@pytest.mark.parametrize("strategy", ["target", "speculative", "ngram-or-model"])
def test_a_prompt_given_in_pieces_is_read_at_once(strategy: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "PREFILL_CHUNK", piece)
    assert new_ids(run("t5", strategy)) == generated("t5")


def test_there_are_no_logits_before_the_prompt_is_whole() -> None:
    context = model("t5").open()
    assert isinstance(context, EncoderDecoderContext)
    context.expect(3)
    assert context.extend([5, 6], keep=2).isnan().all()
    rows = context.extend([7, 8], keep=2)
    assert rows.shape == (2, 320) and rows.isfinite().all()
    assert model("t5").open().extend([5, 6], keep=2).isnan().tolist() == [[True] * 320, [False] * 320]


@pytest.mark.each_value
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_encoder_runs_once_for_each_model_and_before_the_rounds(
    strategy: str, use_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[str] = []
    real = EncoderDecoderModel.encode

    def encode(self: EncoderDecoderModel, ids: Sequence[int]) -> Any:
        passes.append("target" if self is model("t5") else "drafter")
        return real(self, ids)

    monkeypatch.setattr(EncoderDecoderModel, "encode", encode)
    drafter = drafter_of("t5", strategy)
    stream = decode(
        model("t5"),
        PROMPT,
        strategy=strategy,
        drafter=drafter,
        sampler=GREEDY,
        max_new_tokens=LENGTH,
        use_cache=use_cache,
    )
    for record in stream:
        if isinstance(record, PrefillDone):
            read = list(passes)
    assert passes == read
    second = {"speculative": ["drafter"], "ngram-or-model": ["drafter"], "itself": ["target"]}
    assert passes == ["target", *second.get(strategy, [])]


def test_end_tokens_and_short_lengths_are_those_of_generate() -> None:
    for length in (1, 2):
        assert new_ids(run("bart", "speculative", max_new_tokens=length)) == generated("bart")[:length]
    end = generated("t5")[9]
    cut = generated("t5")[: generated("t5").index(end) + 1]
    records = run("t5", "itself", gamma=8, end_ids=frozenset({end}))
    assert new_ids(records) == cut and records[-1] == RunEnded(EndReason.END_TOKEN)


def test_a_prompt_of_one_token_is_answered() -> None:
    assert len(new_ids(run("pegasus", "speculative", [9], gamma=3))) == LENGTH


def test_lengths_of_encoder_and_decoder_are_their_own() -> None:
    bart = EncoderDecoderModel(tiny_encoder_decoder("bart", max_position_embeddings=24))
    assert [longest_text(bart, prompt) for prompt in (1, 24, 25)] == [24, 47, 24]
    assert longest_text(model("t5"), 10_000) is None and model("t5").context_length is None  # though n_positions is 16
    for drafter in (None, ModelDrafter(bart, 320)):
        settings: dict[str, Any] = {"sampler": GREEDY, "max_new_tokens": 99, "gamma": 8}
        *_, end = records = list(decode(bart, PROMPT, strategy="s", drafter=drafter, **settings))
        assert len(new_ids(records)) == 23
        assert end == RunEnded(EndReason.CONTEXT, "the new tokens fill the model's context of 24 tokens")
    *_, end = decode(bart, [5] * 25, strategy="s", sampler=GREEDY)
    assert end.message == "the prompt of 25 tokens leaves no room in the model's context of 24 tokens"
    with pytest.raises(ValueError, match="25 tokens, 25 of a prompt, do not fit: at most 24 do"):
        bart.open().extend([5] * 25, keep=1)


def test_a_drafter_whose_decoder_is_full_says_so_and_the_text_goes_on() -> None:
    short = ModelDrafter(EncoderDecoderModel(tiny_encoder_decoder("bart", max_position_embeddings=24)), 320)
    records = list(decode(model("bart"), PROMPT, strategy="s", drafter=short, sampler=GREEDY, max_new_tokens=LENGTH))
    assert new_ids(records) == generated("bart")
    assert any("the drafter's context of 24 tokens is full" in str(record) for record in records)


@pytest.mark.parametrize("kind", ENCODER_DECODERS)
def test_the_reference_shares_nothing_with_the_runs_and_finds_a_wrong_token(kind: str) -> None:
    def verdict(ids: list[int]) -> LosslessStatus:
        settings = {"sampler": GREEDY, "rule": "rejection", "seed": 0, "bound": near_tie_bound(torch.float32)}
        return check(model(kind), PROMPT, ids, None, **settings).status

    assert verdict(generated(kind)) is LosslessStatus.IDENTICAL
    wrong = list(generated(kind))
    wrong[20] = (wrong[20] + 1) % 320
    assert verdict(wrong) is LosslessStatus.DIFFERENT


def test_mutant_cache_that_is_not_cut_is_caught_by_the_trial_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DecoderCache, "rewind", lambda self, length: None)
    assert not EncoderDecoderModel(tiny_encoder_decoder("t5")).rewindable


def test_mutant_cut_of_one_token_too_few_changes_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    real = DecoderCache.rewind
    monkeypatch.setattr(DecoderCache, "rewind", lambda self, length: real(self, length + 1))
    assert new_ids(run("t5", "speculative", gamma=3)) != generated("t5")


def test_a_pass_that_breaks_off_leaves_the_context_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    context, fresh = model("t5").open(), model("t5").open()
    real, calls = RewindableLayer.update, itertools.count()

    def update(self: RewindableLayer, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == 1:
            raise RuntimeError("out of memory")
        return real(self, *args, **kwargs)

    for fed in (PROMPT, [7, 8, 9]):
        calls = itertools.count()
        with monkeypatch.context() as patch, pytest.raises(RuntimeError):
            patch.setattr(RewindableLayer, "update", update)
            context.extend(fed, keep=1)
        assert torch.equal(context.extend(fed, keep=1), fresh.extend(fed, keep=1))


TEMPERATURE = 1.0
FEW: dict[str, Any] = {"vocab_size": 5, "bos_token_id": 0, "decoder_start_token_id": 2}


def first_three(target: EncoderDecoderModel, drafter: EncoderDecoderModel, rule: str, seed: int) -> tuple[int, ...]:
    """Of a run that goes on for long enough that full rounds are counted; it is then dropped."""
    ids: list[int] = []
    settings: dict[str, Any] = {"sampler": Sampler("multinomial", TEMPERATURE), "rule": rule, "seed": seed, "gamma": 3}
    for record in decode(target, [3, 4, 1, 3], strategy="s", drafter=ModelDrafter(drafter, 5), **settings):
        ids += new_ids([record])
        if len(ids) >= 3:
            break
    return tuple(ids[:3])


def agrees(rule: str, few: int = 1000) -> bool:
    """Joint chi-square over 5 ids; a p-value under 1e-3 must repeat on new seeds, three times as many."""
    target, drafter = (EncoderDecoderModel(tiny_encoder_decoder("flan-t5", noise, **FEW)) for noise in (0.0, 0.5))
    truth: dict[tuple[int, ...], float] = {}
    for text in itertools.product(range(5), repeat=3):
        rows = list(target.reference([3, 4, 1, 3], text))
        chances = [float((row / TEMPERATURE).softmax(-1)[token]) for row, token in zip(rows, text, strict=True)]
        truth[text] = math.prod(chances)

    def p_value(seeds: range) -> float:
        counts = Counter(first_three(target, drafter, rule, seed) for seed in seeds)
        cells: dict[Any, list[float]] = {}
        for text, chance in truth.items():
            cell = cells.setdefault(text if chance * len(seeds) >= 5 else "rare", [0, 0.0])
            cell[0] += counts[text]
            cell[1] += chance * len(seeds)
        observed, expected = zip(*cells.values(), strict=True)
        return float(chisquare(observed, [value * len(seeds) / sum(expected) for value in expected]).pvalue)

    return p_value(range(few)) >= 1e-3 or p_value(range(10**6, 10**6 + 3 * few)) >= 1e-3


@large
@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_sampled_texts_are_distributed_as_the_target_says(rule: str) -> None:
    assert agrees(rule)


@large
def test_a_rule_that_loses_fails_the_same_comparison() -> None:
    assert not agrees("skip-adjustment", few=500)


def test_an_encoder_decoder_model_is_not_captured_and_says_why() -> None:
    from specdec_tui.decoding.device_run import open_static

    with pytest.raises(ValueError, match="an encoder-decoder model is not captured"):
        open_static(model("t5"), 64)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_given_tokens_are_the_decoders_and_not_read_by_the_encoder(strategy: str) -> None:
    kind, settings = next(iter(ENCODER_DECODERS)), {"strategy": "x", "sampler": GREEDY}
    whole = generated(kind)
    given = whole[:9]
    records = list(
        decode(model(kind), PROMPT, drafter=drafter_of(kind, strategy), given=given, max_new_tokens=12, **settings)
    )
    ids = [t.id for r in records if isinstance(r, PrefillDone) and (t := r.token)]
    ids += [t.id for r in records if isinstance(r, RoundVerified) for t in r.new_tokens]
    assert ids == whole[9:21]
    judged = check(model(kind), PROMPT, ids, None, sampler=GREEDY, rule="rejection", seed=0, bound=1e-3, given=given)
    assert judged.status is LosslessStatus.IDENTICAL
