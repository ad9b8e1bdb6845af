"""Tiny random models of every family that is described, in the variants that their configs allow."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "vocab_size": 96}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
DENSE = SIZES | HEADS
WIDE = DENSE | {"head_dim": 12}
WINDOW = {"sliding_window": 5}
FOUR = {"num_hidden_layers": 4}
ALTERNATING = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
TINY_CAPS = {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
BIASED = {"attention_bias": True}
GRANITE = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.3, "logits_scaling": 5.0}
GPT2 = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "vocab_size": 96}
NEOX = SIZES | {"num_attention_heads": 4, "max_position_embeddings": 64}
FALCON = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 96}
GROUPED = {"new_decoder_architecture": True, "num_kv_heads": 2}
MIXTURE = DENSE | {"num_local_experts": 4, "num_experts_per_tok": 2}
QWEN_MOE = DENSE | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
SHARED = {"shared_expert_intermediate_size": 40}
GPT_OSS = WIDE | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", DENSE),
    "llama biased": ("LlamaConfig", WIDE | BIASED | {"mlp_bias": True, "rope_parameters": LLAMA3}),
    "llama relu": ("LlamaConfig", DENSE | {"hidden_act": "relu", "rope_parameters": YARN}),
    "llama with fields of others": ("LlamaConfig", DENSE | WINDOW | {"logit_scale": 3.0, "residual_multiplier": 2.0}),
    "mistral": ("MistralConfig", DENSE | WINDOW),
    "mistral of kinds it does not know": ("MistralConfig", DENSE | WINDOW | ALTERNATING),
    "mistral open": ("MistralConfig", DENSE | {"sliding_window": None}),
    "ministral": ("MinistralConfig", WIDE | WINDOW | ALTERNATING),
    "qwen2": ("Qwen2Config", DENSE | WINDOW | {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen2 open": ("Qwen2Config", DENSE | WINDOW),
    "qwen3": ("Qwen3Config", WIDE),
    "qwen3 biased": ("Qwen3Config", WIDE | BIASED),
    "gemma": ("GemmaConfig", WIDE),
    "gemma2": ("Gemma2Config", WIDE | WINDOW | FOUR | TINY_CAPS | {"query_pre_attn_scalar": 5}),
    "gemma3": ("Gemma3TextConfig", WIDE | WINDOW | FOUR | {"sliding_window_pattern": 2, "query_pre_attn_scalar": 5}),
    "gemma3 capped": ("Gemma3TextConfig", WIDE | WINDOW | TINY_CAPS),
    "phi": ("PhiConfig", DENSE | {"partial_rotary_factor": 0.5}),
    "phi3": ("Phi3Config", DENSE | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}),
    "phi4 mini": ("Phi3Config", DENSE | WINDOW | {"partial_rotary_factor": 0.75}),
    "olmo": ("OlmoConfig", DENSE | BIASED),
    "olmo2": ("Olmo2Config", DENSE),
    "olmo3": ("Olmo3Config", DENSE | WINDOW | ALTERNATING),
    "exaone4": ("Exaone4Config", DENSE | WINDOW | ALTERNATING),
    "exaone4 open": ("Exaone4Config", WIDE | {"sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "seed_oss": ("SeedOssConfig", WIDE | {"attention_out_bias": True}),
    "arcee": ("ArceeConfig", DENSE),
    "ernie4_5": ("Ernie4_5Config", WIDE),
    "helium": ("HeliumConfig", DENSE | {"head_dim": 8}),
    "glm": ("GlmConfig", WIDE | BIASED),
    "glm4": ("Glm4Config", WIDE),
    "vaultgemma": ("VaultGemmaConfig", WIDE | WINDOW | TINY_CAPS | {"query_pre_attn_scalar": 5}),
    "opt": ("OPTConfig", DENSE | {"ffn_dim": 40, "word_embed_proj_dim": 32}),
    "opt plain": ("OPTConfig", DENSE | {"enable_bias": False, "activation_function": "gelu"}),
    "granite": ("GraniteConfig", DENSE | GRANITE),
    "granite biased": ("GraniteConfig", DENSE | GRANITE | {"mlp_bias": True}),
    "smollm3": ("SmolLM3Config", DENSE | {"no_rope_layers": [1, 0, 1]}),
    "smollm3 windowed": ("SmolLM3Config", DENSE | WINDOW | {"use_sliding_window": True, "no_rope_layers": [1, 0, 1]}),
    "gpt2": ("GPT2Config", GPT2),
    "gpt2 unscaled": ("GPT2Config", GPT2 | {"scale_attn_weights": False, "n_inner": 40, "activation_function": "relu"}),
    "gpt_neox": ("GPTNeoXConfig", NEOX | {"rotary_pct": 0.5}),
    "gpt_neox in turn": ("GPTNeoXConfig", NEOX | {"use_parallel_residual": False, "attention_bias": False}),
    "cohere": ("CohereConfig", DENSE | {"logit_scale": 0.3}),
    "cohere2": ("Cohere2Config", DENSE | WINDOW | ALTERNATING | BIASED),
    "starcoder2": ("Starcoder2Config", DENSE | WINDOW),
    "starcoder2 plain": ("Starcoder2Config", DENSE | {"use_bias": False}),
    "falcon": ("FalconConfig", FALCON),
    "falcon of all heads": ("FalconConfig", FALCON | {"multi_query": False, "bias": True, "parallel_attn": False}),
    "falcon in turn": ("FalconConfig", FALCON | {"parallel_attn": False, "ffn_hidden_size": 40}),
    "falcon grouped": ("FalconConfig", FALCON | GROUPED),
    "falcon grouped, one norm": ("FalconConfig", FALCON | GROUPED | {"num_ln_in_parallel_attn": 1}),
    "stablelm": ("StableLmConfig", DENSE | {"use_qkv_bias": True}),
    "stablelm parallel": ("StableLmConfig", DENSE | {"use_parallel_residual": True}),
    "mixtral": ("MixtralConfig", MIXTURE | WINDOW),
    "qwen2_moe": ("Qwen2MoeConfig", QWEN_MOE | SHARED | {"mlp_only_layers": [1]}),
    "qwen2_moe normed": ("Qwen2MoeConfig", QWEN_MOE | SHARED | {"norm_topk_prob": True, "decoder_sparse_step": 2}),
    "qwen3_moe": ("Qwen3MoeConfig", QWEN_MOE | WINDOW | {"use_sliding_window": True, "head_dim": 12}),
    "qwen3_moe normed": ("Qwen3MoeConfig", QWEN_MOE | {"norm_topk_prob": True}),
    "olmoe": ("OlmoeConfig", DENSE | {"num_experts": 4, "num_experts_per_tok": 2}),
    "gpt_oss": ("GptOssConfig", GPT_OSS),
}
IDS = [(37 * i + 5) % 96 for i in range(14)]


def made(name: str, values: dict[str, Any]) -> PreTrainedModel:
    """A model all of whose weights are random, norms and biases too; it attends as its code says, step by step."""
    config = getattr(transformers, name)(
        **({"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1} | deepcopy(values)), attn_implementation="eager"
    )
    torch.manual_seed(7)
    model: PreTrainedModel = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
            if parameter.dim() == 1:
                parameter.add_(0.7)
    return model
