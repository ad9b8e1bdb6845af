"""Attention of one new token per row over what the cache holds so far."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without it
    triton = None


def plain_attention(q: Tensor, keys: Tensor, values: Tensor, length: int) -> Tensor:
    """Mixed values [batch, heads, head_dim] over the first `length` places of the cache.

    q is [batch, heads, head_dim]; keys and values are [batch, kv_heads, capacity, head_dim]. The queries
    that share keys are folded into the query length, so that keys and values are never copied.
    """
    batch, heads, dim = q.shape
    kv_heads = keys.shape[1]
    folded = q.reshape(batch, kv_heads, heads // kv_heads, dim)
    mixed = F.scaled_dot_product_attention(folded, keys[:, :, :length], values[:, :, :length])
    return mixed.reshape(batch, heads, dim)


if triton is not None:

    @triton.jit
    def _attend(
        q_pointer,
        k_pointer,
        v_pointer,
        out_pointer,
        position_pointer,
        scale,
        CAPACITY: tl.constexpr,
        GROUP: tl.constexpr,
        DIM: tl.constexpr,
        ROWS: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        # One program per (row, key head): its queries share every key and value that it reads once.
        place = tl.program_id(0).to(tl.int64)
        length = tl.load(position_pointer).to(tl.int32) + 1
        group = tl.arange(0, ROWS)  # padded to the smallest tile that tl.dot takes
        dim = tl.arange(0, DIM)
        q_offsets = (place * GROUP + group[:, None]) * DIM + dim[None, :]
        q = tl.load(q_pointer + q_offsets, mask=group[:, None] < GROUP, other=0.0)
        base = place * CAPACITY * DIM
        peak = tl.full([ROWS], float("-inf"), tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        mixed = tl.zeros([ROWS, DIM], tl.float32)
        for start in range(0, length, BLOCK):
            token = start + tl.arange(0, BLOCK)
            k_offsets = token[None, :] * DIM + dim[:, None]
            k = tl.load(k_pointer + base + k_offsets, mask=token[None, :] < length, other=0.0)
            scores = tl.dot(q, k) * scale
            scores = tl.where(token[None, :] < length, scores, float("-inf"))
            higher = tl.maximum(peak, tl.max(scores, 1))
            weights = tl.exp(scores - higher[:, None])
            shrink = tl.exp(peak - higher)
            total = total * shrink + tl.sum(weights, 1)
            v_offsets = token[:, None] * DIM + dim[None, :]
            v = tl.load(v_pointer + base + v_offsets, mask=token[:, None] < length, other=0.0)
            mixed = mixed * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
            peak = higher
        mixed = mixed / total[:, None]
        tl.store(out_pointer + q_offsets, mixed.to(out_pointer.dtype.element_ty), mask=group[:, None] < GROUP)


def fused_attention(q: Tensor, keys: Tensor, values: Tensor, position: Tensor) -> Tensor:
    """As `plain_attention` over the first position + 1 places, with the position [1] read on the device.

    So one captured graph serves every length and reads no more than what is filled. The cache must be
    contiguous, head_dim a power of two of at least 16, and the dtype half precision.
    """
    batch, heads, dim = q.shape
    kv_heads, capacity = keys.shape[1], keys.shape[2]
    group = heads // kv_heads
    q = q.contiguous()
    out = torch.empty_like(q)
    _attend[(batch * kv_heads,)](
        q,
        keys,
        values,
        out,
        position,
        dim**-0.5,
        CAPACITY=capacity,
        GROUP=group,
        DIM=dim,
        ROWS=max(16, triton.next_power_of_2(group)),
        BLOCK=64,
        num_warps=4,
    )
    return out
