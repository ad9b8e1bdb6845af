"""A model's config from its GGUF file, for the architectures that are read here without going through transformers.

Keys are llama.cpp's (`gguf-py/gguf/constants.py`), and so is what holds where a file leaves one out; fields are those
of transformers' config classes. What only the converter knew (how Gemma scales its queries, Llama 3's rotations, which
the file keeps as a tensor of factors) is found again as llama.cpp finds it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import transformers
from transformers import PreTrainedConfig

from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.gguf.header import TOKENS, GgufHeader
from specdec_tui.backends.small_files import FileProblem
from specdec_tui.doors.characters import named

_CLASSES = {  # imported when they are needed
    "llama": "LlamaConfig",
    "qwen2": "Qwen2Config",
    "qwen3": "Qwen3Config",
    "gemma2": "Gemma2Config",
    "gemma3": "Gemma3TextConfig",
    "phi3": "Phi3Config",
    "smollm3": "SmolLM3Config",
}
ARCHITECTURES = tuple(_CLASSES)
_FACTORS, _SHORT, _LONG = "rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"
# Llama 3's rotations: Meta's published numbers, by which their factors are known again.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
# Gemma's 27B models, by their layers: their queries are scaled by the width of the model and not of a head.
_SCALED_BY_WIDTH = {"gemma2": 46, "gemma3": 62}


def is_known(header: GgufHeader) -> bool:
    """Whether this architecture is read here. Mixtures of experts are not, though one calls itself llama."""
    return header.architecture in _CLASSES and header.whole(f"{header.architecture}.expert_count", 0) == 0


def kind_of(header: GgufHeader) -> str:
    """`llama models`, `llama models with experts`."""
    experts = " with experts" if header.whole(f"{header.architecture}.expert_count", 0) else ""
    return f"{named(header.architecture or 'unnamed')} models{experts}"


def config_of(file: GgufFile) -> PreTrainedConfig:
    """The config of a known architecture. FileProblem that names a key which is missing or of no use."""
    keys = _Keys(file.header)
    fields = _sizes(file, keys) | _tokens(file.header)
    rotations = _rotations(file, keys, fields)
    fields["rope_parameters"] = rotations
    fields |= _own(file, keys, fields, rotations)
    made: PreTrainedConfig = getattr(transformers, _CLASSES[file.header.architecture])(**fields)
    return made


class _Keys:
    """Values of a header by their key behind the architecture's name."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.architecture = header.architecture

    def full(self, key: str) -> str:
        return f"{self.architecture}.{key}"

    def size(self, key: str, usual: int | None = None) -> int:
        """A whole number above 0, the same for all layers where there is one for each."""
        full = self.full(key)
        if full in self.header.lists:
            values = set(self.header.array(full))
            if len(values) != 1 or not isinstance(value := values.pop(), int):
                raise FileProblem(f"has {full} in its header that differs from layer to layer, which is not read here")
        elif full in self.header.numbers:
            value = self.header.whole(full, 0)
        elif usual is not None:
            return usual
        else:
            raise FileProblem(f"has no {full} in its header, which a {self.architecture} model needs")
        if value < 1:
            raise FileProblem(f"is damaged: {full} in its header is {value:,}, where a number from 1 up is needed")
        return value

    def number(self, key: str, usual: float | None = None) -> float:
        full = self.full(key)
        if (value := self.header.numbers.get(full, usual)) is None:
            raise FileProblem(f"has no {full} in its header, which a {self.architecture} model needs")
        return float(value)

    def has(self, key: str) -> bool:
        return self.full(key) in self.header.numbers


