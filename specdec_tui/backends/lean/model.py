"""Decoders on a CPU, at the speed of the memory: the one module that owns these choices.

Every pass, over one token or a whole prompt, runs in one compiled function, `decoder_pass`, and a token's logits are
the same bits however its text was cut. Sums are in float32; weights are held as a GGUF file packs them, or as float32,
or, where all are bfloat16 numbers, as such (widening them is exact). With dtype bfloat16 weights are rounded to it,
and only they.

`fit.fits` says which models this is for, `fit.agrees` tries it out against the loaded model, and whatever does not
fit or agree stays with `TransformersModel`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Self
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from specdec_tui.backends.context_lengths import context_length_of
from specdec_tui.backends.contexts import RecomputedContext
from specdec_tui.backends.decoder import Decoder, Rotation, describe
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.gguf.kinds import BF16, F16, kind_name
from specdec_tui.backends.lean import decoder_pass as kernels
from specdec_tui.backends.lean.attention import CHUNK, TILE
from specdec_tui.backends.lean.blocks import F32, PLAIN, Array
from specdec_tui.backends.lean.compiled import link_apart
from specdec_tui.backends.lean.reference import LeanReference, own_rows
from specdec_tui.backends.lean.tables import tables_of
from specdec_tui.backends.lean.weights import (
    EXPANDED,
    PACKED,
    PACKED_INT8,
    Weights,
    expanded,
    of_file,
    of_modules,
)
from specdec_tui.backends.model import ModelContext, PassCost
from specdec_tui.backends.pair import LoadError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PREFILL_CHUNK = 256
"""Tokens of a pass over a prompt."""
_REFERENCE_ROWS = 512
# The threads of numba's simplest pool must not be asked by two callers at once.
_ONE_AT_A_TIME = threading.Lock()


class LeanModel:
    """A `CausalModel` on the CPU. `form`: how its weights are held; see `model.WeightForms`.

    Made by `of` and `of_file`, or with a description that is known. `shell` gives transformers' model, of which nothing
    but the code and the config is used, and that for `reference` alone: importing its code takes seconds.
    `rounded` says whether weights of the loaded model were asked for in bfloat16.
    """

    dtype = torch.float32

    def __init__(
        self,
        shell: Callable[[], PreTrainedModel],
        decoder: Decoder,
        weights: Weights,
        form: str,
        context_length: int | None,
        rounded: bool = False,
    ) -> None:
        self.decoder, self.weights, self.form, self.rounded = decoder, weights, form, rounded
        self._shell, self._context_length = shell, context_length
        self._threads = max(1, min(torch.get_num_threads(), kernels.most_threads()))
        self._tables = tables_of(decoder, weights, self._threads, form == PACKED_INT8)
        self._reference: LeanReference | None = None
        self._packed_weights = weights
        self._siblings: WeakValueDictionary[str, LeanModel] = WeakValueDictionary({form: self})
        self._reached = 0
        self.reach(2 * CHUNK)

    @classmethod
    def of(cls, model: PreTrainedModel) -> Self:
        """Takes over the weights of a loaded model. The caller has asked `fit.fits`."""
        decoder = describe(model)
        assert isinstance(decoder, Decoder), decoder
        rounded = model.dtype is torch.bfloat16
        length = context_length_of(model.config.get_text_config(decoder=True))
        return cls(lambda: model, decoder, of_modules(model, decoder), EXPANDED, length, rounded)

    @classmethod
    def of_file(cls, shell: PreTrainedModel, file: GgufFile, beat: Callable[[], None] = lambda: None) -> Self:
        """Over the mapped weights of a GGUF file. LoadError for tensors that do not fit the config of `shell`."""
        decoder = describe(shell)
        assert isinstance(decoder, Decoder), decoder
        return cls(lambda: shell, decoder, of_file(file, decoder, beat), PACKED, context_length_of(shell.config))

    def first_layers(self, shell: PreTrainedModel) -> LeanModel:
        """The model with as many of its first layers as `shell` has."""
        count = shell.config.num_hidden_layers
        decoder = replace(self.decoder, layers=self.decoder.layers[:count])
        weights = replace(self.weights, layers=self.weights.layers[:count])
        return LeanModel(lambda: shell, decoder, weights, self.form, self._context_length)

    @property
    def pass_cost(self) -> PassCost:
        """See `model.Costing`."""
        read = [matrix for layer in self.weights.layers for matrix in layer.matrices] + [self.weights.head]
        rounded = [m for m in read if m.kind not in PLAIN] if self.form == PACKED_INT8 else []
        adds, integers = (sum(m.rows * m.columns for m in matrices) for matrices in (read, rounded))
        return PassCost(sum(m.data.nbytes for m in read), adds, integers)

    @property
    def forms(self) -> tuple[str, ...]:
        if not self.weights.owners:
            return (EXPANDED,)
        packed = any(matrix.kind not in PLAIN for matrix in self._packed_weights.matrices)
        return (PACKED, EXPANDED, *((PACKED_INT8,) if packed else ()))

    def in_form(self, form: str) -> LeanModel:
        """See `model.WeightForms`."""
        if form not in self.forms:
            raise LoadError(f"weights {form}: this model's can be held {' or '.join(self.forms)} only.")
        known = self._siblings.get(form)
        if known is None:
            self._packed_weights.check()
            weights = expanded(self._packed_weights) if form == EXPANDED else self._packed_weights
            known = LeanModel(self._shell, self.decoder, weights, form, self._context_length, self.rounded)
            known._siblings, known._packed_weights = self._siblings, self._packed_weights
            self._siblings[form] = known
        return known

    def reach(self, end: int) -> None:
        """Have rotations for the positions below `end`: cosines and sines [kinds + 1, positions, turned / 2], the last
        of which turn nothing."""
        if end <= self._reached:
            return
        self._reached = 2 * end
        tables = []
        still = Rotation(torch.zeros(self.decoder.turned // 2), 1.0)
        for rotation in (*self.decoder.rotations, still):
            angles = torch.arange(2 * end, dtype=torch.float32)[:, None] * rotation.frequencies
            tables.append((angles.cos() * rotation.scale, angles.sin() * rotation.scale))
        self.cosines: Array = np.stack([cosines.numpy() for cosines, _ in tables])
        self.sines: Array = np.stack([sines.numpy() for _, sines in tables])

    @property
    def told(self) -> tuple[str, ...]:
        """What a person should know of how its weights are held."""
        return self.weights.told

    @property
    def held_dtype(self) -> str:
        """What most of its weights are stored as: a dtype's or a GGUF format's name."""
        sizes: dict[int, int] = {}
        for matrix in self.weights.matrices:
            sizes[matrix.kind] = sizes.get(matrix.kind, 0) + matrix.rows * matrix.columns
        kind = max(sizes, key=sizes.__getitem__)
        return {F32: "float32", F16: "float16", BF16: "bfloat16"}.get(kind) or kind_name(kind)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all weights as they are held."""
        return self.weights.memory_bytes

    @property
    def vocab_size(self) -> int:
        return self.weights.head.rows

    @property
    def context_length(self) -> int | None:
        return self._context_length

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> ModelContext:
        if not use_cache:
            return RecomputedContext(self)
        if self._context_length is not None:
            capacity = min(capacity, self._context_length)
        return LeanContext(self, capacity)

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def forward(self, ids: Sequence[int], keep: int) -> Tensor:
        """Logits [keep, vocab_size], float32, after each of the last `keep` of a whole text."""
        return LeanContext(self, len(ids)).extend(ids, keep)

    @torch.no_grad()
    def reference(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> Iterator[Tensor]:
        """See `model.Referenced`. With rounded inputs, whose bits tell: a pass of its own over the text, as it is."""
        if self.form == PACKED_INT8:
            yield from own_rows(LeanContext(self, 0), [*prompt_ids, *ids][:-1], len(ids))
            return
        self.weights.check()
        if self._reference is None:
            self._reference = LeanReference(self._shell(), self.decoder, self.weights)
        text = [*prompt_ids, *ids]
        states = self._reference.hidden(torch.from_numpy(self.embed(text[:-1])))[len(prompt_ids) - 1 :]
        head = self.weights.head.natural()
        for rows in states.split(_REFERENCE_ROWS):
            logits = functional.linear(rows, head) * self.decoder.logit_scale
            cap = self.decoder.logit_cap
            yield from cap * torch.tanh(logits / cap) if cap else logits

    def check_room(self, length: int) -> None:
        """ValueError when a context of `length` tokens is longer than the model was made for."""
        if self._context_length is not None and length > self._context_length:
            raise ValueError(f"{length} tokens do not fit the context length of {self._context_length}")

    def embed(self, ids: Sequence[int]) -> Array:
        """[n, hidden], float32, the caller's own."""
        if not all(0 <= token < self.weights.embedding.rows for token in ids):
            raise IndexError("a token beyond the vocabulary")
        found = self.weights.embedding.taken(ids)
        return found if self.decoder.embedding_scale == 1 else found * np.float32(self.decoder.embedding_scale)

    def run(self, ids: Sequence[int], begin: int, keep: int, keys: Array, values: Array) -> Tensor:
        """Logits [keep, vocab_size] of a pass over tokens at positions from `begin` on; see `decoder_pass`."""
        self.weights.check()
        logits = np.empty((keep, self.vocab_size), np.float32)
        with _ONE_AT_A_TIME:
            link_apart()
            kernels.decoder_pass(
                self.embed(ids),
                begin,
                self._threads,
                *self._tables,
                keys,
                values,
                self.cosines,
                self.sines,
                logits,
            )
        return torch.from_numpy(logits)


class LeanContext:
    """A sequence: keys [layers, key heads, capacity / 16, width, 16] and values [layers, key heads, capacity, room]."""

    recomputes = False

    def __init__(self, model: LeanModel, capacity: int) -> None:
        self._model, self._length, self._capacity = model, 0, 0
        self._keys: Array = np.empty(0, np.float32)
        self._values: Array = np.empty(0, np.float32)
        self._make_room(max(capacity, 1))

    @property
    def length(self) -> int:
        return self._length

    def rewind(self, length: int) -> None:
        self._length = min(self._length, length)

    def take(self, other: ModelContext, begin: int) -> None:
        """See `model.Copying`."""
        assert isinstance(other, LeanContext)
        self._make_room(end := other.length)
        first, last = begin // TILE, -(-end // TILE)
        self._keys[:, :, first:last] = other._keys[:, :, first:last]
        self._values[:, :, begin:end] = other._values[:, :, begin:end]
        self._length = end

    @torch.no_grad()
    def extend(self, ids: Sequence[int], keep: int) -> Tensor:
        begin, end = self._length, self._length + len(ids)
        self._model.check_room(end)
        self._model.reach(end)
        self._make_room(end)
        rows = []
        for start in range(0, len(ids), PREFILL_CHUNK):
            chunk = ids[start : start + PREFILL_CHUNK]
            wanted = max(0, min(len(chunk), start + len(chunk) - (len(ids) - keep)))
            rows.append(self._model.run(chunk, begin + start, wanted, self._keys, self._values))
        # Only now: whatever was interrupted has changed nothing that counts.
        self._length = end
        return rows[0] if len(rows) == 1 else torch.cat(rows)

    def _make_room(self, end: int) -> None:
        if end <= self._capacity:
            return
        capacity = -(-max(end, 2 * self._capacity) // CHUNK) * CHUNK
        decoder, held = self._model.decoder, self._length
        shape = (len(decoder.layers), decoder.key_heads)
        keys = np.zeros((*shape, capacity // TILE, decoder.width, TILE), np.float32)
        values = np.zeros((*shape, capacity, -(-decoder.width // TILE) * TILE), np.float32)
        if held:
            keys[:, :, : self._capacity // TILE] = self._keys
            values[:, :, :held] = self._values[:, :, :held]
        self._keys, self._values, self._capacity = keys, values, capacity
