"""Transformers' own layers over the weights of a `LeanModel`: the yardstick its fast passes are checked against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

Group = tuple[str, ...]


class LeanReference:
    """A loaded model's decoder, whose linear layers were taken over: each gets its weights back while it computes.

    One layer at a time is laid out in float32, so that all of it costs no memory worth counting. `groups` names the
    modules whose rows are joined in each of `matrices` [layers, rows, columns]; `bias` [layers, rows] goes with the
    first group (empty for none).
    """

    def __init__(
        self, decoder: PreTrainedModel, groups: Sequence[Group], matrices: Sequence[Tensor], bias: Tensor
    ) -> None:
        self._decoder = decoder
        decoder.get_input_embeddings().to("meta")  # texts come embedded
        decoder.float()
        for index, layer in enumerate(decoder.layers):
            rows = [(group, matrix[index]) for group, matrix in zip(groups, matrices, strict=True)]
            layer.register_forward_pre_hook(partial(_lend, rows, bias[index] if len(bias) else None))
            layer.register_forward_hook(partial(_take_back, groups))

    def hidden(self, embedded: Tensor) -> Tensor:
        """Normed hidden states [n, hidden] of a text [n, hidden], in one pass."""
        states: Tensor = self._decoder(inputs_embeds=embedded[None], use_cache=False).last_hidden_state
        return states[0]


def _modules(layer: nn.Module, groups: Sequence[Group]) -> Iterator[nn.Linear]:
    for group in groups:
        for name in group:
            yield layer.get_submodule(name)  # type: ignore[misc]


def _lend(rows: Sequence[tuple[Group, Tensor]], bias: Tensor | None, layer: nn.Module, given: Any) -> None:
    for group, matrix in rows:
        begin = 0
        for module in _modules(layer, [group]):
            end = begin + module.out_features
            module.weight = nn.Parameter(matrix[begin:end].float(), requires_grad=False)
            if module.bias is not None and bias is not None:
                module.bias = nn.Parameter(bias[begin:end], requires_grad=False)
            begin = end


def _take_back(groups: Sequence[Group], layer: nn.Module, given: Any, result: Any) -> None:
    for module in _modules(layer, groups):
        module.to("meta")
