"""One token for every row of a batch over a preallocated cache; all rows are at the same position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from distil.attention import fused_attention, plain_attention
from distil.llama import Llama, Shape, gated, normalize, rotate, rotations, split_heads

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def as_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in for `compiled` where nothing is compiled."""
    return function


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile` for one fixed shape: no shape is ever seen twice in another size."""
    return torch.compile(function, dynamic=False, fullgraph=True)


def _add_and_normalize(x: Tensor, change: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    x = x + change
    return x, normalize(x, weight, eps)


def _rotate_new(qkv: Tensor, cosines: Tensor, sines: Tensor, position: Tensor, shape: Shape) -> tuple[Tensor, ...]:
    q, k, v = split_heads(qkv, shape)
    cosine, sine = cosines[position], sines[position]  # [1, head_dim]: the same for all rows and heads
    return rotate(q, cosine, sine), rotate(k, cosine, sine), v.contiguous()


class Decoder:
    """Feeds one token per row and gives the hidden states from which the next is chosen.

    `fused` reads the position on the device (Triton): the step can then be captured in a CUDA graph.
    Otherwise exact slices of the cache go through torch's own attention. `compile` fuses the small
    operations between the matrix products. Memory: 2 * layers * batch * kv_heads * capacity * head_dim.
    """

    def __init__(self, model: Llama, batch: int, capacity: int, fused: bool, compile: Compile = as_is) -> None:
        self.model, self.batch, self.capacity, self.fused = model, batch, capacity, fused
        shape, embedding = model.shape, model.embedding
        size = (batch, shape.kv_heads, capacity, shape.head_dim)
        # One tensor each: views of one big tensor would be taken for aliases of each other.
        self._keys = [torch.zeros(size, dtype=embedding.dtype, device=embedding.device) for _ in model.layers]
        self._values = [torch.zeros_like(keys) for keys in self._keys]
        self._cosines, self._sines = rotations(shape, capacity, embedding.device)
        self._use(compile)

    def _use(self, compile: Compile) -> None:
        self._normalize = compile(normalize)
        self._add_and_normalize = compile(_add_and_normalize)
        self._rotate_new = compile(_rotate_new)
        self._gated = compile(gated)

    def with_plain_steps(self) -> Decoder:
        """The same decoder over the same cache, without the kernels that need a GPU compiler."""
        other = object.__new__(Decoder)
        other.__dict__ |= self.__dict__
        other.fused = False
        other._use(as_is)
        return other

    @torch.no_grad()
    def step(self, tokens: Tensor, position: Tensor, length: int) -> Tensor:
        """Hidden states [batch, width] after tokens [batch] at `position` ([1], int64, on the device).

        `length` is the position plus one, as a number of the host; a fused decoder does not look at it.
        """
        model = self.model
        eps = model.shape.eps
        x = F.embedding(tokens, model.embedding)
        y = self._normalize(x, model.layers[0].norm_in, eps)
        for n, layer in enumerate(model.layers):
            qkv = F.linear(y, layer.qkv)
            q, k, v = self._rotate_new(qkv, self._cosines, self._sines, position, model.shape)
            keys, values = self._keys[n], self._values[n]
            keys.index_copy_(2, position, k.unsqueeze(2))
            values.index_copy_(2, position, v.unsqueeze(2))
            mixed = (
                fused_attention(q, keys, values, position) if self.fused else plain_attention(q, keys, values, length)
            )
            x, y = self._add_and_normalize(x, F.linear(mixed.flatten(1), layer.out), layer.norm_mid, eps)
            change = F.linear(self._gated(F.linear(y, layer.gate_up)), layer.down)
            after = model.layers[n + 1].norm_in if n + 1 < len(model.layers) else model.norm
            x, y = self._add_and_normalize(x, change, after, eps)
        return y


def float_logits(hidden: Tensor, head: Tensor) -> Tensor:
    """Logits [batch, vocab] in float32 of hidden [batch, width].

    Not rounded to bfloat16 on the way: near 20 its steps are 1/8, which would change probabilities by 6 %
    and make ties of near-ties.
    """
    if hidden.dtype is torch.bfloat16 and hidden.is_cuda:
        try:
            return torch.mm(hidden, head.t(), out_dtype=torch.float32)
        except (TypeError, RuntimeError, NotImplementedError):  # a torch without this variant
            return F.linear(hidden, head).float()
    return F.linear(hidden, head).float()


def disagreement(decoder: Decoder, steps: int = 24) -> float:
    """Relative distance between the hidden states of a fused decoder and of its plain twin over some random tokens.

    Writes over the cache. Rounding alone gives about 0.02 in bfloat16.
    """
    device = decoder.model.embedding.device
    source = torch.Generator().manual_seed(1)
    tokens = torch.randint(decoder.model.shape.vocab, (steps, decoder.batch), generator=source).to(device)
    outcomes = []
    for each in (decoder, decoder.with_plain_steps()):
        for n in range(steps):
            position = torch.tensor([n], device=device)
            hidden = each.step(tokens[n], position, n + 1)
        outcomes.append(hidden.float())
    fused, plain = outcomes
    return float((fused - plain).norm() / plain.norm())
