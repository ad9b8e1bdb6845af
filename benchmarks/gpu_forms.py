"""Models whose weights bitsandbytes has quantized, and the same numbers as a dense model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import BitsAndBytesConfig, PreTrainedModel

FORMS = ("plain", "int8", "int4")
"""As the app names them: int4 is nf4 in blocks of 64."""


def quantize(model: PreTrainedModel, form: str, twin: PreTrainedModel) -> None:
    """Quantize all matrices of a model but its embedding and its output; `twin`, the same model, gets what they say.

    Parameters of `twin` become float32: those that are quantized as the library expands them, the others as they were.
    """
    import bitsandbytes

    for parameter in twin.parameters():
        parameter.data = parameter.data.float()
    head = model.get_output_embeddings()
    linears = [(n, m) for n, m in model.named_modules() if type(m) is nn.Linear and m is not head]
    for name, linear in linears:
        made: Any
        sizes, biased, weight = (linear.in_features, linear.out_features), linear.bias is not None, linear.weight.data
        with torch.device("meta"):
            if form == "int8":
                made = bitsandbytes.nn.Linear8bitLt(*sizes, biased, has_fp16_weights=False, threshold=6.0)
            else:
                made = bitsandbytes.nn.Linear4bit(*sizes, biased, weight.dtype, False, "nf4")
        made.bias = linear.bias
        if form == "int8":  # only what comes from the CPU is quantized
            made.weight = bitsandbytes.nn.Int8Params(weight.cpu(), requires_grad=False).to(weight.device)
        else:
            given = {"requires_grad": False, "compress_statistics": False, "quant_type": "nf4", "module": made}
            made.weight = bitsandbytes.nn.Params4bit(weight, **given).to(weight.device)
        model.set_submodule(name, made)
        twin.get_submodule(name).weight.data = expanded(made)
    bits = {"load_in_8bit": True} if form == "int8" else {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    model.config.quantization_config = BitsAndBytesConfig(**bits)
    model.is_quantized = True
    model.is_loaded_in_8bit, model.is_loaded_in_4bit = form == "int8", form == "int4"


def expanded(linear: Any) -> Tensor:
    """float32 [rows, columns] of a matrix that was just quantized."""
    weight = linear.weight
    if weight.data.dtype is torch.int8:
        found: Tensor = weight.data.float() * weight.SCB.float()[:, None] / 127
        return found
    state = weight.quant_state
    blocks = state.code.float()[torch.stack([weight.data.flatten() >> 4, weight.data.flatten() & 15], 1).long()]
    return (blocks.view(-1, state.blocksize) * state.absmax.float()[:, None]).view(state.shape)


def narrow(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Round all parameters, and no buffers, to a dtype."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def scale_bytes(model: PreTrainedModel) -> int:
    """Bytes of quantized matrices that are no parameters."""
    total = 0
    for module in model.modules():
        weight = getattr(module, "weight", None)
        state = getattr(weight, "quant_state", None)
        scales = getattr(weight, "SCB", None)
        if scales is None:
            scales = getattr(getattr(module, "state", None), "SCB", None)
        total += sum(tensor.nbytes for tensor in (scales, getattr(state, "absmax", None)) if tensor is not None)
    return total
