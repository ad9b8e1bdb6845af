"""Load one model's weights: dtype, quantization, GGUF files, one device or several."""

from __future__ import annotations

import logging
import pickle
import re
import struct
import zipfile
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, BitsAndBytesConfig, PreTrainedModel

from specdec_tui.backends import hub
from specdec_tui.backends.description import ModelDescription
from specdec_tui.backends.errors import first_line, in_words, plainly
from specdec_tui.backends.generation_fields import (
    asked_of_generate,
    asked_of_gguf,
    sampling_asked,
    sampling_asked_of_gguf,
    told,
)
from specdec_tui.backends.gguf import expanded
from specdec_tui.backends.gguf.config import is_known
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.gguf.header import read_header
from specdec_tui.backends.gguf.parts import parts_of
from specdec_tui.backends.memory import Placement
from specdec_tui.backends.model_class import class_for
from specdec_tui.backends.pair import LoadError, ModelInfo
from specdec_tui.backends.weight_files import names_of
from specdec_tui.doors.characters import named

_NAMED = 3  # tensors that a message names

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


def load_weights(
    model: ModelDescription, dtype: torch.dtype, placement: Placement
) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """Load a model onto its place, and what a person must know of its files; LoadError, out of memory included.

    Weights that the config asks for must be in the files, in its shapes: transformers makes up random
    numbers for others and only warns. Pickled files are read as numbers alone, never as Python objects.
    """
    folder: Path | None = model.location.folder
    loader: Any = class_for(model.config)
    arguments: dict[str, Any] = {
        "config": deepcopy(model.config),
        "dtype": dtype,
        "gguf_file": model.location.gguf_file,
        "trust_remote_code": False,
        "weights_only": True,
        "use_kernels": False,
        # Whatever the config says: transformers' own choice for the model.
        "attn_implementation": None,
        "experts_implementation": None,
        "ignore_mismatched_sizes": True,  # told below, by name
    }
    if placement.max_memory is not None:
        arguments |= {"device_map": "auto", "max_memory": placement.max_memory}
    else:
        arguments["device_map"] = {"": placement.device}
    expanded_as = ""
    if model.location.gguf_file is not None:
        packed, expanded_as = _packed_on_gpu(model, dtype, placement)
        if packed is not None:
            return packed, ()
        if parts := parts_of(model.location.folder / model.location.gguf_file)[1:]:
            raise LoadError(
                f"{model.spec.name} is one of {len(parts) + 1} parts of a split GGUF file, which cannot be expanded: "
                f"join them with `llama-gguf-split --merge {model.location.gguf_file} whole.gguf` and name that file."
            )
        file = GgufFile(model.location.folder / model.location.gguf_file)
        if is_known(file.header) and file.header.architecture in expanded.NAMED:
            loader, folder = MODEL_FOR_CAUSAL_LM_MAPPING[type(model.config)], None
            del arguments["gguf_file"], arguments["trust_remote_code"]
            arguments["state_dict"] = expanded.state_of(file, model.config, dtype)
        else:
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
        loaded, found = loader.from_pretrained(folder, output_loading_info=True, **arguments)
    except torch.OutOfMemoryError as error:
        raise LoadError(
            f"{model.spec.name}: out of memory on {placement.device}. Try a smaller dtype or int8."
        ) from error
    except Exception as error:
        raise LoadError(f"{model.spec.name}: its weights cannot be loaded: {_why_not_loaded(error)}") from error
    name = model.spec.name
    missing = sorted(found["missing_keys"])
    if missing:
        raise LoadError(f"{name}: its weight files lack {_names(missing)} ({_count(missing)} its config asks for).")
    for tensor, stored, asked in sorted(found["mismatched_keys"]):
        raise LoadError(
            f"{name}: {named(tensor)} is {_shape(stored)} in its weight files and {_shape(asked)} by its config: "
            "they do not belong together."
        )
    unused = sorted({*found["unexpected_keys"], *_passed_over(model, loaded)})
    told = [f"{name}: its config does not use {_some(unused)} of its files."] if unused else []
    if not unused and model.location.gguf_file is not None and (more := _left_in_gguf(model, loaded)) > 0:
        told.append(f"{name}: its config does not use {more:,} of the file's weights.")
    if asked := _asked_and_not_done(model, loaded):
        told.append(f"{name}: {asked}.")
    if whole := _whole(model, loaded, unused):
        kinds, them = " and ".join(sorted(set(whole.values()))), "it is" if len(whole) == 1 else "they are"
        told.append(
            f"{name}: its files hold {_some(sorted(whole))} as {kinds}, and no quantization config says what that "
            f"means: used as weights as {them}."
        )
    if expanded_as:
        told.append(f"{name}: its weights are expanded, which is slower and takes more memory: {expanded_as}.")
    if why := _kept_by_its_library(loaded, placement):
        told.append(f"{name}: its quantized layers are computed by their library, token by token: {why}.")
    return loaded, tuple(told)


