"""Models whose weights are quantized as a library or a file has them, and the same numbers as a dense model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BitsAndBytesConfig, PreTrainedModel

from specdec_tui.backends.gpu.packed.linear import PackedLinear

GROUP = 128
"""Columns that share a scale in GPTQ's usual files and in fp8's."""


def quantize(model: PreTrainedModel, form: str, twin: PreTrainedModel) -> None:
    """Quantize all matrices of a model but its embedding and its output; `twin`, the same model, gets what they say.

    Parameters of `twin` become float32: those that are quantized as the form expands them, the others as they were.
    """
    for parameter in twin.parameters():
        parameter.data = parameter.data.float()
    head = model.get_output_embeddings()
    for name, linear in [(n, m) for n, m in model.named_modules() if type(m) is nn.Linear and m is not head]:
        made, expanded = _MADE[form](linear)
        made.bias = linear.bias
        model.set_submodule(name, made)
        twin.get_submodule(name).weight.data = expanded
    model.is_quantized = True
    if form in _OF_BITSANDBYTES:
        model.config.quantization_config = BitsAndBytesConfig(**_OF_BITSANDBYTES[form])
        model.is_loaded_in_8bit, model.is_loaded_in_4bit = form == "int8", form == "int4"


_OF_BITSANDBYTES: dict[str, dict[str, Any]] = {
    "int8": {"load_in_8bit": True},
    "int4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}


def _int8(linear: nn.Linear) -> tuple[Any, Tensor]:
    """bitsandbytes' int8: a scale for each row."""
    import bitsandbytes

    weight = linear.weight.data
    with torch.device("meta"):
        made: Any = bitsandbytes.nn.Linear8bitLt(
            linear.in_features, linear.out_features, linear.bias is not None, has_fp16_weights=False, threshold=6.0
        )
    # Only what comes from the CPU is quantized.
    made.weight = bitsandbytes.nn.Int8Params(weight.cpu(), requires_grad=False).to(weight.device)
    return made, made.weight.data.float() * made.weight.SCB.float()[:, None] / 127


def _int4(linear: nn.Linear) -> tuple[Any, Tensor]:
    """bitsandbytes' nf4 in blocks of 64."""
    import bitsandbytes

    weight = linear.weight.data
    with torch.device("meta"):
        made: Any = bitsandbytes.nn.Linear4bit(
            linear.in_features, linear.out_features, linear.bias is not None, weight.dtype, False, "nf4"
        )
    given = {"requires_grad": False, "compress_statistics": False, "quant_type": "nf4", "module": made}
    made.weight = bitsandbytes.nn.Params4bit(weight, **given).to(weight.device)
    state, codes = made.weight.quant_state, made.weight.data.flatten()
    blocks = state.code.float()[torch.stack([codes >> 4, codes & 15], 1).long()]
    return made, (blocks.view(-1, state.blocksize) * state.absmax.float()[:, None]).view(state.shape)


class Tensors(nn.Module):
    """A layer as a file has it: tensors, and no way to compute."""

    bias: Tensor | None
    weight: Tensor
    qweight: Tensor
    qzeros: Tensor
    scales: Tensor
    weight_scale_inv: Tensor

    def __init__(self, linear: nn.Linear, **facts: Any) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        for name, value in facts.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)


def _gptq(linear: nn.Linear, bits: int) -> tuple[Tensors, Tensor]:
    """What GPTQ's files hold, rounded to the nearest: a scale for each GROUP columns of a row, a zero in the middle."""
    weight, middle = linear.weight.data.float(), 1 << bits - 1
    rows, columns = weight.shape
    groups = weight.view(rows, -1, min(GROUP, columns))
    scales = (groups.abs().amax(-1) / (middle - 1)).to(linear.weight.dtype)
    codes = (groups / scales.float()[..., None]).round().clamp(-middle, middle - 1)
    expanded = (codes * scales.float()[..., None]).view(rows, columns)
    shifts = torch.arange(0, 32, bits, device=weight.device)

    def words(values: Tensor) -> Tensor:
        """int32 [n · count] rows of values [n, m] to [n, m]."""
        joined = (values.long().unflatten(0, (-1, len(shifts))) << shifts[:, None]).sum(1)
        return ((joined + 2**31) % 2**32 - 2**31).to(torch.int32)

    zeros = torch.full(scales.shape, middle - 1, device=weight.device)
    made = Tensors(
        linear, bits=bits, qweight=words(codes.view(rows, columns).T + middle), qzeros=words(zeros).T.contiguous(),
        scales=scales.T.contiguous(),
    )  # fmt: skip
    return made, expanded


def _fp8(linear: nn.Linear) -> tuple[Tensors, Tensor]:
    """float8_e4m3fn with a scale for each block of GROUP by GROUP."""
    weight = linear.weight.data.float()
    (rows, columns), block = weight.shape, [min(GROUP, size) for size in weight.shape]
    tiles = weight.view(rows // block[0], block[0], columns // block[1], block[1])
    scales = tiles.abs().amax((1, 3)) / 448
    codes = (tiles / scales[:, None, :, None]).to(torch.float8_e4m3fn)
    expanded = (codes.float() * scales[:, None, :, None]).view(rows, columns)
    return Tensors(linear, weight=codes.view(rows, columns), weight_scale_inv=scales, block_size=block), expanded


_MADE: dict[str, Callable[[nn.Linear], tuple[Any, Tensor]]] = {
    "int8": _int8,
    "int4": _int4,
    "gptq": lambda linear: _gptq(linear, 4),
    "gptq8": lambda linear: _gptq(linear, 8),
    "fp8": _fp8,
}
FORMS = ("plain", *_MADE)
"""int8 and int4 as the app names them, by bitsandbytes; the others are made without a library."""


def narrow(model: PreTrainedModel, dtype: torch.dtype) -> None:
    """Round all parameters, and no buffers, to a dtype."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)


def scale_bytes(model: PreTrainedModel) -> int:
    """Bytes of quantized matrices that are no parameters."""
    total = 0
    for module in model.modules():
        if isinstance(module, PackedLinear):
            matrix = module.matrix
            total += sum(tensor.nbytes for tensor in (matrix.weight, matrix.scales, matrix.offsets))
        weight = getattr(module, "weight", None)
        state = getattr(weight, "quant_state", None)
        scales = getattr(weight, "SCB", None)
        if scales is None:
            scales = getattr(getattr(module, "state", None), "SCB", None)
        total += sum(tensor.nbytes for tensor in (scales, getattr(state, "absmax", None)) if tensor is not None)
    return total
