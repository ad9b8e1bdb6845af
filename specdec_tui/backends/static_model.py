"""A loaded transformers model with passes that a CUDA graph can hold: no shape, address or branch depends on data.

Every layer keeps its keys and values in a buffer of full length. A pass writes its tokens at
places that a tensor on the device names, and attends over the whole buffer under a mask, so that
going on and going back are both nothing but another number in that tensor.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer

from specdec_tui.backends.cache import RewindableCache, cache_argument
from specdec_tui.backends.cards import Card
from specdec_tui.backends.model import nothing
from specdec_tui.backends.rotations import depends_on_length, rope_types

PREFILL_CHUNK = 2048

Forward = Callable[[Sequence[int], int, RewindableCache], Tensor]


def prefilled(
    forward: Forward, ids: Tensor, between: Callable[[], None] = nothing
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """A text through a loaded model's own forward, in chunks, so that memory does not grow with its square.

    What `between` raises, which is called between them, breaks it off: a GPU has at most one of them waiting. The
    logits [1, vocab_size] after its last token, and the keys and values [heads, n, width] of every layer.
    """
    cache, text = RewindableCache(len(ids)), ids.tolist()
    logits = torch.empty(0)
    under_way: list[torch.cuda.Event] = []
    for begin in range(0, len(text), PREFILL_CHUNK):
        if begin:
            between()
        logits = forward(text[begin : begin + PREFILL_CHUNK], 1, cache)
        if ids.device.type == "cuda":
            under_way.append(torch.cuda.Event())
            under_way[-1].record(torch.cuda.current_stream(ids.device))
            if len(under_way) > 1:
                under_way.pop(0).synchronize()
    return logits, [(layer.keys[0], layer.values[0]) for layer in cache.layers]


def windows_of(model: PreTrainedModel) -> list[int]:
    """How many of the last tokens each layer sees; 0 for all of them."""
    config = model.config.get_text_config(decoder=True)
    window = window_in_use(model) or 0
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    return [window if kind == "sliding_attention" else 0 for kind in kinds]


def window_in_use(model: PreTrainedModel) -> int | None:
    """The sliding window of a config, None where the model sees all: a config may say more than its model does."""
    config = model.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"]
    if not getattr(config, "use_sliding_window", True) or not _knows(model, "sliding_window"):
        return None
    return getattr(config, "sliding_window", None) if "sliding_attention" in kinds else None


def _knows(model: PreTrainedModel, name: str) -> bool:
    """Whether the code of a model's class names something; taken for granted where the code cannot be read."""
    try:
        return name in inspect.getsource(inspect.getmodule(type(model)))  # type: ignore[arg-type]
    except (OSError, TypeError):
        return True


def is_spread(model: PreTrainedModel) -> bool:
    """Whether a loaded model lies on several devices."""
    return len({parameter.device for parameter in model.parameters()}) > 1


STATES = "its layers attend in chunks or keep states of their own"


def why_not_static(model: PreTrainedModel) -> str:
    """Why passes of a loaded model cannot be captured, for a person; empty where nothing is known against it."""
    config = model.config.get_text_config(decoder=True)
    if set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}:
        return STATES
    if any(depends_on_length(kind) for module in model.modules() for kind in rope_types(module).values()):
        return "its rotations depend on the length of the text"
    if getattr(model, "is_quantized", False):
        return "its weights are quantized"
    if is_spread(model) and {parameter.device.type for parameter in model.parameters()} != {"cuda"}:
        return "it is spread over several devices, and not all of them are GPUs"
    if getattr(config, "_attn_implementation", "sdpa") not in ("sdpa", "eager"):
        return f"it attends by '{config._attn_implementation}'"
    if cache_argument(type(model).forward) is None:
        return "its forward takes no cache"
    return ""


