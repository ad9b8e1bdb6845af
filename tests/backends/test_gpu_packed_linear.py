"""Layers over packed weights in the places of quantized ones."""

from __future__ import annotations

import os

import pytest
import torch
from bitsandbytes import functional as bnb
from bitsandbytes import nn as bnb_nn
from torch import nn

GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="needs Triton")
if not GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from specdec_tui.backends.gpu.packed.launch import product  # noqa: E402
from specdec_tui.backends.gpu.packed.linear import PackedLinear, packed_layers, rows_of, whole_of  # noqa: E402
from specdec_tui.backends.gpu.packed.packing import Codes, pack, plain_weights  # noqa: E402

DEVICE = "cuda" if GPU else "cpu"


def linear_4_bits(rows: int, columns: int, bias: bool = False) -> bnb_nn.Linear4bit:
    made = bnb_nn.Linear4bit(columns, rows, bias=bias, compute_dtype=torch.float16, quant_type="nf4")
    made.weight = bnb_nn.Params4bit(torch.randn(rows, columns) / 8, requires_grad=False, quant_type="nf4")
    return made.to(DEVICE)


def weights_of(module: bnb_nn.Linear4bit) -> torch.Tensor:
    return bnb.dequantize_4bit(module.weight.data, module.weight.quant_state).double()


@pytest.mark.parametrize("tokens", [(2, 3), (40,)], ids=["few", "many"])
def test_layers_of_one_matrix_are_each_their_own(tokens: tuple[int, ...]) -> None:
    modules = [linear_4_bits(32, 128, bias=True), linear_4_bits(16, 128), linear_4_bits(48, 128)]
    found = packed_layers(modules, torch.float16)
    assert found is not None
    matrix, layers = found
    assert matrix.shape == (96, 128)
    x = torch.randn(*tokens, 128, device=DEVICE).half()
    for module, layer in zip(modules, layers, strict=True):
        bias = 0.0 if module.bias is None else module.bias.double()
        expected = x.double() @ weights_of(module).T + bias
        got = layer(x)
        assert got.shape == expected.shape and got.dtype is torch.float16
        assert (got.double() - expected).abs().max() <= 2e-3 * expected.abs().max()
        assert layer.packed_weight.untyped_storage().data_ptr() == matrix.weight.untyped_storage().data_ptr()
    flat = x.view(-1, 128)[:3].contiguous()
    y = torch.empty(3, 96, dtype=torch.float16, device=DEVICE)
    product(flat, matrix, y)
    assert torch.equal(y[:, 32:48], layers[1](flat))
    assert whole_of(layers) is matrix
    assert (
        whole_of(layers[:2]) is None and whole_of(layers[::-1]) is None and whole_of([*layers[:2], modules[2]]) is None
    )


def test_columns_in_another_order_are_read_in_it() -> None:
    generator = torch.Generator().manual_seed(1)
    codes = Codes(
        "uint4",
        torch.randint(0, 16, (32, 128), dtype=torch.uint8, generator=generator).to(DEVICE),
        torch.rand(32, 2, generator=generator).to(DEVICE) / 10,
        torch.randn(32, 2, generator=generator).to(DEVICE),
        64,
        torch.randperm(128, generator=generator).int().to(DEVICE),
    )
    layer = PackedLinear(pack(codes, torch.float16), None)
    for tokens in (2, 40):
        x = torch.randn(tokens, 128, device=DEVICE).half()
        expected = x.double() @ plain_weights(codes).double().T
        assert (layer(x).double() - expected).abs().max() <= 2e-3 * expected.abs().max()


def test_layers_that_are_not_all_packed_stay_as_they_are() -> None:
    half = torch.float16
    assert packed_layers([linear_4_bits(32, 128), nn.Linear(128, 32)], half) is None
    assert packed_layers([linear_4_bits(32, 128), linear_4_bits(20, 128)], half) is None
    assert packed_layers([linear_4_bits(20, 128)], half) is not None
    matrix = packed_layers([linear_4_bits(32, 128)], half)
    assert matrix is not None
    with pytest.raises(ValueError, match="row 8 is no multiple of 16"):
        rows_of(matrix[0], 8, 16)
