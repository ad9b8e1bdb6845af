"""Encoder-decoder models (T5, BART, Marian, Pegasus and kin) as the decoding loop wants them.

A text is a prompt and new tokens here too. The prompt is what the encoder reads, in one pass, since each of its tokens
sees all others. The decoder begins with a token of its own and is fed the new ones behind it: what it holds of them is
cut where a text is rewound, and what its cross-attention has made of the prompt stays.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from specdec_tui.backends.cache import DecoderCache, cache_argument, keeps_only_keys_and_values
from specdec_tui.backends.causal_lm import computed_in
from specdec_tui.backends.context_lengths import context_length_of
from specdec_tui.backends.errors import is_out_of_memory
from specdec_tui.backends.generate_probe import Inputs, input_device, inputs_of_generate, plain_ids, start_id
from specdec_tui.backends.model import Branches, ModelContext, StaticSequence
from specdec_tui.backends.pair import LoadError

# What families call the longest text that their encoder was made for.
_PROMPT_LENGTH_NAMES = ("max_encoder_position_embeddings", "max_position_embeddings")


def prompt_length_of(config: PreTrainedConfig) -> int | None:
    """Most tokens that an encoder was made for; None when its config names no limit."""
    values = (getattr(config, name, None) for name in _PROMPT_LENGTH_NAMES)
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def check_start(name: str, model: PreTrainedModel) -> None:
    """LoadError for a decoder that has nothing to begin with: `generate` fails over it too."""
    start, size = start_id(model), model.config.get_text_config(decoder=True).vocab_size
    if start is None:
        raise LoadError(f"{name}: its files name no token that its decoder begins with (decoder_start_token_id).")
    if type(start) is not int or not 0 <= start < size:
        raise LoadError(f"{name}: decoder_start_token_id is {start!r:.40}: one of its {size:,} ids is needed.")


class EncoderDecoderModel:
    """A `CausalModel` over a loaded encoder-decoder model (any device map, any quantization): see `check_start`.

    `rewindable` says whether its contexts keep what the decoder holds; without, they recompute that, with the same
    logits. The encoder's output they keep in any case. What making an instance costs: see `TransformersModel`.
    """

    static_note = ""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval()
        config = model.config.get_text_config(decoder=True)
        self._prompt_length, self._context_length = prompt_length_of(model.config), context_length_of(config)
        self._cache_name = cache_argument(type(model).forward)
        self._keeps_some = "logits_to_keep" in inspect.signature(type(model).forward).parameters
        self._input_device = input_device(model)
        self.start = start_id(model) or 0
        self.inputs: Inputs = inputs_of_generate(model, self._prompt_length)
        probe = plain_ids(model, 6)
        expected = self.forward(self.encode(probe), [self.start, *probe[:4]], keep=2)
        self._vocab_size, self._device = expected.shape[-1], expected.device
        self.rewindable = (
            self._cache_name is not None and keeps_only_keys_and_values(config) and self._probe_rewind(probe, expected)
        )

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def context_length(self) -> int | None:
        """Of the decoder."""
        return self._context_length

    @property
    def begin(self) -> tuple[int, ...]:
        """See `model.ReadingApart`."""
        return (self.start,)

    def longest_text(self, prompt_length: int) -> int | None:
        """See `model.ReadingApart`. The token that the decoder begins with takes one of its places."""
        if self._prompt_length is not None and prompt_length > self._prompt_length:
            return self._prompt_length
        return None if self._context_length is None else prompt_length + self._context_length - 1

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        """See `causal_lm.computed_in`."""
        return computed_in(self.model)

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> ModelContext:
        return EncoderDecoderContext(self, use_cache and self.rewindable, capacity)

    def open_static(self, capacity: int) -> StaticSequence:
        """See `model.StaticModel`."""
        raise ValueError("an encoder-decoder model is not captured")

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def reference(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> Iterator[Tensor]:
        """See `model.Referenced`."""
        if ids:
            yield from self.forward(self.encode(prompt_ids), [self.start, *ids[:-1]], len(ids))

    def rounding(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> float | None:
        """See `model.Rounding`: the text at once, against token by token."""
        if self.dtype is not torch.int8 or not self.rewindable:
            return None
        encoded, cache, furthest = self.encode(prompt_ids), DecoderCache(len(ids)), 0.0
        for whole, token in zip(self.reference(prompt_ids, ids), [self.start, *ids[:-1]], strict=True):
            best = whole.topk(min(10, len(whole))).indices
            moved = (whole - self.forward(encoded, [token], 1, cache)[0])[best]
            furthest = max(furthest, float(moved.amax() - moved.amin()))
        return furthest

    @torch.inference_mode()
    def encode(self, ids: Sequence[int]) -> Any:
        """What the encoder makes of a prompt, as the decoder takes it."""
        inputs = torch.tensor([ids], dtype=torch.long, device=self._input_device)
        encoder = self.model.get_encoder()
        if hasattr(encoder, "set_attention_type"):  # BigBird keeps to what it once did for a short text
            encoder.set_attention_type(self.model.config.attention_type)
        return encoder(input_ids=inputs, return_dict=True)

    def forward(self, encoded: Any, ids: Sequence[int], keep: int, cache: DecoderCache | None = None) -> Tensor:
        """Logits [keep, vocab_size], float32, after each of the last `keep` of the decoder's ids; `cache` grows."""
        return self.forward_rows(encoded, [ids], keep, cache)[0]

    @torch.inference_mode()
    def forward_rows(
        self, encoded: Any, rows: Sequence[Sequence[int]], keep: int, cache: DecoderCache | None = None
    ) -> Tensor:
        """The same of texts that go on by equally many ids, one to a row: [rows, keep, vocab_size]."""
        arguments: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None and self._cache_name is not None:
            arguments[self._cache_name] = cache
        if self._keeps_some:
            arguments["logits_to_keep"] = keep
        inputs = torch.tensor(rows, dtype=torch.long, device=self._input_device)
        logits: Tensor = self.model(encoder_outputs=encoded, decoder_input_ids=inputs, **arguments).logits
        return logits[:, -keep:].float()

    def _probe_rewind(self, probe: Sequence[int], expected: Tensor) -> bool:
        """Feed, rewind, feed again: is it as if the rewound tokens had never been? See `TransformersModel`."""
        try:
            encoded, cache = self.encode(probe), DecoderCache()
            self.forward(encoded, [self.start, *probe[:2]], 1, cache)
            before = self.forward(encoded, probe[2:4], 2, cache)
            cache.rewind(3)
            self.forward(encoded, probe[4:], 1, cache)
            cache.rewind(3)
            after = self.forward(encoded, probe[2:4], 2, cache)
        except Exception as error:  # a model's own code, written for other caches or for one token at a time
            if is_out_of_memory(error):
                raise
            return False
        exact = self.dtype is torch.float32 and not getattr(self.model, "is_quantized", False)
        scale = max(1.0, float(expected.abs().max()))
        again, whole = float((before - after).abs().max()), float((before - expected).abs().max())
        return again <= 1e-4 * scale and whole <= (1e-3 if exact else 0.3) * scale

    def check_room(self, prompt_length: int, length: int) -> None:
        """ValueError when a text of `length` tokens, of which the first are a prompt, is longer than was made for."""
        longest = self.longest_text(prompt_length)
        if longest is not None and length > longest:
            raise ValueError(f"{length} tokens, {prompt_length} of a prompt, do not fit: at most {longest} do")


