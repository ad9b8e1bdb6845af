"""A key/value cache that is rewound by setting an integer. The only module that knows transformers' cache classes.

Transformers' own caches either copy everything at each step (`DynamicCache` concatenates),
forget what lies behind a sliding window (so a rejected draft cannot be taken back), or mask
over their whole capacity (`StaticCache`). And what the argument of `crop` means has changed
between versions. Here every layer writes into a preallocated buffer and hands out the valid
part. Sliding-window layers keep their full length too: the model's own window mask hides
what is out of reach, which is what makes their rewinding exact.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    EncoderDecoderCache,
    LinearAttentionLayer,
)

GROWTH = 256
"""Tokens by which a full buffer grows at least; it doubles when that is more."""

# Layer types whose whole state is one key and one value per token ("mlp" and "moe" have none).
_REWINDABLE_LAYER_TYPES = frozenset({"full_attention", "sliding_attention", "chunked_attention", "mlp", "moe"})


class RewindableLayer(DynamicLayer):
    """Keys and values of one layer: buffers of shape [1, heads, capacity, head_dim], `length` of them valid."""

    def __init__(self, capacity: int = GROWTH) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append [1, heads, n, head_dim] and return views of everything held."""
        end = self.length + key_states.shape[-2]
        buffers = self._buffers
        if buffers is None or end > self.capacity:
            buffers = self._grow(key_states, value_states, end)
        key_buffer, value_buffer = buffers
        key_buffer[:, :, self.length : end].copy_(key_states)
        value_buffer[:, :, self.length : end].copy_(value_states)
        self.length = end
        # Kept as attributes because layers that share keys and values read them from here.
        self.keys, self.values = key_buffer[:, :, :end], value_buffer[:, :, :end]
        return self.keys, self.values

    def _grow(self, keys: torch.Tensor, values: torch.Tensor, needed: int) -> tuple[torch.Tensor, torch.Tensor]:
        old = self._buffers
        if old is not None:
            self.capacity = max(2 * self.capacity, self.capacity + GROWTH)
        self.capacity = max(self.capacity, needed)
        # Keys and values may differ in width (multi-head latent attention).
        new_keys, new_values = (
            states.new_empty((*states.shape[:-2], self.capacity, states.shape[-1])) for states in (keys, values)
        )
        if old is not None:
            new_keys[:, :, : self.length] = old[0][:, :, : self.length]
            new_values[:, :, : self.length] = old[1][:, :, : self.length]
        self._buffers = (new_keys, new_values)
        self.device, self.is_initialized = keys.device, True
        return self._buffers

    def get_seq_length(self, *args: Any) -> int:
        return self.length

    def select(self, rows: torch.Tensor) -> None:
        """Go on with these of the texts that are held, each in a row of its own."""
        if self._buffers is None:
            return
        rows, count = rows.to(self._buffers[0].device), len(self._buffers[0])
        if len(rows) != count:
            keys, values = (buffer.new_empty((len(rows), *buffer.shape[1:])) for buffer in self._buffers)
            old, self._buffers = self._buffers, (keys, values)
            moved = torch.arange(len(rows), device=rows.device)
        else:
            old, moved = self._buffers, (rows != torch.arange(count, device=rows.device)).nonzero()[:, 0]
        for buffer, other in zip(self._buffers, old, strict=True):
            buffer[moved, :, : self.length] = other[rows[moved], :, : self.length]


class RewindableCache(Cache):
    """The cache of one sequence. `capacity` tokens are allocated at first; it grows when they do not suffice."""

    def __init__(self, capacity: int = 0) -> None:
        capacity = max(capacity, GROWTH)
        super().__init__(layer_class_to_replicate=lambda: RewindableLayer(capacity))
        self._texts = 1

    def rewind(self, length: int) -> None:
        """Forget all tokens from index `length` on. O(layers), no copy."""
        for layer in self.layers:
            layer.length = min(layer.length, length)

    def select(self, rows: Sequence[int]) -> None:
        """See `RewindableLayer.select`."""
        if list(rows) != [*range(len(rows))] or self._texts != len(rows):
            index = torch.tensor(rows)
            for layer in self.layers:
                layer.select(index)
        self._texts = len(rows)


class DecoderCache(EncoderDecoderCache):
    """What the decoder of an encoder-decoder model keeps. What it made of the encoder's output stays."""

    def __init__(self, capacity: int = 0) -> None:
        super().__init__(RewindableCache(capacity), DynamicCache())

    def rewind(self, length: int) -> None:
        """Forget all of the decoder's tokens from index `length` on."""
        self.self_attention_cache.rewind(length)

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these of the texts that are held, each in a row of its own. All have the same prompt."""
        self.self_attention_cache.select(rows)
        for layer in self.cross_attention_cache.layers:
            if layer.is_initialized and len(layer.keys) != len(rows):
                layer.keys, layer.values = (
                    held[:1].expand(len(rows), *held.shape[1:]) for held in (layer.keys, layer.values)
                )


class RewindableHybridLayer(LinearAttentionLayer, RewindableLayer):
    """A layer with attention and a state: keys and values as in any layer here, the state as transformers has it."""

    is_compileable = False

    def __init__(self, theirs: Any, capacity: int) -> None:
        RewindableLayer.__init__(self, capacity)
        self.__dict__.update({name: value for name, value in vars(theirs).items() if name not in vars(self)})


def cache_with_states(config: PreTrainedConfig, capacity: int = 0) -> Cache:
    """Transformers' own cache for a model some of whose layers keep a state; its keys and values are rewindable.

    ValueError for layers that keep what cannot be taken back here.
    """
    cache, capacity = DynamicCache(config=config), max(capacity, GROWTH)
    cache.layers = [_rewindable(layer, capacity) for layer in cache.layers]
    return cache


def _rewindable(layer: Any, capacity: int) -> Any:
    if isinstance(layer, LinearAttentionLayer):
        return RewindableHybridLayer(layer, capacity) if isinstance(layer, DynamicLayer) else layer
    if type(layer).__name__ == "DummyLayer":  # holds nothing; not all versions of transformers have it
        return layer
    # A plain layer, or one that forgets what is behind its window, which the model's mask hides too.
    if type(layer) is DynamicLayer or (type(layer).__base__ is DynamicLayer and getattr(layer, "is_sliding", False)):
        return RewindableLayer(capacity)
    raise ValueError(f"{type(layer).__name__} keeps more than keys, values and states")


def cache_argument(forward: Callable[..., Any]) -> str | None:
    """What a model's forward calls its key/value cache; None when it takes none that we know."""
    names = inspect.signature(forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in names), None)


def keeps_only_keys_and_values(config: PreTrainedConfig) -> bool:
    """Whether a config declares nothing but attention layers.

    Recurrent, convolutional, linear-attention and index states cannot be rewound by a length.
    A config that declares no layer types is taken at its word; `TransformersModel` tries it out.
    """
    layer_types = getattr(config, "layer_types", None) or ()
    return _REWINDABLE_LAYER_TYPES.issuperset(layer_types)
