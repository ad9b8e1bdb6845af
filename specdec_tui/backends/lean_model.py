"""Llama-shaped models on a CPU, at the speed of the memory: the one module that owns these choices.

Passes over a few tokens (decoding, verifying) run in one compiled function, `cpu_kernels`; longer
ones (prefill) through torch, whose products are best there. Both compute in float32. Weights that
are bfloat16 numbers are held as such: widening them to float32 is exact, so the products are the
same and half as much memory is read. With dtype bfloat16 weights are rounded to it, and only they.

`fits` says which models this is for, `agrees` tries it out against the loaded model, and whatever
does not fit or agree stays with `TransformersModel`.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from specdec_tui.backends.causal_lm import context_length_of
from specdec_tui.backends.contexts import RecomputedContext
from specdec_tui.backends.errors import first_line
from specdec_tui.backends.lean_reference import LeanReference
from specdec_tui.backends.model import ModelContext, PassCost
from specdec_tui.backends.pages import roomy

GROWTH = 256
PREFILL_CHUNK = 512
# Up to here a pass is bound by memory; beyond it torch's blocked products win.
KERNEL_TOKENS = 16

_CLASSES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM")
# Tokens of passes whose products are of two and three, of four, and of four and three tokens: see `_product`.
_TRIED = (5, 4, 7)
# Rotations that do not depend on the length of the text.
_ROPE_TYPES = ("default", "linear", "llama3")
_BIASED = ("q_proj", "k_proj", "v_proj")
# The threads of numba's simplest pool must not be asked by two callers at once.
_ONE_AT_A_TIME = threading.Lock()


def fits(model: PreTrainedModel) -> bool:
    """Whether a loaded model is of a shape this module computes: dense, on the CPU, full attention.

    Whether this machine can, says `why_not`.
    """
    config = model.config
    layer_types = getattr(config, "layer_types", None) or ()
    return (
        type(model).__name__ in _CLASSES
        and not getattr(model, "is_quantized", False)
        and model.dtype in (torch.float32, torch.bfloat16)
        and all(weight.device.type == "cpu" and weight.dtype is model.dtype for weight in model.parameters())
        and config.hidden_act == "silu"
        and all(kind == "full_attention" for kind in layer_types)
        and (bool(layer_types) or not getattr(config, "sliding_window", None))
        and getattr(model.model.rotary_emb, "rope_type", "") in _ROPE_TYPES
        and 2 * model.model.rotary_emb.inv_freq.numel() == _head_width(config)
        and all(size % 2 == 0 for size in (config.vocab_size, config.hidden_size, config.intermediate_size))
        and all(name.split(".")[-2] in _BIASED for name, _ in model.named_parameters() if name.endswith("bias"))
    )


def why_not() -> str:
    """Why this machine cannot compile the fast pass; empty where it can."""
    found = _kernels()
    return found if isinstance(found, str) else ""


@cache
def _kernels() -> ModuleType | str:
    """The functions to compile, or why there are none."""
    # numba's threads would else be as many as there are cores, and its first launch makes them torch's too.
    # Somebody who has imported it has decided: it refuses another number once its threads run.
    if "numba" not in sys.modules:
        os.environ.setdefault("NUMBA_NUM_THREADS", str(torch.get_num_threads()))
    try:
        from specdec_tui.backends import cpu_kernels
    except Exception as error:  # its compiler is a native library, which may fail to load in many ways
        return f"numba does not work ({type(error).__name__}: {first_line(error)})"
    return cpu_kernels


def agrees(model: LeanModel, ids: Sequence[int], expected: Tensor) -> bool:
    """Whether `model` gives the logits `expected` [n, vocab_size] after each of `ids`, in passes of all sorts."""
    context, rows, begin = model.open(), [], 0
    for size in (len(ids) // 2, *_TRIED, *[1] * len(ids)):
        if part := ids[begin : begin + size]:
            rows.append(context.extend(part, len(part)))
            begin += len(part)
    bound = 0.1 if model.rounded else 1e-3
    difference = (torch.cat(rows) - expected).abs().max().item()
    return difference <= bound * max(1.0, expected.abs().max().item())  # False for NaN


def _head_width(config: Any) -> int:
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(width)


def _is_bfloat16(weight: Tensor) -> bool:
    """Whether every number of a float32 tensor is one that bfloat16 has."""
    return weight.dtype is torch.bfloat16 or not bool((weight.view(torch.int32) & 0xFFFF).any())


def _array(weight: Tensor) -> np.ndarray[Any, Any]:
    """The same memory as numba takes it: float32, or the bits of bfloat16 as uint16."""
    return weight.view(torch.int16).numpy().view(np.uint16) if weight.dtype is torch.bfloat16 else weight.numpy()


class LeanModel:
    """A `CausalModel` on the CPU. Takes over the weights of `model`, which cannot compute any more afterwards.

    The caller has asked `fits`. `dtype` is what it computes in; `rounded` says whether weights of
    the loaded model were asked for in bfloat16.
    """

    dtype = torch.float32

    @torch.no_grad()
    def __init__(self, model: PreTrainedModel) -> None:
        config, inner = model.config, model.model
        self._context_length = context_length_of(config)
        self.heads, self.key_heads, self.head_width = (
            config.num_attention_heads,
            config.num_key_value_heads,
            _head_width(config),
        )
        self.epsilon, self.rounded = config.rms_norm_eps, model.dtype is torch.bfloat16
        held = torch.bfloat16 if all(_is_bfloat16(w) for w in model.parameters() if w.dim() > 1) else torch.float32
        layers = list(inner.layers)

        def stacked(*names: str, part: str = "weight", dtype: torch.dtype = held) -> Tensor:
            """One tensor [layers, …] of the named modules' rows; the modules are freed layer by layer."""
            whole: Tensor | None = None
            for index, layer in enumerate(layers):
                modules = [layer.get_submodule(name) for name in names]
                rows = torch.cat([getattr(module, part).detach() for module in modules]).to(dtype)
                whole = roomy((len(layers), *rows.shape), dtype) if whole is None else whole
                whole[index] = rows
            assert whole is not None
            return whole

        projections = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        groups = (projections, ("self_attn.o_proj",), ("mlp.gate_proj", "mlp.up_proj"), ("mlp.down_proj",))
        biased = layers[0].self_attn.q_proj.bias is not None
        self.qkv_bias = stacked(*projections, part="bias", dtype=torch.float32) if biased else torch.empty(0, 0)
        norms = [stacked(name, dtype=torch.float32) for name in ("input_layernorm", "post_attention_layernorm")]
        self.norms = torch.stack(norms, 1)
        self.last_norm = inner.norm.weight.detach().float()
        self.matrices = []
        for names in groups:
            self.matrices.append(stacked(*names))
            for layer in layers:
                for name in names:
                    layer.get_submodule(name).to("meta")
        head = model.get_output_embeddings().weight.detach()
        self.head = roomy(head.shape, held).copy_(head)
        tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        self.embedding = self.head if tied else model.get_input_embeddings().weight.detach()
        self._own_layers = LeanReference(inner, groups, self.matrices, self.qkv_bias)

        self._frequencies = inner.rotary_emb.inv_freq.detach().float()
        self._rope_scale = float(getattr(inner.rotary_emb, "attention_scaling", 1.0))
        self.cosines, self.sines = self._rotations(2 * GROWTH)
        self._weights = [_array(matrix) for matrix in self.matrices]
        self._arrays = [_array(tensor) for tensor in (self.norms, self.last_norm, self.head)]
        kernels = _kernels()
        assert not isinstance(kernels, str), "ask `why_not` first"
        self._decoder_pass = kernels.decoder_pass
        self._threads = max(1, min(torch.get_num_threads(), kernels.most_threads()))

    def _rotations(self, end: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [end, head width / 2] of the positions below `end`."""
        angles = torch.arange(end, dtype=torch.float32)[:, None] * self._frequencies
        return angles.cos() * self._rope_scale, angles.sin() * self._rope_scale

    def reach(self, end: int) -> None:
        """Have rotations for the positions below `end`."""
        if end > len(self.cosines):
            self.cosines, self.sines = self._rotations(2 * end)

    @property
    def layers(self) -> int:
        return len(self.norms)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all weights as they are held."""
        held = [*self.matrices, self.head, self.norms, self.last_norm, self.qkv_bias]
        held += [] if self.embedding is self.head else [self.embedding]
        return sum(tensor.numel() * tensor.element_size() for tensor in held)

    @property
    def pass_cost(self) -> PassCost:
        """See `model.Costing`: of an embedding of its own a pass reads a row for each token."""
        apart = 0 if self.embedding is self.head else self.embedding.numel() * self.embedding.element_size()
        return PassCost(self.memory_bytes - apart, sum(matrix.numel() for matrix in [*self.matrices, self.head]))

    @property
    def vocab_size(self) -> int:
        return self.head.shape[0]

    @property
    def context_length(self) -> int | None:
        return self._context_length

    @property
    def device(self) -> torch.device:
        return self.head.device

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> ModelContext:
        if not use_cache:
            return RecomputedContext(self)
        if self._context_length is not None:
            capacity = min(capacity, self._context_length)
        return LeanContext(self, max(capacity, GROWTH))

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def forward(self, ids: Sequence[int], keep: int) -> Tensor:
        """Logits [keep, vocab_size], float32, after each of the last `keep` of a whole text."""
        return LeanContext(self, len(ids)).extend(ids, keep)

    @torch.no_grad()
    def reference(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> Iterator[Tensor]:
        """See `model.Referenced`."""
        text = [*prompt_ids, *ids]
        states = self._own_layers.hidden(self.embed(text[:-1]))[len(prompt_ids) - 1 :]
        for rows in states.split(PREFILL_CHUNK):
            yield from functional.linear(rows, self.head.float())

    def check_room(self, length: int) -> None:
        """ValueError when a context of `length` tokens is longer than the model was made for."""
        if self._context_length is not None and length > self._context_length:
            raise ValueError(f"{length} tokens do not fit the context length of {self._context_length}")

    def embed(self, ids: Sequence[int]) -> Tensor:
        """[n, hidden], float32, the caller's own."""
        return functional.embedding(torch.tensor(ids), self.embedding).float()

    def short_pass(self, ids: Sequence[int], begin: int, keep: int, keys: Tensor, values: Tensor) -> Tensor:
        """Logits [keep, vocab_size] of a pass over a few tokens at positions from `begin` on."""
        logits = torch.empty(keep, self.vocab_size)
        norms, last_norm, head = self._arrays
        with _ONE_AT_A_TIME:
            self._decoder_pass(
                self.embed(ids).numpy(),
                self._weights[0],
                self.qkv_bias.numpy(),
                *self._weights[1:],
                norms,
                last_norm,
                head,
                keys.numpy(),
                values.numpy(),
                self.cosines.numpy(),
                self.sines.numpy(),
                begin,
                self.heads,
                np.float32(self.epsilon),
                np.float32(self.head_width**-0.5),
                self._threads,
                logits.numpy(),
            )
        return logits

    def long_pass(self, ids: Sequence[int], begin: int, keys: Tensor, values: Tensor) -> Tensor:
        """Hidden states [n, hidden] of a pass over many tokens, by torch; `keys` and `values` are written."""
        count, end, width = len(ids), begin + len(ids), self.head_width
        turned, shape = (self.heads + self.key_heads) * width, self.last_norm.shape
        cosines, sines = (table[begin:end, None] for table in (self.cosines, self.sines))
        causal = torch.full((count, end), -torch.inf).triu_(begin + 1)
        # One block of rows for each of the query heads that share a key head: keys are never copied.
        mask = causal.repeat(self.heads // self.key_heads, 1)
        hidden = self.embed(ids)
        for layer in range(self.layers):
            qkv, output, gate_up, down = (matrix[layer].float() for matrix in self.matrices)
            bias = self.qkv_bias[layer] if len(self.qkv_bias) else None
            normed = torch.rms_norm(hidden, shape, self.norms[layer, 0], self.epsilon)
            joint = functional.linear(normed, qkv, bias)
            first, second = joint[:, :turned].view(count, -1, 2, width // 2).unbind(2)
            rotated = torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1)
            keys[layer, :, begin:end] = rotated[:, self.heads :].transpose(0, 1)
            values[layer, :, :, begin:end] = joint[:, turned:].view(count, self.key_heads, width).permute(1, 2, 0)
            grouped = rotated[:, : self.heads].view(count, self.key_heads, -1, width).permute(1, 2, 0, 3)
            mixed = functional.scaled_dot_product_attention(
                grouped.reshape(1, self.key_heads, -1, width),
                keys[None, layer, :, :end],
                values[None, layer, :, :, :end].transpose(2, 3),
                attn_mask=mask,
            )
            mixed = mixed.view(self.key_heads, -1, count, width).permute(2, 0, 1, 3).reshape(count, -1)
            hidden = hidden + functional.linear(mixed, output)
            normed = torch.rms_norm(hidden, shape, self.norms[layer, 1], self.epsilon)
            gate, up = functional.linear(normed, gate_up).chunk(2, -1)
            hidden = hidden + functional.linear(functional.silu(gate) * up, down)
        return hidden

    def logits_of(self, hidden: Tensor) -> Tensor:
        """Logits [n, vocab_size] of hidden states [n, hidden]."""
        normed = torch.rms_norm(hidden, self.last_norm.shape, self.last_norm, self.epsilon)
        return functional.linear(normed, self.head.float())


class LeanContext:
    """A sequence with its keys [layers, key heads, capacity, width] and values [layers, key heads, width, capacity]."""

    recomputes = False

    def __init__(self, model: LeanModel, capacity: int) -> None:
        self._model, self._length = model, 0
        self._capacity = 0
        self._keys, self._values = torch.empty(0), torch.empty(0)
        self._make_room(capacity)

    @property
    def length(self) -> int:
        return self._length

    def rewind(self, length: int) -> None:
        self._length = min(self._length, length)

    def take(self, other: ModelContext, begin: int) -> None:
        """See `model.Copying`."""
        assert isinstance(other, LeanContext)
        self._make_room(end := other.length)
        self._keys[:, :, begin:end] = other._keys[:, :, begin:end]
        self._values[:, :, :, begin:end] = other._values[:, :, :, begin:end]
        self._length = end

    @torch.no_grad()
    def extend(self, ids: Sequence[int], keep: int) -> Tensor:
        begin, end = self._length, self._length + len(ids)
        self._model.check_room(end)
        self._model.reach(end)
        self._make_room(end)
        if len(ids) <= KERNEL_TOKENS:
            logits = self._model.short_pass(ids, begin, keep, self._keys, self._values)
        else:
            logits = self._in_chunks(ids, begin, keep)
        # Only now: whatever was interrupted has changed nothing that counts.
        self._length = end
        return logits

    def _in_chunks(self, ids: Sequence[int], begin: int, keep: int) -> Tensor:
        states = []
        for start in range(0, len(ids), PREFILL_CHUNK):
            chunk = ids[start : start + PREFILL_CHUNK]
            state = self._model.long_pass(chunk, begin + start, self._keys, self._values)
            if start + len(chunk) > len(ids) - keep:
                states.append(state)
        return self._model.logits_of(torch.cat(states)[-keep:])

    def _make_room(self, end: int) -> None:
        if end > self._capacity:
            capacity = max(end, 2 * self._capacity, self._capacity + GROWTH)
            self._capacity = capacity + capacity % 2  # the kernel takes two at a time
            model, held = self._model, self._length
            keys = torch.empty(model.layers, model.key_heads, self._capacity, model.head_width)
            values = torch.empty(model.layers, model.key_heads, model.head_width, self._capacity)
            if held:
                keys[:, :, :held] = self._keys[:, :, :held]
                values[:, :, :, :held] = self._values[:, :, :, :held]
            self._keys, self._values = keys, values
