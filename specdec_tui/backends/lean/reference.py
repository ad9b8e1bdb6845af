"""Transformers' own layers over the weights of a `LeanModel`: the yardstick its fast passes are checked against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from specdec_tui.backends.decoder import Decoder
from specdec_tui.backends.lean.weights import LayerWeights, Weights
from specdec_tui.backends.model import ModelContext

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_QUERIES, _KEYS = 0, 1
_ROWS = 256


class LeanReference:
    """A model's decoder without weights of its own: each layer is lent its weights, in float32, while it computes.

    One layer at a time is laid out, so that all of it costs no memory worth counting.
    """

    @torch.no_grad()
    def __init__(self, model: PreTrainedModel, decoder: Decoder, weights: Weights) -> None:
        inner: Any = model.get_submodule(decoder.family.layers.rpartition(".")[0])
        self._inner, self._decoder = inner, decoder
        self._paired = weights.paired and not decoder.family.pairs  # not as its own layers have them
        inner.get_input_embeddings().to("meta")  # texts come embedded
        if hasattr(inner, "embedding_multiplier"):
            inner.embedding_multiplier = 1.0
        inner.float()
        inner.rotary_emb = type(inner.rotary_emb)(config=inner.config)
        offset = decoder.family.norm_offset
        inner.norm.weight = _lent(torch.from_numpy(weights.last_norm) - offset)
        for layer, held in zip(inner.layers, weights.layers, strict=True):
            for name, row in zip(decoder.family.norms, held.norms, strict=True):
                if name:
                    layer.get_submodule(name).weight = _lent(torch.from_numpy(row) - offset)
            for name, row in zip("qk", held.head_norms, strict=False):
                layer.get_submodule(f"self_attn.{name}_norm").weight = _lent(torch.from_numpy(row) - offset)
            layer.register_forward_pre_hook(partial(self._lend, held))
            layer.register_forward_hook(self._take_back)

    def hidden(self, embedded: Tensor) -> Tensor:
        """Normed hidden states [n, hidden] of a text [n, hidden], in one pass."""
        states: Tensor = self._inner(inputs_embeds=embedded[None], use_cache=False).last_hidden_state
        return states[0]

    def _halves(self, rows: Tensor, heads: int) -> Tensor:
        """Rows of queries or keys as transformers wants them: numbers rotated together half a head apart."""
        if not self._paired:
            return rows
        apart = rows.view(heads, -1, 2, *rows.shape[1:]).transpose(1, 2)
        return apart.reshape(rows.shape)

    def _lend(self, held: LayerWeights, layer: nn.Module, given: Any) -> None:
        decoder, found = self._decoder, [matrix.natural() for matrix in held.matrices]
        found[_QUERIES] = self._halves(found[_QUERIES], decoder.heads)
        found[_KEYS] = self._halves(found[_KEYS], decoder.key_heads)
        bias = torch.from_numpy(held.bias)
        begin = 0
        groups = (found[:3], found[3:4], found[4:6], found[6:])
        for names, matrices in zip(decoder.family.groups, groups, strict=True):
            rows = [torch.cat(matrices)] if len(names) < len(matrices) else matrices
            for name, weight in zip(names, rows, strict=True):
                module: Any = layer.get_submodule(name)
                module.weight = _lent(weight)
                if module.bias is not None:
                    part = bias[begin : begin + len(weight)]
                    heads = {0: decoder.heads, decoder.heads * decoder.width: decoder.key_heads}.get(begin)
                    module.bias = _lent(self._halves(part, heads) if heads else part)
                    begin += len(weight)

    def _take_back(self, layer: nn.Module, given: Any, result: Any) -> None:
        for names in self._decoder.family.groups:
            for name in names:
                layer.get_submodule(name).to("meta")


def _lent(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values.clone() if values.requires_grad else values, requires_grad=False)


def own_rows(context: ModelContext, text: Sequence[int], keep: int) -> Iterator[Tensor]:
    """Logits after each of the last `keep` of a text, by the passes over a prompt of a fresh context.

    The yardstick of a form that rounds its inputs: there another order of sums is another model.
    """
    unread = len(text) - keep
    if unread:
        context.extend(text[:unread], 1)
    for begin in range(unread, len(text), _ROWS):
        part = text[begin : begin + _ROWS]
        yield from context.extend(part, len(part))
