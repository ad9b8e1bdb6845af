"""Models of public shapes with random weights, and the bytes that a pass of one must read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from gpu_forms import scale_bytes
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from specdec_tui.backends.cache import RewindableCache
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.static_model import windows_of

SPREAD = 0.1  # of what norms' weights and biases get beside their 1 or 0


@dataclass(frozen=True)
class Shape:
    """A model's config, and what is asked of a pass over one token: shares of the floor.

    `kinds`: layers from the first on that between them are of every kind the model has. `needed` and `goal` 0: nothing
    is asked.
    """

    family: str
    config: dict[str, Any] = field(repr=False)
    kinds: int = 1
    needed: float = 0.0
    goal: float = 0.0

    def make(self, layers: int | None = None, **other: Any) -> PreTrainedConfig:
        """The config; with `layers` of that many of its first layers; with `other` values of some fields."""
        fields = self.config | other
        if layers is not None:
            fields["n_layer" if "n_layer" in fields else "num_hidden_layers"] = layers
        return AutoConfig.for_model(
            self.family, **{"bos_token_id": None, "eos_token_id": None, "pad_token_id": None} | fields
        )


def _sizes(hidden: int, mlp: int, layers: int, heads: int, key_heads: int, vocab: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "vocab_size": vocab,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    } | more


UNTIED = {"tie_word_embeddings": False}


EPSILON = {"rms_norm_eps": 1e-5}


def _llama3(factor: float) -> dict[str, Any]:
    """The rotations and the epsilon of Llama 3.1 and 3.2."""
    frequencies = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    return {
        "rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": factor} | frequencies
    } | EPSILON


def _base(theta: float) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}


MODELS: dict[str, Shape] = {
    "llama-3.1-8b": Shape("llama", _sizes(4096, 14336, 32, 32, 8, 128256, **_llama3(8.0), **UNTIED), 1, 0.86, 0.90),
    "qwen2.5-7b": Shape("qwen2", _sizes(3584, 18944, 28, 28, 4, 152064, **_base(1e6), **UNTIED), 1),
    "mistral-7b": Shape(
        "mistral",
        _sizes(4096, 14336, 32, 32, 8, 32768, sliding_window=None, **_base(1e6), **UNTIED, **EPSILON),
        1,
    ),
    "llama-3.2-3b": Shape("llama", _sizes(3072, 8192, 28, 24, 8, 128256, head_dim=128, **_llama3(32.0)), 1, 0.79, 0.82),
    "qwen3-4b": Shape("qwen3", _sizes(2560, 9728, 36, 32, 8, 151936, head_dim=128, **_base(1e6)), 1),
    "llama-3.2-1b": Shape("llama", _sizes(2048, 8192, 16, 32, 8, 128256, head_dim=64, **_llama3(32.0)), 1, 0.72, 0.77),
    "qwen2.5-0.5b": Shape("qwen2", _sizes(896, 4864, 24, 14, 2, 151936, **_base(1e6)), 1, 0.45, 0.55),
    "smollm2-135m": Shape("llama", _sizes(576, 1536, 30, 9, 3, 49152, **_base(1e5), **EPSILON), 1, 0.15, 0.25),
    "phi-3-mini": Shape(
        "phi3",
        _sizes(3072, 8192, 32, 32, 32, 32064, sliding_window=2047, **UNTIED, **EPSILON)
        | {"max_position_embeddings": 4096, "original_max_position_embeddings": 4096},
        1,
        0.65,
    ),
    "smollm3-3b": Shape("smollm3", _sizes(2048, 11008, 36, 16, 4, 128256, **_base(5e6)), 4, 0.65),
    "pythia-1.4b": Shape(
        "gpt_neox",
        _sizes(2048, 8192, 24, 16, 16, 50304, rotary_pct=0.25, **UNTIED) | {"max_position_embeddings": 2048},
        1,
        0.65,
    ),
    "olmo2-1b": Shape("olmo2", _sizes(2048, 8192, 16, 16, 16, 100352, **_base(5e5), **UNTIED), 1, 0.65),
    "granite-3-2b": Shape(
        "granite",
        _sizes(
            2048,
            8192,
            40,
            32,
            8,
            49155,
            embedding_multiplier=12.0,
            residual_multiplier=0.22,
            attention_multiplier=0.015625,
            logits_scaling=8.0,
            **_base(1e7),
            **EPSILON,
        ),
        1,
        0.65,
    ),
    "gemma2-2b": Shape(
        "gemma2",
        _sizes(
            2304,
            9216,
            26,
            8,
            4,
            256000,
            head_dim=256,
            query_pre_attn_scalar=256,
            sliding_window=4096,
            attn_logit_softcapping=50.0,
            final_logit_softcapping=30.0,
        )
        | {"max_position_embeddings": 8192},
        2,
        0.65,
    ),
    "gpt2-xl": Shape(
        "gpt2",
        {"n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257},
        1,
        0.65,
    ),
    "gemma3-1b": Shape(
        "gemma3_text",
        _sizes(1152, 6912, 26, 4, 1, 262144, head_dim=256, query_pre_attn_scalar=256, sliding_window=512),
        6,
        0.65,
    ),
    "starcoder2-3b": Shape(
        "starcoder2",
        _sizes(3072, 12288, 30, 24, 2, 49152, sliding_window=4096, use_bias=True, **_base(999999.0)),
        1,
        0.65,
    ),
    "command-r7b": Shape(
        "cohere2",
        _sizes(4096, 14336, 32, 32, 8, 256000, sliding_window=4096, logit_scale=0.25, **_base(5e4)),
        4,
        0.65,
    ),
    "falcon-7b": Shape(
        "falcon",
        {
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "vocab_size": 65024,
            "multi_query": True,
            "parallel_attn": True,
            "new_decoder_architecture": False,
            "bias": False,
            "alibi": False,
            "max_position_embeddings": 2048,
        },
        1,
        0.65,
    ),
    "falcon3-7b": Shape(
        "llama", _sizes(3072, 23040, 28, 12, 4, 131072, head_dim=256, **_base(1000042.0), **UNTIED), 1, 0.65
    ),
    # Mixtures: of Mixtral 8 of its 32 layers, so that it fits beside others.
    "mixtral-8l": Shape(
        "mixtral",
        _sizes(
            4096,
            14336,
            8,
            32,
            8,
            32000,
            num_local_experts=8,
            num_experts_per_tok=2,
            sliding_window=None,
            **_base(1e6),
            **UNTIED,
        ),
        1,
        0.65,
    ),
    "qwen3-30b-a3b": Shape(
        "qwen3_moe",
        _sizes(
            2048,
            6144,
            48,
            32,
            4,
            151936,
            head_dim=128,
            moe_intermediate_size=768,
            num_experts=128,
            num_experts_per_tok=8,
            norm_topk_prob=True,
            decoder_sparse_step=1,
            **_base(1e6),
            **UNTIED,
        ),
        1,
        0.65,
    ),
    "olmoe-1b-7b": Shape(
        "olmoe",
        _sizes(2048, 1024, 16, 16, 16, 50304, num_experts=64, num_experts_per_tok=8, **_base(1e4), **UNTIED),
        1,
        0.65,
    ),
    "gpt-oss-20b": Shape(
        "gpt_oss",
        _sizes(
            2880,
            2880,
            24,
            64,
            8,
            201088,
            head_dim=64,
            num_local_experts=32,
            num_experts_per_tok=4,
            sliding_window=128,
            **UNTIED,
        ),
        2,
        0.65,
    ),
    # For a machine without a GPU.
    "tiny-llama": Shape("llama", _sizes(64, 128, 2, 4, 2, 512, **UNTIED)),
    "tiny-gpt2": Shape("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "vocab_size": 512}),
    "tiny-gemma3": Shape(
        "gemma3_text",
        _sizes(
            64, 128, 2, 4, 2, 512, head_dim=16, sliding_window=16, layer_types=["sliding_attention", "full_attention"]
        ),
        2,
    ),
    "tiny-mixtral": Shape(
        "mixtral", _sizes(64, 128, 2, 4, 2, 512, num_local_experts=8, num_experts_per_tok=2, **UNTIED)
    ),
}
DENSE = tuple(name for name, shape in MODELS.items() if "experts" not in str(shape.config) and "tiny" not in name)
_LARGE = ("llama-3.1-8b", "qwen2.5-7b", "mistral-7b", "command-r7b", "falcon-7b", "falcon3-7b")
SETS = {
    "all": tuple(name for name in MODELS if "tiny" not in name),
    "dense": DENSE,
    "small": tuple(name for name in DENSE if name not in _LARGE),
    "large": _LARGE,
    "mixtures": tuple(name for name in MODELS if name not in DENSE and "tiny" not in name),
    "tiny": tuple(name for name in MODELS if "tiny" in name),
    "drafters": ("llama-3.2-1b", "qwen2.5-0.5b", "smollm2-135m"),
    "llama": ("llama-3.1-8b", "llama-3.2-3b", "llama-3.2-1b", "qwen2.5-0.5b", "smollm2-135m"),
}


def build(
    name: str, device: torch.device, dtype: torch.dtype, layers: int | None = None, **other: Any
) -> PreTrainedModel:
    """A model of the table, in evaluation mode; every parameter is random, the same at every call.

    Matrices keep the size of what they multiply; norms' weights and biases lie about what they are at first.
    Buffers are those that transformers computes. `layers`: only so many of its first layers. `other`: of its config.
    """
    shape = MODELS[name]
    how = {"attn_implementation": "eager"} if "attn_logit_softcapping" in shape.config else {}  # others leave caps out
    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            shape.make(layers, **other), dtype=dtype, **how
        ).eval()
    source = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for module in model.modules():
            for parameter in module.parameters(recurse=False):
                if parameter.ndim < 2:
                    parameter.add_(torch.empty_like(parameter).normal_(0, SPREAD, generator=source))
                else:
                    sides = (
                        parameter.shape[-1:] if isinstance(module, (nn.Linear, nn.Embedding)) else parameter.shape[-2:]
                    )
                    parameter.normal_(0, max(sides) ** -0.5, generator=source)
    return model


@dataclass(frozen=True)
class Reads:
    """Bytes that a pass reads at least."""

    weights: int
    held: int

    @property
    def all(self) -> int:
        return self.weights + self.held


def reads(model: TransformersModel, tokens: int, text: int) -> Reads:
    """What a pass over `tokens` behind `text` tokens must read.

    Every weight once, but of embeddings (which are no output matrix) only the tokens' rows, and of mixtures the
    experts that so many tokens choose on average where each is chosen alike; keys and values as far as layers see.
    """
    return Reads(weight_bytes(model.model, tokens), held_bytes(model, tokens + text))


def weight_bytes(model: PreTrainedModel, tokens: int) -> int:
    config = model.config.get_text_config(decoder=True)
    head = model.get_output_embeddings().weight
    tables = {id(m.weight): m for m in model.modules() if isinstance(m, nn.Embedding) and m.weight is not head}
    count = next((c for n in ("num_local_experts", "num_experts") if (c := getattr(config, n, None))), 0)
    total = 0.0
    for name, parameter in model.named_parameters():  # what is used twice, once
        size: float = parameter.nbytes
        if id(parameter) in tables:
            size = min(tokens, len(parameter)) * size / len(parameter)
        elif count and ".experts." in name:
            size *= expected_experts(count, config.num_experts_per_tok, tokens) / count
        total += size
    return round(total) + scale_bytes(model)


def expected_experts(count: int, chosen: int, tokens: int) -> float:
    """How many of `count` experts so many tokens choose on average, each of them `chosen` by chance."""
    return count * (1 - (1 - chosen / count) ** tokens)


def held_bytes(model: TransformersModel, text: int) -> int:
    """Keys and values of the last `text` tokens, of which a layer with a window sees fewer."""
    windows = windows_of(model.model)
    return sum(size * min(text, window or text) for size, window in zip(_key_sizes(model), windows, strict=True))


def key_bytes(model: TransformersModel, capacity: int) -> int:
    """Keys and values of a text of so many tokens, none left out."""
    return capacity * sum(_key_sizes(model))


def _key_sizes(model: TransformersModel) -> list[int]:
    return [heads * (keys + values) * model.model.dtype.itemsize for heads, keys, values in key_shapes(model)]


def key_shapes(model: TransformersModel) -> list[tuple[int, int, int]]:
    """Of every layer: key heads, the width of a key and that of a value."""
    cache = RewindableCache()
    model.forward([1], 1, cache)
    return [(layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3]) for layer in cache.layers]


Forward = Callable[[Sequence[int], int, RewindableCache], torch.Tensor]


def filling(model: TransformersModel, drawn: torch.dtype, dtype: torch.dtype) -> Forward:
    """In the place of the model's own forward: random keys and values, the same at every call, and no logits.

    They are numbers of the dtype `drawn`, held in `dtype`.
    """
    shapes, device = key_shapes(model), model.device

    def forward(ids: Sequence[int], keep: int, cache: RewindableCache) -> torch.Tensor:
        source = torch.Generator(device).manual_seed(cache.get_seq_length())
        for index, (heads, *widths) in enumerate(shapes):
            empty = [torch.empty(1, heads, len(ids), width, device=device, dtype=drawn) for width in widths]
            keys, values = (states.normal_(generator=source).to(dtype) for states in empty)
            cache.update(keys, values, index)
        return torch.zeros(keep, model.vocab_size, device=device)

    return forward


@contextmanager
def widened(model: PreTrainedModel) -> Iterator[None]:
    """Within it the model computes in float32, with the same weights: each module's only while it is at work."""
    kept: dict[nn.Module, dict[str, nn.Parameter]] = {}

    def widen(module: nn.Module, _: Any) -> None:
        kept[module] = dict(module.named_parameters(recurse=False))
        for name, parameter in kept[module].items():
            setattr(module, name, nn.Parameter(parameter.detach().float(), requires_grad=False))

    def restore(module: nn.Module, *_: Any) -> None:
        for name, parameter in kept.pop(module).items():
            setattr(module, name, parameter)

    owners = [module for module in model.modules() if any(True for _ in module.parameters(recurse=False))]
    hooks = [module.register_forward_pre_hook(widen) for module in owners]
    hooks += [module.register_forward_hook(restore, always_call=True) for module in owners]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module in list(kept):
            restore(module)
