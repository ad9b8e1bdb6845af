"""The sizes that a config names, checked before any library builds something of them. No torch here.

A config of one line may ask for ten million layers: counting them by building them would not end.
What it takes at the least is reckoned from a few numbers that nearly every config has, under the
names that families give them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec_tui.backends.config_fields import check_fields, wrong

LAYERS = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    *("num_decoder_layers", "encoder_layers", "decoder_layers"),
)
WIDTH = ("hidden_size", "n_embd", "d_model")
VOCABULARY = ("vocab_size",)
# Checked for being whole numbers, where they are given as one number (some families give a list, by layer).
_HEADS = (
    *("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads", "decoder_attention_heads"),
    *("relative_attention_num_buckets", "relative_attention_max_distance"),
)
_OTHERS = (
    *("intermediate_size", "n_inner", "ffn_dim", "word_embed_proj_dim", "num_key_value_heads", "head_dim"),
    *("d_ff", "d_kv", "encoder_ffn_dim", "decoder_ffn_dim"),
    *("max_position_embeddings", "n_positions", "num_experts", "num_local_experts", "num_experts_per_tok"),
)
_HOW = {"quant_method", "load_in_8bit", "load_in_4bit"}
_PARTS = ("text_config", "decoder", "llm_config", "language_config")

LAYER_BYTES = 35_000
"""What the objects of one layer take in memory beside its weights, as measured for Llama layers."""
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a config says of a decoder; 1 where it says nothing."""

    layers: int = 1
    width: int = 1
    vocabulary: int = 1

    def least_bytes(self, bytes_a_weight: float) -> int:
        """Less than this no such model takes: its embedding, a square of its width in each layer, and its objects."""
        weights = self.vocabulary * self.width + self.layers * self.width * self.width
        return int(weights * bytes_a_weight) + self.layers * LAYER_BYTES


def sizes_of(name: str, config: Mapping[str, Any]) -> Sizes:
    """The sizes in a config.json, the decoder's part of it included; LoadError names the field that is no size."""
    if not isinstance(kind := config.get("model_type"), str | None):
        raise wrong(name, "model_type", kind, "a name is needed")
    for field in ("text_config", "quantization_config"):
        if not isinstance(config.get(field), dict | None):
            raise wrong(name, field, config[field], "a group of fields is needed")
    if (asked := config.get("quantization_config")) is not None and not _HOW & asked.keys():
        raise wrong(name, "quantization_config", asked, "its quant_method is needed, or leave it out")
    check_fields(name, config)
    parts = [config] + [config[part] for part in _PARTS if isinstance(config.get(part), dict)]
    for part in parts:
        for field in (*_HEADS, *_OTHERS):
            if isinstance(part.get(field), list):
                continue
            _whole_number(name, part, field, low=1 if field in _HEADS else 0)
    layers, width, vocabulary = (
        max((size for part in parts for field in fields if (size := _whole_number(name, part, field))), default=1)
        for fields in (LAYERS, WIDTH, VOCABULARY)
    )
    return Sizes(layers, width, vocabulary)


def _whole_number(name: str, config: Mapping[str, Any], field: str, low: int = 1) -> int | None:
    value = config.get(field)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise wrong(name, field, value, f"a whole number from {low} up is needed")
    return min(value, _LARGEST)
