"""Load one model's weights: dtype, quantization, GGUF files, one device or several."""

from __future__ import annotations

import logging
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, PreTrainedModel

from specdec_tui.backends.description import ModelDescription
from specdec_tui.backends.errors import first_line
from specdec_tui.backends.generation_fields import not_applied
from specdec_tui.backends.memory import Placement
from specdec_tui.backends.pair import LoadError, ModelInfo

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def resolve_dtype(asked: str, device: str) -> torch.dtype:
    """The dtype to compute in. `auto` is float32 on a CPU and the faster half precision on a GPU.

    On a CPU float32 is what makes a block of drafts and single steps agree to the last choice,
    so that a lossless strategy shows the very same text.
    """
    if asked != "auto":
        return _DTYPES[asked]
    if device == "cpu":
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def check_quantization(model: ModelDescription) -> None:
    """LoadError when a model cannot be quantized as asked."""
    name, quantization = model.spec.name, model.spec.quantization
    if quantization == "none":
        return
    if model.location.gguf_file is not None:
        raise LoadError(
            f"{name} is a GGUF file, which is dequantized when it loads: --quantize cannot be used with it."
        )
    stored = getattr(model.config, "quantization_config", None)
    if stored is not None:
        method = stored.get("quant_method", "") if isinstance(stored, dict) else stored.quant_method
        raise LoadError(f"{name} is quantized already ({method}): use --quantize none.")
    # It tells at every matrix product of every step that it casts to float16.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    try:
        import bitsandbytes  # noqa: F401
    except Exception as error:  # its native library may fail to load in many ways
        raise LoadError(
            f"{quantization} needs the bitsandbytes package, which does not work here: {first_line(error)}"
        ) from error


def load_weights(model: ModelDescription, dtype: torch.dtype, placement: Placement) -> PreTrainedModel:
    """Load a model onto its place; LoadError in one line, out of memory included."""
    arguments: dict[str, Any] = {"dtype": dtype, "gguf_file": model.location.gguf_file, "trust_remote_code": False}
    if placement.max_memory is not None:
        arguments |= {"device_map": "auto", "max_memory": placement.max_memory}
    else:
        arguments["device_map"] = {"": placement.device}
    if model.location.gguf_file is not None:
        # Newer versions keep the weights packed unless told otherwise, which is slow.
        arguments["quantization_config"] = transformers.GgufConfig(dequantize=True)
    elif model.spec.quantization == "int8":
        arguments["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
    elif model.spec.quantization == "int4":
        arguments["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    try:
        loaded: PreTrainedModel
        loaded, found = AutoModelForCausalLM.from_pretrained(
            model.location.folder, output_loading_info=True, **arguments
        )
    except torch.OutOfMemoryError as error:
        raise LoadError(
            f"{model.spec.name}: out of memory on {placement.device}. Try a smaller dtype or int8."
        ) from error
    except Exception as error:
        raise LoadError(f"{model.spec.name}: its weights cannot be loaded: {first_line(error)}") from error
    # transformers makes up random numbers for these and only warns.
    missing = sorted(found["missing_keys"])
    if missing:
        raise LoadError(f"{model.spec.name}: its weight files lack {', '.join(missing[:3])}.")
    return loaded


def info_of(model: ModelDescription, loaded: PreTrainedModel, parameters: int, context_length: int | None) -> ModelInfo:
    """What was really loaded."""
    places = sorted({str(place) for place in (getattr(loaded, "hf_device_map", None) or {}).values()})
    device = "+".join(f"cuda:{place}" if place.isdigit() else place for place in places) or str(loaded.device)
    return ModelInfo(
        name=model.spec.name,
        device=device,
        dtype=str(loaded.dtype).removeprefix("torch."),
        quantization=model.spec.quantization,
        parameters=parameters,
        memory_bytes=loaded.get_memory_footprint(),
        context_length=context_length,
        generation_config_not_applied=not_applied(model.location.folder, loaded),
    )
