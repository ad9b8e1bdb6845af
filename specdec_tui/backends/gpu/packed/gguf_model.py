"""A model of a GGUF file whose matrices stay packed on a GPU: they go there as they lie in the file.

What reads the same numbers lies in one matrix, kinds of whole numbers in bytes where they differ (Q4_K beside Q6_K).
Embeddings, norms, biases and matrices of plain numbers, or of kinds that no kernel reads, are numbers of the dtype.
"""

from __future__ import annotations

import accelerate
import gguf
import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from specdec_tui.backends.gguf.expanded import NAMED, halves, name_of
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.gguf.kinds import kind_name
from specdec_tui.backends.gpu.packed.linear import PackedLinear, layers_of
from specdec_tui.backends.gpu.packed.model import DIFFERS, TOGETHER, agrees
from specdec_tui.backends.gpu.packed.packing import Codes, plain_weights
from specdec_tui.backends.gpu.packed.weights import GGUF
from specdec_tui.backends.gpu.packed.weights import gguf as codes_of_rows
from specdec_tui.backends.model_class import class_for
from specdec_tui.backends.pair import LoadError

_AT_ONCE = 1 << 24  # numbers that are expanded at a time
_BYTES = {"Q4_0": 0.625, "Q4_1": 0.75, "Q4_K": 0.75}
"""Of a weight as it is held, with its scales and offsets in float32."""
_MOST_BYTES, _MIXED_BYTES = 1.25, 1.5
_FILE_TOGETHER = (("attn_q", "attn_k", "attn_v"), ("ffn_gate", "ffn_up"))


def reads(file: GgufFile) -> bool:
    """Whether a file is of an architecture that is known here by its tensors' names, and has matrices to be packed."""
    return file.header.architecture in NAMED and any(_is_packed(file, name) for name in file.tensors)


def bytes_on_a_gpu(file: GgufFile, dtype: torch.dtype) -> int:
    """What the weights of a file take there, about."""
    total = 0.0
    for name, tensor in file.tensors.items():
        count = float(np.prod(tensor.shape, dtype=np.int64))
        total += count * (_bytes(_kinds(file, name), dtype) if _is_packed(file, name) else dtype.itemsize)
        if name == "token_embd.weight" and "output.weight" not in file.tensors and _readable(file, name):
            total += count * _bytes(_kinds(file, name), dtype)  # the head is packed as well
    return int(total)


def _kinds(file: GgufFile, name: str) -> set[str]:
    """Those of the matrices that read the same numbers."""
    outer, part = name.removesuffix(".weight").rpartition(".")[::2]
    parts = next((names for names in _FILE_TOGETHER if part in names), (part,))
    names = [f"{outer}.{each}.weight".removeprefix(".") for each in parts]
    return {kind_name(file.tensors[each].kind) for each in names if each in file.tensors}


def _bytes(kinds: set[str], dtype: torch.dtype) -> float:
    """Of a weight."""
    if not kinds <= GGUF.keys():
        return dtype.itemsize
    return _MIXED_BYTES if len(kinds) > 1 else max(_BYTES.get(kind, _MOST_BYTES) for kind in kinds)


