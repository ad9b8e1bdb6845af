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
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from distil.files import Refused, brief

_PLAIN: dict[str, tuple[Any, ...]] = {
    "model_type": ("llama",),
    "architectures": (None, ["LlamaForCausalLM"]),
    "hidden_act": (None, "silu", "swish"),
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "rope_type": (None, "default"),
    "rope_scaling": (None,),
    "partial_rotary_factor": (None, 1),
    "sliding_window": (None,),
    "layer_types": (None,),
    "quantization_config": (None,),
}
"""What this forward computes: a config that says anything else is of another model."""

_NOT_WEIGHTS = ".rotary_emb.inv_freq"  # old files hold these frequencies too; transformers passes over them


class Shape(NamedTuple):
    """The numbers of a Llama; `theta` is the base of the rotary frequencies, `tied` means one matrix at both ends.

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
    tied: bool = True

    @staticmethod
    def of_config(config: dict[str, Any]) -> Shape:
        """Read a Hugging Face config (both places where it may keep what is rotary).

        Refused when it says that the model is more than this forward computes.
        """
        given = {**config, **(config.get("rope_parameters") or {})}
        for name, plain in _PLAIN.items():
            if given.get(name) not in plain:
                raise Refused(f"only a plain Llama is supported, and the config has {name} {given.get(name)}")
        try:
            heads = given["num_attention_heads"]
            shape = Shape(
                width=given["hidden_size"],
                layers=given["num_hidden_layers"],
                heads=heads,
                kv_heads=given.get("num_key_value_heads") or heads,
                head_dim=given.get("head_dim") or given["hidden_size"] // heads,
                mlp=given["intermediate_size"],
                vocab=given["vocab_size"],
                theta=float(given.get("rope_theta") or 10_000.0),
                eps=given["rms_norm_eps"],
                tied=bool(given.get("tie_word_embeddings")),
            )
            counts = all(isinstance(count, int) and count > 0 for count in shape[: Shape._fields.index("theta")])
            fits = counts and not shape.heads % shape.kv_heads and not shape.head_dim % 2
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise Refused(f"the config lacks a number or has a wrong one ({brief(repr(error))})") from error
        if not fits:
            raise Refused("the config has sizes that do not fit together")
        return shape

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Sizes of all tensors of such a model by the names that transformers gives them."""
        inner, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sizes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab, self.width)}
        for n in range(self.layers):
            name = f"model.layers.{n}"
            sizes |= {
                f"{name}.input_layernorm.weight": (self.width,),
                f"{name}.self_attn.q_proj.weight": (inner, self.width),
                f"{name}.self_attn.k_proj.weight": (keys, self.width),
                f"{name}.self_attn.v_proj.weight": (keys, self.width),
                f"{name}.self_attn.o_proj.weight": (self.width, inner),
                f"{name}.post_attention_layernorm.weight": (self.width,),
                f"{name}.mlp.gate_proj.weight": (self.mlp, self.width),
                f"{name}.mlp.up_proj.weight": (self.mlp, self.width),
                f"{name}.mlp.down_proj.weight": (self.width, self.mlp),
            }
        sizes["model.norm.weight"] = (self.width,)
        if not self.tied:
            sizes["lm_head.weight"] = (self.vocab, self.width)
        return sizes


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
    """Fuse the tensors of a Hugging Face state dict on `device` in `dtype`.

    Refused unless they are all that the shape needs, in its sizes, and nothing else.
    """
    check_tensors(shape, state)

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
    head = embedding if shape.tied else take("lm_head.weight")
    return Llama(shape, embedding, tuple(layers), take("model.norm.weight"), head)


def check_tensors(shape: Shape, state: dict[str, Tensor]) -> None:
    """Refused unless these are all that the shape needs, in its sizes, and nothing else."""
    needed = shape.tensors()
    for told, names in (("lack", needed.keys() - state.keys()), ("have unknown", state.keys() - needed.keys())):
        if names:
            some = ", ".join(sorted(names)[:3])
            raise Refused(f"the weights {told} {some}{f' and {len(names) - 3} more' if len(names) > 3 else ''}")
    for name, size in needed.items():
        if tuple(state[name].shape) != size or not state[name].is_floating_point():
            found = f"{list(state[name].shape)} of {state[name].dtype}"
            raise Refused(f"{name} is {found}, not {list(size)} of floating point")


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a Hugging Face folder."""
    file = folder / "config.json"
    if not file.is_file():
        raise Refused(f"{folder} has no config.json" if folder.is_dir() else f"there is no folder {folder}")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Refused(f"{file} is not JSON ({brief(error)})") from error
    if not isinstance(config, dict):
        raise Refused(f"{file} is not a JSON object")
    return config


def read_shape(folder: Path) -> Shape:
    """The shape of a Llama in a Hugging Face folder; Refused when it is none, or has no weights."""
    config = read_config(folder)
    try:
        shape = Shape.of_config(config)
    except Refused as refusal:
        raise Refused(f"{folder}: {refusal}") from refusal
    if not any(folder.glob("*.safetensors")):
        raise Refused(f"{folder} has no *.safetensors")
    return shape


def read_state(folder: Path, shape: Shape) -> dict[str, Tensor]:
    """All tensors of a Hugging Face folder's *.safetensors, as they are stored; a tied head only once."""
    state: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            part = load_file(file)
        except SafetensorError as error:
            raise Refused(f"{file} is damaged ({brief(error)}): fetch it again") from error
        twice = part.keys() & state.keys()
        if twice:
            raise Refused(f"{folder} has {min(twice)} in two files")
        state |= {name: value for name, value in part.items() if not name.endswith(_NOT_WEIGHTS)}
    head, embedding = state.get("lm_head.weight"), state.get("model.embed_tokens.weight")
    if shape.tied and head is not None and embedding is not None and torch.equal(head, embedding):
        del state["lm_head.weight"]  # one matrix, stored twice
    try:
        check_tensors(shape, state)
    except Refused as refusal:
        raise Refused(f"{folder}: {refusal}") from refusal
    return state


def load_llama(folder: Path, device: torch.device, dtype: torch.dtype) -> Llama:
    """Read a Hugging Face folder (config.json and *.safetensors)."""
    shape = read_shape(folder)
    return from_state(shape, read_state(folder, shape), device, dtype)


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
