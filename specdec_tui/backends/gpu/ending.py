"""What comes behind a product, in Triton: sums of warps are joined, and what there was is read and written beside them.

On a GPU of compute capability 8.0 or newer (`asm`) this is done by instructions of our own (`ptx`), as Triton loads and
stores in other layouts than that of sums, and each exchange between them takes two meetings of the threads. There all
warps have the same sums [warps, rows, tokens], of which the first are stored; elsewhere sums are [1, rows, tokens].
Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]

from specdec_tui.backends.gpu import ptx

_joins = triton.constexpr_function(ptx.joins)
_joining = triton.constexpr_function(ptx.joining)
_in_and_out = triton.constexpr_function(ptx.sums_in_and_out)
_READ_BFLOAT16, _READ_FLOAT16, _READ_FLOAT32 = (tl.constexpr(ptx.reading(kind)) for kind in ("bf16", "f16", "f32"))
_WRITE_BFLOAT16, _WRITE_FLOAT16, _WRITE_FLOAT32 = (tl.constexpr(ptx.writing(kind)) for kind in ("bf16", "f16", "f32"))


@triton.jit
def joined(total: tl.tensor, asm: tl.constexpr) -> tl.tensor:
    """The sum of what the warps have: total [warps, rows, tokens], of which each has one."""
    warps: tl.constexpr = total.shape[0]
    count: tl.constexpr = max(16, total.shape[1]) * total.shape[2] // 32  # of a thread: a tensor core's tile at least
    if warps == 1:
        return total
    elif asm and _joins(warps, count):
        return tl.inline_asm_elementwise(
            _joining(warps, count), _in_and_out(count), [total], dtype=tl.float32, is_pure=False, pack=count
        )
    else:
        return tl.sum(total, 0, keep_dims=True)


@triton.jit
def joined_both(total: tl.tensor, other: tl.tensor, asm: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The same of two of a shape: the threads meet once."""
    warps: tl.constexpr = total.shape[0]
    count: tl.constexpr = max(16, total.shape[1]) * total.shape[2] // 32
    if warps == 1:
        return total, other
    elif asm and _joins(warps, 2 * count):
        return tl.inline_asm_elementwise(
            _joining(warps, 2 * count), _in_and_out(2 * count), [total, other], dtype=(tl.float32, tl.float32),
            is_pure=False, pack=count,
        )  # fmt: skip
    else:
        return tl.sum(total, 0, keep_dims=True), tl.sum(other, 0, keep_dims=True)


@triton.jit
def behind_wait(asm: tl.constexpr) -> tl.tensor:
    """0, which is known only behind `gdc_wait`: what is added to the address of a load that must not come before."""
    if asm:
        return tl.inline_asm_elementwise("mov.u32 $0, 0;", "=r,r", [0], dtype=tl.int32, is_pure=False, pack=1)
    else:
        return 0


@triton.jit
def loaded(values: tl.tensor, place: tl.tensor, asm: tl.constexpr) -> tl.tensor:
    """Numbers as float32, in the layout of what they are added to."""
    if asm:
        kind: tl.constexpr = values.dtype.element_ty
        code: tl.constexpr = (
            _READ_BFLOAT16 if kind == tl.bfloat16 else _READ_FLOAT16 if kind == tl.float16 else _READ_FLOAT32
        )
        address = values.to(tl.int64) + place.to(tl.int64) * (4 if kind == tl.float32 else 2)
        return tl.inline_asm_elementwise(code, "=f,l", [address], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return tl.load(values + place).to(tl.float32)


@triton.jit
def put(y: tl.tensor, place: tl.tensor, value: tl.tensor, inside: tl.tensor) -> None:
    """Store float32 numbers, rounded, where they are `inside`, by instructions of our own."""
    kind: tl.constexpr = y.dtype.element_ty
    code: tl.constexpr = (
        _WRITE_BFLOAT16 if kind == tl.bfloat16 else _WRITE_FLOAT16 if kind == tl.float16 else _WRITE_FLOAT32
    )
    address = tl.where(inside, y.to(tl.int64) + place.to(tl.int64) * (4 if kind == tl.float32 else 2), 0)
    tl.inline_asm_elementwise(code, "=r,l,f", [address, value], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def stored(y: tl.tensor, place: tl.tensor, value: tl.tensor, inside: tl.tensor, asm: tl.constexpr) -> None:
    """Store float32 numbers [warps, ., .], rounded, where they are `inside`; of all warps, which have the same, the
    first does so."""
    if asm:
        put(y, place, value, inside & (tl.arange(0, value.shape[0])[:, None, None] == 0))
    else:
        tl.store(y + place, value.to(y.dtype.element_ty), mask=inside)
