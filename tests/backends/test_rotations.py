"""Models whose rotations depend on the length of the text write what `generate` writes, however a text is cut."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from tiny_transformers import CONFIGS, LENGTH_DEPENDENT, tiny_model

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.context_lengths import context_length_of
from specdec_tui.backends.rotations import LengthContext, LengthRotations
from specdec_tui.decoding import prompt
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.drafters import Drafter, ModelDrafter
from specdec_tui.decoding.lookup import LookupDrafter
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.lossless import check
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore
from specdec_tui.decoding.records import LosslessStatus, Notice, PrefillDone, Record, RoundVerified
from specdec_tui.decoding.sampling import Sampler

KINDS = list(LENGTH_DEPENDENT)
MORE_KINDS = [
    pytest.param(kind, marks=[pytest.mark.large] * (kind not in ("phi3-longrope", "llama-dynamic"))) for kind in KINDS
]
SWITCH, NEW = 32, 14
# Before the switch, over it at the first token, within the first rounds and later, and beyond it from the start.
PROMPTS = (9, 20, 27, 31, 32, 33, 50)
STRATEGIES = ("target", "speculative", "ngram", "lookup")
GREEDY = Sampler("greedy")


def prompt_of(length: int) -> list[int]:
    return [(37 * i + 5) % 320 for i in range(length)]


@cache
def generated(kind: str, length: int) -> list[int]:
    """What transformers writes with a model as it was loaded."""
    ids = torch.tensor([prompt_of(length)])
    model = tiny_model(kind)
    settings: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    text = model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    return text[0, length:].tolist()


@cache
def target_of(kind: str) -> TransformersModel:
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


def drafter_of(strategy: str, kind: str) -> Drafter | None:
    match strategy:
        case "speculative":
            return ModelDrafter(near_copy(kind), 320)
        case "ngram":
            return NgramDrafter(NgramStore(3), top_k_filler=3)
        case "lookup":
            return LookupDrafter(3)
    return None


def decoding(kind: str, length: int, strategy: str = "target", **settings: Any) -> Iterator[Record]:
    settings = {"sampler": GREEDY, "gamma": 4, "max_new_tokens": NEW} | settings
    return decode(target_of(kind), prompt_of(length), strategy=strategy, drafter=drafter_of(strategy, kind), **settings)


def new_ids(records: Iterator[Record]) -> list[int]:
    found: list[int] = []
    for record in records:
        if isinstance(record, PrefillDone):
            assert record.token is not None
            found.append(record.token.id)
        elif isinstance(record, RoundVerified):
            found += [token.id for token in record.new_tokens]
    return found


@pytest.mark.each_value
@pytest.mark.parametrize("use_cache", [True, pytest.param(False, marks=pytest.mark.large)])
@pytest.mark.parametrize("gamma", [1, 4, 8])
@pytest.mark.parametrize(
    "strategy", [pytest.param(name, marks=[pytest.mark.large] * (name != "speculative")) for name in STRATEGIES]
)
@pytest.mark.parametrize("kind", MORE_KINDS)
def test_texts_before_across_and_beyond_the_switch_are_those_of_generate(
    kind: str, strategy: str, gamma: int, use_cache: bool
) -> None:
    for length in PROMPTS:
        ids = new_ids(decoding(kind, length, strategy, gamma=gamma, use_cache=use_cache))
        assert ids == generated(kind, length), length


@pytest.mark.parametrize("piece", [*(pytest.param(few, marks=pytest.mark.large) for few in (1, 7)), 32])
@pytest.mark.parametrize("kind", MORE_KINDS)
def test_a_prompt_read_in_pieces_gives_the_text_of_generate(
    kind: str, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt, "PREFILL_CHUNK", piece)
    for length in PROMPTS:
        assert new_ids(decoding(kind, length, "speculative")) == generated(kind, length), length


@pytest.mark.parametrize("kind", MORE_KINDS)
def test_runs_that_take_turns_in_one_model_do_not_turn_each_others_tokens(kind: str) -> None:
    lengths = (50, 9, 31, 20)
    streams = [decoding(kind, length, strategy) for length in lengths for strategy in STRATEGIES]
    held: list[list[Record]] = [[] for _ in streams]
    going = list(range(len(streams)))
    while going:
        for index in list(going):
            record = next(streams[index], None)
            if record is None:
                going.remove(index)
            else:
                held[index].append(record)
    expected = [generated(kind, length) for length in lengths for _ in STRATEGIES]
    assert [new_ids(iter(records)) for records in held] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_context_that_is_taken_back_is_as_if_it_had_never_gone_on(kind: str) -> None:
    model, text = target_of(kind), prompt_of(70)
    for begin, there, back in ((30, 40, 31), (30, 33, 32), (20, 60, 33), (40, 50, 45), (40, 50, 40), (50, 60, 20)):
        context, fresh = model.open(), model.open()
        context.extend(text[:begin], 1)
        context.extend(text[begin:there], 1)
        context.rewind(back)
        fresh.extend(text[: min(begin, back)], 1)
        assert context.length == back
        got = context.extend([7, 8, 9], 3)
        expected = fresh.extend([*text[min(begin, back) : back], 7, 8, 9], 3)
        torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_extension_leaves_the_context_as_it_was(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = target_of(kind), prompt_of(40)
    context, fresh = model.open(), model.open()
    for each in (context, fresh):
        each.extend(text[:30], 1)

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model.model.model.layers[2].mlp, "forward", interrupt)
        with pytest.raises(KeyboardInterrupt):
            context.extend(text[30:36], 6)
    assert context.length == 30
    torch.testing.assert_close(context.extend(text[30:36], 6), fresh.extend(text[30:36], 6))


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_is_left_as_it_was_loaded_and_generates_as_before(kind: str) -> None:
    ids = torch.tensor([prompt_of(33)])
    new_ids(decoding(kind, 50, "speculative"))
    settings: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    text = target_of(kind).model.generate(ids, attention_mask=torch.ones_like(ids), **settings)
    target_of(kind)._rotations.refresh()  # type: ignore[union-attr]  # what `generate` leaves behind
    assert text[0, 33:].tolist() == generated(kind, 33)


@pytest.mark.parametrize("kind", KINDS)
def test_the_lossless_check_has_the_logits_of_generate(kind: str) -> None:
    for length in PROMPTS:
        ids, settings = generated(kind, length), {"sampler": GREEDY, "rule": "rejection", "seed": 0, "bound": 1e-3}
        found = check(target_of(kind), prompt_of(length), ids, None, **settings)  # type: ignore[arg-type]
        assert found.status is LosslessStatus.IDENTICAL, (length, found)
        wrong = [*ids[:-1], (ids[-1] + 1) % 320]
        found = check(target_of(kind), prompt_of(length), wrong, None, **settings)  # type: ignore[arg-type]
        assert found.status is LosslessStatus.DIFFERENT, length


@pytest.mark.parametrize("kind", KINDS)
def test_captured_rounds_step_back_to_the_path_that_does_it_right(kind: str) -> None:
    records = list(decoding(kind, 31, "speculative", programs=Programs()))
    assert any(isinstance(record, Notice) and "depend on the length" in record.message for record in records)
    assert new_ids(iter(records)) == generated(kind, 31)


def test_only_phi_starts_over_at_the_switch() -> None:
    found = {kind: LengthRotations.of(tiny_model(kind)) for kind in KINDS}
    assert {kind: (each.switch, each.starts_over) for kind, each in found.items() if each} == {
        "llama-dynamic": (SWITCH, False),
        "llama-longrope": (SWITCH, False),
        "phi3-longrope": (SWITCH, True),
        "gemma3-dynamic": (SWITCH, False),
    }


@pytest.mark.parametrize("kind", CONFIGS)
def test_models_that_turn_a_token_alike_in_every_text_need_no_such_care(kind: str) -> None:
    assert LengthRotations.of(tiny_model(kind)) is None
    assert not isinstance(TransformersModel(tiny_model(kind)).open(), LengthContext)


YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize(
    ("positions", "parameters", "length"),
    [
        (32, YARN, 128),
        (128, YARN, 128),  # named as scaled, beside the original
        (40, YARN, 128),  # Qwen3: its own 40,960 are more than the original 32,768
        (32, YARN | {"factor": 2.5}, 80),
        (32, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}, 128),
        (128, LENGTH_DEPENDENT["llama-longrope"][1]["rope_parameters"], 128),
        (32, {"rope_type": "default", "rope_theta": 10000.0}, 32),
        (32, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}, 32),
    ],
)
def test_the_context_length_is_the_scaled_one(positions: int, parameters: dict[str, Any], length: int) -> None:
    model = tiny_model("llama", max_position_embeddings=positions, rope_parameters=parameters)
    assert context_length_of(model.config) == length
    context = TransformersModel(model).open()
    context.extend(prompt_of(length), 1)
    with pytest.raises(ValueError, match=f"{length + 1} tokens do not fit the context length of {length}"):
        context.extend([1], 1)


@pytest.mark.parametrize("factor", ["four", None, float("nan"), -3.0, 1e300])
def test_an_absurd_factor_scales_nothing(factor: Any) -> None:
    config = tiny_model("llama").config
    config.rope_parameters = {"rope_type": "yarn", "factor": factor}
    assert context_length_of(config) == 128
