"""Where a model's weights lie: mapped from a GGUF file as they are packed there, or in memory of our own.

Rows that were expanded have their columns in the order in which the packed ones are multiplied (`blocks`), so that
both forms give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from specdec_tui.backends.decoder import Decoder
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.lean.blocks import BF16, F16, F32, HELD, KINDS, PADDING, PLAIN, Array, order_of, places_of
from specdec_tui.backends.lean.compiled import keep_compiled
from specdec_tui.backends.lean.products import call_kernel, kernel_of
from specdec_tui.backends.lean.vectors import LANES
from specdec_tui.backends.pages import roomy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PACKED, EXPANDED, PACKED_INT8 = "packed", "expanded", "packed-int8"
_ROWS_AT_ONCE = 256
_PARTS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
_NORMS = ("attn_norm", "", "ffn_norm", "")
_FOUR_NORMS = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")


@njit(nogil=True)
def _kernel(address: int, held: int, row_bytes: int, out: int, stride: int, begin: int, end: int, blocks: int) -> None:
    call_kernel(address, 0, held, row_bytes, 0, 0, out, stride, begin, end, blocks)


keep_compiled(_kernel)


@dataclass(frozen=True, eq=False)
class Matrix:
    """Weights [rows, columns]: `data` uint8 [rows, bytes of a row] in the format `kind`, C order.

    `order`: the format whose order the columns have (its own, but for what was expanded from another).
    """

    kind: int
    order: int
    columns: int
    data: Array

    @property
    def rows(self) -> int:
        return int(self.data.shape[0])

    @property
    def row_bytes(self) -> int:
        return int(self.data.shape[1])

    @property
    def blocks(self) -> int:
        return self.row_bytes // KINDS[self.kind].size

    @cached_property
    def address(self) -> int:
        """Where `data` begins."""
        return int(self.data.ctypes.data)

    def part(self, begin: int, end: int) -> Matrix:
        """Some of its rows, not copied."""
        return Matrix(self.kind, self.order, self.columns, self.data[begin:end])

    def laid_out(self, begin: int, end: int) -> Array:
        """Rows as float32 [end − begin, places], in the order in which they are multiplied."""
        places = len(order_of(self.order, self.columns, LANES))
        found = np.empty((end - begin, places), np.float32)
        self.expand(begin, end, found.ctypes.data, places)
        return found

    def expand(self, begin: int, end: int, out: int, stride: int) -> None:
        """The same, to the address `out` of rows of `stride` numbers."""
        address = kernel_of(self.kind).address
        _kernel(address, self.address, self.row_bytes, out, stride, begin, end, self.blocks)

    def natural(self) -> Tensor:
        """float32 [rows, columns] of all its rows in their own order of columns."""
        places = places_of(self.order, self.columns, LANES)
        found = torch.empty(self.rows, self.columns)
        target = found.numpy()
        for begin in range(0, self.rows, _ROWS_AT_ONCE):
            end = min(begin + _ROWS_AT_ONCE, self.rows)
            target[begin:end] = self.laid_out(begin, end)[:, places]
        return found

    def taken(self, rows: Sequence[int]) -> Array:
        """The same of some of its rows, as an array of the caller's own."""
        places, found = places_of(self.order, self.columns, LANES), np.empty((len(rows), self.columns), np.float32)
        for place, row in enumerate(rows):
            self.laid_out(row, row + 1)[0].take(places, out=found[place], mode="clip")
        return found


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """`matrices`: q, k, v, output, gate, up, down. float32: `norms` [4, hidden], the rest empty where there is none."""

    matrices: tuple[Matrix, ...]
    norms: Array
    head_norms: Array
    bias: Array


@dataclass(frozen=True, eq=False)
class Weights:
    """All weights of a decoder. `paired`: the two numbers that are rotated together lie side by side, not half a head
    apart. `head` is `embedding` itself where they are tied. `owners` keep mapped memory alive. `told`: what a person
    should know of how they are held.
    """

    layers: tuple[LayerWeights, ...]
    last_norm: Array
    embedding: Matrix
    head: Matrix
    paired: bool = False
    owners: tuple[GgufFile, ...] = field(default=(), repr=False)
    told: tuple[str, ...] = ()

    @property
    def matrices(self) -> list[Matrix]:
        """Each once."""
        found = [matrix for layer in self.layers for matrix in layer.matrices]
        return [*found, self.head, *([] if self.embedding is self.head else [self.embedding])]

    def check(self) -> None:
        """LoadError where a mapped file does not hold them any more."""
        for owner in self.owners:
            owner.check()

    @property
    def memory_bytes(self) -> int:
        small = [array for layer in self.layers for array in (layer.norms, layer.head_norms, layer.bias)]
        return sum(matrix.data.nbytes for matrix in self.matrices) + sum(array.nbytes for array in small)


