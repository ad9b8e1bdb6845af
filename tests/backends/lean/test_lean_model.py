from __future__ import annotations

import random

import pytest
import torch
from tiny_transformers import in_dtype, tiny_model

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.lean.fit import agrees, fits
from specdec_tui.backends.lean.layer_parts import EPSILON
from specdec_tui.backends.lean.model import PREFILL_CHUNK, LeanModel
from specdec_tui.backends.model import PassCost

KINDS = ["llama", "qwen2", "qwen3", "mistral", "gemma", "gemma2", "gemma3", "phi3", "smollm3", "granite"]


def lean(kind: str, **overrides: object) -> tuple[LeanModel, TransformersModel]:
    """A lean model and the transformers model it must agree with."""
    return LeanModel.of(tiny_model(kind, **overrides)), TransformersModel(tiny_model(kind, **overrides))


def reference(model: TransformersModel, ids: list[int], keep: int) -> torch.Tensor:
    with torch.no_grad():
        return model.model(torch.tensor([ids]), use_cache=False).logits[0, -keep:].float()


@pytest.mark.each_value
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_any_interleaving_of_extend_and_rewind_gives_the_logits_of_transformers(kind: str, use_cache: bool) -> None:
    model, plain = lean(kind)
    context = model.open(use_cache=use_cache)
    dice, held = random.Random(kind), []
    for _ in range(25):
        if held and dice.random() < 0.4:
            length = dice.randrange(len(held) + 1)
            context.rewind(length)
            del held[length:]
        new = [dice.randrange(320) for _ in range(dice.choice([1, 1, 2, 3, 4, 5, 6, 7, 8, 16, 17, 30]))]
        if len(held) + len(new) > 100:
            context.rewind(0)
            held.clear()
        keep = dice.randint(1, len(new))
        logits = context.extend(new, keep)
        held += new
        assert context.length == len(held)
        assert logits.dtype is torch.float32 and logits.shape == (keep, model.vocab_size)
        torch.testing.assert_close(logits, reference(plain, held, keep), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_long_texts_are_taken_in_chunks_and_the_cache_grows(kind: str) -> None:
    model, plain = lean(kind, max_position_embeddings=2 * PREFILL_CHUNK)
    ids = [(7 * i + 3) % 320 for i in range(PREFILL_CHUNK + 60)]
    assert len(ids) > PREFILL_CHUNK
    context = model.open(capacity=10)
    got = context.extend(ids[:-4], keep=90)  # the rows wanted begin in the first chunk
    torch.testing.assert_close(got, reference(plain, ids[:-4], 90), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(context.extend(ids[-4:], 1), reference(plain, ids, 1), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "overrides",
    [
        {"tie_word_embeddings": True},
        {"head_dim": 16},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1},
        {"intermediate_size": 32},  # as wide as the hidden states
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}},
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
                "rope_theta": 10000.0,
            }
        },
    ],
)
def test_variants_of_the_architecture_agree_with_transformers(overrides: dict[str, object]) -> None:
    model, plain = lean("llama", **overrides)
    ids = [(5 * i + 2) % 320 for i in range(50)]
    context = model.open()
    got = torch.cat([context.extend(ids[:40], 40), context.extend(ids[40:], 10)])
    torch.testing.assert_close(got, reference(plain, ids, 50), atol=1e-4, rtol=1e-4)


def test_bfloat16_rounds_the_weights_and_nothing_else() -> None:
    rounded = in_dtype(tiny_model("llama"), torch.bfloat16)
    plain = TransformersModel(in_dtype(tiny_model("llama"), torch.bfloat16).float())
    model = LeanModel.of(rounded)
    ids = [(5 * i + 2) % 320 for i in range(50)]
    assert model.rounded and model.held_dtype == "bfloat16"
    context = model.open()
    got = torch.cat([context.extend(ids[:40], 40), context.extend(ids[40:], 10)])
    torch.testing.assert_close(got, reference(plain, ids, 50), atol=1e-4, rtol=1e-4)


