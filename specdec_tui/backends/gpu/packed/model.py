"""A loaded model whose quantized layers are replaced by packed ones: its library's kernels are used no more.

Those choose on the host what they do, which no captured pass allows, or round activations to 8 bits; a packed layer
does neither. Imported only where there is Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_tui.backends.gpu.packed.codes import HALVES
from specdec_tui.backends.gpu.packed.linear import PackedLinear, packed_layers
from specdec_tui.backends.gpu.packed.packing import Codes, plain_weights
from specdec_tui.backends.gpu.packed.weights import codes_of, is_quantized

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers of one module that read the same numbers."""
DIFFERS = "the packed kernels do not give its products here"
_FAR = 0.02  # of the largest product: what rounding explains, many times over


def pack_quantized(model: PreTrainedModel) -> str:
    """Put packed layers in the places of all quantized ones; why that is not done, empty where it is.

    The model is then quantized no more for transformers: its layers are in half precision but for how weights are held.
    """
    if str(model.dtype).removeprefix("torch.") not in HALVES:
        return f"its layers compute in {model.dtype}"
    if any(hasattr(module, "gate_up_proj_precision_config") for module in model.modules()):  # transformers' MXFP4
        return "its experts are in MXFP4, which the kernels of experts do not read packed"
    groups = list(_groups(model))
    if not groups:
        return "it has no quantized layers"
    for parent, names in groups:
        modules = [parent.get_submodule(name) for name in names]
        made = _packed(modules, model.dtype)
        if made is None:
            return f"{type(modules[0]).__name__} has its weights in a form that is not packed here"
        if parent is groups[0][0] and names == groups[0][1] and not agrees(codes_of(modules[0]), made[0]):
            return DIFFERS
        for name, layer in zip(names, made, strict=True):
            parent.set_submodule(name, layer)
    for told in ("is_quantized", "is_loaded_in_8bit", "is_loaded_in_4bit"):
        setattr(model, told, False)
    return ""


def _groups(model: nn.Module) -> Iterator[tuple[nn.Module, tuple[str, ...]]]:
    """Modules with those of their quantized layers that belong together, one layer or several."""
    for parent in list(model.modules()):
        own = [name for name, child in parent.named_children() if is_quantized(child)]
        for names in TOGETHER:
            if all(name in own for name in names):
                yield parent, names
                own = [name for name in own if name not in names]
        for name in own:
            yield parent, (name,)


def _packed(modules: Sequence[nn.Module], dtype: torch.dtype) -> Sequence[PackedLinear] | None:
    """Together where they can be."""
    if (found := packed_layers(modules, dtype)) is not None:
        return found[1]
    alone = [packed_layers([module], dtype) for module in modules] if len(modules) > 1 else [None]
    return None if None in alone else [made[1][0] for made in alone if made is not None]


def agrees(codes: Codes | None, layer: PackedLinear) -> bool:
    """Whether a packed layer gives the products of its weights, for few tokens and for many."""
    assert codes is not None, "it was packed"
    weights = plain_weights(codes)
    generator = torch.Generator(weights.device).manual_seed(1)
    for tokens in (1, 3, 40):
        x = torch.randn(tokens, layer.in_features, device=weights.device, generator=generator).to(layer.dtype)
        expected: Tensor = x.float() @ weights.T + (0.0 if layer.bias is None else layer.bias.float())
        if not bool((layer(x).float() - expected).abs().max() <= _FAR * expected.abs().max()):
            return False
    return True