class EncoderDecoderContext:
    """A text whose first tokens are the encoder's. They are what it is extended by first, unless `expect` told more.

    Before the prompt is whole there are no logits: rows of NaN. Rewound to less than that, it is read again.
    """

    def __init__(self, model: EncoderDecoderModel, cached: bool, capacity: int) -> None:
        self._model, self._capacity, self.recomputes = model, capacity, not cached
        self._ids: list[int] = []
        self._expected = 0
        self._prompt = 0  # its length, once it was read
        self._encoded: Any = None
        self._cache: DecoderCache | None = None

    @property
    def length(self) -> int:
        return len(self._ids)

    def expect(self, length: int) -> None:
        """See `model.Expecting`."""
        if not self._ids:
            self._expected = length

    def extend(self, ids: Sequence[int], keep: int) -> Tensor:
        text = [*self._ids, *ids]
        prompt = self._prompt or self._expected or len(text)
        self._model.check_room(prompt, len(text))
        rows = torch.empty(0, self._model.vocab_size, device=self._model.device)
        if len(text) >= prompt:
            encoded = self._model.encode(text[:prompt]) if self._encoded is None else self._encoded
            written = [self._model.start, *text[prompt:]]
            rows = self._rows(encoded, written, min(keep, len(written)), capacity=1 + self._capacity - prompt)
            self._prompt, self._encoded = prompt, encoded
        self._ids = text
        return functional.pad(rows, (0, 0, keep - len(rows), 0), value=math.nan)

    def _rows(self, encoded: Any, ids: Sequence[int], keep: int, capacity: int) -> Tensor:
        if self.recomputes:
            return self._model.forward(encoded, ids, keep)
        cache = DecoderCache(capacity) if self._cache is None else self._cache
        held = cache.get_seq_length()
        try:
            logits = self._model.forward(encoded, ids[held:], keep, cache)
        except BaseException:
            # Interrupted or out of memory between two layers: some of them hold the new tokens.
            cache.rewind(held)
            raise
        self._cache = cache
        return logits

    def rewind(self, length: int) -> None:
        del self._ids[length:]
        if not self._prompt or length < self._prompt:
            self._prompt, self._encoded, self._cache = 0, None, None
        elif self._cache is not None:
            self._cache.rewind(1 + length - self._prompt)

    def branches(self) -> Branches | None:
        """See `model.Branching`."""
        if self._cache is None:
            return None
        return EncoderDecoderBranches(self._model, self._encoded, self._cache, self._prompt, len(self._ids))


class EncoderDecoderBranches:
    """Several texts that go on from one prompt, in the rows of one cache."""

    def __init__(self, model: EncoderDecoderModel, encoded: Any, cache: DecoderCache, prompt: int, length: int) -> None:
        self._model, self._encoded, self._cache = model, encoded, cache
        self._prompt, self._length = prompt, length

    def extend(self, parents: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """See `model.Branches`."""
        self._model.check_room(self._prompt, self._length + 1)
        self._cache.select(parents)
        states = self._encoded.last_hidden_state
        if len(states) != len(tokens):
            self._encoded = BaseModelOutput(last_hidden_state=states[:1].expand(len(tokens), -1, -1))
        logits = self._model.forward_rows(self._encoded, [[token] for token in tokens], 1, self._cache)
        self._length += 1
        return logits[:, 0]
