"""How much memory a model takes, how much there is, and so where it goes. Decided before any weights load.

transformers is imported where a model is built to be counted, and not for the rest.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch

from specdec_tui.backends.config_sizes import LAYER_BYTES, Sizes
from specdec_tui.backends.context_lengths import context_length_of
from specdec_tui.backends.errors import is_out_of_memory
from specdec_tui.backends.pair import LoadError

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# Bytes a quantized weight takes, its scales included (bitsandbytes: one float per row, per 64 weights).
_QUANTIZED_BYTES = {"int8": 1.01, "int4": 0.5 + 4 / 64}
_QUANTIZED_LAYERS = ("Linear", "Conv1D")
_PLANNED_TOKENS = 4096
_HEADROOM = 1.05
_RESERVED_BYTES = 256 << 20  # activations, kernels' workspaces
_UNCOUNTABLE = 2.0**63
_MOST_LAYERS = 10_000  # the deepest known models have some hundreds; as many take some seconds to build
_MODULE_BYTES = LAYER_BYTES // 11  # a Llama layer has so many modules
_COUNTED_OFTEN = 1000  # modules between two looks at what they take


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one model needs, in bytes: weights, tables that are no weights, keys and values per token of context."""

    name: str
    parameters: int
    weight_bytes: int
    cache_bytes_per_token: int
    context_length: int | None = None
    table_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it, with the cache of a conversation of up to 4,096 tokens and some headroom."""
        tokens = min(self.context_length or _PLANNED_TOKENS, _PLANNED_TOKENS)
        return int(self.weight_bytes * _HEADROOM) + self.table_bytes + tokens * self.cache_bytes_per_token


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a model goes: on one `device`, or spread by accelerate within `max_memory` (bytes per device)."""

    device: str
    max_memory: dict[int | str, int] | None = None
    note: str = ""


def refuse_what_cannot_fit(name: str, sizes: Sizes) -> None:
    """LoadError for a model that fits no memory of this machine, however it is loaded, or takes minutes to build.

    Told before it is built, which is how its weights are counted.
    """
    free = available_bytes("cpu")
    if torch.cuda.is_available():
        free += sum(available_bytes(f"cuda:{index}") for index in range(torch.cuda.device_count()))
    least = sizes.least_bytes(_QUANTIZED_BYTES["int4"])
    if least > free:
        raise LoadError(_too_large(name, gigabytes(sizes.least_bytes(2)), free))
    if sizes.layers > _MOST_LAYERS:
        raise LoadError(f"{name}: its config names {sizes.layers:,} layers: at most {_MOST_LAYERS:,} are built here.")


def estimate(
    name: str, config: PreTrainedConfig, dtype: torch.dtype, quantization: str, packed_bytes: int | None = None
) -> Estimate:
    """Count a model's weights by building it without memory (on the meta device).

    `packed_bytes`: what its weights take where they are held as they are stored. LoadError when its config makes no
    model, or one whose parts alone fill the memory.
    """
    import accelerate

    from specdec_tui.backends.model_class import class_for

    try:
        with accelerate.init_empty_weights(include_buffers=True), _bounded(name):
            # Eager attention, which every model has: a config may name a kernel to be fetched.
            model = class_for(config).from_config(config, attn_implementation="eager")
        counted = _counted(name, model, config, dtype, quantization)
        return counted if packed_bytes is None else replace(counted, weight_bytes=packed_bytes)
    except LoadError:
        raise
    except Exception as error:
        if is_out_of_memory(error) or isinstance(error, OverflowError) or "overflow" in str(error).lower():
            raise LoadError(_too_large(name, gigabytes(_UNCOUNTABLE), available_bytes("cpu"))) from error
        raise LoadError(
            f"{name}: no model can be made of its config: {_named_fault(error, config.to_dict())}"
        ) from error


def _named_fault(error: Exception, config: Mapping[str, Any]) -> str:
    """What is wrong with a config, with the field that it stands in where the error names the value alone."""
    from transformers.activations import ACT2FN
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    from specdec_tui.backends import config_faults

    if "Padding_idx" in str(error):
        return f"pad_token_id is {config.get('pad_token_id')!r:.40}, which is no id of its vocabulary"
    if isinstance(error, KeyError) and (field := _field_of(error.args[:1], config)):
        known: Sequence[str] = sorted({"default", *ROPE_INIT_FUNCTIONS}) if field.endswith("rope_type") else ()
        if "act" in field:
            known = [name for name in ("silu", "gelu", "gelu_new", "relu", "tanh") if name in ACT2FN]
        such = f": {', '.join(known)} are" if known else ""
        return f"{field} is {error.args[0]!r:.40}, which is not known{such}"
    return config_faults.fault(error, config, config_faults.build)


