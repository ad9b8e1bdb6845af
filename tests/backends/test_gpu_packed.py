"""Weights read packed by the GPU's kernels. What converts codes by instructions runs on a GPU only; elsewhere the same
kernels look them up, with Triton and TRITON_INTERPRET=1."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
import torch

GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="needs Triton")
if not GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from specdec_tui.backends.gpu.packed import launch as packed_launch  # noqa: E402
from specdec_tui.backends.gpu.packed.codes import FORMS  # noqa: E402
from specdec_tui.backends.gpu.packed.packing import Codes, Packed, pack, plain_weights  # noqa: E402

DEVICE = "cuda" if GPU else "cpu"
HALVES = [torch.float16, torch.bfloat16] if GPU else [torch.float16]


def codes(form: str, rows: int, columns: int, group: int = 0, offset: bool = False, shuffled: bool = False) -> Codes:
    torch.manual_seed(rows + columns + group)
    count = len(FORMS[form].numbers)
    groups = -(-columns // (group or columns))
    numbers = torch.randint(0, count - (count == 256), (rows, columns), dtype=torch.uint8)
    if form == "fp8":
        numbers[numbers % 128 == 127] = 0
    largest = max(FORMS[form].numbers)
    return Codes(
        form,
        numbers.to(DEVICE),
        (torch.rand(rows, groups) / largest + 0.2 / largest).half().float().to(DEVICE),  # as files have them
        (torch.randn(rows, groups) / 4).half().float().to(DEVICE) if offset else torch.empty(0, device=DEVICE),
        group or columns,
        (torch.randperm(columns) if shuffled else torch.empty(0)).to(DEVICE, torch.int32),
    )


CASES = {
    "nf4": codes("nf4", 48, 512, 64),
    "fp4": codes("fp4", 32, 576, 64),
    "mxfp4": codes("mxfp4", 32, 352, 32),
    "int4": codes("int4", 32, 512, 128),
    "int4, steps of eight chunks": codes("int4", 32, 1024, 128),
    "int4, small groups": codes("int4", 16, 288, 32),
    "int4, offsets, other order": codes("uint4", 32, 384, 128, offset=True, shuffled=True),
    "int4, a row a scale": codes("int4", 32, 416),
    "int8": codes("int8", 48, 600),
    "int8, groups and offsets": codes("int8", 32, 256, 128, offset=True),
    "int8, small groups": codes("int8", 32, 352, 32),
    "int8, the smallest groups": codes("int8", 16, 176, 16),
    "fp8": codes("fp8", 32, 512, 128),
    "rows that fill no tile": codes("nf4", 37, 130, 64),
}


def product(x: torch.Tensor, matrix: Packed, **more: Any) -> torch.Tensor:
    y = torch.zeros(len(x), matrix.rows, dtype=torch.float32, device=DEVICE)
    packed_launch.product(x, matrix, y, **more)
    return y


def some(tokens: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(tokens, columns, device=DEVICE).to(dtype)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", CASES)
def test_unpacked_weights_are_scale_times_number_and_offset(case: str, dtype: torch.dtype) -> None:
    plain = replace(CASES[case], places=torch.empty(0, dtype=torch.int32, device=DEVICE))
    assert torch.equal(packed_launch.unpack(pack(plain, dtype), dtype), plain_weights(plain).to(dtype))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", CASES)
def test_products_are_those_of_the_weights(case: str, dtype: torch.dtype) -> None:
    """Numbers of the table are rounded to half precision, scales are not."""
    held = CASES[case]
    x = some(3, held.shape[1], dtype)
    weights = plain_weights(held).double()
    expected = x.double() @ weights.T
    got = product(x, pack(held, dtype)).double()
    bound = torch.finfo(dtype).eps * (x.double().abs() @ weights.abs().T)
    assert ((got - expected).abs() <= bound).all()
    if held.form in ("int4", "uint4", "int8", "mxfp4", "fp8"):  # whose numbers are those of half precision
        assert ((got - expected).abs() <= bound * 2**-9).all()


@pytest.mark.skipif(GPU, reason="there the instructions shrink by themselves")
@pytest.mark.parametrize(
    "case",
    ["int4", "int4, offsets, other order", "int4, a row a scale", "int8, groups and offsets", "int8, small groups"],
)
def test_shrunk_weights_have_the_products_of_others(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the instructions for bfloat16 make them; offsets are shrunk with them."""
    held = CASES[case]
    matrix, x = pack(held, torch.float16), some(2, held.shape[1], torch.float16)
    plain, kind = [product(x, matrix), torch.zeros(2, matrix.rows // 2, device=DEVICE)], packed_launch._kind
    packed_launch.gated_product(x, matrix, plain[1], "silu")
    monkeypatch.setattr(packed_launch, "_kind", lambda *given: (*(found := kind(*given))[:7], 1.0 / 64, *found[8:]))
    smaller = replace(matrix, numbers=matrix.numbers / 64)
    shrunk = [product(x, smaller), torch.zeros_like(plain[1])]
    packed_launch.gated_product(x, smaller, shrunk[1], "silu")
    assert all(one.abs().max() > 0 and torch.equal(one, other) for one, other in zip(plain, shrunk, strict=True))
    assert not torch.equal(product(x, matrix), plain[0])  # what is taken for shrunk must be


@pytest.mark.parametrize("tokens", [1, 4, 8, 9] if GPU else [2])
@pytest.mark.parametrize(
    ("form", "columns", "group", "warps"),
    [
        ("int4", 1024, 128, 8), ("int4", 2048, 128, 8), ("int4", 1024, 32, 4), ("nf4", 512, 64, 4),
        ("int8", 1024, 0, 8), ("int8", 128, 16, 4),
    ],
)  # fmt: skip
def test_tokens_in_shared_memory_are_multiplied_as_others(
    form: str, columns: int, group: int, warps: int, tokens: int
) -> None:
    """Elsewhere than on a GPU none lie there."""
    matrix, x = pack(codes(form, 32, columns, group), HALVES[-1]), some(tokens, columns, HALVES[-1])
    cut = packed_launch.Cut(warps, 2, staged=True)
    plain = packed_launch.Cut(warps, 2)
    if GPU:
        assert (packed_launch.staging(x, matrix, False, cut) != ("", "")) == (tokens <= 8)
    assert torch.equal(product(x, matrix, cut=cut), product(x, matrix, cut=plain))
    one, other = (torch.zeros(tokens, 16, dtype=torch.float32, device=DEVICE) for _ in range(2))
    packed_launch.gated_product(x, matrix, one, "silu", cut=cut)
    packed_launch.gated_product(x, matrix, other, "silu", cut=plain)
    assert one.abs().max() > 0 and torch.equal(one, other)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", ["nf4", "int8", "int4, steps of eight chunks", "int4, offsets, other order"])
def test_a_token_has_the_numbers_of_a_token_alone(case: str, dtype: torch.dtype) -> None:
    held = CASES[case]
    matrix, x = pack(held, dtype), some(19 if GPU else 3, held.shape[1], dtype)
    block = product(x, matrix)
    assert torch.equal(block, torch.cat([product(x[n : n + 1], matrix) for n in range(len(x))]))
    assert torch.equal(block[:5], product(x[:5], matrix))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", ["nf4", "int8", "int4, offsets, other order"])
def test_gate_and_up_come_from_one_matrix(case: str, dtype: torch.dtype) -> None:
    one, other = (
        CASES[case],
        codes(CASES[case].form, *CASES[case].shape, CASES[case].group, bool(CASES[case].offsets.numel())),
    )
    both = replace(
        one,
        codes=torch.cat((one.codes, other.codes.flip(1))),
        scales=torch.cat((one.scales, other.scales)),
        offsets=torch.cat((one.offsets, other.offsets)),
    )
    x, bias = some(2, one.shape[1], dtype), some(1, 2 * one.shape[0], dtype)[0]
    y = torch.zeros(2, one.shape[0], dtype=torch.float32, device=DEVICE)
    packed_launch.gated_product(x, pack(both, dtype), y, "silu", bias=bias)
    gate, up = (x.double() @ plain_weights(both).double().T + bias.double()).chunk(2, -1)
    expected = torch.nn.functional.silu(gate) * up
    assert ((y - expected).abs() <= 0.02 * expected.abs().max()).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_bias_activation_and_a_branch_are_added(dtype: torch.dtype) -> None:
    held = CASES["rows that fill no tile"]
    x, bias = some(2, held.shape[1], dtype), some(1, held.shape[0], dtype)[0]
    y = some(2, held.shape[0], torch.float32)
    before = y.clone()
    packed_launch.product(x, pack(held, dtype), y, bias=bias, activation="relu", scale=0.5, added=True)
    plain = product(x, pack(held, dtype)) + bias.float()
    torch.testing.assert_close(y, before + 0.5 * plain.relu())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("case", ["nf4", "int8", "rows that fill no tile"])
def test_a_norm_reads_sums_that_a_product_left(case: str, dtype: torch.dtype) -> None:
    held = CASES[case]
    rows, tokens = held.shape[0], 6
    x, stream = some(tokens, held.shape[1], dtype), some(tokens, rows, dtype)
    weights, z = some(1, rows, dtype)[0], some(tokens, rows, dtype)
    left = torch.full((tokens, 1, -(-rows // 16)), -1.0, device=DEVICE)
    follow = packed_launch.Follow(weights, z, 1.0)
    packed_launch.product(x, pack(held, dtype), stream, added=True, follow=follow, left=left)
    expected = stream.double().square().sum(-1)
    torch.testing.assert_close(left.double().sum((1, 2)), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(z, (stream.float() * (weights.float() + 1.0)).to(dtype))

    reader = pack(codes("int4", 32, rows if rows % 16 == 0 else 48), dtype)
    z, stream = (torch.nn.functional.pad(own, (0, reader.columns - rows)) for own in (z, stream))
    by_sums = product(z, reader, normed=packed_launch.Normed(stream, 1e-5, left))
    by_rows = product(z, reader, normed=packed_launch.Normed(stream, 1e-5))
    torch.testing.assert_close(by_sums, by_rows, rtol=1e-6, atol=1e-5)
    for token in range(tokens):  # whose numbers are those of the token alone
        own = slice(token, token + 1)
        alone = product(z[own], reader, normed=packed_launch.Normed(stream[own], 1e-5, left[own]))
        assert torch.equal(by_sums[own], alone)
    wrong = product(z, reader, normed=packed_launch.Normed(stream, 1e-5, left.roll(1, 0)))
    assert (wrong - by_rows).abs().max() > 1e-2


def test_a_gate_that_ends_within_a_tile_is_refused() -> None:
    matrix = pack(codes("nf4", 40, 128, 64), torch.float16)
    with pytest.raises(ValueError, match="20 rows of a gate are no multiple of 16"):
        packed_launch.gated_product(some(1, 128, torch.float16), matrix, some(1, 20, torch.float16), "silu")


def test_codes_that_are_taken_in_a_wrong_order_are_found() -> None:
    held = CASES["int4"]
    matrix = pack(held, torch.float16)
    swapped = replace(matrix, weight=matrix.weight << 4 | matrix.weight >> 4)
    x = some(2, held.shape[1], torch.float16)
    expected = x.double() @ plain_weights(held).double().T
    assert (product(x, swapped).double() - expected).abs().max() > 0.1
    halved = replace(matrix, scales=matrix.scales.roll(1, 1))
    assert (product(x, halved).double() - expected).abs().max() > 0.1


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("tokens", [1, 3])
def test_a_norm_is_found_behind_the_product_and_prepared_for_the_next(tokens: int, dtype: torch.dtype) -> None:
    held = CASES["nf4"]
    rows, columns = held.shape
    matrix, plain = pack(held, dtype), plain_weights(held).double()
    stream, weight, after = (some(tokens, columns, dtype), some(1, columns, dtype)[0], some(1, rows, dtype)[0])
    x = (stream.float() * weight.float()).to(dtype)
    y, z = some(tokens, rows, dtype), torch.zeros(tokens, rows, dtype=dtype, device=DEVICE)
    spread = (stream.double().square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    expected = y.double() + (x.double() @ plain.T) * spread
    normed = packed_launch.Normed(stream, 1e-5)
    packed_launch.product(x, matrix, y, normed=normed, added=True, follow=packed_launch.Follow(after, z, offset=1.0))
    bound = 4 * torch.finfo(dtype).eps * expected.abs().max()
    assert ((y.double() - expected).abs() <= bound).all()
    assert torch.equal(z, (y.float() * (after.float() + 1.0)).to(dtype))
    both = replace(held, codes=held.codes.repeat(2, 1), scales=held.scales.repeat(2, 1))
    gated = torch.zeros(tokens, rows, dtype=torch.float32, device=DEVICE)
    packed_launch.gated_product(x, pack(both, dtype), gated, "relu", normed=normed)
    sums = (x.double() @ plain.T) * spread
    assert ((gated - sums.relu() * sums).abs() <= 0.01 * (sums * sums).max()).all()
    capped = torch.zeros(tokens, rows, dtype=torch.float32, device=DEVICE)
    packed_launch.product(x, matrix, capped, normed=normed, cap=3.0)
    assert ((capped - 3 * torch.tanh(sums / 3)).abs() <= 0.02).all()
