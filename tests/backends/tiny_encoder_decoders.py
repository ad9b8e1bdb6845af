"""Tiny random encoder-decoder models of several families."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
import transformers
from transformers import PreTrainedModel

_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4}
_BART = {
    "d_model": 32,
    "max_position_embeddings": 128,
    "forced_eos_token_id": None,
    "encoder_layers": 2,
    "decoder_layers": 3,
} | {
    f"{part}_{name}": value
    for part in ("encoder", "decoder")
    for name, value in (("attention_heads", 4), ("ffn_dim", 48))
}
_NEAR = {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}
_IDS = {"vocab_size": 320, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "decoder_start_token_id": 2}
# BART begins with its end token, as its checkpoints do. Fields that only `generate` follows are left out.
ENCODER_DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "t5": ("T5Config", _T5 | _NEAR | {"n_positions": 16}),
    "flan-t5": ("T5Config", _T5 | _NEAR | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": ("MT5Config", _T5 | _NEAR | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "bart": (
        "BartConfig",
        _BART | {"decoder_start_token_id": 1},
    ),
    "marian": ("MarianConfig", _BART | {"static_position_embeddings": True}),
    "pegasus": ("PegasusConfig", _BART | {"normalize_before": True}),
}

# More families, whose code differs in what concerns caches, places or how the prompt is read. Some count no padding.
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "mbart": ("MBartConfig", _BART),
    "m2m_100": ("M2M100Config", _BART | {"pad_token_id": 3}),
    "led": (
        "LEDConfig",
        _BART | {"max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 48, "attention_window": 8},
    ),
    "longt5": ("LongT5Config", _T5 | _NEAR | {"local_radius": 4}),
    "switch": ("SwitchTransformersConfig", _T5 | _NEAR | {"num_experts": 2}),
    "bigbird_pegasus": ("BigBirdPegasusConfig", _BART | {"block_size": 2, "num_random_blocks": 1}),
}


def tiny_encoder_decoder(kind: str, noise: float = 0.0, **overrides: Any) -> PreTrainedModel:
    """A random model whose choices are not all the same token, and depend on prompt, places and text.

    `noise` is a share of its weights: models with little of it agree now and then.
    """
    name, values = (ENCODER_DECODERS | MORE)[kind]
    config = getattr(transformers, name)(**deepcopy(_IDS | values | overrides))
    torch.manual_seed(1)
    model = transformers.AutoModelForSeq2SeqLM.from_config(config).float().eval()
    with torch.no_grad():
        for where, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, _spread(where))
        for where, parameter in model.named_parameters() if noise else ():
            parameter.add_(torch.randn_like(parameter), alpha=noise * _spread(where))
    return model


def _spread(where: str) -> float:
    """Attention that picks, and that the prompt does not drown: else these families repeat one token."""
    if "q_proj" in where or "k_proj" in where:
        return 1.0
    return 0.03 if "encoder_attn.out_proj" in where else 0.3