def test_weights_that_are_bfloat16_numbers_are_held_as_such_and_give_the_same_logits() -> None:
    exact = in_dtype(tiny_model("llama"), torch.bfloat16).float()
    plain = TransformersModel(in_dtype(tiny_model("llama"), torch.bfloat16).float())
    model = LeanModel.of(exact)
    assert not model.rounded and model.held_dtype == "bfloat16"
    ids = [(5 * i + 2) % 320 for i in range(12)]
    torch.testing.assert_close(model.open().extend(ids, 12), reference(plain, ids, 12), atol=1e-4, rtol=1e-4)
    full, _ = lean("llama")
    assert full.held_dtype == "float32"


def test_a_model_that_computes_something_else_does_not_agree() -> None:
    ids = [(37 * i + 1) % 320 for i in range(40)]
    model, plain = lean("llama")
    assert agrees(model, ids, reference(plain, ids, 40))
    model._tables.numbers[EPSILON] *= 1000
    assert not agrees(model, ids, reference(plain, ids, 40))
    model._tables.numbers[EPSILON] = float("nan")
    assert not agrees(model, ids, reference(plain, ids, 40))


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_agreement_can_be_tried_on_texts_of_any_length(length: int) -> None:
    model, plain = lean("llama")
    ids = [(37 * i + 1) % 320 for i in range(length)]
    assert agrees(model, ids, reference(plain, ids, length))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same_logits(threads: int) -> None:
    model, _ = lean("llama")
    ids = [(5 * i + 2) % 320 for i in range(16)]
    expected = model.open().extend(ids, 16)
    model._threads = threads
    assert torch.equal(model.open().extend(ids, 16), expected)


def test_single_tokens_and_blocks_give_the_same_logits_in_float32() -> None:
    model, _ = lean("llama")
    ids = [(5 * i + 2) % 320 for i in range(40)]
    single, block = model.open(), model.open()
    rows = torch.cat([single.extend([token], 1) for token in ids])
    blocks = [block.extend(ids[i : i + 5], 5) for i in range(0, 40, 5)]
    torch.testing.assert_close(torch.cat(blocks), rows, atol=2e-5, rtol=2e-5)


def test_logits_never_change_afterwards() -> None:
    model, _ = lean("llama")
    context = model.open()
    first = context.extend([1, 2, 3], 3)
    copy = first.clone()
    context.rewind(1)
    context.extend([9, 8, 7], 1)
    assert torch.equal(first, copy)


def test_a_text_longer_than_the_model_was_made_for_is_refused_and_nothing_is_held() -> None:
    model, _ = lean("llama")
    context = model.open()
    context.extend([1] * 100, 1)
    with pytest.raises(ValueError, match="129 tokens do not fit the context length of 128"):
        context.extend([1] * 29, 1)
    assert context.length == 100


@pytest.mark.parametrize(
    ("kind", "overrides"),
    [
        ("gpt2", {}),
        ("gpt_neox", {}),
        ("mixtral", {}),
        ("mamba", {}),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}}),
        ("llama", {"hidden_act": "gelu"}),
        ("llama", {"attention_bias": True}),
        ("llama", {"mlp_bias": True}),
    ],
)
def test_other_shapes_are_left_to_transformers(kind: str, overrides: dict[str, object]) -> None:
    assert not fits(tiny_model(kind, **overrides))


def test_half_precision_and_mixed_dtypes_are_left_to_transformers() -> None:
    assert not fits(tiny_model("llama").half())
    mixed = tiny_model("llama")
    mixed.model.layers[1].to(torch.bfloat16)
    assert not fits(mixed)


@pytest.mark.parametrize("tied", [True, False])
def test_a_pass_reads_all_weights_but_an_embedding_of_its_own_and_multiplies_with_all_matrices(tied: bool) -> None:
    model, plain = lean("llama", tie_word_embeddings=tied)
    matrices = [w.numel() for name, w in plain.model.named_parameters() if w.dim() > 1 and "embed" not in name]
    if tied:
        matrices.append(320 * 32)  # the embedding is the output matrix
    filled_up = 3 * 32 * (64 - 48)  # the columns of three matrices
    norms = 2 * 2 * 3 * 32
    assert model.pass_cost == PassCost(4 * (sum(matrices) + filled_up), sum(matrices))
    assert model.memory_bytes == model.pass_cost.weight_bytes + (0 if tied else 4 * 320 * 32) + 4 * norms
