"""Llama-shaped models on a GPU at the speed of its memory: passes over a few tokens by `gpu_kernels`.

The weights of a layer that read the same numbers lie in one matrix, of which the loaded model's
own are views: both ways to compute share the memory. What does not fit here is captured as
transformers computes it (`static_model`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_tui.backends.model import bucket
from specdec_tui.backends.static_model import Forward, prefilled, windows_of

MOST_TOKENS = 64  # of a pass by these kernels

_CLASSES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_ROPE_TYPES = ("default", "linear", "llama3")
_UNBOUNDED = 32_768  # positions where a model names no limit
_MANY_ROWS, _FEW_ROWS = 8192, 16  # matrices that are large enough for tiles of more rows; rows of a tile below
_PROGRAMS = 512  # enough for every multiprocessor to have its share
_AHEAD = 512  # columns of a tile's rows that are asked for before the kernel before has ended
_MOST_TILE_ROWS = 64  # of queries in a program of attention
_SHARE, _MOST_SHARES = 64, 32  # tokens of the text that one program attends to, at least; programs at most


@dataclass(frozen=True)
class Layer:
    """Weights of a layer: qkv [(heads + 2 · key heads) · width, hidden], gate_up [2 · inner, hidden]; empty: none.

    It sees the last `window` tokens; 0: all of them.
    """

    norm_in: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    query_norm: Tensor
    key_norm: Tensor
    output: Tensor
    norm_mid: Tensor
    gate_up: Tensor
    down: Tensor
    window: int


@dataclass(frozen=True)
class Weights:
    """A model as the kernels read it. `cosines` and `sines` [positions, width / 2], float32."""

    layers: tuple[Layer, ...]
    embedding: Tensor
    last_norm: Tensor
    head: Tensor
    cosines: Tensor
    sines: Tensor
    heads: int
    key_heads: int
    width: int
    epsilon: float


@cache
def kernels() -> ModuleType | None:
    """The kernels; None where there is no Triton."""
    try:
        from specdec_tui.backends import gpu_kernels
    except ImportError:
        return None
    return gpu_kernels


def fits(model: PreTrainedModel) -> bool:
    """Whether a loaded model is of a shape these kernels compute: in half precision, dense."""
    if type(model).__name__ not in _CLASSES:
        return False
    config = model.config
    width = _head_width(config)
    return (
        model.dtype in (torch.bfloat16, torch.float16)
        and all(weight.dtype is model.dtype for weight in model.parameters())
        and config.hidden_act == "silu"
        and getattr(model.model.rotary_emb, "rope_type", "") in _ROPE_TYPES
        and 2 * model.model.rotary_emb.inv_freq.numel() == width
        and width >= 16
        and width & (width - 1) == 0
        and not any(getattr(model.model.layers[0].mlp, name).bias is not None for name in ("gate_proj", "down_proj"))
        and model.model.layers[0].self_attn.o_proj.bias is None
        and kernels() is not None
    )


def _head_width(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _joined(modules: Sequence[Any], part: str) -> Tensor:
    """The named parameters of some modules as one tensor, of which they become views."""
    parameters = [getattr(module, part) for module in modules]
    if parameters[0] is None:
        return torch.empty(0)
    whole = torch.cat([parameter.detach() for parameter in parameters])
    begin = 0
    for parameter in parameters:
        parameter.data = whole[begin : begin + len(parameter)]
        begin += len(parameter)
    return whole


@torch.no_grad()
def fuse(model: PreTrainedModel, positions: int) -> Weights:
    """The weights of a model that `fits`, with rotations for `positions`; the model goes on working."""
    config, inner = model.config, model.model
    layers = []
    for layer, window in zip(inner.layers, windows_of(model), strict=True):
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        norms = [getattr(getattr(attention, name, None), "weight", torch.empty(0)) for name in ("q_norm", "k_norm")]
        layers.append(
            Layer(
                layer.input_layernorm.weight.detach(),
                _joined(projections, "weight"),
                _joined(projections, "bias"),
                norms[0].detach(),
                norms[1].detach(),
                attention.o_proj.weight.detach(),
                layer.post_attention_layernorm.weight.detach(),
                _joined((mlp.gate_proj, mlp.up_proj), "weight"),
                mlp.down_proj.weight.detach(),
                window,
            )
        )
    rotary = inner.rotary_emb
    angles = torch.arange(positions, device=rotary.inv_freq.device)[:, None] * rotary.inv_freq.float()
    scale = float(getattr(rotary, "attention_scaling", 1.0))
    return Weights(
        tuple(layers),
        model.get_input_embeddings().weight.detach(),
        inner.norm.weight.detach(),
        model.get_output_embeddings().weight.detach(),
        angles.cos() * scale,
        angles.sin() * scale,
        config.num_attention_heads,
        config.num_key_value_heads,
        _head_width(config),
        float(config.rms_norm_eps),
    )


def opener(model: PreTrainedModel, forward: Forward, context_length: int | None) -> Callable[[int], GpuContext]:
    """What opens sequences of a model that `fits`, given their capacity."""
    positions = bucket((context_length or _UNBOUNDED) + MOST_TOKENS)
    weights = fuse(model, positions)

    def open_static(capacity: int) -> GpuContext:
        if capacity > positions:
            raise ValueError(f"a text of {capacity} tokens is too long for it")
        return GpuContext(weights, forward, capacity)

    return open_static


class GpuContext:
    """A `StaticSequence` with keys and values [layers, key heads, capacity, width]."""

    def __init__(self, weights: Weights, forward: Forward, capacity: int) -> None:
        found = kernels()
        assert found is not None, "ask `fits` first"
        self._kernels: Any = found
        self._weights, self._forward, self._capacity = weights, forward, capacity
        shape = (len(weights.layers), weights.key_heads, capacity, weights.width)
        self._keys, self._values = (torch.zeros(shape, dtype=self._dtype, device=self._device) for _ in range(2))
        self._shares = max(1, min(_MOST_SHARES, capacity // _SHARE))
        self._overlap = self._device.type == "cuda" and torch.cuda.get_device_capability(self._device) >= (9, 0)

    @property
    def _dtype(self) -> torch.dtype:
        return self._weights.head.dtype

    @property
    def _device(self) -> torch.device:
        return self._weights.head.device

    @property
    def capacity(self) -> int:
        return self._capacity

    @torch.inference_mode()
    def prefill(self, ids: Tensor) -> Tensor:
        """See `model.StaticSequence`: by the loaded model in chunks, whose keys and values are taken over."""
        logits, held = prefilled(self._forward, ids)
        for index, (keys, values) in enumerate(held):
            self._keys[index, :, : len(ids)] = keys
            self._values[index, :, : len(ids)] = values
        return logits

    def extend(self, ids: Tensor, begin: Tensor, keep: int) -> Tensor:
        """See `model.StaticSequence`; at most `MOST_TOKENS` ids."""
        with torch.cuda.device_of(ids):  # Triton launches on the current device, wherever the arrays are
            return self._extend(ids, begin, keep)

    @torch.inference_mode()
    def _extend(self, ids: Tensor, begin: Tensor, keep: int) -> Tensor:
        weights, tokens = self._weights, len(ids)
        if tokens > MOST_TOKENS:
            raise ValueError(f"{tokens} tokens are too many for one pass: at most {MOST_TOKENS}")
        heads, key_heads, width = weights.heads, weights.key_heads, weights.width
        x = torch.nn.functional.embedding(ids, weights.embedding)
        hidden = x.shape[1]
        normed = torch.empty_like(x)
        joint = self._empty(tokens, (heads + 2 * key_heads) * width)
        queries, mixed = self._empty(tokens, heads * width), self._empty(tokens, heads * width)
        active = self._empty(tokens, weights.layers[0].down.shape[1])
        parts = self._empty(tokens * heads, self._shares, width, dtype=torch.float32)
        highest, sums = (self._empty(tokens * heads, self._shares, dtype=torch.float32) for _ in range(2))
        # What a layer adds to the stream, as sums over pieces of the columns: the next norm adds them up.
        pieces = [
            self._empty(_splits(hidden, columns), tokens, hidden, dtype=torch.float32)
            for columns in (heads * width, active.shape[1])
        ]
        before: Tensor | None = None
        group = heads // key_heads
        tile_rows = min(_MOST_TILE_ROWS, max(16, _power(tokens * group)))
        for index, layer in enumerate(weights.layers):
            self._normalize(x, before, layer.norm_in, normed)
            self._product(normed, layer.qkv, joint[None], bias=layer.qkv_bias)
            self._kernels.rotate_and_store[(tokens, heads + 2 * key_heads)](
                joint,
                layer.query_norm if len(layer.query_norm) else joint,
                layer.key_norm if len(layer.key_norm) else joint,
                weights.cosines,
                weights.sines,
                begin,
                queries,
                self._keys[index],
                self._values[index],
                weights.epsilon,
                heads,
                key_heads,
                width,
                width // 2,
                self._capacity,
                bool(len(layer.query_norm)),
                self._overlap,
                num_warps=1,
                **self._early,
            )
            self._kernels.attend[(key_heads, self._shares, -(-tokens * group // tile_rows))](
                queries,
                self._keys[index],
                self._values[index],
                begin,
                parts,
                highest,
                sums,
                width**-0.5,
                tokens,
                heads,
                key_heads,
                width,
                self._capacity,
                self._shares,
                layer.window,
                tile_rows,
                min(64, self._capacity // self._shares),
                self._overlap,
                **self._early,
            )
            self._kernels.gather_parts[(tokens * heads,)](
                parts,
                highest,
                sums,
                mixed,
                width,
                self._shares,
                _power(self._shares),
                self._overlap,
                num_warps=1,
                **self._early,
            )
            self._product(mixed, layer.output, pieces[0])
            self._normalize(x, pieces[0], layer.norm_mid, normed)
            self._gated(normed, layer.gate_up, active)
            self._product(active, layer.down, pieces[1])
            before = pieces[1]
        logits = self._empty(keep, weights.head.shape[0], dtype=torch.float32)
        self._normalize(x, before, weights.last_norm, normed[:keep])
        self._product(normed[:keep], weights.head, logits[None])
        return logits

    @property
    def _early(self) -> dict[str, bool]:
        """Launch options."""
        return {"launch_pdl": True} if self._overlap else {}

    def _empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.empty(shape, dtype=dtype or self._dtype, device=self._device)

    def _normalize(self, x: Tensor, pieces: Tensor | None, norm: Tensor, y: Tensor) -> None:
        """The last tokens of x, as many as y has."""
        tokens, columns = x.shape
        self._kernels.normalize[(len(y),)](
            x,
            x if pieces is None else pieces,
            norm,
            y,
            self._weights.epsilon,
            tokens - len(y),
            tokens,
            columns,
            0 if pieces is None else len(pieces),
            _power(columns),
            self._overlap,
            num_warps=8,
            **self._early,
        )

    def _product(self, x: Tensor, weight: Tensor, y: Tensor, bias: Tensor | None = None) -> None:
        tokens, (rows, columns) = len(x), weight.shape
        tile_rows, tile_columns = (_FEW_ROWS, 512) if rows < _MANY_ROWS else (32, 256)
        # A tile of many tokens needs room in shared memory; sums run over the columns one by one in any case.
        tile_columns = min(tile_columns, 8192 // max(16, _power(tokens)))
        biased = bias is not None and bool(len(bias))
        self._kernels.product[(-(-rows // tile_rows), len(y))](
            x,
            weight,
            bias if biased else weight,
            y,
            tokens,
            rows,
            columns,
            biased,
            max(16, _power(tokens)),
            tile_rows,
            tile_columns,
            len(y),
            _AHEAD,
            self._overlap,
            num_warps=2,
            num_stages=3,
            **self._early,
        )

    def _gated(self, x: Tensor, weight: Tensor, y: Tensor) -> None:
        tokens, (rows, columns) = len(x), y.shape[1:] + x.shape[1:]
        tile_rows, tile_columns = 32, 128
        self._kernels.gated_product[(-(-rows // tile_rows),)](
            x,
            weight,
            y,
            tokens,
            rows,
            columns,
            max(16, _power(tokens)),
            tile_rows,
            tile_columns,
            _AHEAD,
            self._overlap,
            num_warps=2,
            num_stages=4,
            **self._early,
        )


def _splits(rows: int, columns: int) -> int:
    """Pieces of the columns that a product with few rows is cut into, so that its programs keep the whole GPU busy."""
    return max(1, min(4, _PROGRAMS * _FEW_ROWS // rows, columns // 1024))


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << max(0, number - 1).bit_length()
