"""Quantized matrices as libraries have them, against the libraries' own dequantization."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gguf as ggml
import numpy as np
import pytest
import torch
from bitsandbytes import functional as bnb
from bitsandbytes import nn as bnb_nn
from tiny_gguf import random_blocks
from torch import Tensor, nn

from specdec_tui.backends.gpu.packed.packing import Codes, joined, pack, packable, plain_weights
from specdec_tui.backends.gpu.packed.weights import GGUF, awq, codes_of, fp8, gguf, gptq, is_quantized, mxfp4

HALVES = (torch.bfloat16, torch.float16)


def linear_4_bits(rows: int, columns: int, kind: str, nested: bool, block: int = 64) -> Any:
    weight = bnb_nn.Params4bit(
        torch.randn(rows, columns), requires_grad=False, quant_type=kind, compress_statistics=nested, blocksize=block
    )
    made = bnb_nn.Linear4bit(columns, rows, bias=False, compute_dtype=torch.bfloat16)
    made.weight = weight.to("cpu")
    assert made.weight.quant_state is not None
    return made


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
def test_four_bits_of_bitsandbytes_are_its_own_weights(kind: str, nested: bool, dtype: torch.dtype) -> None:
    made = linear_4_bits(48, 192, kind, nested)
    codes = codes_of(made)
    assert codes is not None and codes.form == kind and codes.group == 64 and packable(codes)
    theirs = bnb.dequantize_4bit(made.weight.data, made.weight.quant_state).float()
    ours = plain_weights(codes)
    assert theirs.abs().max() > 1
    # The library's own kernels differ by a rounding in the tables and scales they take.
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    assert (ours.to(dtype) == theirs.to(dtype)).float().mean() > 0.999


def test_blocks_that_end_within_a_row_have_smaller_groups() -> None:
    made = linear_4_bits(32, 96, "nf4", False)
    codes = codes_of(made)
    assert codes is not None and codes.group == 32 and packable(codes)
    # By hand: the library's own code for processors with AVX-512 takes such a row's blocks from the next one.
    state, packed = made.weight.quant_state, made.weight.data.flatten()
    numbers = state.code[torch.stack([packed >> 4, packed & 15], 1).flatten().long()]
    theirs = (numbers.view(-1, 64) * state.absmax[:, None]).view(32, 96)
    torch.testing.assert_close(plain_weights(codes), theirs, rtol=1e-6, atol=1e-7)


def test_int8_of_bitsandbytes_is_its_own_weights_before_and_after_a_pass() -> None:
    made = bnb_nn.Linear8bitLt(96, 48, bias=False, has_fp16_weights=False)
    made.weight = bnb_nn.Int8Params(torch.randn(48, 96), requires_grad=False, has_fp16_weights=False).to("cpu")
    before = codes_of(made)
    assert before is not None and before.group == 96
    theirs = bnb.int8_vectorwise_dequant(made.weight.data, made.weight.SCB)
    torch.testing.assert_close(plain_weights(before), theirs, rtol=3e-7, atol=0)
    made(torch.randn(2, 96))
    after = codes_of(made)
    assert after is not None and torch.equal(plain_weights(after), plain_weights(before))


def test_other_layers_are_no_codes() -> None:
    assert codes_of(nn.Linear(32, 16)) is None
    assert codes_of(nn.LayerNorm(32)) is None
    assert not is_quantized(nn.Linear(32, 16)) and not is_quantized(nn.LayerNorm(32))
    assert is_quantized(linear_4_bits(16, 64, "nf4", False))


def test_fp8_has_scales_for_blocks_rows_or_all() -> None:
    from transformers.integrations.finegrained_fp8 import FP8Linear, _dequantize_fp8_weight

    weight = torch.randn(200, 320).to(torch.float8_e4m3fn)
    layer = FP8Linear(320, 200, block_size=(128, 128))
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.weight_scale_inv = nn.Parameter(torch.rand(2, 3) + 0.1, requires_grad=False)
    codes = codes_of(layer)
    assert codes is not None and codes.group == 128
    theirs = _dequantize_fp8_weight(weight, layer.weight_scale_inv, [128, 128], torch.float32)
    assert torch.equal(plain_weights(codes), theirs)
    rows, one = torch.rand(200, 1), torch.tensor(0.25)
    for scales in (rows, one):
        found = fp8(weight, scales)
        assert found is not None and torch.equal(plain_weights(found), weight.float() * scales)
    assert fp8(weight, torch.rand(3, 3)) is None
    powers = torch.tensor([[120, 127], [130, 125]], dtype=torch.uint8)
    found = fp8(weight[:, :256], powers.view(torch.float8_e8m0fnu), (128, 128))
    wide = torch.exp2(powers.float() - 127).repeat_interleave(128, 0)[:200].repeat_interleave(128, 1)
    assert found is not None and torch.equal(plain_weights(found), weight[:, :256].float() * wide)


def test_mxfp4_is_what_transformers_makes_of_it() -> None:
    from transformers.integrations.mxfp4 import _convert_moe_packed_tensors

    blocks = torch.randint(0, 256, (1, 48, 6, 16), dtype=torch.uint8)
    scales = torch.randint(110, 135, (1, 48, 6), dtype=torch.uint8)
    theirs = _convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)[0].T
    assert torch.equal(plain_weights(mxfp4(blocks[0], scales[0])), theirs)


def words(codes: Tensor, bits: int) -> Tensor:
    """int64 [a, n · b] to int32 [a, b], the first code at the low end."""
    each = codes.view(len(codes), -1, 32 // bits)
    whole = sum(each[..., place] << bits * place for place in range(32 // bits))
    return torch.where(whole >= 1 << 31, whole - (1 << 32), whole).int()


def groups_of(columns: int, group: int, shuffled: bool) -> Tensor:
    plain = torch.arange(columns) // group
    return plain[torch.randperm(columns)] if shuffled else plain


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_gptq_in_both_of_its_formats_and_any_order(bits: int, even: bool, shuffled: bool) -> None:
    rows, columns, group = 32, 192, 64
    codes = torch.randint(0, 1 << bits, (columns, rows))
    zeros = torch.randint(1, 1 << bits, (columns // group, rows))
    if even:
        zeros[:] = 1 << bits - 1
    scales = (torch.rand(columns // group, rows) / 10).half()
    index = groups_of(columns, group, shuffled)
    theirs = (scales[index] * (codes - zeros[index]).half()).T  # gptqmodel's torch kernel
    packed = words(codes.T.contiguous(), bits).T.contiguous()
    for less_one in (True, False):
        found = gptq(packed, words(zeros - int(less_one), bits), scales, index.int(), bits, less_one)
        assert found is not None and packable(found)
        assert bool(found.offsets.numel()) == (not even) and bool(found.places.numel()) == shuffled
        assert torch.equal(plain_weights(found).half(), theirs)
    layer = SimpleNamespace(
        bits=bits, in_features=columns, out_features=rows, qweight=packed, qzeros=words(zeros - 1, bits),
        scales=scales, g_idx=index.int(),
    )  # fmt: skip
    read = codes_of(layer)  # type: ignore[arg-type]
    assert read is not None and torch.equal(plain_weights(read).half(), theirs)
    layer.qzero_format, layer.qzeros = lambda: 2, words(zeros, bits)
    read = codes_of(layer)  # type: ignore[arg-type]
    assert read is not None and torch.equal(plain_weights(read).half(), theirs)
    layer.qweight = packed.view(columns // 16, -1)  # another order, for a library's kernels
    assert codes_of(layer) is None  # type: ignore[arg-type]


def test_gptq_with_groups_of_different_sizes_is_not_read() -> None:
    index = torch.zeros(64, dtype=torch.int32)
    index[40:] = 1
    assert gptq(torch.zeros(8, 16).int(), torch.zeros(2, 2).int(), torch.ones(2, 16), index, 4) is None


def test_awq_has_the_columns_of_a_word_in_its_order() -> None:
    rows, columns, group = 32, 128, 64
    codes, zeros = torch.randint(0, 16, (columns, rows)), torch.randint(0, 16, (columns // group, rows))
    scales = (torch.rand(columns // group, rows) / 10).half()
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # AutoAWQ, awq/modules/linear/gemm.py: the column that each code of a word is

    def packed(values: Tensor) -> Tensor:
        return words(values.view(len(values), -1, 8)[..., order].flatten(1), 4)

    index = torch.arange(columns) // group
    theirs = (scales[index] * (codes - zeros[index]).half()).T
    found = awq(packed(codes), packed(zeros), scales)
    assert torch.equal(plain_weights(found).half(), theirs)
    layer = SimpleNamespace(
        bits=4, in_features=columns, out_features=rows, qweight=packed(codes), qzeros=packed(zeros), scales=scales
    )
    read = codes_of(layer)  # type: ignore[arg-type]
    assert read is not None and torch.equal(plain_weights(read).half(), theirs)


@pytest.mark.parametrize("kind", list(GGUF))
def test_gguf_rows_are_those_of_ggml(kind: str) -> None:
    sizes = ggml.GGML_QUANT_SIZES[ggml.GGMLQuantizationType[kind]]
    raw = np.random.default_rng(3).integers(0, 256, (8, 512 // sizes[0], sizes[1]), dtype=np.uint8)
    halves = {"Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,), "Q6_K": (208,)}.get(kind, (0, 2))
    for place in halves:
        numbers = np.random.default_rng(place).normal(size=raw.shape[:2]).astype(np.float16)
        raw[..., place : place + 2] = numbers[..., None].view(np.uint8)
    rows = raw.reshape(8, -1)
    theirs = torch.from_numpy(ggml.quants.dequantize(rows, ggml.GGMLQuantizationType[kind]))
    found = gguf(kind, torch.from_numpy(rows))
    assert found is not None and packable(found)
    assert torch.equal(plain_weights(found), theirs)


def test_gguf_of_other_kinds_is_not_read() -> None:
    assert gguf("Q3_K", torch.zeros(1, 110, dtype=torch.uint8)) is None


def test_matrices_of_one_form_are_joined() -> None:
    parts = [codes_of(linear_4_bits(rows, 128, "nf4", False)) for rows in (32, 16, 48)]
    held: list[Codes] = [part for part in parts if part is not None]
    both = joined(held)
    assert both is not None and both.shape == (96, 128)
    assert torch.equal(plain_weights(both), torch.cat([plain_weights(part) for part in held]))
    other = codes_of(linear_4_bits(32, 128, "fp4", False))
    assert other is not None and joined([held[0], other]) is None


@pytest.mark.parametrize("kinds", [("Q4_K", "Q4_K", "Q6_K"), ("Q4_0", "Q8_0"), ("Q4_1", "Q4_0"), ("Q5_K", "Q6_K")])
def test_matrices_of_whole_numbers_are_joined_as_bytes(kinds: tuple[str, ...]) -> None:
    dice = np.random.default_rng(1)
    parts = []
    for kind in kinds:
        blocks = random_blocks((16, 512), ggml.GGMLQuantizationType[kind], dice)
        parts.append(gguf(kind, torch.from_numpy(blocks)))
    held = [part for part in parts if part is not None]
    both = joined(held)
    assert both is not None and both.form == "int8" and packable(both)
    assert torch.equal(plain_weights(both), torch.cat([plain_weights(part) for part in held]))


def test_packed_weights_take_their_bits_and_scales() -> None:
    codes = codes_of(linear_4_bits(64, 256, "nf4", False))
    assert codes is not None
    assert pack(codes, torch.bfloat16).nbytes == 64 * 256 // 2 + 64 * 4 * 4
