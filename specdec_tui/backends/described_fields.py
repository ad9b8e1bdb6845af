"""What a config may say that changes a model's logits: each field is read by `decoder.describe` or refused here."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# Fields of a config that may say one thing only, and what is not described where they say another.
_ONLY: dict[str, tuple[tuple[Any, ...], str]] = {
    "clip_qkv": ((None,), "its queries, keys and values are clipped"),
    "alibi": ((False, None), "its scores are biased by distance (ALiBi)"),
    "use_bidirectional_attention": ((False, None), "its attention looks ahead"),
    "scale_attn_by_inverse_layer_idx": ((False,), "its scores are scaled by the number of the layer"),
    "add_cross_attention": ((False,), "it attends to another text"),
    "qk_layernorm": ((False,), "its heads have layer norms"),
    "do_layer_norm_before": ((True,), "its norms lie behind what it adds up"),
    "use_qk_norm": ((False, None), "its heads have layer norms"),
}
# Those that are read here, or by the code that builds the modules read here.
_READ = frozenset((
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "hidden_act", "hidden_activation", "activation_function", "activation",
    "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "rope_parameters", "attention_bias",
    "attention_out_bias", "enable_bias", "mlp_bias", "use_bias", "bias", "use_qkv_bias", "qkv_bias",
    "sliding_window", "use_sliding_window", "max_window_layers", "layer_types", "query_pre_attn_scalar",
    "final_logit_softcapping", "attn_logit_softcapping", "embedding_multiplier", "logits_scaling",
    "residual_multiplier", "attention_multiplier", "no_rope_layers", "no_rope_layer_interval", "n_embd", "n_layer",
    "n_head", "n_inner", "scale_attn_weights", "use_parallel_residual", "logit_scale", "num_ln_in_parallel_attn",
    "ffn_hidden_size", "num_kv_heads", "new_decoder_architecture", "multi_query", "parallel_attn", "num_experts",
    "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
    "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers", "swiglu_alpha", "swiglu_limit", "ffn_dim",
    "sliding_window_pattern", "word_embed_proj_dim", "_remove_final_layer_norm", "layer_norm_elementwise_affine",
))  # fmt: skip
# Those that change no logits: how a model was trained, is kept or cut.
_IDLE = frozenset((
    "max_position_embeddings", "original_max_position_embeddings", "n_positions", "initializer_range", "use_cache",
    "pretraining_tp", "tie_word_embeddings", "is_decoder", "reorder_and_upcast_attn", "output_router_logits",
    "router_aux_loss_coef", "router_jitter_noise", "init_std", "layerdrop", "dropout",
))  # fmt: skip
_IDLE_ENDS, _IDLE_BEGIN = ("_dropout", "_pdrop", "_token_id"), "summary_"


class OtherError(Exception):
    """Why a model has no description."""


def fields_of(config: PreTrainedConfig) -> dict[str, Any]:
    """The fields that the class of a config declares: its code reads no others. Refuses those not described here."""
    from transformers import PreTrainedConfig as Common

    common = {field.name for field in dataclasses.fields(Common)}
    found = {}
    for field in dataclasses.fields(config):
        name = field.name
        if name in common and name not in _READ:
            continue
        value = found[name] = getattr(config, name)
        allowed, reason = _ONLY.get(name, ((value,), ""))
        if value not in allowed:
            raise OtherError(reason)
        known = name in _READ | _IDLE | set(_ONLY) or name.endswith(_IDLE_ENDS) or name.startswith(_IDLE_BEGIN)
        usual = field.default_factory() if callable(field.default_factory) else field.default
        if not known and value != usual:
            raise OtherError(f"its config asks for {name} = {value}, which is not described here")
    return found