def _sizes(file: GgufFile, keys: _Keys) -> dict[str, Any]:
    heads, hidden = keys.size("attention.head_count"), keys.size("embedding_length")
    width = keys.size("attention.key_length", _head_width(keys, hidden, heads))
    if keys.has("attention.value_length") and (value := keys.size("attention.value_length")) != width:
        raise FileProblem(f"has keys of width {width:,} and values of width {value:,}, which is not read here")
    tokens, rows = file.header.length(TOKENS), file.tensor("token_embd.weight").shape[0]
    if rows < tokens:
        raise FileProblem(f"is damaged: token_embd.weight in it has {rows:,} rows for {tokens:,} tokens")
    return {
        "hidden_size": hidden,
        "intermediate_size": keys.size("feed_forward_length"),
        "num_hidden_layers": keys.size("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.size("attention.head_count_kv", heads),
        "head_dim": width,
        "max_position_embeddings": keys.size("context_length"),
        "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "vocab_size": rows,
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }


def _head_width(keys: _Keys, hidden: int, heads: int) -> int:
    """Of a file that does not name it. Llama's turn all of a head: older files have only that number."""
    if keys.architecture == "llama" and keys.has("rope.dimension_count"):
        return keys.size("rope.dimension_count")
    return hidden // heads


def _tokens(header: GgufHeader) -> dict[str, Any]:
    def id_of(name: str) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        return header.whole(key, 0) if key in header.numbers else None

    ends = [id for name in ("eos", "eot", "eom") if (id := id_of(name)) is not None]
    ends = list(dict.fromkeys(ends))
    return {
        "bos_token_id": id_of("bos"),
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": id_of("padding"),
    }


def _rotations(file: GgufFile, keys: _Keys, fields: dict[str, Any]) -> dict[str, Any]:
    """How tokens are turned, as transformers' `rope_parameters`."""
    base = {"rope_theta": keys.number("rope.freq_base", 10000.0)}
    turned = keys.size("rope.dimension_count", fields["head_dim"])
    share = turned / fields["head_dim"]
    if share != 1:
        base["partial_rotary_factor"] = share
    if _FACTORS in file.tensors:
        return base | _of_factors(file.floats(_FACTORS), turned, base["rope_theta"], fields)
    if _SHORT in file.tensors or _LONG in file.tensors:
        return base | _of_two_lengths(file, keys)
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 0.0))
    if (kind := file.header.texts.get(keys.full("rope.scaling.type"), "linear")) == "none" or factor in (0, 1):
        return base | {"rope_type": "default"}
    if kind == "linear":
        return base | {"rope_type": "linear", "factor": factor}
    if kind == "yarn":
        found: dict[str, Any] = {"rope_type": "yarn", "factor": factor}
        found["original_max_position_embeddings"] = keys.size("rope.scaling.original_context_length")
        for key, field in {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}.items():
            if keys.has(f"rope.scaling.{key}"):
                found[field] = keys.number(f"rope.scaling.{key}")
        if keys.has("rope.scaling.attn_factor"):
            found["attention_factor"] = keys.number("rope.scaling.attn_factor") * (0.1 * math.log(factor) + 1)
        return base | found
    raise FileProblem(
        f"has {keys.full('rope.scaling.type')} {named(kind)} in its header: none, linear and yarn are known, "
        f"and longrope with {_SHORT} and {_LONG}"
    )


def _of_factors(factors: np.ndarray, turned: int, base: float, fields: dict[str, Any]) -> dict[str, Any]:
    """Frequencies divided by a tensor: Llama 3's where the tensor is what its numbers come to, else as they are."""
    factors = factors.reshape(-1)
    if len(factors) != turned // 2 or not (np.isfinite(factors).all() and (factors > 0).all()):
        raise FileProblem(
            f"is damaged: {_FACTORS} in it has {len(factors):,} numbers, where {turned // 2:,} above 0 are needed"
        )
    if (factors == 1).all():
        return {"rope_type": "default"}
    whole = float(factors.max())
    if np.allclose(factors, _llama3_factors(whole, turned, base), rtol=1e-4):
        return {"rope_type": "llama3", "factor": whole, **_LLAMA3}
    each = [float(factor) for factor in factors]
    same = {"original_max_position_embeddings": fields["max_position_embeddings"], "factor": 1.0}
    return {"rope_type": "longrope", "short_factor": each, "long_factor": each, "attention_factor": 1.0, **same}