def bytes_packed_on_gpu(model: ModelDescription, device: str, dtype: torch.dtype) -> int | None:
    """What a GGUF file's weights take on a GPU that reads them packed; None where they are expanded."""
    if device == "cpu" or model.location.gguf_file is None or model.spec.weights == "expanded":
        return None
    if dtype is torch.float32:
        return None
    from specdec_tui.backends.gpu.packed import gguf_model

    file = GgufFile(model.location.folder / model.location.gguf_file)
    return gguf_model.bytes_on_a_gpu(file, dtype) if is_known(file.header) and gguf_model.reads(file) else None


def _packed_on_gpu(
    model: ModelDescription, dtype: torch.dtype, placement: Placement
) -> tuple[PreTrainedModel | None, str]:
    """A GGUF file's model with its matrices as they are packed; None where they are expanded, and why where they need
    not be."""
    if bytes_packed_on_gpu(model, placement.device, dtype) is None:
        return None, ""
    if placement.max_memory is not None:
        return None, "it is spread over several devices"
    from specdec_tui.backends.gpu.packed import gguf_model

    file = GgufFile(model.location.folder / str(model.location.gguf_file))
    try:
        return gguf_model.load(file, deepcopy(model.config), dtype, torch.device(placement.device)), ""
    except torch.OutOfMemoryError as error:
        raise LoadError(f"{model.spec.name}: out of memory on {placement.device}. Try a smaller model.") from error
    except LoadError:
        raise
    except ValueError as error:
        return None, str(error)
    except Exception as error:  # Triton may be missing, and its compiler fails in ways of its own
        return None, f"our kernels fail ({type(error).__name__}: {first_line(error)})"


def _kept_by_its_library(loaded: PreTrainedModel, placement: Placement) -> str:
    """Quantized layers on a GPU are replaced by packed ones of our own, which can be captured; why that is not done."""
    if not getattr(loaded, "is_quantized", False) or placement.max_memory is not None or loaded.device.type != "cuda":
        return ""
    try:
        from specdec_tui.backends.gpu.packed.model import pack_quantized

        return pack_quantized(loaded)
    except torch.OutOfMemoryError:
        return "there is no memory to pack them"
    except Exception as error:  # Triton may be missing, and its compiler fails in ways of its own
        return f"our kernels fail ({type(error).__name__}: {first_line(error)})"


# Masks and tables of rotations that old files carry: transformers makes them anew, and nothing is lost.
_TABLES = re.compile(r"(?:^|\.)(?:\w*inv_freq|(?:attn|\w*attention)\.(?:masked_)?bias|causal_mask|position_ids)$")


def _passed_over(model: ModelDescription, loaded: PreTrainedModel) -> list[str]:
    """Tensors that transformers leaves out by their names without a word, as heads that predict several tokens."""
    patterns = [re.compile(pattern) for pattern in loaded._keys_to_ignore_on_load_unexpected or ()]
    if model.location.gguf_file is not None or not patterns:
        return []
    names = hub.contents_of(model.location).tensors or frozenset()
    left = [name for name in names if any(pattern.search(name) for pattern in patterns) and not _TABLES.search(name)]
    held = loaded.state_dict().keys() if left else ()
    return [name for name in left if not {name, f"{loaded.base_model_prefix}.{name}"} & set(held)]


def _whole(model: ModelDescription, loaded: PreTrainedModel, unused: Sequence[str]) -> dict[str, str]:
    """Tensors that became weights though their files hold no fractions for them, and no config says what they mean."""
    if getattr(model.config, "quantization_config", None) is not None:
        return {}
    counts = {name for name, buffer in loaded.named_buffers() if not buffer.is_floating_point()}
    left_out = {*unused, *counts, *(f"{loaded.base_model_prefix}.{name}" for name in counts)}
    contents = hub.contents_of(model.location)
    stored = _whole_of_pickles(model.location) if contents.tensors is None else contents.whole
    return {name: kind for name, kind in stored.items() if name not in left_out and not _TABLES.search(name)}


