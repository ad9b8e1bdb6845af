"""Quantized matrices as libraries and files have them, as `Codes`: what the packed products of a GPU are made from.

A module of a loaded transformers model is told by its tensors and their types, not by its class: several libraries fill
the same ones. Weights are those of the library's own dequantized product; what it does to activations is left away.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import torch
from torch import Tensor, nn

from specdec_tui.backends.gpu.packed.packing import Codes

_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""The code of a word that each of eight columns has (AutoAWQ, awq/utils/packing_utils.py)."""
_INT8_STEP = 7.874015718698502e-3
"""bitsandbytes' 1/127 (int8_vectorwise_dequant)."""


def codes_of(module: nn.Module) -> Codes | None:
    """The weights of a linear layer as codes; None where it is not quantized, or in a way that is not read here."""
    weight = getattr(module, "weight", None)
    if type(weight).__name__ == "Params4bit":
        return _of_4_bits(weight)
    if type(weight).__name__ == "Int8Params":
        return _of_8_bits(module, weight)
    if isinstance(weight, Tensor) and weight.dtype is torch.float8_e4m3fn:
        scales = getattr(module, "weight_scale_inv", getattr(module, "weight_scale", None))
        return None if scales is None else fp8(weight.detach(), scales.detach(), getattr(module, "block_size", None))
    if isinstance(getattr(module, "qweight", None), Tensor):
        return _of_groups(module)
    return None


def is_quantized(module: nn.Module) -> bool:
    """Whether a module's weights are codes, read here or not."""
    weight = getattr(module, "weight", None)
    if isinstance(getattr(module, "qweight", None), Tensor) or type(weight).__name__ in ("Params4bit", "Int8Params"):
        return True
    return isinstance(weight, Tensor) and weight.element_size() == 1