def _llama3_factors(factor: float, turned: int, base: float) -> np.ndarray:
    """What Llama 3 divides each frequency by, as llama.cpp's converter writes it."""
    waves = 2 * math.pi * base ** (np.arange(0, turned, 2) / turned)
    low, high, original = _LLAMA3.values()
    smooth = ((original / waves - low) / (high - low)).clip(0, 1)
    return np.asarray(1 / ((1 - smooth) / factor + smooth))


def _of_two_lengths(file: GgufFile, keys: _Keys) -> dict[str, Any]:
    """Phi's factors: one for each frequency, others beyond the length that the model was first made for."""
    found: dict[str, Any] = {
        "rope_type": "longrope",
        "short_factor": [float(factor) for factor in file.floats(_SHORT).reshape(-1)],
        "long_factor": [float(factor) for factor in file.floats(_LONG).reshape(-1)],
        "original_max_position_embeddings": keys.size("rope.scaling.original_context_length"),
    }
    if keys.has("rope.scaling.attn_factor"):
        found["attention_factor"] = keys.number("rope.scaling.attn_factor")
    return found


def _own(file: GgufFile, keys: _Keys, fields: dict[str, Any], rotations: dict[str, Any]) -> dict[str, Any]:
    """What only some architectures have."""
    match file.header.architecture:
        case "llama":
            biased = {"attention_bias": "blk.0.attn_q.bias", "mlp_bias": "blk.0.ffn_up.bias"}
            return {field: tensor in file.tensors for field, tensor in biased.items()}
        case "phi3":
            window = keys.size("attention.sliding_window") if keys.has("attention.sliding_window") else None
            original = keys.size("rope.scaling.original_context_length", fields["max_position_embeddings"])
            share = {"partial_rotary_factor": rotations.get("partial_rotary_factor", 1.0)}
            return {"sliding_window": window, "original_max_position_embeddings": original, **share}
        case "gemma2" | "gemma3":
            return _of_gemma(keys, fields, rotations)
    return {}


def _of_gemma(keys: _Keys, fields: dict[str, Any], rotations: dict[str, Any]) -> dict[str, Any]:
    second, layers = keys.architecture == "gemma2", fields["num_hidden_layers"]
    by_width = layers == _SCALED_BY_WIDTH[keys.architecture]
    scalar = fields["hidden_size"] // fields["num_attention_heads"] if by_width else fields["head_dim"]
    window = keys.size("attention.sliding_window") if keys.has("attention.sliding_window") else 4096 if second else None
    own: dict[str, Any] = {
        "query_pre_attn_scalar": scalar,
        "sliding_window": window,
        "layer_types": [
            "sliding_attention" if window is not None and slides else "full_attention"
            for slides in _sliding(keys, layers, 2 if second else 6)
        ],
    }
    for key, usual in {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}.items():
        own[key] = keys.number(key, usual if second else 0.0) or None
    if not second:  # its windows are turned at their own base, and never scaled
        local = {"rope_type": "default", "rope_theta": keys.number("rope.freq_base_swa", 10000.0)}
        whole = keys.number("rope.freq_base", 1_000_000.0)
        own["rope_parameters"] = {
            "full_attention": rotations | {"rope_theta": whole},
            "sliding_attention": local,
        }
    return own


def _sliding(keys: _Keys, layers: int, usual: int) -> list[bool]:
    """Which layers have a window: all but each n-th, or as a list says."""
    full = keys.full(key := "attention.sliding_window_pattern")
    if full not in keys.header.lists:
        every = keys.size(key, usual)
        return [(layer + 1) % every != 0 for layer in range(layers)]
    if len(pattern := keys.header.array(full)) != layers:
        raise FileProblem(f"is damaged: {full} in its header has {len(pattern):,} entries for {layers:,} layers")
    return [bool(slides) for slides in pattern]
