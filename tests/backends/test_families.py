"""The description of a model says all that its logits depend on: a pass written from it gives those of transformers."""

from __future__ import annotations

import dataclasses
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from family_variants import DENSE, FALCON, GPT2, IDS, VARIANTS, WIDE, WINDOW, made
from plain_pass import PlainPass
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_tui.backends import described_fields as described
from specdec_tui.backends.decoder import FAMILIES, Decoder, Layer, describe
from specdec_tui.backends.lean.fit import fits, why_not_lean
from specdec_tui.backends.lean.model import LeanModel


def decoder_of(model: PreTrainedModel) -> Decoder:
    found = describe(model)
    assert isinstance(found, Decoder), found
    return found


@torch.no_grad()
def logits_of(model: PreTrainedModel) -> Tensor:
    found: Tensor = model(torch.tensor([IDS]), use_cache=False).logits[0]
    return found


def distance(model: PreTrainedModel, decoder: Decoder, expected: Tensor) -> float:
    """Of the logits of a pass over a description, in parts of the largest."""
    return float((PlainPass(model, decoder)(IDS) - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pass_written_from_the_description_gives_the_logits_of_transformers(variant: str) -> None:
    model = made(*VARIANTS[variant])
    assert distance(model, decoder_of(model), logits_of(model)) < 2e-5


def test_every_class_that_is_described_is_tried() -> None:
    tried = {type(made(*values)).__name__ for values in VARIANTS.values()}
    assert tried | {"Gemma3ForConditionalGeneration"} == set(FAMILIES)


def seeing() -> PreTrainedModel:
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = transformers.Gemma3TextConfig(**deepcopy(VARIANTS["gemma3"][1]))
    more = {"image_size": 28, "patch_size": 14}
    values = {"text_config": text, "vision_config": vision | more, "mm_tokens_per_image": 4, "image_token_index": 95}
    model = made("Gemma3Config", values)
    assert type(model).__name__ == "Gemma3ForConditionalGeneration"
    return model


def test_the_text_part_of_a_model_that_sees_is_described() -> None:
    model = seeing()
    assert distance(model, decoder_of(model), logits_of(model)) < 2e-5
    model.config.text_config.final_logit_softcapping = 3.0
    assert describe(model) == "its config caps logits, which its class does not"


@pytest.mark.large  # compiles the pass
def test_the_text_part_of_a_model_that_sees_runs_on_the_compiled_pass() -> None:
    model = seeing()
    expected = logits_of(model)
    lean = LeanModel.of(model)  # which takes the weights over
    assert lean.context_length == 64
    assert float((lean.forward(IDS, len(IDS)) - expected).abs().max() / expected.abs().max()) < 2e-5


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_without_weights_has_the_same_description(variant: str) -> None:
    model = made(*VARIANTS[variant])
    expected = decoder_of(model)
    found = decoder_of(model.to("meta"))
    for one, other in zip(found.rotations, expected.rotations, strict=True):
        assert torch.equal(one.frequencies, other.frequencies) and one.scale == other.scale
    assert replace(found, rotations=()) == replace(expected, rotations=())


class Packed(nn.Module):
    """A linear layer whose weights are held as some library packs them."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = plain.in_features, plain.out_features, plain.bias
        self.packed = nn.Parameter(torch.zeros(plain.weight.numel() // 2, dtype=torch.uint8), requires_grad=False)
        self.scales = nn.Parameter(torch.ones(4))


@pytest.mark.parametrize("variant", ["llama biased", "gemma3", "gpt_neox", "falcon grouped", "qwen2_moe"])
def test_a_model_whose_weights_are_packed_has_the_same_description(variant: str) -> None:
    model = made(*VARIANTS[variant])
    expected = decoder_of(model)
    for layer in model.get_submodule(expected.family.layers).children():
        for name, module in list(layer.named_modules()):
            if isinstance(module, nn.Linear):
                layer.set_submodule(name, Packed(module))
    found = decoder_of(model)
    assert replace(found, rotations=()) == replace(expected, rotations=())
    assert why_not_lean(found) == why_not_lean(expected) and not fits(model)


def changed_layers(decoder: Decoder, **changes: Any) -> Decoder:
    return replace(decoder, layers=tuple(replace(layer, **changes) for layer in decoder.layers))


def changed_family(decoder: Decoder, **changes: Any) -> Decoder:
    return replace(decoder, family=replace(decoder.family, **changes))


def changed_experts(decoder: Decoder, **changes: Any) -> Decoder:
    def of(layer: Layer) -> Layer:
        return replace(layer, experts=layer.experts and replace(layer.experts, **changes))

    return replace(decoder, layers=tuple(map(of, decoder.layers)))


MUTANTS: dict[str, tuple[str, Any]] = {
    "a wider window": ("mistral", lambda d: changed_layers(d, window=6)),
    "no window": ("cohere2", lambda d: changed_layers(d, window=0)),
    "all rotated": ("smollm3", lambda d: changed_layers(d, rotation=0)),
    "the rotations of others": ("gemma3", lambda d: changed_layers(d, rotation=0)),
    "pairs": ("llama", lambda d: changed_family(d, pairs=True)),
    "halves": ("cohere", lambda d: changed_family(d, pairs=False)),
    "rms": ("olmo", lambda d: changed_family(d, norm="rms")),
    "no offset": ("gemma", lambda d: changed_family(d, norm_offset=0.0)),
    "in turn": ("gpt_neox", lambda d: changed_family(d, parallel=False)),
    "parallel": ("gpt_neox in turn", lambda d: changed_family(d, parallel=True)),
    "normed by head": ("qwen3", lambda d: changed_family(d, head_norms="")),
    "no positions": ("gpt2", lambda d: changed_family(d, positions="")),
    "no sinks": ("gpt_oss", lambda d: changed_family(d, sinks="")),
    "embeddings": ("granite", lambda d: replace(d, embedding_scale=1.0)),
    "what layers add": ("granite", lambda d: replace(d, residual_scale=1.0)),
    "scores": ("granite", lambda d: replace(d, score_scale=8**-0.5)),
    "logits": ("granite", lambda d: replace(d, logit_scale=1.0)),
    "logits multiplied": ("cohere", lambda d: replace(d, logit_scale=1.0)),
    "no cap of scores": ("gemma2", lambda d: replace(d, score_cap=0.0)),
    "no cap of logits": ("gemma2", lambda d: replace(d, logit_cap=0.0)),
    "activation": ("gpt_neox", lambda d: replace(d, activation="silu")),
    "epsilon": ("olmo", lambda d: replace(d, epsilon=0.01)),
    "apart": ("gpt_neox", lambda d: replace(d, query_group=8, key_first=32, key_group=8, value_first=64)),
    "keys for values": ("falcon grouped", lambda d: replace(d, value_first=d.key_first)),
    "one expert": ("mixtral", lambda d: changed_experts(d, chosen=1)),
    "not normed": ("mixtral", lambda d: changed_experts(d, normed=False)),
    "normed": ("qwen3_moe", lambda d: changed_experts(d, normed=True)),
    "scored before": ("gpt_oss", lambda d: changed_experts(d, scoring="softmax", normed=False)),
    "cut elsewhere": ("gpt_oss", lambda d: changed_experts(d, limit=0.5)),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_another_description_gives_other_logits(mutant: str) -> None:
    variant, change = MUTANTS[mutant]
    model = made(*VARIANTS[variant])
    assert distance(model, change(decoder_of(model)), logits_of(model)) > 1e-3


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("BloomConfig", {"hidden_size": 32, "n_layer": 1, "n_head": 4, "vocab_size": 96}, "is no family described"),
        ("OlmoConfig", DENSE | {"clip_qkv": 3.0}, "its queries, keys and values are clipped"),
        ("OlmoeConfig", DENSE | {"num_experts": 4, "clip_qkv": 3.0}, "its queries, keys and values are clipped"),
        ("FalconConfig", FALCON | {"alibi": True}, "its scores are biased by distance"),
        ("GPT2Config", GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "scaled by the number of the layer"),
        ("GPT2Config", GPT2 | {"add_cross_attention": True}, "it attends to another text"),
        ("GPT2Config", GPT2 | {"activation_function": "tanh"}, "its activation is tanh"),
        ("PhiConfig", DENSE | {"qk_layernorm": True}, "its heads have layer norms"),
        ("StableLmConfig", DENSE | {"qk_layernorm": True}, "its heads have layer norms"),
        ("CohereConfig", DENSE | {"use_qk_norm": True}, "its heads have layer norms"),
        ("Gemma3TextConfig", WIDE | WINDOW | {"use_bidirectional_attention": True}, "its attention looks ahead"),
        ("Gemma2Config", WIDE | WINDOW | {"final_logit_softcapping": 0.0}, "its config caps numbers at 0"),
        ("Gemma2Config", WIDE | WINDOW | {"query_pre_attn_scalar": -4}, "hold what is not expected (TypeError: "),
        (
            "LlamaConfig",
            DENSE | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
            "its rotations depend on the length of the text",
        ),
    ],
)
def test_what_is_not_described_is_refused_with_its_reason(name: str, values: dict[str, Any], reason: str) -> None:
    found = describe(made(name, values))
    assert isinstance(found, str) and reason in found


def test_weights_that_nothing_describes_are_refused() -> None:
    model = made(*VARIANTS["llama"])
    model.model.layers[1].mlp.added = torch.nn.Linear(4, 4)
    assert describe(model) == "it has weights that are not described here (model.layers.1.mlp.added.weight)"


def test_a_layer_of_another_shape_is_refused() -> None:
    model = made(*VARIANTS["llama"])
    model.model.layers[2].mlp.down_proj = torch.nn.Linear(40, 32, bias=False)
    assert describe(model) == "its weights have other shapes than its config says"


def test_biases_norms_and_modules_that_are_not_those_of_all_layers_are_refused() -> None:
    model = made(*VARIANTS["llama"])
    model.model.layers[2].mlp.down_proj = torch.nn.Linear(48, 32)
    assert describe(model) == "its layers have different biases"
    model = made(*VARIANTS["llama"])
    model.model.norm.variance_epsilon = 0.5
    assert describe(model) == "its norms add different numbers to the variance"
    model = made(*VARIANTS["llama"])
    del model.model.layers[0].mlp.up_proj
    assert describe(model) == "it has no mlp.up_proj"


def test_a_field_that_a_later_version_declares_is_refused_where_it_says_something(monkeypatch: Any) -> None:
    model = made(*VARIANTS["granite"])
    monkeypatch.setattr(described, "_READ", described._READ - {"residual_multiplier"})
    assert describe(model) == "its config asks for residual_multiplier = 0.4, which is not described here"
    model.config.residual_multiplier = 1.0
    assert isinstance(describe(model), Decoder)


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_fields_that_a_config_declares_are_known(variant: str) -> None:
    """A new field of a family may change its logits: it has to be read, or found idle, by a person."""
    config = made(*VARIANTS[variant]).config
    common = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    declared = {field.name for field in dataclasses.fields(config)} - common
    idle = {name for name in declared if name.endswith(described._IDLE_ENDS) or name.startswith(described._IDLE_BEGIN)}
    assert declared - idle - described._READ - described._IDLE - set(described._ONLY) == set()


LAYER_NORMS = {"phi", "olmo", "gpt2", "gpt_neox", "cohere", "cohere2", "starcoder2", "falcon", "stablelm", "opt"}
BIASED = "it has biases beyond those of queries, keys and values"
BEHIND = "it lacks a norm before attention or before the MLP"
LEFT = {
    **dict.fromkeys(("llama biased", "qwen3 biased", "granite biased"), BIASED),
    **dict.fromkeys([name for name in VARIANTS if "moe" in name or name == "mixtral"], "it is a mixture of experts"),
    **{name: "it has layer norms" for name in VARIANTS if name.split()[0] in LAYER_NORMS},
    "llama relu": "its activation is relu",
    "olmo2": BEHIND,
    "olmo3": BEHIND,
    "exaone4": BEHIND,
    "exaone4 open": BEHIND,
    "seed_oss": BIASED,
    "arcee": "its MLP has no gate",
    "olmoe": "its queries and keys are normed as a whole",
    "gpt_oss": "its attention has sinks",
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_cpu_pass_takes_what_it_computes_and_says_why_it_does_not_take_the_rest(variant: str) -> None:
    model = made(*VARIANTS[variant])
    reason = why_not_lean(decoder_of(model))
    assert fits(model) == (not reason)
    assert reason == LEFT.get(variant, "")
    if not reason:
        expected = logits_of(model)
        lean = LeanModel.of(model)
        checked = torch.stack(list(lean.reference(IDS[:1], [*IDS[1:], 0])))
        for found in (lean.forward(IDS, len(IDS)), checked):
            assert float((found - expected).abs().max() / expected.abs().max()) < 2e-5


@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float32, 24**0.5), (torch.bfloat16, 4.90625), (torch.float16, 4.8984375)]
)
def test_gemmas_embeddings_are_scaled_by_a_number_of_the_dtype_of_the_weights(dtype: torch.dtype, scale: float) -> None:
    model = made("GemmaConfig", WIDE | {"hidden_size": 24}).to(dtype)
    assert decoder_of(model).embedding_scale == pytest.approx(scale, rel=1e-7)
    model = made("GraniteConfig", DENSE | {"embedding_multiplier": 4.9}).to(dtype)
    assert decoder_of(model).embedding_scale == 4.9
