"""Which of transformers' classes a config's model is made of, and whether its kind runs here."""

from __future__ import annotations

from typing import Any

from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    PreTrainedConfig,
)


def is_encoder_decoder(config: PreTrainedConfig) -> bool:
    """Whether an encoder reads the prompt and a decoder of its own writes."""
    return bool(getattr(config, "is_encoder_decoder", False))


def class_for(config: PreTrainedConfig) -> Any:
    """What builds and loads the model of a config."""
    return AutoModelForSeq2SeqLM if is_encoder_decoder(config) else AutoModelForCausalLM


def why_no_language_model(config: PreTrainedConfig) -> str:
    """Why a model neither goes on with a text nor answers one, for a person; empty where it does."""
    if not is_encoder_decoder(config):
        causal = type(config) in MODEL_FOR_CAUSAL_LM_MAPPING
        return "" if causal else f"is a {config.model_type} model, which is no causal language model"
    kind = f"is an encoder-decoder model ({config.model_type})"
    if type(config) not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        return f"{kind} that does not read and write text"
    if MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[type(config)].main_input_name != "input_ids":
        return f"{kind} that does not read text"
    return ""


def reads_other_tokens(config: PreTrainedConfig) -> bool:
    """Whether an encoder-decoder model reads one vocabulary and writes another: one id then means two things."""
    pairs = (("vocab_size", "decoder_vocab_size"), ("src_vocab_size", "tgt_vocab_size"))
    sizes = [(getattr(config, one, None), getattr(config, other, None)) for one, other in pairs]
    return any(None not in pair and pair[0] != pair[1] for pair in sizes)