class _Room:
    """New memory for rows of weights."""

    def __init__(self, size: int) -> None:
        self._whole, self._used = roomy((size,), torch.uint8).numpy(), 0

    def take(self, rows: int, row_bytes: int) -> Array:
        """uint8 [rows, row_bytes]."""
        size = rows * row_bytes
        found = self._whole[self._used : self._used + size].reshape(rows, row_bytes)
        self._used += -(-size // 64) * 64
        return found


def _room_for(sizes: Sequence[tuple[int, int]]) -> _Room:
    return _Room(sum(-(-rows * row_bytes // 64) * 64 for rows, row_bytes in sizes))


def _padded(columns: int) -> int:
    return -(-columns // PADDING) * PADDING


def is_bfloat16(weight: Tensor) -> bool:
    """Whether every number of a float32 tensor is one that bfloat16 has."""
    return weight.dtype is torch.bfloat16 or not bool((weight.view(torch.int32) & 0xFFFF).any())


def _stored(weight: Tensor, kind: int, data: Array) -> Matrix:
    """A weight [rows, columns] in new memory as float32 or bfloat16, columns beyond its own 0."""
    dtype = torch.bfloat16 if kind == BF16 else torch.float32
    target = torch.from_numpy(data).view(dtype)
    target[:, weight.shape[1] :] = 0
    target[:, : weight.shape[1]] = weight
    return Matrix(kind, kind, weight.shape[1], data)


@torch.no_grad()
def of_modules(model: PreTrainedModel, decoder: Decoder) -> Weights:
    """Take over the weights of a loaded model, which cannot compute any more afterwards.

    Where all of them are bfloat16 numbers they are held as such: widening is exact, and half the memory is read.
    """
    family = decoder.family
    kind = BF16 if all(is_bfloat16(w) for w in model.parameters() if w.dim() > 1) else F32
    size = KINDS[kind].size
    queries, keys = decoder.heads * decoder.width, decoder.key_heads * decoder.width

    def moved(weight: Tensor, room: _Room) -> Matrix:
        return _stored(weight, kind, room.take(len(weight), _padded(weight.shape[1]) * size))

    layers = []
    for layer in model.get_submodule(family.layers).children():
        groups = [[layer.get_submodule(name) for name in names] for names in family.groups]
        shapes = [module.weight.shape for group in groups for module in group]
        room = _room_for([(rows, _padded(columns) * size) for rows, columns in shapes])
        qkv, output, gate_up, down = ([moved(m.weight.detach(), room) for m in group] for group in groups)
        if len(qkv) == 1:
            ends = (0, queries, queries + keys, queries + 2 * keys)
            qkv = [qkv[0].part(begin, end) for begin, end in pairwise(ends)]
        if len(gate_up) == 1:
            gate_up = [gate_up[0].part(0, decoder.inner), gate_up[0].part(decoder.inner, 2 * decoder.inner)]
        biases = [m.bias.detach().float() for m in groups[0] if m.bias is not None]
        layers.append(
            LayerWeights(
                (*qkv, *output, *gate_up, *down),
                _norms(decoder, [layer.get_submodule(n).weight.detach() if n else None for n in family.norms]),
                _head_norms(decoder, layer),
                torch.cat(biases).numpy() if biases else np.empty(0, np.float32),
            )
        )
        for group in groups:
            for module in group:
                module.to("meta")
    table = model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight
    sizes = [(len(w), _padded(w.shape[1]) * size) for w in ((head,) if head is table else (head, table))]
    room = _room_for(sizes)
    held = moved(head.detach(), room)
    return Weights(
        tuple(layers),
        (model.get_submodule(family.last_norm).weight.detach().float() + family.norm_offset).numpy(),
        held if head is table else moved(table.detach(), room),
        held,
        family.pairs,
    )


def _norms(decoder: Decoder, found: Sequence[Tensor | None]) -> Array:
    rows = [torch.ones(decoder.hidden) if row is None else row.float() + decoder.family.norm_offset for row in found]
    return torch.stack(rows).numpy()


def _head_norms(decoder: Decoder, layer: torch.nn.Module) -> Array:
    if not decoder.family.head_norms:
        return np.empty((0, 0), np.float32)
    found: list[Any] = [layer.get_submodule(f"self_attn.{name}_norm").weight for name in "qk"]
    rows = torch.stack([row.detach().float() for row in found]) + decoder.family.norm_offset
    return np.asarray(rows)


def of_file(file: GgufFile, decoder: Decoder, beat: Callable[[], None] = lambda: None) -> Weights:
    """The weights of a GGUF file, mapped as they are. LoadError for a tensor that is missing or misshaped.

    A format that has no products here is expanded, and told. `beat` is called between tensors; what it
    raises abandons the load.
    """
    family, told = decoder.family, set[str]()
    queries, keys = decoder.heads * decoder.width, decoder.key_heads * decoder.width

    def matrix(name: str, rows: int, columns: int) -> Matrix:
        tensor = file.tensor(name)
        file.expect(name, (rows, columns))
        if tensor.kind not in HELD:
            told.add(KINDS[tensor.kind].name)
            import gguf

            values = gguf.quants.dequantize(file.rows(name), gguf.GGMLQuantizationType(tensor.kind))
            data = np.zeros((rows, 4 * _padded(columns)), np.uint8)
            data.view(np.float32)[:, :columns] = values
            beat()
            return Matrix(F32, F32, columns, data)
        data = file.rows(name)
        if tensor.kind in PLAIN and columns % PADDING:
            padded = np.zeros((rows, KINDS[tensor.kind].size * _padded(columns)), np.uint8)
            padded[:, : data.shape[1]] = data
            data = padded
        return Matrix(tensor.kind, tensor.kind, columns, data)

    def floats(name: str, shape: tuple[int, ...]) -> Array:
        file.expect(name, shape)
        return np.ascontiguousarray(file.floats(name), np.float32)

    layers = []
    for n in range(len(decoder.layers)):
        prefix = f"blk.{n}."
        hidden, inner = decoder.hidden, decoder.inner
        if f"{prefix}attn_qkv.weight" in file.tensors:
            whole = matrix(f"{prefix}attn_qkv.weight", queries + 2 * keys, hidden)
            ends = (0, queries, queries + keys, queries + 2 * keys)
            qkv = [whole.part(begin, end) for begin, end in pairwise(ends)]
        else:
            sizes = (queries, keys, keys)
            qkv = [matrix(f"{prefix}{part}.weight", rows, hidden) for part, rows in zip(_PARTS, sizes, strict=False)]
        if f"{prefix}ffn_gate.weight" in file.tensors:
            gate_up = [matrix(f"{prefix}{part}.weight", inner, hidden) for part in _PARTS[4:6]]
        else:
            whole = matrix(f"{prefix}ffn_up.weight", 2 * inner, hidden)
            gate_up = [whole.part(0, inner), whole.part(inner, 2 * inner)]
        biases = [name for part in _PARTS[:3] if (name := f"{prefix}{part}.bias") in file.tensors]
        names = _FOUR_NORMS if family.norms[1] else _NORMS
        norms = [floats(f"{prefix}{name}.weight", (hidden,)) if name else np.ones(hidden, np.float32) for name in names]
        heads = [f"{prefix}attn_{name}_norm.weight" for name in "qk"] if family.head_norms else []
        layers.append(
            LayerWeights(
                (
                    *qkv,
                    matrix(f"{prefix}attn_output.weight", hidden, queries),
                    *gate_up,
                    matrix(f"{prefix}ffn_down.weight", hidden, inner),
                ),
                np.stack(norms),
                np.stack([floats(name, (decoder.width,)) for name in heads]) if heads else np.empty((0, 0), np.float32),
                np.concatenate([file.floats(name) for name in biases]) if biases else np.empty(0, np.float32),
            )
        )
    embedding = matrix("token_embd.weight", decoder.vocabulary, decoder.hidden)
    tied = "output.weight" not in file.tensors
    head = embedding if tied else matrix("output.weight", decoder.vocabulary, decoder.hidden)
    last_norm = floats("output_norm.weight", (decoder.hidden,))
    notes = (
        (f"{', '.join(sorted(told))} weights are held expanded: no products over them are made here",) if told else ()
    )
    paired = file.header.architecture in ("llama", "smollm3")
    return Weights(tuple(layers), last_norm, embedding, head, paired, (file,), notes)


def expanded(weights: Weights, beat: Callable[[], None] = lambda: None) -> Weights:
    """The same weights as float32 (or bfloat16, where they are stored so), in memory of our own."""
    sources = [matrix for matrix in weights.matrices if matrix.kind not in (F32, BF16)]
    sizes = [(matrix.rows, 4 * len(order_of(matrix.order, matrix.columns, LANES))) for matrix in sources]
    room, made = _room_for(sizes), dict[int, Matrix]()
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        jobs = []
        for matrix, size in zip(sources, sizes, strict=True):
            data = room.take(*size)
            jobs.append(pool.submit(partial(matrix.expand, 0, matrix.rows, data.ctypes.data, size[1] // 4)))
            made[id(matrix)] = Matrix(F32, F32 if matrix.kind == F16 else matrix.order, matrix.columns, data)
        for job in jobs:
            job.result()
            beat()
    layers = tuple(
        LayerWeights(tuple(made.get(id(m), m) for m in layer.matrices), layer.norms, layer.head_norms, layer.bias)
        for layer in weights.layers
    )
    embedding, head = (made.get(id(matrix), matrix) for matrix in (weights.embedding, weights.head))
    return Weights(layers, weights.last_norm, embedding, head, weights.paired, weights.owners, weights.told)
