"""Models whose layers keep a state: their texts are extended, taken back and gone on with exactly."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from tiny_transformers import RECURRENT, tiny_model

from specdec_tui.backends import states
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.gpu import model as gpu_model
from specdec_tui.backends.rotations import LengthContext
from specdec_tui.backends.state_context import APART, FAR, NEAR, StateContext
from specdec_tui.decoding import prompt as prompts
from specdec_tui.decoding.drafters import Drafter, ModelDrafter
from specdec_tui.decoding.lookup import LookupDrafter
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.lossless import check
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore
from specdec_tui.decoding.records import LosslessStatus, Notice, PrefillDone, Record, RoundVerified
from specdec_tui.decoding.run import TOKEN_BY_TOKEN
from specdec_tui.decoding.sampling import Sampler

KINDS = list(RECURRENT)
# One of each way: a state by blocks, handed on, beside attention, in the modules, by single tokens, in each layer.
FEW = ("mamba2", "rwkv", "jamba", "recurrent_gemma")
WAYS = [*FEW, *(pytest.param(kind, marks=pytest.mark.large) for kind in ("mamba", "falcon_h1", "lfm2"))]
# What these say of a token depends on whether it has a pass of its own: they bound the time step in blocks alone.
BY_PASS = ("zamba2", "nemotron_h")
SOME = [pytest.param(kind, marks=[pytest.mark.large] * (kind not in FEW)) for kind in KINDS]
STRATEGIES = ("target", "speculative", "ngram", "lookup")
NEW, PROMPT = 24, [(37 * i + 5) % 90 for i in range(20)]
GREEDY = Sampler("greedy")


@cache
def model_of(kind: str) -> TransformersModel:
    """One model for all the runs of this file: none may leave anything in it."""
    return TransformersModel(tiny_model(kind))


@cache
def near_copy(kind: str) -> TransformersModel:
    """A drafter that is often right."""
    model = tiny_model(kind)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    return TransformersModel(model)


@cache
def generated(kind: str) -> list[int]:
    ids = torch.tensor([PROMPT])
    settings: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    return tiny_model(kind).generate(ids, attention_mask=torch.ones_like(ids), **settings)[0, len(PROMPT) :].tolist()


@pytest.mark.parametrize("kind", ["xlstm", "rwkv", "mamba2"])
def test_rounds_are_not_captured_whatever_the_config_says_of_states(kind: str) -> None:
    with pytest.raises(ValueError, match="keep states of their own"):
        model_of(kind).open_static(64)
    assert not gpu_model.fits(model_of(kind).model)


def drafter_of(strategy: str, kind: str) -> Drafter | None:
    match strategy:
        case "speculative":
            return ModelDrafter(near_copy(kind), 320)
        case "ngram":
            return NgramDrafter(NgramStore(3), top_k_filler=3)
        case "lookup":
            return LookupDrafter(3)
    return None


def decoding(kind: str, strategy: str = "target", **settings: Any) -> Iterator[Record]:
    settings = {"sampler": GREEDY, "gamma": 3, "max_new_tokens": NEW} | settings
    return decode(model_of(kind), PROMPT, strategy=strategy, drafter=drafter_of(strategy, kind), **settings)


def new_ids(records: Iterator[Record]) -> list[int]:
    found: list[int] = []
    for record in records:
        if isinstance(record, PrefillDone):
            assert record.token is not None and not record.recomputes
            found.append(record.token.id)
        elif isinstance(record, RoundVerified):
            found += [token.id for token in record.new_tokens]
    return found


def whole(kind: str, ids: Sequence[int], keep: int) -> torch.Tensor:
    with torch.no_grad():
        return model_of(kind).model(torch.tensor([ids]), use_cache=False).logits[0, -keep:].float()


def assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("kind", SOME)
def test_no_family_recomputes_its_text(kind: str) -> None:
    context = model_of(kind).open()
    assert model_of(kind).rewindable and isinstance(context, StateContext) and not context.recomputes
    assert model_of(kind).open(use_cache=False).recomputes


@pytest.mark.parametrize("kind", [kind for kind in SOME if kind.values[0] not in BY_PASS])
def test_any_interleaving_of_extend_and_rewind_gives_the_logits_of_the_whole_text(kind: str) -> None:
    context, held = model_of(kind).open(), list[int]()
    dice = random.Random(kind)
    for _ in range(30):
        if held and dice.random() < 0.5:
            length = dice.randrange(max(0, len(held) - 12), len(held) + 1)
            context.rewind(length)
            del held[length:]
        new = [dice.randrange(320) for _ in range(dice.choice([1, 1, 2, 5, 9]))]
        if len(held) + len(new) > 100:
            context.rewind(0)
            held.clear()
        keep = dice.randint(1, len(new))
        logits = context.extend(new, keep)
        held += new
        assert context.length == len(held)
        assert_same(logits, whole(kind, held, keep))


@pytest.mark.parametrize("kind", SOME)
def test_what_was_taken_back_has_never_been(kind: str) -> None:
    context, fresh, dice = model_of(kind).open(), model_of(kind).open(), random.Random(kind)
    for each in (context, fresh):
        each.extend(PROMPT, 1)
    for _ in range(12):
        base, new = context.length, [dice.randrange(320) for _ in range(dice.randint(1, 3))]
        context.extend([*new, *(dice.randrange(320) for _ in range(dice.randint(1, 6)))], 1)
        context.rewind(base + len(new))
        assert_same(context.extend([5], 1), fresh.extend([*new, 5], 1))


@pytest.mark.each_value
@pytest.mark.parametrize(
    "gamma", [pytest.param(1, marks=pytest.mark.large), 3, pytest.param(8, marks=pytest.mark.large)]
)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.large] * (kind not in FEW)) for kind in KINDS])
def test_every_strategy_writes_what_generate_writes(kind: str, strategy: str, gamma: int) -> None:
    assert new_ids(decoding(kind, strategy, gamma=gamma)) == generated(kind)


@pytest.mark.parametrize("kind", WAYS)
def test_runs_that_take_turns_in_one_model_leave_each_other_alone(kind: str) -> None:
    streams = [decoding(kind, strategy) for strategy in STRATEGIES]
    held: list[list[Record]] = [[] for _ in streams]
    going = list(range(len(streams)))
    while going:
        for index in list(going):
            record = next(streams[index], None)
            if record is None:
                going.remove(index)
            else:
                held[index].append(record)
    assert [new_ids(iter(records)) for records in held] == [generated(kind)] * len(STRATEGIES)


@pytest.mark.parametrize("kind", WAYS)
def test_passes_over_other_texts_without_a_cache_leave_a_text_alone(kind: str) -> None:
    context, text = model_of(kind).open(), [5, 6, 7, 8]
    context.extend(text, 1)
    whole(kind, [9, 10, 11], 1)
    assert_same(context.extend([12], 1), whole(kind, [*text, 12], 1))


@pytest.mark.parametrize("kind", WAYS)
def test_an_interrupted_extension_leaves_the_text_as_it_was(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = model_of(kind), PROMPT[:9]
    context = model.open()
    context.extend(text, 1)
    head = model.model.get_output_embeddings()

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(head, "forward", interrupt)
        with pytest.raises(KeyboardInterrupt):
            context.extend([4, 5], 1)
    assert context.length == len(text)
    assert_same(context.extend([6], 1), whole(kind, [*text, 6], 1))


@pytest.mark.parametrize("kind", WAYS)
def test_a_rewind_behind_all_copies_reads_the_text_again(kind: str) -> None:
    context, ids = model_of(kind).open(), [(7 * i + 3) % 320 for i in range(FAR + 30)]
    context.extend(ids[:20], 1)
    for token in ids[20:]:
        context.extend([token], 1)
    context.rewind(9)
    assert_same(context.extend([11, 12], 2), whole(kind, [*ids[:9], 11, 12], 2))


@pytest.mark.each_value
@pytest.mark.parametrize("kind", ["mamba", "mamba2"])
@pytest.mark.parametrize("accepted", [0, pytest.param(1, marks=pytest.mark.large), 3])
def test_passes_do_not_grow_with_the_text(kind: str, accepted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, passes = model_of(kind), list[int]()
    forward = TransformersModel.forward
    context, fed = model.open(), 40
    context.extend([3] * fed, 1)

    def counted(self: TransformersModel, ids: Sequence[int], keep: int, cache: Any = None) -> torch.Tensor:
        passes.append(len(ids))
        return forward(self, ids, keep, cache)

    monkeypatch.setattr(TransformersModel, "forward", counted)
    rounds = 60
    for _ in range(rounds):
        context.extend([5, 6, 7, 8], 4)
        fed += 1 + accepted
        context.rewind(fed)
    again = accepted < 3  # drafts were refused
    assert max(passes) <= 4 and len(passes) == rounds * (4 if model.single_tokens else 1 + again)
    assert isinstance(context, StateContext) and len(context._snapshots) <= NEAR + 3 + (FAR - NEAR) // APART


@pytest.mark.parametrize(
    ("kind", "missed"), [("mamba2", "conv_states"), ("mamba2", "recurrent_states"), ("lfm2", "conv_states")]
)
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.large)])
def test_a_copy_that_misses_a_state_is_found(
    kind: str, missed: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TransformersModel(tiny_model(kind).to(dtype)).rewindable
    monkeypatch.setattr(states, "_OF_KEYS_AND_VALUES", states._OF_KEYS_AND_VALUES | {missed})
    model = TransformersModel(tiny_model(kind).to(dtype))
    assert not model.rewindable and model.open().recomputes


def test_states_in_the_modules_that_are_not_seen_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_tui.backends.state_context.places_in", lambda model: {})
    assert not TransformersModel(tiny_model("recurrent_gemma")).rewindable


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.large)])
def test_a_block_that_forgets_the_state_goes_token_by_token(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = transformers.models.mamba2.modeling_mamba2
    scan = module.mamba2_chunk_scan
    assert not TransformersModel(tiny_model("mamba2").to(dtype)).single_tokens
    monkeypatch.setattr(
        module, "mamba2_chunk_scan", lambda *given, **named: scan(*given, **named | {"initial_states": None})
    )
    model = TransformersModel(tiny_model("mamba2").to(dtype))
    assert model.rewindable and model.single_tokens
    context, ids = model.open(), [5, 6, 7, 8, 9, 10]
    context.extend(ids[:3], 1)
    got, expected = context.extend(ids[3:], 3), model.forward(ids, 3)
    torch.testing.assert_close(got, expected, atol=1e-3 if dtype is torch.float32 else 0.5, rtol=1e-3)


def test_a_target_that_goes_token_by_token_says_so_where_there_are_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("mamba", "mamba2"):
        for strategy in ("target", "lookup"):
            told = [record.message for record in decoding(kind, strategy) if isinstance(record, Notice)]
            slow = model_of(kind).single_tokens and strategy != "target"
            assert told == [TOKEN_BY_TOKEN] * slow
    assert model_of("mamba").single_tokens and not model_of("mamba2").single_tokens


@pytest.mark.parametrize("kind", ["mamba", "mamba2"])
def test_a_prompt_is_read_in_pieces_only_where_that_costs_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "PREFILL_CHUNK", 7)
    forward, passes = TransformersModel.forward, list[int]()

    def counted(self: TransformersModel, ids: Sequence[int], keep: int, cache: Any = None) -> torch.Tensor:
        passes.append(len(ids))
        return forward(self, ids, keep, cache)

    monkeypatch.setattr(TransformersModel, "forward", counted)
    assert new_ids(decoding(kind)) == generated(kind)
    assert passes[: -NEW + 1] == ([len(PROMPT)] if model_of(kind).single_tokens else [7, 7, 6])


@pytest.mark.parametrize("kind", BY_PASS)
def test_a_model_whose_tokens_depend_on_the_pass_is_held_against_generate(kind: str) -> None:
    model, ids = model_of(kind), torch.tensor([PROMPT])
    assert model._keeping is not None and model._keeping.steps and model.single_tokens
    settings: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    found = tiny_model(kind).generate(
        ids, attention_mask=torch.ones_like(ids), output_logits=True, return_dict_in_generate=True, **settings
    )
    rows = torch.stack(list(model.reference(PROMPT, generated(kind))))
    torch.testing.assert_close(rows, torch.cat(found.logits), atol=1e-4, rtol=1e-4)
    assert (whole(kind, [*PROMPT, *generated(kind)][:-1], NEW) - rows).abs().max() > 1e-3


@pytest.mark.parametrize("kind", WAYS)
def test_a_wrong_text_is_still_found_by_the_lossless_check(kind: str) -> None:
    def status(ids: list[int]) -> LosslessStatus:
        found = check(model_of(kind), PROMPT, ids, None, sampler=GREEDY, rule="rejection", seed=0, bound=1e-3)
        return found.status

    right = generated(kind)
    assert status(right) is LosslessStatus.IDENTICAL
    assert status([*right[:5], (right[5] + 1) % 320, *right[6:]]) is LosslessStatus.DIFFERENT


@pytest.mark.parametrize("length", [30, *(pytest.param(each, marks=pytest.mark.large) for each in (20, 33))])
def test_states_and_rotations_that_depend_on_the_length_go_together(length: int) -> None:
    """A text that grows past the switch of its rotations, at 32 tokens."""
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0, "partial_rotary_factor": 0.5}
    changes: dict[str, Any] = {"max_position_embeddings": 32, "rope_parameters": dynamic}
    model, prompt = TransformersModel(tiny_model("qwen3_next", **changes)), [(37 * i + 5) % 90 for i in range(length)]
    ids = torch.tensor([prompt])
    settings: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = tiny_model("qwen3_next", **changes).generate(ids, attention_mask=torch.ones_like(ids), **settings)
    drafter = ModelDrafter(near_copy("qwen3_next"), 320)
    records = decode(model, prompt, strategy="speculative", drafter=drafter, sampler=GREEDY, max_new_tokens=NEW)
    assert isinstance(model.open(), LengthContext) and model.rewindable
    assert new_ids(records) == expected[0, length:].tolist()