def _field_of(value: tuple[Any, ...], config: Mapping[str, Any]) -> str:
    """Where a config says that; empty where it does not."""
    for name, held in config.items():
        if type(held) is str and (held,) == value:
            return name
        if isinstance(held, dict) and (inner := _field_of(value, {str(key): part for key, part in held.items()})):
            return f"{name}.{inner}"
    return ""


@contextmanager
def _bounded(name: str) -> Iterator[None]:
    """End the building of a model whose modules, without any weights, take more than there is."""
    free = available_bytes("cpu")
    count = itertools.count(1)

    def bound(*_: Any) -> None:
        built = next(count)
        if built % _COUNTED_OFTEN == 0 and built * _MODULE_BYTES > free:
            raise LoadError(_too_large(name, gigabytes(free), free))

    hook = torch.nn.modules.module.register_module_module_registration_hook(bound)
    try:
        yield
    finally:
        hook.remove()


def _counted(name: str, model: Any, config: PreTrainedConfig, dtype: torch.dtype, quantization: str) -> Estimate:
    head = model.get_output_embeddings()
    tied = head is not None and getattr(config.get_text_config(decoder=True), "tie_word_embeddings", False)
    stored = _stored_bytes(config)
    parameters, weight_bytes, tables = 0, 0.0, 0
    model.tie_weights()  # as loading does: what an encoder and a decoder share is there once
    counted: set[int] = set()
    for module in model.modules():
        if tied and module is head:
            continue
        own = [parameter for parameter in module.parameters(recurse=False) if id(parameter) not in counted]
        counted |= {id(parameter) for parameter in own}
        count = sum(parameter.numel() for parameter in own)
        parameters += count
        each = float(dtype.itemsize)
        if type(module).__name__ in _QUANTIZED_LAYERS and module is not head:
            each = _QUANTIZED_BYTES.get(quantization, stored or each)
        weight_bytes += count * each
        tables += sum(buffer.numel() * buffer.itemsize for buffer in module.buffers(recurse=False))
    text_config = config.get_text_config(decoder=True)
    return Estimate(
        name, parameters, int(weight_bytes), _cache_bytes(text_config, dtype), context_length_of(text_config), tables
    )


def _stored_bytes(config: PreTrainedConfig) -> float | None:
    """Bytes a weight takes in a checkpoint that is quantized already; None for a plain one."""
    quantized: Any = getattr(config, "quantization_config", None)
    if quantized is None:
        return None
    values = quantized if isinstance(quantized, dict) else quantized.to_dict()
    bits = values.get("bits") or values.get("w_bit")
    if not bits:
        bits = 4 if values.get("load_in_4bit") or values.get("quant_method") == "mxfp4" else 8
    return float(bits) / 8


def _cache_bytes(config: PreTrainedConfig, dtype: torch.dtype) -> int:
    """Of a token: a decoder with an encoder keeps as much of the prompt's, which its cross-attention has made."""
    layers = getattr(config, "num_decoder_layers", None) or getattr(config, "num_hidden_layers", 0) or 0
    heads = getattr(config, "num_attention_heads", None) or 1
    width = getattr(config, "head_dim", None) or (getattr(config, "hidden_size", 0) or 0) // heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    return 2 * layers * groups * width * dtype.itemsize


