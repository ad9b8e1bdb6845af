"""A lean Llama: fused projections, plain functions over named tuples of weights.

The same forward serves the target and the student, in evaluation and in training; the tests hold it
against transformers. Weights are read from Hugging Face folders (`model.layers.N.self_attn.q_proj...`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor


class Shape(NamedTuple):
    """The numbers of a Llama; `theta` is the base of the rotary frequencies.

    A named tuple, like the weights, because torch.compile takes these as arguments without ado.
    """

    width: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocab: int
    theta: float
    eps: float

    @staticmethod
    def of_config(config: dict[str, Any]) -> Shape:
        """Read a Hugging Face config (both places where it may keep the rotary base)."""
        if config.get("model_type") != "llama":
            raise ValueError(f"a Llama is needed, this is a {config.get('model_type')}")
        rope = config.get("rope_parameters") or {}
        if rope.get("rope_type", "default") != "default" or config.get("rope_scaling"):
            raise ValueError("rotary scaling is not supported")
        heads = config["num_attention_heads"]
        return Shape(
            width=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            mlp=config["intermediate_size"],
            vocab=config["vocab_size"],
            theta=float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0),
            eps=config["rms_norm_eps"],
        )


class Layer(NamedTuple):
    """Weights of one layer: q, k, v stacked in that order, gate over up; all [out, in]."""

    norm_in: Tensor
    qkv: Tensor
    out: Tensor
    norm_mid: Tensor
    gate_up: Tensor
    down: Tensor


class Llama(NamedTuple):
    """Weights of a model. `head` is `embedding` where they are tied, both [vocab, width]."""

    shape: Shape
    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Tensor


def from_state(shape: Shape, state: dict[str, Tensor], device: torch.device, dtype: torch.dtype) -> Llama:
    """Fuse the tensors of a Hugging Face state dict on `device` in `dtype`."""

    def take(*names: str) -> Tensor:
        return torch.cat([state[name].to(device, dtype) for name in names])

    layers = []
    for n in range(shape.layers):
        layer = f"model.layers.{n}"
        layers.append(
            Layer(
                take(f"{layer}.input_layernorm.weight"),
                take(*(f"{layer}.self_attn.{part}_proj.weight" for part in "qkv")),
                take(f"{layer}.self_attn.o_proj.weight"),
                take(f"{layer}.post_attention_layernorm.weight"),
                take(f"{layer}.mlp.gate_proj.weight", f"{layer}.mlp.up_proj.weight"),
                take(f"{layer}.mlp.down_proj.weight"),
            )
        )
    embedding = take("model.embed_tokens.weight")
    head = take("lm_head.weight") if "lm_head.weight" in state else embedding
    return Llama(shape, embedding, tuple(layers), take("model.norm.weight"), head)


def load_llama(folder: Path, device: torch.device, dtype: torch.dtype) -> Llama:
    """Read a Hugging Face folder (config.json and *.safetensors)."""
    shape = Shape.of_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    state: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        state |= load_file(file)
    return from_state(shape, state, device, dtype)


def rotations(shape: Shape, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines [length, head_dim], float32, in the half-and-half order of Hugging Face."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float32, device=device) / shape.head_dim
    angles = torch.arange(length, dtype=torch.float32, device=device)[:, None] * (1.0 / shape.theta**half)
    both = torch.cat([angles, angles], -1)
    return both.cos(), both.sin()


def normalize(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension, computed in float32, in the dtype of `x`."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary embedding of [..., head_dim]; cosines and sines broadcast to it. In float32, in the dtype of `x`."""
    wide = x.float()
    low, high = wide.chunk(2, -1)
    return (wide * cosines + torch.cat([-high, low], -1) * sines).to(x.dtype)


def gated(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of a stacked projection."""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


def split_heads(qkv: Tensor, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """[..., (heads + 2 kv_heads) * head_dim] to q [..., heads, head_dim], k and v [..., kv_heads, head_dim]."""
    parts = qkv.unflatten(-1, (shape.heads + 2 * shape.kv_heads, shape.head_dim))
    q, k, v = parts.split([shape.heads, shape.kv_heads, shape.kv_heads], -2)
    return q, k, v


def trunk(x: Tensor, layers: tuple[Layer, ...], norm: Tensor, shape: Shape, cosines: Tensor, sines: Tensor) -> Tensor:
    """Hidden states [batch, length, width] after the last norm, from embedded tokens of the same shape; causal."""
    batch, length, _ = x.shape
    cosines, sines = cosines[:length, None], sines[:length, None]
    for layer in layers:
        q, k, v = split_heads(F.linear(normalize(x, layer.norm_in, shape.eps), layer.qkv), shape)
        q, k = rotate(q, cosines, sines), rotate(k, cosines, sines)
        mixed = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            is_causal=True,
            enable_gqa=shape.kv_heads != shape.heads,
        )
        x = x + F.linear(mixed.transpose(1, 2).reshape(batch, length, -1), layer.out)
        x = x + F.linear(gated(F.linear(normalize(x, layer.norm_mid, shape.eps), layer.gate_up)), layer.down)
    return normalize(x, norm, shape.eps)


@torch.no_grad()
def hidden_states(model: Llama, ids: Tensor) -> Tensor:
    """Hidden states [batch, length, width] of token ids [batch, length]; logits are these times `head` transposed."""
    cosines, sines = rotations(model.shape, ids.shape[1], ids.device)
    return trunk(F.embedding(ids, model.embedding), model.layers, model.norm, model.shape, cosines, sines)