class _Layer(DynamicLayer):
    """Keys and values [1, heads, capacity, head_dim] of one layer, all of them handed out at every pass."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self._places, self._made = places, False

    def fill(self, keys: Tensor, values: Tensor) -> None:
        """Keys and values [heads, n, head_dim] of the first n tokens; zeros behind them.

        What the mask hides must still be numbers: a run that ended in others must not spoil the next.
        """
        self._make(keys[None], values[None])
        for held, states in ((self.keys, keys), (self.values, values)):
            held[0, :, : keys.shape[1]] = states
            held[0, :, keys.shape[1] :] = 0

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        self._make(key_states, value_states)
        self.keys.index_copy_(2, self._places.now, key_states)
        self.values.index_copy_(2, self._places.now, value_states)
        return self.keys, self.values

    def _make(self, keys: Tensor, values: Tensor) -> None:
        if not self._made:
            self.keys, self.values = (
                states.new_zeros((*states.shape[:-2], self._places.capacity, states.shape[-1]))
                for states in (keys, values)
            )
            self.dtype, self.device, self.is_initialized, self._made = keys.dtype, keys.device, True, True

    def get_seq_length(self, *args: Any) -> int:
        return 0  # positions are always given


class Places:
    """Where the tokens of the present pass go: `now` int64 [m] on the device, below `capacity`."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.now = torch.empty(0, dtype=torch.int64)


class StaticContext:
    """A sequence of at most `capacity` tokens. It does not know its length: every pass is told where it begins."""

    def __init__(self, model: PreTrainedModel, forward: Forward, context_length: int | None, capacity: int) -> None:
        self._model, self._forward, self._device = model, forward, model.get_input_embeddings().weight.device
        self._places = Places(capacity)
        layers = model.config.get_text_config(decoder=True).num_hidden_layers
        self._layers = [_Layer(self._places) for _ in range(layers)]
        self._cache = Cache(layers=self._layers)
        self._name = cache_argument(type(model).forward) or ""
        self._columns = torch.arange(capacity, device=self._device)
        self._windows = set(windows_of(model))
        self._added = getattr(model.config, "_attn_implementation", "sdpa") == "eager"  # its masks are added to scores
        self._last_position = (context_length or capacity) - 1
        self._keeps_some = "logits_to_keep" in inspect.signature(type(model).forward).parameters

    @property
    def card(self) -> Card:
        return Card(self._device)

    @property
    def capacity(self) -> int:
        return self._places.capacity

    @torch.inference_mode()
    def extend(self, ids: Tensor, begin: Tensor, keep: int) -> Tensor:
        """Logits [keep, vocab_size], float32, after each of the last `keep` of `ids` at places from `begin` on.

        ids int64 [m], begin int64 [1], both on the device; whatever lay at those places and behind is forgotten.
        """
        places = begin + self._columns[: len(ids)]
        self._places.now = places
        arguments: dict[str, Any] = {
            self._name: self._cache,
            "use_cache": True,
            # Behind the context's end only drafts that are too many are written: they must have some position.
            "position_ids": places.clamp(max=self._last_position)[None],
            "attention_mask": self._mask(places[:, None]),
        }
        if self._keeps_some:
            arguments["logits_to_keep"] = keep
        return self._logits(ids, arguments)[0, -keep:].float()

    def _logits(self, ids: Tensor, arguments: dict[str, Any]) -> Tensor:
        logits: Tensor = self._model(ids[None], **arguments).logits
        return logits

    def _mask(self, places: Tensor) -> Tensor | dict[str, Tensor]:
        """What tokens at `places` [m, 1] see, [1, 1, m, capacity]; by kind of layer where there are two."""
        masks: dict[str, Tensor] = {}
        for window in self._windows:
            seen = ((self._columns <= places) & (self._columns > places - (window or self.capacity)))[None, None]
            if self._added:
                dtype = self._model.dtype
                seen = torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
            masks["sliding_attention" if window else "full_attention"] = seen
        return masks if len(masks) > 1 else next(iter(masks.values()))

    @torch.inference_mode()
    def prefill(self, ids: Tensor, between: Callable[[], None] = nothing) -> Tensor:
        """See `model.StaticSequence`."""
        logits, held = prefilled(self._forward, ids, between)
        for layer, (keys, values) in zip(self._layers, held, strict=True):
            layer.fill(keys, values)
        return logits