def resolve_device(asked: str) -> str:
    """`auto`, `cpu`, `cuda` or `cuda:N` -> `cpu`, `cuda` (any of several) or `cuda:N`; LoadError when it is absent."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if asked == "auto":
        return "cuda" if count else "cpu"
    if asked.startswith("cuda"):
        if not count:
            raise LoadError(f"device: '{asked}' was asked for and there is no CUDA GPU: use 'cpu' or 'auto'.")
        _, _, index = asked.partition(":")
        if index and int(index) >= count:
            names = ", ".join(f"cuda:{i}" for i in range(count))
            raise LoadError(f"device: there is no '{asked}': this machine has {names}.")
    return asked


def available_bytes(device: str) -> int:
    """Free memory of `cpu` (the container's limit counts) or `cuda:N`."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    return min(psutil.virtual_memory().available, _container_bytes())


def _container_bytes(root: Path = Path("/sys/fs/cgroup")) -> int:
    """What a container may still use (cgroup v2): the kernel ends a process that takes more."""
    try:
        limit = (root / "memory.max").read_text().strip()
        if limit == "max":
            return 2**63
        used = int((root / "memory.current").read_text())
        # Cached files count as used, and are given back when needed.
        statistics = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        return int(limit) - used + int(statistics.get("inactive_file", 0)) + int(statistics.get("active_file", 0))
    except (OSError, ValueError):
        return 2**63


def give_back() -> None:
    """Free what only holds on to itself, and hand memory that nothing uses back to the GPUs."""
    gc.unfreeze()  # what a start left is kept out of collections, and may be most of it
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def place(needs: Sequence[Estimate], device: str, quantization: str = "none") -> list[Placement]:
    """One placement for each model (the target first, whose quantization is given).

    All on one device when they fit; else the target on one GPU and what drafts on another; else the target spread over
    all GPUs and the CPU, which accelerate's `device_map` does. LoadError with the numbers when they cannot fit.
    """
    if device == "cpu":
        free = {"cpu": available_bytes("cpu")}
        if _sum(needs) > free["cpu"]:
            raise LoadError(_impossible(needs, free))
        return [Placement("cpu")] * len(needs)
    names = _gpus(device)
    free = {name: available_bytes(name) for name in names}
    roomiest = max(names, key=lambda name: free[name])
    if _sum(needs) + _RESERVED_BYTES <= free[roomiest]:
        return [Placement(roomiest)] * len(needs)
    target, *others = needs
    second = max((name for name in names if name != roomiest), key=lambda name: free[name], default=roomiest)
    alone = target.total_bytes + _RESERVED_BYTES <= free[roomiest]
    if second != roomiest and alone and _sum(others) + _RESERVED_BYTES <= free[second]:
        drafting = " and ".join(need.name for need in others)
        note = f"{target.name} is on {roomiest} and {drafting} on {second}: they do not fit one GPU together."
        return [Placement(roomiest, note=note), *(Placement(second) for _ in others)]
    room = {name: size - _RESERVED_BYTES for name, size in free.items()}
    room[roomiest] -= _sum(others)
    room = {name: max(0, size) for name, size in room.items()}
    on_gpus = target.total_bytes <= sum(room.values())
    if not on_gpus:
        room["cpu"] = free["cpu"] = available_bytes("cpu")
    if target.total_bytes > sum(room.values()) or _sum(others) > free[roomiest]:
        raise LoadError(_impossible(needs, free))
    if not on_gpus and quantization != "none":
        raise LoadError(f"{_impossible(needs, free)} A quantized target cannot be moved to the CPU in part.")
    note = (
        f"{target.name} does not fit one GPU and is spread over {len(names)} of them."
        if on_gpus
        else f"{target.name} does not fit the GPU memory: a part of it runs on the CPU, which is slow."
    )
    limits: dict[int | str, int] = {
        name if name == "cpu" else int(name.partition(":")[2]): size for name, size in room.items()
    }
    return [Placement(roomiest, limits, note), *(Placement(roomiest) for _ in others)]


def fit_one_gpu(needs: Sequence[Estimate], device: str) -> bool:
    """Whether models fit `cuda:N` together, or for `cuda` the roomiest of all."""
    return _sum(needs) + _RESERVED_BYTES <= max(map(available_bytes, _gpus(device)))


def _gpus(device: str) -> list[str]:
    return [device] if ":" in device else [f"cuda:{i}" for i in range(torch.cuda.device_count())]


def _sum(needs: Sequence[Estimate]) -> int:
    return sum(need.total_bytes for need in needs)


def _impossible(needs: Sequence[Estimate], free: dict[str, int]) -> str:
    wanted = " + ".join(f"{need.name} {gigabytes(need.total_bytes)}" for need in needs)
    have = ", ".join(f"{name} {gigabytes(size)}" for name, size in free.items())
    return f"Not enough memory: {wanted} needed, {have} free. Choose a smaller model, dtype or quantization."


def _too_large(name: str, needed: str, free: int) -> str:
    about = needed if needed.startswith("more") else f"about {needed}"
    return f"Not enough memory: {name} needs {about}, {gigabytes(free)} is free. Choose a smaller model."


def gigabytes(size: float) -> str:
    """A size for a person: `6.4 GB`, `20 MB` where tenths of a gigabyte would not tell it."""
    if size == 0:
        return "0 MB"
    if size < 1e8:
        return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    return f"{size / 1e9:,.1f} GB" if size < 1e15 else "more than 1,000,000 GB"
