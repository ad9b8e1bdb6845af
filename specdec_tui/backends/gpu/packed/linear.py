"""Linear layers of a loaded model over packed weights: one copy of them, for our kernels and for transformers' layers.

A quantized layer is replaced by one that multiplies with the same weights, without what its library does to
activations: prompts, checks and passes then are one model. Matrices that read the same numbers lie in one, of which
each layer has its rows. Imported only where there is Triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from specdec_tui.backends.gpu.packed.packing import ROWS, Codes, Packed, joined, pack, packable
from specdec_tui.backends.gpu.packed.weights import codes_of

_TENSORS = ("weight", "scales", "offsets", "numbers", "tables", "places")


def rows_of(matrix: Packed, begin: int, count: int) -> Packed:
    """Some rows of a matrix, which share its memory. ValueError where they do not begin at a tile."""
    if begin % ROWS:
        raise ValueError(f"row {begin} is no multiple of {ROWS}")
    tiles = slice(begin // ROWS, -(-(begin + count) // ROWS))
    offsets = matrix.offsets[tiles] if matrix.offsets.numel() else matrix.offsets
    return replace(matrix, weight=matrix.weight[tiles], scales=matrix.scales[tiles], offsets=offsets, rows=count)


class PackedLinear(nn.Module):
    """y = x @ weights.T + bias for x [..., columns] in half precision."""

    def __init__(self, matrix: Packed, bias: Tensor | None, whole: Packed | None = None) -> None:
        super().__init__()
        self._matrix = matrix
        self.whole = whole or matrix  # of which it has some rows
        self.out_features, self.in_features = matrix.shape
        for name in _TENSORS:
            self.register_buffer(f"packed_{name}", getattr(matrix, name), persistent=False)
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)

    @property
    def matrix(self) -> Packed:
        return replace(self._matrix, **{name: getattr(self, f"packed_{name}") for name in _TENSORS})

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self._matrix.half)
        return found

    def forward(self, x: Tensor) -> Tensor:
        from specdec_tui.backends.gpu.packed import (
            launch as packed_launch,  # it needs Triton, and this module is always imported
        )

        matrix = self.matrix
        flat = x.reshape(-1, self.in_features).to(self.dtype).contiguous()
        if len(flat) <= packed_launch.MOST_TOKENS:
            y = torch.empty(len(flat), self.out_features, dtype=self.dtype, device=x.device)
            with torch.cuda.device_of(flat):  # Triton launches on the current device
                packed_launch.product(flat, matrix, y, bias=self.bias)
        else:
            with torch.cuda.device_of(flat):
                weights = packed_launch.unpack(matrix, self.dtype)
            own = flat[:, matrix.places.long()] if matrix.places.numel() else flat
            y = nn.functional.linear(own, weights, self.bias)
        return y.view(*x.shape[:-1], self.out_features).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self._matrix.form}, in_features={self.in_features}, out_features={self.out_features}"


def packed_layers(modules: Sequence[nn.Module], dtype: torch.dtype) -> tuple[Packed, tuple[PackedLinear, ...]] | None:
    """Quantized layers that read the same numbers as one matrix, and what takes their places.

    None where one is not quantized, they differ in form, or their weights are not packed.
    """
    found = [codes for codes in map(codes_of, modules) if codes is not None]
    if len(found) < len(modules):
        return None
    return layers_of(found, [getattr(module, "bias", None) for module in modules], dtype)


@torch.no_grad()
def layers_of(
    found: Sequence[Codes], biases: Sequence[Tensor | None], dtype: torch.dtype
) -> tuple[Packed, tuple[PackedLinear, ...]] | None:
    """The same of matrices and biases."""
    if not all(packable(codes) for codes in found):
        return None
    if (together := joined(found)) is None or (len(found) > 1 and any(codes.shape[0] % ROWS for codes in found)):
        return None
    matrix = pack(together, dtype)
    layers, begin = [], 0
    for codes, bias in zip(found, biases, strict=True):
        own = None if bias is None else bias.to(dtype)
        layers.append(PackedLinear(rows_of(matrix, begin, codes.shape[0]), own, matrix))
        begin += codes.shape[0]
    return matrix, tuple(layers)


def whole_of(layers: Sequence[nn.Module]) -> Packed | None:
    """The one matrix whose rows these packed layers have, all of them and in this order; None where there is none."""
    packed = [layer for layer in layers if isinstance(layer, PackedLinear)]
    if len(packed) < len(layers) or any(layer.whole is not packed[0].whole for layer in packed):
        return None
    whole, begin = packed[0].whole, whole_begin(packed[0])
    for layer in packed:
        if whole_begin(layer) != begin:
            return None
        begin += layer.out_features
    return whole if whole_begin(packed[0]) == 0 and begin == whole.rows else None


def whole_begin(layer: PackedLinear) -> int:
    """The row of its whole matrix that a layer begins with."""
    apart = int(layer.matrix.weight.storage_offset() - layer.whole.weight.storage_offset())
    return apart // layer.whole.weight[0].numel() * ROWS
