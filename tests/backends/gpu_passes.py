"""Passes of the GPU's kernels over tiny models, in two shares of attention or more: see `interpreted`."""

from __future__ import annotations

from dataclasses import replace

import torch
from family_variants import DENSE, made
from interpreted import GPU
from torch import Tensor, nn
from transformers import PreTrainedModel

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.decoder import Decoder, describe
from specdec_tui.backends.gpu.model import GpuContext, opener
from specdec_tui.backends.gpu.tiles import Cut, power

DEVICE = "cuda" if GPU else "cpu"
CAPACITY, SHARE = 64, 16
BOUND = 2e-5  # of the largest logit, in float32: gelu and its likeness by tanh lie twice as far apart


def short_cut(width: int, key_heads: int, capacity: int, half: bool = True) -> Cut:
    """How attention is cut into short shares."""
    return Cut(SHARE, 4, 2, SHARE)


def whole_cut(width: int, key_heads: int, capacity: int, half: bool = True) -> Cut:
    """The same where shares are read at once, as they are of half precision."""
    if not half:
        return short_cut(width, key_heads, capacity)
    return Cut(2 * SHARE, 2, 1, 2 * SHARE, whole=True, slices=power(-(-width // 64)))


def described(model: PreTrainedModel) -> Decoder:
    found = describe(model)
    assert isinstance(found, Decoder), found
    return found


def halved(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """On the device, its parameters alone of a type, as a model is loaded: rotations stay exact."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model.to(DEVICE)


def sunk() -> tuple[PreTrainedModel, Decoder]:
    """A dense model whose attention has sinks, and its description: of the families a mixture of experts has them."""
    model = made("LlamaConfig", DENSE | {"num_hidden_layers": 1, "vocab_size": 97})
    decoder = described(model)
    for layer in model.model.layers:
        layer.self_attn.sinks = nn.Parameter(torch.tensor([1.5, -1.0, 3.0, 0.5]))
    return model, replace(decoder, family=replace(decoder.family, sinks="self_attn.sinks"))


def text(vocabulary: int = 96, tokens: int = CAPACITY) -> Tensor:
    return torch.tensor([(37 * i + 5) % vocabulary for i in range(tokens)], device=DEVICE)


@torch.no_grad()
def logits_of(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Those of transformers after each token, float32."""
    found: Tensor = model(ids[None], use_cache=False).logits[0]
    return found.float()


def opened(model: PreTrainedModel, capacity: int = CAPACITY) -> GpuContext:
    return opener(model, TransformersModel(model).forward, capacity)(capacity)


def extended(context: GpuContext, ids: Tensor, begin: int, count: int) -> Tensor:
    """Logits after each of `count` of `ids` from `begin` on."""
    return context.extend(ids[begin : begin + count], torch.tensor([begin], device=DEVICE), count)


def passed(context: GpuContext, ids: Tensor, begin: int, *blocks: int) -> Tensor:
    """The text before `begin` is prefilled, the rest goes in blocks: logits after each of its tokens.

    Other tokens go first, which are taken back.
    """
    context.prefill(ids[:begin])
    rows = []
    for count in blocks:
        if count > 3:
            context.extend(ids[:count], torch.tensor([begin], device=DEVICE), 1)
        rows.append(extended(context, ids, begin, count))
        begin += count
    return torch.cat(rows)


def distance(found: Tensor, expected: Tensor) -> float:
    """Of logits, in parts of the largest; infinite where one is not a number."""
    excess = ((found - expected).abs().max() / expected.abs().max()).item()
    return excess if excess == excess else float("inf")