def _none(like: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(0, dtype=dtype, device=like.device)


def _codes(form: str, codes: Tensor, scales: Tensor, group: int, offsets: Tensor | None = None) -> Codes:
    return Codes(
        form,
        codes,
        scales.float().contiguous(),
        _none(codes) if offsets is None else offsets.float().contiguous(),
        group,
        _none(codes, torch.int32),
    )


def _nibbles(packed: Tensor, high_first: bool = False) -> Tensor:
    """uint8 [..., n] to [..., 2 · n]."""
    low, high = packed & 15, packed >> 4
    return torch.stack((high, low) if high_first else (low, high), -1).flatten(-2)


def _of_4_bits(weight: Any) -> Codes | None:
    """bitsandbytes' nf4 and fp4: blocks of the flattened matrix, the first column in the upper half of a byte."""
    state = weight.quant_state
    if state is None or getattr(state, "packing_format_for_cpu", False) or len(state.shape) != 2:
        return None
    rows, columns = state.shape
    absmax = state.absmax
    if state.nested:
        from bitsandbytes.functional import dequantize_blockwise

        absmax = dequantize_blockwise(absmax, state.state2) + state.offset
    group = gcd(columns, state.blocksize)  # blocks may end within a row
    codes = _nibbles(weight.data.contiguous().view(torch.uint8).flatten(), high_first=True)[: rows * columns]
    begins = torch.arange(0, rows * columns, group, device=absmax.device)
    scales = absmax.float()[begins // state.blocksize].view(rows, columns // group)
    return _codes(state.quant_type, codes.view(rows, columns), scales, group)


def _of_8_bits(module: Any, weight: Any) -> Codes | None:
    """bitsandbytes' int8: a scale for each row. The layer's first pass moves both from the weight to its state."""
    state = getattr(module, "state", None)
    scales = next(
        (held for held in (getattr(state, "SCB", None), getattr(weight, "SCB", None)) if held is not None), None
    )
    if weight.dtype is not torch.int8 or scales is None:
        return None
    codes = weight.data.view(torch.uint8)
    return _codes("int8", codes, scales.float().view(-1, 1) * _INT8_STEP, codes.shape[1])


def fp8(weight: Tensor, scales: Tensor, block: Any = None) -> Codes | None:
    """float8_e4m3fn [rows, columns] with a scale for all of it, for each row [rows, 1], or for each block [⌈rows /
    block 0⌉, ⌈columns / block 1⌉]; scales in float8_e8m0fnu or uint8 are powers of two. None where these do not fit."""
    rows, columns = weight.shape
    found = _powers(scales.view(torch.uint8)) if scales.element_size() == 1 else scales.float()
    group = columns
    if found.numel() == 1:
        found = found.reshape(1, 1).expand(rows, 1)
    elif found.shape != (rows, 1):
        if block is None or found.shape != (-(-rows // block[0]), -(-columns // block[1])):
            return None
        found, group = found.repeat_interleave(block[0], 0)[:rows], block[1]
    return _codes("fp8", weight.view(torch.uint8), found, group)


def _powers(exponents: Tensor) -> Tensor:
    """2^(n - 127) of bytes n, float32: e8m0."""
    return torch.ldexp(torch.ones_like(exponents, dtype=torch.float32), exponents.int() - 127)


def mxfp4(blocks: Tensor, scales: Tensor) -> Codes:
    """Blocks uint8 [rows, blocks, 16] of 32 columns each, the first in the lower half of a byte, and their exponents
    uint8 [rows, blocks] (OCP microscaling formats)."""
    return _codes("mxfp4", _nibbles(blocks).flatten(1), _powers(scales), 32)


def _of_groups(module: Any) -> Codes | None:
    """GPTQ's or AWQ's tensors as their checkpoints have them; None where a library has put them in an order of its own
    for its kernels."""
    bits, columns = int(getattr(module, "bits", 0)), int(getattr(module, "in_features", 0))
    rows = int(getattr(module, "out_features", 0))
    weight, zeros, scales = module.qweight, getattr(module, "qzeros", None), getattr(module, "scales", None)
    if bits not in (4, 8) or weight.dtype is not torch.int32 or zeros is None or scales is None:
        return None
    each = 32 // bits
    if scales.dim() != 2 or scales.shape[1] != rows or zeros.shape != (scales.shape[0], rows // each):
        return None
    if bits == 4 and weight.shape == (columns, rows // each):
        return awq(weight, zeros, scales)
    if weight.shape != (columns // each, rows):
        return None
    told = getattr(module, "qzero_format", None)
    return gptq(weight, zeros, scales, getattr(module, "g_idx", None), bits, less_one=not (told and told() == 2))


def gptq(
    weight: Tensor, zeros: Tensor, scales: Tensor, groups: Tensor | None, bits: int, less_one: bool = True
) -> Codes | None:
    """weight int32 [columns / n, rows], zeros int32 [groups, rows / n], scales [groups, rows]; n codes of 4 or 8 bits
    in a word. `groups` [columns]: the group of each column, in any order. `less_one`: of a zero, one less is stored
    (the checkpoints' first format). None where groups differ in size."""
    codes = _unpacked(weight.T.contiguous(), bits)
    columns, count = codes.shape[1], scales.shape[0]
    group = -(-columns // count)
    codes, places = codes.byte(), _none(weight, torch.int32)
    if groups is not None and groups.numel():
        order = torch.argsort(groups.long(), stable=True)
        expected = torch.arange(columns, device=groups.device) // group
        if not torch.equal(groups.long()[order], expected):
            return None
        if not torch.equal(groups.long(), expected):
            codes, places = codes[:, order], order.int()
    zero = (_unpacked(zeros, bits) + int(less_one)).T
    found = _with_zeros(codes, zero, scales.T, group, bits)
    return Codes(found.form, found.codes, found.scales, found.offsets, found.group, places)


def awq(weight: Tensor, zeros: Tensor, scales: Tensor) -> Codes:
    """weight int32 [columns, rows / 8], zeros int32 [groups, rows / 8], scales [groups, rows]."""
    order = list(_AWQ_ORDER)
    codes, zero = (
        _unpacked(words, 4).view(len(words), -1, 8)[..., order].flatten(1).T.contiguous() for words in (weight, zeros)
    )
    return _with_zeros(codes.byte(), zero, scales.T, -(-codes.shape[1] // scales.shape[0]), 4)


def _unpacked(words: Tensor, bits: int) -> Tensor:
    """int32 [a, b] to int32 [a, b · n]: n codes of each word, from its low end."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    return (words[..., None] >> shifts & (1 << bits) - 1).flatten(-2)


def _with_zeros(codes: Tensor, zeros: Tensor, scales: Tensor, group: int, bits: int) -> Codes:
    """scale · (code - zero); codes uint8 [rows, columns], zeros and scales [rows, groups]."""
    middle = 1 << bits - 1
    if bool((zeros == middle).all()):
        return _codes("int4", codes, scales, group) if bits == 4 else _codes("int8", codes ^ 128, scales, group)
    scales = scales.float()
    if bits == 4:
        return _codes("uint4", codes, scales, group, -scales * zeros)
    return _codes("int8", codes ^ 128, scales, group, scales * (middle - zeros))


def gguf(kind: str, blocks: Tensor) -> Codes | None:
    """Rows of a GGUF tensor, uint8 [rows, bytes], in the kinds that `GGUF` names; None for others.

    The arithmetic is ggml's (ggml-quants.c, dequantize_row_*): halves as scales, products in float32.
    """
    if kind not in GGUF:
        return None
    size, read = GGUF[kind]
    found: Codes = read(blocks.view(len(blocks), -1, size))
    return found


def _half(blocks: Tensor, begin: int) -> Tensor:
    """The float16 number at a place of each block, as float32: [rows, blocks]."""
    return blocks[..., begin : begin + 2].contiguous().view(torch.float16).float()[..., 0]


def _halved(packed: Tensor) -> Tensor:
    """[..., n] bytes to [..., 2 · n] codes: all lower halves, then all upper ones."""
    return torch.cat((packed & 15, packed >> 4), -1)


def _q4_0(blocks: Tensor) -> Codes:
    return _codes("int4", _halved(blocks[..., 2:]).flatten(1), _half(blocks, 0), 32)


def _q4_1(blocks: Tensor) -> Codes:
    return _codes("uint4", _halved(blocks[..., 4:]).flatten(1), _half(blocks, 0), 32, _half(blocks, 2))


def _fifth(blocks: Tensor, begin: int) -> Tensor:
    """16 of each code whose fifth bit is set, by four bytes of bits: [rows, blocks, 32]."""
    shifts = torch.arange(8, dtype=torch.uint8, device=blocks.device)
    return (blocks[..., begin : begin + 4, None] >> shifts & 1).flatten(-2) << 4


def _q5_0(blocks: Tensor) -> Codes:
    codes = _halved(blocks[..., 6:]) | _fifth(blocks, 2)
    return _codes("int8", (codes - 16).flatten(1), _half(blocks, 0), 32)


def _q5_1(blocks: Tensor) -> Codes:
    codes = _halved(blocks[..., 8:]) | _fifth(blocks, 4)
    return _codes("int8", codes.flatten(1), _half(blocks, 0), 32, _half(blocks, 2))


def _q8_0(blocks: Tensor) -> Codes:
    return _codes("int8", blocks[..., 2:].flatten(1), _half(blocks, 0), 32)


def _scales_of_k(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and offsets [rows, 8 · blocks] of Q4_K and Q5_K: six bits each."""
    first, second, third = blocks[..., 4:16].unflatten(-1, (3, 4)).unbind(-2)
    scales = torch.cat((first & 63, third & 15 | first >> 6 << 4), -1).float() * _half(blocks, 0)[..., None]
    minima = torch.cat((second & 63, third >> 4 | second >> 6 << 4), -1).float() * _half(blocks, 2)[..., None]
    return scales.flatten(1), -minima.flatten(1)


def _q4_k(blocks: Tensor) -> Codes:
    scales, offsets = _scales_of_k(blocks)
    codes = _halved(blocks[..., 16:].unflatten(-1, (4, 32)))
    return _codes("uint4", codes.flatten(1), scales, 32, offsets)


def _q5_k(blocks: Tensor) -> Codes:
    scales, offsets = _scales_of_k(blocks)
    codes = _halved(blocks[..., 48:].unflatten(-1, (4, 32))).flatten(-2)
    shifts = torch.arange(8, dtype=torch.uint8, device=blocks.device)[:, None]
    fifth = (blocks[..., None, 16:48] >> shifts & 1).flatten(-2)
    return _codes("int8", (codes | fifth << 4).flatten(1), scales, 32, offsets)


def _q6_k(blocks: Tensor) -> Codes:
    low, high = blocks[..., :128].unflatten(-1, (2, 2, 32)), blocks[..., 128:192].unflatten(-1, (2, 1, 32))
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8, device=blocks.device)[:, None]
    codes = torch.cat((low & 15, low >> 4), -2) | (high >> shifts & 3) << 4
    scales = blocks[..., 192:208].contiguous().view(torch.int8).float() * _half(blocks, 208)[..., None]
    return _codes("int8", (codes.flatten(1) - 32), scales.flatten(1), 16)


GGUF: dict[str, Any] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q5_0": (22, _q5_0),
    "Q5_1": (24, _q5_1),
    "Q8_0": (34, _q8_0),
    "Q4_K": (144, _q4_k),
    "Q5_K": (176, _q5_k),
    "Q6_K": (210, _q6_k),
}
"""Bytes of a block, and what reads rows of blocks uint8 [rows, blocks, bytes]."""
