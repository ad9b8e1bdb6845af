"""Attention of many queries at once: the bits of each query alone, and what attention is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit

from specdec_tui.backends.lean import attention_parts
from specdec_tui.backends.lean.attention import CHUNK, TILE
from specdec_tui.backends.lean.compiled import link_apart
from specdec_tui.backends.lean.layer_parts import HEADS, KEY_HEADS, SCALE, SCORE_CAP, SIZES, WIDTH

attend_chunk, put_together = attention_parts.attend_chunk, attention_parts.put_together
CAPACITY = 3 * CHUNK


@njit  # type: ignore[untyped-decorator]
def compiled(begin, head, several, first, last, window, sizes, numbers, queries, keys, values, place, room, out):  # type: ignore[no-untyped-def]
    chunks = (begin + last + CHUNK - 1) // CHUNK
    best = np.full((last - first, several, chunks), np.nan, np.float32)
    total, mixed = best.copy(), np.full((last - first, several, chunks, values.shape[3]), np.nan, np.float32)
    for chunk in range(chunks):
        attend_chunk(
            chunk, 0, begin, head, several, first, last, first, head, window, sizes, numbers, queries, keys, values,
            best, total, mixed, room,
        )  # fmt: skip
    for t in range(first, last):
        for h in range(head, head + several):
            put_together(t, h, first, head, chunks, sizes[WIDTH], best, total, mixed, place, out)


class Layer(NamedTuple):
    """Random queries [tokens, heads, width] over random keys and values [key heads, CAPACITY, width]."""

    queries: Any
    keys: Any
    values: Any
    cap: float

    @classmethod
    def of(cls, heads: int, key_heads: int, width: int, tokens: int, cap: float) -> Layer:
        dice = np.random.default_rng(heads + width + tokens)
        shape = (key_heads, CAPACITY, width)
        queries, keys, values = (dice.standard_normal(s, np.float32) for s in ((tokens, heads, width), shape, shape))
        return cls(4 * queries, keys, values, cap)

    def attend(self, begin: int, head: int, several: int, first: int, last: int, window: int) -> Any:
        """[last − first, several, width], of the compiled code."""
        tokens, heads, width = self.queries.shape
        key_heads, wide = len(self.keys), -(-width // TILE) * TILE
        sizes = np.zeros(SIZES, np.int64)
        sizes[HEADS], sizes[KEY_HEADS], sizes[WIDTH] = heads, key_heads, width
        numbers = np.zeros(4, np.float32)
        numbers[SCALE], numbers[SCORE_CAP] = width**-0.5, self.cap
        keys = self.keys.reshape(1, key_heads, CAPACITY // TILE, TILE, width).transpose(0, 1, 2, 4, 3)
        values = np.zeros((1, key_heads, CAPACITY, wide), np.float32)
        values[..., :width] = self.values
        out = np.zeros((tokens, heads * width), np.float32)
        compiled(
            begin, head, several, first, last, window, sizes, numbers, self.queries.reshape(tokens, -1),
            np.ascontiguousarray(keys), values, np.arange(heads * width, dtype=np.int32),
            np.full(attention_parts.room_of_attention(width, wide), np.nan, np.float32), out,
        )  # fmt: skip
        return out.reshape(self.queries.shape)[first:last, head : head + several].copy()

    def exact(self, begin: int, head: int, several: int, first: int, last: int, window: int) -> Any:
        """The same in float64, by the definition."""
        key_head = head // (self.queries.shape[1] // len(self.keys))
        scores = self.queries[first:last, head : head + several].astype(np.float64) @ self.keys[key_head].T
        scores *= self.queries.shape[2] ** -0.5
        if self.cap:
            scores = self.cap * np.tanh(scores / self.cap)
        position, token = np.arange(CAPACITY), begin + np.arange(first, last)[:, None]
        seen = (position <= token) & ((position > token - window) if window else True)
        scores = np.where(seen[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return (weights / weights.sum(-1, keepdims=True)) @ self.values[key_head]


def alone(layer: Layer, begin: int, head: int, several: int, first: int, last: int, window: int) -> Any:
    """What `attend` gives, of one query at a time."""
    places = itertools.product(range(first, last), range(head, head + several))
    rows = [layer.attend(begin, h, 1, t, t + 1, window) for t, h in places]
    return np.concatenate(rows).reshape(last - first, several, -1)


def differing(layer: Layer, begin: int, several: int, tokens: int, window: int) -> int:
    """How many numbers of all heads' results are other bits than those of a query alone."""
    found = 0
    for head in range(0, layer.queries.shape[1], several):
        given = (begin, head, several, 0, tokens, window)
        together, single = layer.attend(*given), alone(layer, *given)
        np.testing.assert_allclose(together, layer.exact(*given), atol=2e-5, rtol=2e-5)
        found += int((together.view(np.int32) != single.view(np.int32)).sum())
    return found


@pytest.fixture(autouse=True, scope="module")
def _linked() -> Iterator[None]:
    link_apart()
    yield


SHAPES = [(3, 1, 64), (6, 3, 48), (8, 1, 24), (2, 2, 128), (2, 1, 256)]
"""Heads, key heads, width: pieces of 64, 80, 128, 32 and 16 positions."""


@pytest.mark.parametrize("cap", [0.0, 2.0])
@pytest.mark.parametrize(("heads", "key_heads", "width"), SHAPES)
def test_queries_together_get_the_bits_of_each_alone(heads: int, key_heads: int, width: int, cap: float) -> None:
    """Texts and windows that end before, at and behind the edges of tiles, pieces and chunks."""
    layer = Layer.of(heads, key_heads, width, 41, cap)
    for begin, tokens in ((0, 1), (0, 17), (15, 2), (63, 41), (255, 2), (490, 23)):
        for window in (0, 17, 256):
            assert differing(layer, begin, heads // key_heads, tokens, window) == 0, (begin, tokens, window)


def test_more_queries_than_go_together() -> None:
    layer = Layer.of(16, 1, 24, 20, 0.0)
    assert attention_parts.MOST_QUERIES < 16 * 20
    assert differing(layer, 250, 16, 20, 0) == 0
    assert differing(layer, 250, 16, 20, 30) == 0


def test_other_sums_are_seen() -> None:
    """A key too many, and values in another order."""
    layer = Layer.of(3, 1, 64, 41, 0.0)
    given = (63, 0, 3, 0, 41)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(layer.attend(*given, 18), layer.exact(*given, 17), atol=2e-5, rtol=2e-5)
    whole = layer.attend(*given, 0)
    swapped = layer._replace(keys=layer.keys.copy(), values=layer.values.copy())
    for numbers in (swapped.keys, swapped.values):
        numbers[:, [3, 20]] = numbers[:, [20, 3]]
    assert (swapped.attend(*given, 0) != whole).any()
