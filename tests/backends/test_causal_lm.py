from __future__ import annotations

import random

import pytest
import torch
from tiny_transformers import CONFIGS, tiny_model
from transformers import LlamaForCausalLM

from specdec_tui.backends.cache import GROWTH, RewindableCache, keeps_only_keys_and_values
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.context_lengths import context_length_of
from specdec_tui.backends.demo import target_file
from specdec_tui.backends.gguf.config import config_of
from specdec_tui.backends.gguf.expanded import state_of
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.loading import Pair
from specdec_tui.backends.model import CausalModel, ModelContext
from specdec_tui.backends.state_context import StateContext

ATTENTION_KINDS = [kind for kind in CONFIGS if kind != "mamba"]


def assert_same_logits(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.dtype is torch.float32
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert got.argmax(-1).tolist() == expected.argmax(-1).tolist()


def fresh_logits(model: TransformersModel, ids: list[int], keep: int) -> torch.Tensor:
    """What transformers itself says about the whole sequence, without any cache of ours."""
    with torch.no_grad():
        return model.model(torch.tensor([ids]), use_cache=False).logits[0, -keep:].float()


@pytest.mark.each_value
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("kind", CONFIGS)
def test_any_interleaving_of_extend_and_rewind_gives_the_logits_of_the_whole_sequence(
    kind: str, use_cache: bool
) -> None:
    model = TransformersModel(tiny_model(kind))
    context = model.open(use_cache=use_cache, capacity=4)
    dice, held = random.Random(kind), []
    for _ in range(25):
        if held and dice.random() < 0.4:
            length = dice.randrange(len(held) + 1)
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
        assert_same_logits(logits, fresh_logits(model, held, keep))


@pytest.mark.parametrize("kind", ["mistral", "gemma2", "gemma3"])
def test_a_rewind_far_behind_the_sliding_window_is_exact(kind: str) -> None:
    model = TransformersModel(tiny_model(kind))
    ids = [(7 * i + 3) % 320 for i in range(40)]
    context = model.open()
    context.extend(ids, 1)
    context.rewind(9)  # the window of 6 had left these tokens long ago
    assert_same_logits(context.extend([11, 12], 2), fresh_logits(model, [*ids[:9], 11, 12], 2))


def test_the_window_of_the_sliding_models_really_hides_what_is_out_of_reach() -> None:
    model = TransformersModel(tiny_model("mistral", num_hidden_layers=1))
    tail = [(5 * i + 1) % 320 for i in range(6)]
    outputs = []
    for first in (17, 18):
        context = model.open()
        context.extend([first], 1)
        outputs.append(context.extend(tail, 1))
    assert_same_logits(*outputs)


@pytest.mark.parametrize("kind", ATTENTION_KINDS)
def test_attention_models_keep_a_cache(kind: str) -> None:
    model = TransformersModel(tiny_model(kind))
    assert model.rewindable and not model.open().recomputes


def test_a_recurrent_state_is_not_taken_for_keys_and_values() -> None:
    model = TransformersModel(tiny_model("mamba"))
    assert model.rewindable and isinstance(model.open(), StateContext)


def test_a_config_with_linear_attention_layers_is_refused_a_cache() -> None:
    config = tiny_model("llama").config
    config.layer_types = ["full_attention", "linear_attention", "full_attention"]
    assert not keeps_only_keys_and_values(config)


def test_the_probe_finds_a_model_that_remembers_beside_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RewindableCache, "rewind", lambda self, length: None)
    assert not TransformersModel(tiny_model("llama")).rewindable


def test_a_context_grows_past_its_capacity_without_losing_anything() -> None:
    model = TransformersModel(tiny_model("llama", max_position_embeddings=3 * GROWTH))
    ids = [(11 * i + 2) % 320 for i in range(2 * GROWTH + 5)]
    context = model.open(capacity=2)
    for start in range(0, len(ids), 50):
        logits = context.extend(ids[start : start + 50], 1)
    assert_same_logits(logits, fresh_logits(model, ids, 1))


def test_two_contexts_of_one_model_do_not_disturb_each_other() -> None:
    model = TransformersModel(tiny_model("llama"))
    one, other = model.open(), model.open()
    one.extend([5, 6, 7], 1)
    other.extend([8, 9], 1)
    assert_same_logits(one.extend([10], 1), fresh_logits(model, [5, 6, 7, 10], 1))


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_context_refuses_to_go_past_the_context_length_and_stays_as_it_was(use_cache: bool) -> None:
    model = TransformersModel(tiny_model("llama", max_position_embeddings=8))
    context = model.open(use_cache=use_cache)
    context.extend([1, 2, 3, 4, 5, 6], 1)
    with pytest.raises(ValueError, match="9 tokens do not fit the context length of 8"):
        context.extend([7, 8, 9], 1)
    assert context.length == 6
    assert_same_logits(context.extend([7, 8], 1), fresh_logits(model, [1, 2, 3, 4, 5, 6, 7, 8], 1))


def test_an_interrupted_extension_leaves_the_context_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TransformersModel(tiny_model("llama"))
    context = model.open()
    context.extend([1, 2, 3], 1)

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model.model.model.layers[2].mlp, "forward", interrupt)
        with pytest.raises(KeyboardInterrupt):
            context.extend([4, 5], 1)
    assert_same_logits(context.extend([6], 1), fresh_logits(model, [1, 2, 3, 6], 1))


def test_a_model_without_logits_to_keep_gives_the_last_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TransformersModel(tiny_model("gpt2"))
    model._keeps_some = False
    assert_same_logits(model.open().extend([4, 5, 6, 7], 2), fresh_logits(model, [4, 5, 6, 7], 2))


def test_half_precision_models_give_float32_logits() -> None:
    model = TransformersModel(tiny_model("llama").to(torch.bfloat16))
    assert model.rewindable
    assert model.dtype is torch.bfloat16
    assert model.open().extend([1, 2], 2).dtype is torch.float32


@pytest.mark.parametrize(("kind", "length"), [("llama", 128), ("gpt2", 128), ("mamba", None)])
def test_the_context_length_comes_from_whatever_the_config_calls_it(kind: str, length: int | None) -> None:
    assert context_length_of(tiny_model(kind).config) == length


def test_it_satisfies_the_contract_of_the_decoding_loop() -> None:
    model: CausalModel = TransformersModel(tiny_model("llama"))
    context: ModelContext = model.open(capacity=3)
    assert context.length == 0
    assert model.vocab_size == 320
    assert model.device == torch.device("cpu")
    model.synchronize()


def test_the_demo_target_decodes_what_transformers_generates(demo_pair: Pair) -> None:
    ids = demo_pair.tokenizer.encode("Why is the sky blue?").ids
    context = demo_pair.target.open(capacity=len(ids) + 24)
    ours, logits = [], context.extend(ids, 1)
    for _ in range(24):
        ours.append(int(logits.argmax(-1)))
        logits = context.extend(ours[-1:], 1)
    inputs, file = torch.tensor([ids]), GgufFile(target_file(lambda progress: None))
    state = state_of(file, config := config_of(file), torch.float32)
    plain = LlamaForCausalLM.from_pretrained(None, config=config, state_dict=state)
    theirs = plain.generate(inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=24, do_sample=False)
    assert ours == theirs[0, len(ids) :].tolist()
