"""In which form a preset's models are loaded on a GPU where nobody asked for one: the faster that the card holds.

Measured on an H200: a quantized model whose weights our kernels read packed is faster than the same in bfloat16, which
is far faster than the quantizing library's own kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from specdec_tui.backends import memory
from specdec_tui.backends.description import ModelDescription
from specdec_tui.backends.errors import first_line
from specdec_tui.backends.gpu import launches
from specdec_tui.backends.gpu.packed.codes import HALVES

_OLDEST = (8, 0)


def faster(models: Sequence[ModelDescription], device: str, dtype: torch.dtype) -> tuple[list[ModelDescription], str]:
    """The models with the quantization that is faster on a device, and what to tell of it."""
    own = [model for model in models if model.spec.by_preset]
    if not own or device == "cpu":
        return list(models), ""
    quantization, name = own[0].spec.quantization, str(dtype).removeprefix("torch.")
    if not (why := _why_not_packed(device, name)):
        return list(models), f"In {quantization}, as the preset has it: read packed here, it is faster than {name}."
    plain = [
        replace(model, spec=replace(model.spec, quantization="none", by_preset=False)) if model in own else model
        for model in models
    ]
    needs = [memory.estimate(m.spec.name, m.config, dtype, m.spec.quantization) for m in plain]
    if not memory.fit_one_gpu(needs, device):
        return list(models), ""
    return plain, f"In {name}, not in the preset's {quantization}: it fits the GPU and is faster here, as {why}."


def _why_not_packed(device: str, dtype: str) -> str:
    """Why our kernels do not read quantized weights on a device."""
    if dtype not in HALVES:
        return f"packed weights are not for {dtype}"
    if launches.kernels() is None:
        return "packed weights need Triton"
    if torch.cuda.get_device_capability(torch.device(device)) < _OLDEST:
        return "packed weights need compute capability 8.0"
    try:
        import bitsandbytes  # noqa: F401
    except Exception as error:  # its native library may fail to load in many ways
        return f"bitsandbytes does not work: {first_line(error)}"
    return ""
