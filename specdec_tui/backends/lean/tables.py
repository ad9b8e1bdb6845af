"""What a pass is told of a model: addresses, sizes and orders of its weights, in arrays that compiled code reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specdec_tui.backends.decoder import Decoder
from specdec_tui.backends.lean import int8
from specdec_tui.backends.lean.attention import GELU_TANH, SILU
from specdec_tui.backends.lean.blocks import F32, PLAIN, Array, order_of, places_of
from specdec_tui.backends.lean.int8 import INT8, words_of
from specdec_tui.backends.lean.layer_parts import DOWN, SIZES
from specdec_tui.backends.lean.products import kernel_of
from specdec_tui.backends.lean.vectors import LANES
from specdec_tui.backends.lean.weights import Matrix, Weights

_PARTS_OF_THREAD = 8


class Tables(NamedTuple):
    """What `decoder_pass` is told of a model, in its order; see there."""

    sizes: Array
    numbers: Array
    matrices: Array
    head: Array
    kernels: Array
    lengths: Array
    places: Array
    needs: Array
    facts: Array
    norms: Array
    head_norms: Array
    last_norm: Array
    bias: Array


def tables_of(decoder: Decoder, weights: Weights, threads: int, rounds: bool) -> Tables:
    """`rounds`: inputs of products over packed weights are rounded to 8 bits."""
    found: dict[tuple[int, int, bool], int] = {}

    def rounded(matrix: Matrix) -> bool:
        return rounds and matrix.kind not in PLAIN

    def order_number(matrix: Matrix, down: bool = False) -> int:
        """Of its own for down: its input is written while that of gate and up is read."""
        return found.setdefault((INT8 if rounded(matrix) else matrix.order, matrix.columns, down), len(found))

    def row(matrix: Matrix, place: int = 0) -> tuple[int, ...]:
        places = len(order_of(matrix.order, matrix.columns, LANES))
        number, kind = order_number(matrix, place == DOWN), matrix.kind + INT8 * rounded(matrix)
        return (matrix.address, kind, matrix.row_bytes, matrix.blocks, number, places)

    matrices = np.array(
        [[row(m, place) for place, m in enumerate(layer.matrices)] for layer in weights.layers], np.int64
    )
    head = np.array(row(weights.head), np.int64)
    # Numbers that are rounded come in their own order.
    all_orders = [order_of(F32 if order == INT8 else order, columns, LANES) for order, columns, _ in found]
    rooms = [words_of(columns) for order, columns, _ in found if order == INT8]
    longest = -(-max([len(order) for order in all_orders] + rooms) // 32) * 32
    places = np.zeros((len(found), max(columns for _, columns, _ in found)), np.int32)
    for number, (kind, columns, _) in enumerate(found):
        places[number, :columns] = places_of(F32 if kind == INT8 else kind, columns, LANES)
    needs = np.full((2 * len(weights.layers) + 1, len(found)), -1, np.int64)

    def need(place: int, numbers: set[int]) -> None:
        needs[place, : len(numbers)] = sorted(numbers)

    for n, layer in enumerate(weights.layers):
        need(2 * n, {order_number(matrix) for matrix in layer.matrices[:3]})
        need(2 * n + 1, {order_number(matrix) for matrix in layer.matrices[4:6]})
    need(2 * len(weights.layers), {order_number(weights.head)})

    read = [matrix for layer in weights.layers for matrix in layer.matrices] + [weights.head]
    addresses = np.zeros(2 * INT8, np.int64)
    for kind in {matrix.kind for matrix in read if not rounded(matrix)} | {F32}:
        addresses[kind] = kernel_of(kind).address
    for kind in {matrix.kind for matrix in read if rounded(matrix)} | ({0} if rooms else set()):
        addresses[INT8 + kind] = int8.kernel_of(INT8 if kind == 0 else kind).address
    sizes = np.zeros(SIZES, np.int64)
    sizes[:SIZES] = (
        decoder.heads,
        decoder.key_heads,
        decoder.width,
        decoder.turned,
        weights.paired,
        decoder.inner,
        {"silu": SILU, "gelu_tanh": GELU_TANH}[decoder.activation],
        bool(decoder.family.norms[1]),
        bool(decoder.family.head_norms),
        _PARTS_OF_THREAD * threads,
        longest,
    )
    scales = (decoder.residual_scale, decoder.logit_scale)
    numbers = (decoder.epsilon, decoder.score_scale, decoder.score_cap, decoder.logit_cap, *scales)
    still = len(decoder.rotations)  # behind them: no rotation
    return Tables(
        sizes=sizes,
        numbers=np.array(numbers, np.float32),
        matrices=matrices,
        head=head,
        kernels=addresses,
        lengths=np.array(
            [-n if o == INT8 else len(p) for p, (o, n, _) in zip(all_orders, found, strict=True)], np.int64
        ),
        places=places,
        needs=needs,
        facts=np.array(
            [(layer.window, layer.rotation if layer.rotation >= 0 else still) for layer in decoder.layers], np.int64
        ),
        norms=np.stack([layer.norms for layer in weights.layers]),
        head_norms=np.stack([layer.head_norms for layer in weights.layers]),
        last_norm=weights.last_norm,
        bias=np.stack([layer.bias for layer in weights.layers]),
    )