def load(file: GgufFile, config: PreTrainedConfig, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """Its model, computing in `dtype`. LoadError where its weights do not fill it, ValueError where the kernels do not
    give their products."""
    with accelerate.init_empty_weights(include_buffers=False):
        model: PreTrainedModel = class_for(config).from_config(config, dtype=dtype)
    modules = {ours.removesuffix(".weight"): name for name in file.tensors if (ours := name_of(name)) is not None}
    if model.config.tie_word_embeddings:
        modules["lm_head"] = "token_embd.weight"
    packed = {ours for ours, name in modules.items() if ours == "lm_head" or _is_packed(file, name)}
    state: dict[str, Tensor] = {}
    tried = False
    for parent, names in _groups(model):
        found = {name: f"{parent}.{name}".removeprefix(".") for name in names}
        if not all(ours in packed and _readable(file, modules[ours]) for ours in found.values()):
            continue
        codes = [_codes(file, modules[ours], config, device) for ours in found.values()]
        biases = [_bias(file, modules[ours], config, dtype, device) for ours in found.values()]
        if (made := layers_of(codes, biases, dtype)) is None:
            continue
        if not tried and not agrees(codes[0], made[1][0]):
            raise ValueError(DIFFERS)
        tried = True
        for layer, ours in zip(made[1], found.values(), strict=True):
            model.set_submodule(ours, layer)
    for name in file.tensors:
        ours = name_of(name)
        if ours is not None and not isinstance(_module(model, ours.rpartition(".")[0]), PackedLinear):
            state[ours] = _numbers(file, name, config, dtype, device)
    model.load_state_dict(state, strict=False, assign=True)
    if not isinstance(model.get_output_embeddings(), PackedLinear):
        model.tie_weights()
    if lacking := [name for name, parameter in model.named_parameters() if parameter.is_meta]:
        raise LoadError(f"{file.paths[0]} has no weights for {lacking[0]}, which its model needs.")
    return model.to(device).eval()


def _groups(model: nn.Module) -> list[tuple[str, tuple[str, ...]]]:
    """Linear layers that belong together, by the names of their module and their own."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for parent, module in model.named_modules():
        own = [name for name, child in module.named_children() if isinstance(child, nn.Linear)]
        for names in TOGETHER:
            if all(name in own for name in names):
                found.append((parent, names))
                own = [name for name in own if name not in names]
        found += [(parent, (name,)) for name in own]
    return found


def _module(model: nn.Module, path: str) -> nn.Module | None:
    try:
        return model.get_submodule(path)
    except AttributeError:
        return None


def _readable(file: GgufFile, name: str) -> bool:
    return kind_name(file.tensors[name].kind) in GGUF


def _is_packed(file: GgufFile, name: str) -> bool:
    return name.endswith(".weight") and name != "token_embd.weight" and _readable(file, name)


def _rows(file: GgufFile, name: str, device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(file.rows(name))).to(device)


def _codes(file: GgufFile, name: str, config: PreTrainedConfig, device: torch.device) -> Codes:
    found = codes_of_rows(kind_name(file.tensors[name].kind), _rows(file, name, device))
    assert found is not None, "its kind is one of GGUF"
    order = _order(file, name, config, device)
    if order is None:
        return found
    offsets = found.offsets[order] if found.offsets.numel() else found.offsets
    return Codes(found.form, found.codes[order], found.scales[order], offsets, found.group, found.places)


def _order(file: GgufFile, name: str, config: PreTrainedConfig, device: torch.device) -> Tensor | None:
    """The row of a file's queries or keys that each of ours is; None where they are in order."""
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name.split(".")[-2])
    if file.header.architecture != "llama" or heads is None:
        return None
    return torch.from_numpy(halves(np.arange(file.tensors[name].shape[0]), heads).copy()).to(device)


def _bias(
    file: GgufFile, name: str, config: PreTrainedConfig, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    name = f"{name.removesuffix('.weight')}.bias"
    return _numbers(file, name, config, dtype, device) if name in file.tensors else None


def _numbers(file: GgufFile, name: str, config: PreTrainedConfig, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor in its shape, some rows at a time where it is large."""
    tensor = file.tensors[name]
    rows, found = file.rows(name), torch.empty(tensor.shape, dtype=dtype, device=device)
    flat = found.view(len(rows), -1)
    each = max(1, _AT_ONCE // flat.shape[1])
    for begin in range(0, len(rows), each):
        flat[begin : begin + each] = _expanded(tensor.kind, rows[begin : begin + each], device)
    order = _order(file, name, config, device)
    return found if order is None else found[order]


def _expanded(kind: int, rows: np.ndarray, device: torch.device) -> Tensor:
    if kind_name(kind) in GGUF:
        codes = codes_of_rows(kind_name(kind), torch.from_numpy(np.array(rows)).to(device))
        assert codes is not None, "its kind is one of GGUF"
        return plain_weights(codes)
    plain = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType(kind)).astype(np.float32, copy=False)
    return torch.from_numpy(np.array(plain)).to(device)
