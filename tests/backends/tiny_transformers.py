"""Tiny random transformers models of many families, and a tiny tokenizer."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "vocab_size": 320}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", SIZES | HEADS),
    "qwen2": ("Qwen2Config", SIZES | HEADS),
    "qwen3": ("Qwen3Config", SIZES | HEADS | {"head_dim": 8}),
    "mistral": ("MistralConfig", SIZES | HEADS | {"sliding_window": 6}),
    "gemma": ("GemmaConfig", SIZES | HEADS | {"head_dim": 8}),
    "gemma2": ("Gemma2Config", SIZES | HEADS | {"head_dim": 8, "sliding_window": 6, "num_hidden_layers": 4}),
    "gemma3": (
        "Gemma3TextConfig",
        SIZES | HEADS | {"head_dim": 8, "sliding_window": 6, "num_hidden_layers": 4, "sliding_window_pattern": 2},
    ),
    "gpt2": ("GPT2Config", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 128, "vocab_size": 320}),
    "mamba": ("MambaConfig", {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 320, "state_size": 4}),
}

# More of them, for what concerns the files of a model alone.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3": ("Phi3Config", SIZES | HEADS),
    "mixtral": ("MixtralConfig", SIZES | HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "gpt_neox": ("GPTNeoXConfig", SIZES | {"num_attention_heads": 4, "max_position_embeddings": 128}),
    "opt": (
        "OPTConfig",
        {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 3, "vocab_size": 320, "num_attention_heads": 4}
        | {"max_position_embeddings": 128, "word_embed_proj_dim": 32},
    ),
}

# For the CPU pass: layers that rotate nothing, and numbers by which a model multiplies.
SCALED: dict[str, tuple[str, dict[str, Any]]] = {
    "smollm3": ("SmolLM3Config", SIZES | HEADS | {"no_rope_layers": [1, 0, 1]}),
    "granite": (
        "GraniteConfig",
        SIZES
        | HEADS
        | {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 0.5},
    ),
}

_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1, "mamba_d_state": 4}
_MIXERS = {"mamba_d_state": 4, "mamba_dt_rank": 4}
_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
_DELTA = {"linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
_MIXED = ["linear_attention", "full_attention"] * 2
_SHARED = ["mamba", "mamba", "hybrid", "mamba", "hybrid"]
# Models whose layers keep a state of the text: of recurrences, of convolutions, with attention beside them or without.
RECURRENT: dict[str, tuple[str, dict[str, Any]]] = {
    "mamba": CONFIGS["mamba"],
    "falcon_mamba": ("FalconMambaConfig", CONFIGS["mamba"][1]),
    "mamba2": ("Mamba2Config", SIZES | {"state_size": 4, "num_heads": 8, "head_dim": 8, "n_groups": 2}),
    "rwkv": ("RwkvConfig", SIZES | {"attention_hidden_size": 32}),
    "xlstm": ("xLSTMConfig", SIZES | {"hidden_size": 128, "num_heads": 4, "chunk_size": 16}),
    "jamba": (
        "JambaConfig",
        SIZES
        | HEADS
        | _MIXERS
        | {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 4, "num_experts_per_tok": 2},
    ),
    "bamba": ("BambaConfig", SIZES | HEADS | _MAMBA2 | {"attn_layer_indices": [1]}),
    "zamba": (
        "ZambaConfig",
        SIZES
        | HEADS
        | _MIXERS
        | {"num_hidden_layers": 5, "layers_block_type": _SHARED, "num_key_value_heads": 4, "n_mamba_heads": 2}
        | {"attention_head_dim": 16},
    ),
    "zamba2": (
        "Zamba2Config",
        SIZES
        | HEADS
        | {"num_hidden_layers": 5, "layers_block_type": _SHARED, "num_key_value_heads": 4, "n_mamba_heads": 8}
        | {"mamba_headdim": 8, "mamba_ngroups": 1, "mamba_d_state": 4, "num_mem_blocks": 1, "adapter_rank": 4}
        | {"attention_head_dim": 16},
    ),
    "falcon_h1": ("FalconH1Config", SIZES | HEADS | _MAMBA2 | {"mamba_d_ssm": 64, "head_dim": 8}),
    "granite_hybrid": (
        "GraniteMoeHybridConfig",
        SIZES
        | HEADS
        | _MAMBA2
        | {"layer_types": ["mamba", "attention", "mamba"], "shared_intermediate_size": 16, "num_local_experts": 4}
        | {"num_experts_per_tok": 2},
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        SIZES | HEADS | _MOE | _DELTA | {"num_hidden_layers": 4, "layer_types": _MIXED, "head_dim": 8},
    ),
    "lfm2": ("Lfm2Config", SIZES | HEADS | {"layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 4}),
    "recurrent_gemma": (
        "RecurrentGemmaConfig",
        SIZES | HEADS | {"lru_width": 32, "attention_window_size": 6, "head_dim": 8, "num_key_value_heads": 1},
    ),
    "nemotron_h": (
        "NemotronHConfig",
        SIZES
        | HEADS
        | {"hybrid_override_pattern": "M*-M", "num_hidden_layers": 4, "mamba_num_heads": 8, "mamba_head_dim": 8}
        | {"n_groups": 2, "ssm_state_size": 4, "head_dim": 8},
    ),
    "olmo_hybrid": ("OlmoHybridConfig", SIZES | HEADS | _DELTA | {"num_hidden_layers": 4, "layer_types": _MIXED}),
}

_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "short_factor": [1.0, 1.0, 1.0, 1.0],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 32,
}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
# Models that turn the tokens of texts longer than 32 in another way; all were made for 128.
LENGTH_DEPENDENT: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-dynamic": ("LlamaConfig", SIZES | HEADS | {"max_position_embeddings": 32, "rope_parameters": _DYNAMIC}),
    "llama-longrope": ("LlamaConfig", SIZES | HEADS | {"rope_parameters": _LONGROPE}),
    "phi3-longrope": (
        "Phi3Config",
        SIZES | HEADS | {"original_max_position_embeddings": 32, "rope_parameters": _LONGROPE},
    ),
    "gemma3-dynamic": (
        "Gemma3TextConfig",
        SIZES
        | HEADS
        | {
            "head_dim": 8,
            "sliding_window": 6,
            "num_hidden_layers": 4,
            "max_position_embeddings": 32,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": _DYNAMIC,
            },
        },
    ),
}


def tiny_tokenizer(*more_special: str, chat_template: str | None = CHAT_TEMPLATE) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of about 300 tokens that begins texts with <s>."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat and the dog sat on the cat"] * 4, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast._tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    if more_special:
        fast.add_special_tokens({"additional_special_tokens": list(more_special)})
    fast.chat_template = chat_template
    return fast


def tiny_model(kind: str, **overrides: Any) -> PreTrainedModel:
    """A random model whose choices are not all the same token."""
    name, values = (CONFIGS | FAMILIES | SCALED | RECURRENT | LENGTH_DEPENDENT)[kind]
    # Deep: a config writes into the dictionaries that it is given.
    values = deepcopy(values | overrides)
    config = getattr(transformers, name)(
        **{"bos_token_id": 0, "eos_token_id": [1, 3], "pad_token_id": 1, "tie_word_embeddings": False} | values
    )
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    return model


def in_dtype(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """A model whose weights are rounded, as a load does it: frequencies of rotations stay in float32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model
