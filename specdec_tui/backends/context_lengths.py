"""How long a text a model was made for, by its config."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# What model families call the longest sequence they were made for.
_LENGTH_NAMES = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "n_ctx", "seq_length")
# Of a decoder that has an encoder. T5's n_positions binds nothing: it has biases for distances, not places.
_DECODER_LENGTH_NAMES = ("max_decoder_position_embeddings", "max_position_embeddings")

# Rotations made for `factor` times the positions they come from.
_SCALED = ("yarn", "dynamic")


def context_length_of(config: PreTrainedConfig) -> int | None:
    """Most tokens a model was made for, with the scaling of its rotations; None when its config names no limit."""
    for name in _DECODER_LENGTH_NAMES if getattr(config, "is_encoder_decoder", False) else _LENGTH_NAMES:
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return max(value, _scaled_length(config, value))
    return None


def _scaled_length(config: PreTrainedConfig, length: int) -> int:
    """What scaled rotations reach to: the factor times the original length. 0 where nothing is scaled.

    Some configs name the scaled length themselves, and their original one beside it: the longer of the two holds.
    Linear scaling is left out: half of the configs that use it name the scaled length, and nothing tells which.
    """
    parameters = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(parameters, dict):
        return 0
    # One set for all layers, or one for each kind of layer.
    return max(_reach(each, length) for each in (parameters, *parameters.values()))


def _reach(parameters: object, length: int) -> int:
    if not isinstance(parameters, dict):
        return 0
    kind, factor = parameters.get("rope_type", parameters.get("type")), parameters.get("factor")
    original = parameters.get("original_max_position_embeddings") or length
    if not isinstance(kind, str) or not kind.startswith(_SCALED):
        return 0
    if not isinstance(factor, int | float) or not isinstance(original, int | float):
        return 0
    reach = factor * original
    return round(reach) if 0 < reach < 2**62 else 0
