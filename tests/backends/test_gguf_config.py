"""Configs that are made of GGUF headers, and the tensors that belong to them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tiny_gguf import KIND, Sizes, parts, write_tiny_gguf
from transformers import AutoConfig, PreTrainedConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specdec_tui.backends.description import ModelDescription, describe
from specdec_tui.backends.gguf.config import ARCHITECTURES, config_of, is_known
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.gguf.shapes import check_tensors
from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.presets import ModelSpec
from specdec_tui.backends.small_files import FileProblem

PLAIN = {"rope_type": "default", "rope_theta": 10000.0}


def config(path: Path, **options: Any) -> Any:
    write_tiny_gguf(path, **options)
    file = GgufFile(path)
    found = config_of(file)
    check_tensors(file, found)
    return found


def with_tensors(path: Path, tensors: dict[str, np.ndarray], **options: Any) -> PreTrainedConfig:
    """A config of a file with these tensors of plain numbers beside the usual ones."""
    write_tiny_gguf(path, more={name: values.shape for name, values in tensors.items()}, **options)
    place = GgufFile(path).tensors
    content = bytearray(path.read_bytes())
    for name, values in tensors.items():
        start = place[name].offset
        content[start : start + values.nbytes] = values.astype("<f4").tobytes()
    path.write_bytes(content)
    return config_of(GgufFile(path))


def described(path: Path, like: ModelDescription | None = None) -> ModelDescription:
    spec = ModelSpec(source=str(path), dtype="float32", device="cpu", quantization="none")
    return describe(spec, lambda progress: None, like)


# transformers reads these too, though not all of what is in them.
READ = {
    "llama": (),
    "qwen2": (),
    "qwen3": (),
    "gemma2": ("layer_types",),
    "gemma3": ("layer_types", "rope_parameters"),
    "phi3": ("sliding_window",),
}
FIELDS = (
    *(
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    ),
    *("max_position_embeddings", "rms_norm_eps", "vocab_size", "tie_word_embeddings", "rope_parameters", "model_type"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "sliding_window", "attention_bias", "layer_types"),
)


@pytest.mark.parametrize("architecture", READ)
def test_a_config_is_what_transformers_reads_of_the_same_file(tmp_path: Path, architecture: str) -> None:
    ours = config(tmp_path / "m.gguf", architecture=architecture, tied="gemma" in architecture)
    theirs = AutoConfig.from_pretrained(tmp_path, gguf_file="m.gguf")
    assert type(ours) is type(theirs)
    same = [field for field in FIELDS if field not in READ[architecture] and hasattr(theirs, field)]
    if architecture == "qwen3":
        same.remove("head_dim")  # of which they take the class's
    assert {field: getattr(ours, field) for field in same} == {field: getattr(theirs, field) for field in same}


def test_every_known_architecture_makes_a_config(tmp_path: Path) -> None:
    for architecture in ARCHITECTURES:
        found = config(tmp_path / f"{architecture}.gguf", architecture=architecture, sizes=Sizes(layers=8))
        assert (found.head_dim, found.num_hidden_layers, found.vocab_size) == (64, 8, 512)
    assert found.no_rope_layers == [1, 1, 1, 0, 1, 1, 1, 0]  # SmolLM3's


def test_windows_soft_caps_and_scales_are_gemmas(tmp_path: Path) -> None:
    second = config(tmp_path / "2.gguf", architecture="gemma2", sizes=Sizes(layers=4))
    assert second.layer_types == ["sliding_attention", "full_attention"] * 2 and second.sliding_window == 64
    assert (second.attn_logit_softcapping, second.final_logit_softcapping) == (50.0, 30.0)
    assert second.query_pre_attn_scalar == 64
    scaled = {"gemma3.rope.scaling.factor": 8.0, "gemma3.rope.freq_base": 1e6}
    third = config(tmp_path / "3.gguf", architecture="gemma3", sizes=Sizes(layers=7), fields=scaled)
    assert third.layer_types == ["sliding_attention"] * 5 + ["full_attention", "sliding_attention"]
    assert third.rope_parameters == {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": PLAIN,
    }
    assert third.attn_logit_softcapping is None and third.final_logit_softcapping is None
    pattern = {"gemma3.attention.sliding_window_pattern": [True, False]}
    listed = config(tmp_path / "l.gguf", architecture="gemma3", fields=pattern)
    assert listed.layer_types == ["sliding_attention", "full_attention"]
    none = config(tmp_path / "n.gguf", architecture="gemma3", fields={"gemma3.attention.sliding_window": None})
    assert none.layer_types == ["full_attention"] * 2
    wide = config(tmp_path / "w.gguf", architecture="gemma2", sizes=Sizes(layers=46, heads=2, kv_heads=1, inner=256))
    assert wide.query_pre_attn_scalar == 128  # of the width, for the model of 27B


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, PLAIN),
        ({"rope.freq_base": None}, PLAIN),
        ({"rope.scaling.type": "none", "rope.scaling.factor": 2.0}, PLAIN),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 1.0}, PLAIN),
        ({"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, PLAIN | {"rope_type": "linear", "factor": 4.0}),
        ({"rope.scaling.factor": 4.0}, PLAIN | {"rope_type": "linear", "factor": 4.0}),
        ({"rope.scale_linear": 2.0}, PLAIN | {"rope_type": "linear", "factor": 2.0}),
        (
            {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64},
            PLAIN | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        ),
    ],
)
def test_rotations_are_scaled_as_the_file_says(
    tmp_path: Path, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = config(tmp_path / "m.gguf", architecture="qwen2", fields={f"qwen2.{key}": v for key, v in fields.items()})
    assert found.rope_parameters == expected


def frequencies(found: PreTrainedConfig) -> tuple[torch.Tensor, float]:
    return ROPE_INIT_FUNCTIONS[found.rope_parameters["rope_type"]](found, torch.device("cpu"))


def test_llama_3s_rotations_are_known_by_their_factors(tmp_path: Path) -> None:
    base, theirs = 500000.0, {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    plain = 1 / base ** (torch.arange(0, 64, 2) / 64)
    waves = 2 * math.pi / plain
    smooth = (8192 / waves - 1) / (4 - 1)
    factors = torch.where(waves < 8192 / 4, 1.0, torch.where(waves > 8192, 32.0, 1 / ((1 - smooth) / 32 + smooth)))
    found = with_tensors(tmp_path / "m.gguf", {"rope_freqs.weight": factors.numpy()}, base=base)
    assert found.rope_parameters == theirs | {"rope_theta": base, "original_max_position_embeddings": 8192}
    values, scale = frequencies(found)
    assert scale == 1.0 and torch.allclose(values, plain / factors, rtol=1e-5)


def test_factors_of_any_other_making_divide_frequencies_all_the_same(tmp_path: Path) -> None:
    factors = np.linspace(1, 9, 32).astype(np.float32)
    found = with_tensors(tmp_path / "m.gguf", {"rope_freqs.weight": factors})
    values, scale = frequencies(found)
    plain = 1 / 10000.0 ** (torch.arange(0, 64, 2) / 64)
    assert scale == 1.0 and torch.allclose(values, plain / torch.from_numpy(factors), rtol=1e-5)
    same = with_tensors(tmp_path / "s.gguf", {"rope_freqs.weight": np.ones(32)})
    assert same.rope_parameters == PLAIN


def test_phis_rotations_have_factors_for_two_lengths(tmp_path: Path) -> None:
    short, long = np.linspace(1, 2, 24).astype(np.float32), np.linspace(1, 30, 24).astype(np.float32)
    tensors = {"rope_factors_short.weight": short, "rope_factors_long.weight": long}
    numbers = {"phi3.rope.scaling.attn_factor": 1.25}
    fields = {"phi3.rope.scaling.original_context_length": 128, "phi3.rope.dimension_count": 48}
    found = with_tensors(tmp_path / "m.gguf", tensors, architecture="phi3", numbers=numbers, fields=fields)
    assert found.rope_parameters == {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.75,
        "short_factor": short.tolist(),
        "long_factor": long.tolist(),
        "attention_factor": 1.25,
        "original_max_position_embeddings": 128,
    }
    assert (found.original_max_position_embeddings, found.sliding_window) == (128, 128)


def test_heads_may_be_wider_than_the_models_share(tmp_path: Path) -> None:
    wide = config(tmp_path / "m.gguf", sizes=Sizes(head=96))
    assert wide.head_dim == 96
    old = config(tmp_path / "o.gguf", sizes=Sizes(head=96), fields={"llama.attention.key_length": None})
    assert old.head_dim == 96  # by how much of a head is turned


def test_sizes_that_all_layers_share_may_be_a_list(tmp_path: Path) -> None:
    assert config(tmp_path / "m.gguf", fields={"llama.attention.head_count_kv": [2, 2]}).num_key_value_heads == 2


def test_a_mixture_of_experts_is_not_known_though_it_calls_itself_llama(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", fields={"llama.expert_count": 8})
    assert not is_known(GgufFile(tmp_path / "m.gguf").header)


NEEDED = ("embedding_length", "block_count", "feed_forward_length", "attention.head_count", "context_length")


class TestConfigsAreRefused:
    def refused(self, path: Path, said: str, **options: Any) -> None:
        with pytest.raises(FileProblem) as caught:
            config(path, **options)
        assert said in str(caught.value)

    @pytest.mark.parametrize("key", [*NEEDED, "attention.layer_norm_rms_epsilon"])
    def test_without_a_key_that_is_needed(self, tmp_path: Path, key: str) -> None:
        said = f"has no llama.{key} in its header, which a llama model needs"
        self.refused(tmp_path / "m.gguf", said, fields={f"llama.{key}": None})

    def test_with_no_layers(self, tmp_path: Path) -> None:
        said = "llama.block_count in its header is 0, where a number from 1 up is needed"
        self.refused(tmp_path / "m.gguf", said, fields={"llama.block_count": 0})

    def test_with_sizes_that_differ_from_layer_to_layer(self, tmp_path: Path) -> None:
        said = "has llama.attention.head_count_kv in its header that differs from layer to layer"
        self.refused(tmp_path / "m.gguf", said, fields={"llama.attention.head_count_kv": [2, 4]})

    def test_with_rotations_of_an_unknown_kind(self, tmp_path: Path) -> None:
        fields = {"llama.rope.scaling.type": "spiral", "llama.rope.scaling.factor": 2.0}
        self.refused(tmp_path / "m.gguf", "has llama.rope.scaling.type spiral in its header", fields=fields)

    def test_with_factors_for_other_heads(self, tmp_path: Path) -> None:
        said = "rope_freqs.weight in it has 16 numbers, where 32 above 0 are needed"
        self.refused(tmp_path / "m.gguf", said, more={"rope_freqs.weight": (16,)})

    def test_without_a_tensor(self, tmp_path: Path) -> None:
        said = "has no blk.2.attn_norm.weight and 8 more tensors, which its header asks for"
        self.refused(tmp_path / "m.gguf", said, fields={"llama.block_count": 3})

    def test_with_a_tensor_of_another_shape(self, tmp_path: Path) -> None:
        said = "blk.0.attn_output.weight in it is 256 × 256, and 256 × 512 by its header"
        fields = {"llama.attention.head_count": 8, "llama.attention.key_length": 64, "llama.attention.value_length": 64}
        self.refused(tmp_path / "m.gguf", said, fields=fields)

    def test_with_values_of_another_width_than_keys(self, tmp_path: Path) -> None:
        fields = {"llama.attention.key_length": 64, "llama.attention.value_length": 32}
        self.refused(tmp_path / "m.gguf", "has keys of width 64 and values of width 32", fields=fields)

    def test_with_fewer_rows_than_tokens(self, tmp_path: Path) -> None:
        said = "token_embd.weight in it has 256 rows for 512 tokens"
        self.refused(tmp_path / "m.gguf", said, more={"token_embd.weight": (256, 256)})


def test_a_split_file_is_described_by_any_of_its_parts(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", kinds={"": KIND.Q4_K}, splits=3)
    found = described(parts(tmp_path / "m.gguf", 3)[2])
    assert found.config.num_hidden_layers == 2 and len(found.tokenizer.get_vocab()) == 512 and not found.told


def test_a_tokenizer_is_taken_over_where_both_files_have_the_same(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "a.gguf")
    write_tiny_gguf(tmp_path / "b.gguf", sizes=Sizes(layers=1))
    write_tiny_gguf(tmp_path / "c.gguf", fields={"tokenizer.ggml.bos_token_id": 3})
    kinds = [3, 3, 3, 3, *[1] * 507, 4]
    write_tiny_gguf(tmp_path / "d.gguf", fields={"tokenizer.ggml.token_type": kinds})
    target = described(tmp_path / "a.gguf")
    assert described(tmp_path / "b.gguf", target).tokenizer is target.tokenizer
    assert described(tmp_path / "c.gguf", target).tokenizer is not target.tokenizer
    assert described(tmp_path / "d.gguf", target).tokenizer is not target.tokenizer


@pytest.mark.parametrize(
    ("token", "key", "ends"),
    [("<|end|>", None, [2, 511]), ("<|eom_id|>", None, [2, 511]), ("<|end|>", "eot", [2, 7]), ("<|odd|>", None, 2)],
)
def test_texts_end_where_the_template_ends_turns_if_no_key_says(
    tmp_path: Path, token: str, key: str | None, ends: Any
) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_gguf(path)
    tokens = GgufFile(path).header.array("tokenizer.ggml.tokens")
    merges = [m for m in GgufFile(path).header.array("tokenizer.ggml.merges") if m.replace(" ", "") != tokens[511]]
    fields: dict[str, Any] = {
        "tokenizer.ggml.tokens": [*tokens[:511], token],
        "tokenizer.ggml.token_type": [*[1] * 511, 3],
        "tokenizer.ggml.merges": merges,
        "tokenizer.chat_template": f"{{{{ messages[0]['content'] }}}}{token}",
    }
    if key is not None:
        fields[f"tokenizer.ggml.{key}_token_id"] = 7
    write_tiny_gguf(path, fields=fields)
    assert described(path).config.eos_token_id == ends


def test_what_cannot_be_read_of_a_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", fields={"tokenizer.ggml.pre": "future"})
    with pytest.raises(LoadError) as caught:
        described(tmp_path / "m.gguf")
    assert str(caught.value).startswith(f"{tmp_path / 'm.gguf'} has tokenizer.ggml.pre future in its header, which")
    write_tiny_gguf(tmp_path / "n.gguf", fields={"tokenizer.ggml.pre": None})
    assert "has no tokenizer.ggml.pre" in described(tmp_path / "n.gguf").told[0]
    assert gguf.GGUFReader(tmp_path / "n.gguf").get_field("tokenizer.ggml.pre") is None


def test_an_architecture_that_nobody_reads_from_such_files_is_named_with_those_that_are(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", architecture="granite")
    with pytest.raises(LoadError, match=r"granite models are not read from GGUF files.*llama, .*smollm3 are\)"):
        described(tmp_path / "m.gguf")