def _whole_of_pickles(location: hub.Location) -> dict[str, str]:
    """The same of files in torch's format, of which only an opened one tells; older kinds are not read twice."""
    found: dict[str, str] = {}
    for name in names_of(location.folder) or ():
        path = location.folder / name
        if zipfile.is_zipfile(path):
            tensors = torch.load(path, map_location="meta", weights_only=True, mmap=True)
            kinds = {key: tensor.dtype for key, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}
            if odd := sorted(key for key, kind in kinds.items() if kind.is_complex):
                raise LoadError(f"{path} holds complex numbers in {named(odd[0])}: no model has such weights.")
            whole = {key: kind for key, kind in kinds.items() if not kind.is_floating_point}
            found |= {key: str(kind).removeprefix("torch.") for key, kind in whole.items()}
    return found


def _left_in_gguf(model: ModelDescription, loaded: PreTrainedModel) -> int:
    """Weights of a GGUF file that did not become the model's: transformers passes over tensors that it cannot place."""
    header = read_header(model.location.folder / str(model.location.gguf_file))
    if is_known(header):  # its tensors were looked at one by one
        return 0
    return header.parameters - sum(parameter.numel() for parameter in loaded.parameters())


def _asked_and_not_done(model: ModelDescription, loaded: PreTrainedModel) -> str:
    """What its files ask for in numbers or rotations and transformers passes over; empty for nothing."""
    if model.location.gguf_file is not None:
        header = read_header(model.location.folder / model.location.gguf_file)
        scaling = "" if is_known(header) else header.scaling
        rotations = getattr(loaded.config, "rope_parameters", None) or {}
        if scaling and rotations.get("rope_type", "default") == "default":
            return f"its file scales rotations ({scaling}), which transformers does not do for GGUF files"
        return ""
    asked = getattr(model.config, "quantization_config", None)
    if asked is None or getattr(loaded, "is_quantized", False):
        return ""
    method = asked.get("quant_method") if isinstance(asked, dict) else getattr(asked, "quant_method", None)
    kept = str(loaded.dtype).removeprefix("torch.")
    return f"its config asks for {named(str(method))} quantization, which is not done: its weights are held as {kept}"


def _some(tensors: Sequence[str]) -> str:
    """`3 tensors (a, b, c)`, with the first few names."""
    return f"{_count(tensors)} ({_names(tensors)})"


def _names(tensors: Sequence[str]) -> str:
    return ", ".join(map(named, tensors[:_NAMED])) + (" …" if len(tensors) > _NAMED else "")


def _count(tensors: Sequence[str]) -> str:
    return f"{len(tensors):,} tensor{'s' if len(tensors) > 1 else ''}"


def _shape(sizes: Sequence[int]) -> str:
    return " × ".join(map(str, sizes)) or "a number"


def _why_not_loaded(error: Exception) -> str:
    """What an error says, but for advice that nobody should follow, and for words that point at what is not shown."""
    text = plainly(error)
    if isinstance(error, pickle.UnpicklingError) or "weights_only" in text or "Weights only load" in text:
        return "a file in torch's format holds more than numbers, or is damaged: such files are not opened"
    if isinstance(error, KeyError) and error.args == ("metadata",):
        return "the index of its weight files has no metadata: download it again"
    if "above report" in text:
        return "its tensors cannot be converted to what its config describes"
    if isinstance(error, struct.error | EOFError | SafetensorError) or "unexpected EOF" in text:
        return "a weight file is damaged, or cut off: download it again"
    return in_words(error, "its files are damaged, or do not belong to its config")


def asked_by(model: ModelDescription, loaded: PreTrainedModel) -> dict[str, Any]:
    """What a model's files ask of `generate`, by field."""
    if model.location.gguf_file is not None:
        return asked_of_gguf(read_header(model.location.folder / model.location.gguf_file))
    return asked_of_generate(model.location.folder, loaded)


def sampling_by(model: ModelDescription, loaded: PreTrainedModel) -> str:
    """How a model's files want its tokens drawn, in words; empty where they do not say."""
    if model.location.gguf_file is not None:
        return sampling_asked_of_gguf(read_header(model.location.folder / model.location.gguf_file))
    return sampling_asked(model.location.folder, loaded)


def info_of(
    model: ModelDescription,
    loaded: PreTrainedModel,
    parameters: int,
    context_length: int | None,
    caveats: tuple[str, ...] = (),
    *,
    asked: Mapping[str, Any],
    applied: Collection[str] = (),
) -> ModelInfo:
    """What was really loaded. `asked`: fields of its generation config, of which `applied` ones are done."""
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
        caveats=caveats,
        generation_config_applied={name: told(value) for name, value in asked.items() if name in applied},
        generation_config_not_applied={name: told(value) for name, value in asked.items() if name not in applied},
    )
