"""Tiles tried on this card, once for each shape of matrix, and kept.

What is timed is a captured pass through some layers of the model at hand: kernels overlap, and what is fastest by
itself need not be so among others. Each matrix in turn has its candidates tried, the others as they are, over one
token; of the fastest few the one is taken with which a pass over one token and one over a block of drafts together take
the least time.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple, replace
from pathlib import Path

import torch

from specdec_tui.backends.demo import cache_folder
from specdec_tui.backends.gpu.tiles import Shape, Tile, Tiles, candidates, guess, held, streamed
from specdec_tui.backends.gpu.weights import Affine, Weights
from specdec_tui.doors import reading, writing
from specdec_tui.settings import SettingError

MOST_SECONDS = 45.0  # of trials, for one model: most of it is the compiler's

MOST_TILES = 16  # that are tried for one shape

BLOCK = 4
"""Tokens of a block of drafts, of which there are three in a usual round, and of the token behind them."""
_FEW = 3  # tiles that are tried over a block

_FOLDER = "tiles"
_MOST_BYTES = 1 << 20
_BYTES = 256 << 20  # of weights that a timed pass reads at least: more than any cache holds
_REPLAYS, _SERIES = 12, 5
_OWN_CODE = Path(__file__).parent
_CODE = [
    "products.py", "multiplied.py", "held.py", "direct.py", "tensor_core.py", "sums.py", "ending.py",
    "ptx.py", "staging.py", "attention.py",
    "whole_shares.py", "shares.py", "turning.py", "choosing.py", "experts.py", "tiles.py",
]  # fmt: skip


def shapes_of(weights: Weights) -> list[Shape]:
    """The matrices of a model that are multiplied with as they are, each shape once, the widest first."""
    gated = weights.decoder.family.gated
    found: dict[Shape, int] = {}

    def add(linear: Affine, halved: bool, slots: int = 0) -> None:
        if isinstance(linear.weight, torch.Tensor) and linear.weight.numel():
            rows, columns = linear.weight.shape[-2:]
            shape = (halved, rows // (1 + halved), columns, slots)
            found[shape] = found.get(shape, 0) + read_of(linear, slots)

    for layer, kind in zip(weights.layers, weights.decoder.layers, strict=True):
        for linear in (layer.qkv, layer.output, layer.down):
            add(linear, False)
        add(layer.gate_up, gated)
        if layer.experts and kind.experts:
            add(layer.experts.gate_up, True, kind.experts.chosen)
            add(layer.experts.down, False, kind.experts.chosen)
            add(layer.experts.router, False)
            add(layer.experts.shared_gate_up, True)
            add(layer.experts.shared_down, False, 1)
    add(weights.head, False)
    return sorted(found, key=lambda shape: -found[shape])


def kept(card: str) -> Tiles:
    """What was tried on a card by this code before."""
    with suppress(OSError, ValueError, KeyError, TypeError, SettingError):
        written = json.loads(reading.read_text(_path(card), most=_MOST_BYTES))
        tiles = written["tiles"]
        return Tiles({(bool(g), int(r), int(c), int(n)): Tile(*tile) for (g, r, c, n), tile in tiles})
    return Tiles()


def keep(card: str, tiles: Tiles) -> None:
    """With what is kept already; what cannot be written is tried again."""
    tried = {**kept(card).tried, **tiles.tried}
    text = json.dumps({"card": card, "tiles": [[shape, astuple(tile)] for shape, tile in tried.items()]})
    with suppress(OSError, SettingError):
        path = _path(card)
        path.parent.mkdir(parents=True, exist_ok=True)
        writing.place(path, [text])


def _path(card: str) -> Path:
    code = hashlib.sha256(f"{card} {torch.__version__}".encode())
    for name in _CODE:
        code.update(reading.read_bytes(_OWN_CODE / name, most=_MOST_BYTES))
    return cache_folder() / _FOLDER / f"{code.hexdigest()[:32]}.json"


def tried(
    shapes: list[Shape],
    known: Tiles,
    seconds: Callable[[Tiles, int], float],
    clock: Callable[[], float] = time.monotonic,
) -> Tiles:
    """`known` with the best tile of each shape that it lacks, by the `seconds` of a pass with given tiles over so many
    tokens.

    Shapes that are not tried yet are as guessed, or all hold their rows, or all stream, whatever is fastest. Trials end
    after `MOST_SECONDS`: shapes that were not reached are left out, and are tried the next time.
    """
    begin, best, new = clock(), known, [shape for shape in shapes if shape not in known.tried]

    def timed(tiles: dict[Shape, Tile], tokens: int) -> float:
        with suppress(Exception):  # a tile that does not compile on this card is none for it
            return seconds(Tiles({**others, **best.tried, **tiles}), tokens)
        return math.inf

    others: dict[Shape, Tile] = {}
    others = min(beginnings(new), key=lambda tiles: timed(tiles, 1) + timed(tiles, BLOCK))
    for shape in new:
        found: list[tuple[float, Tile]] = []
        for tile in worth_a_trial(shape):
            if clock() - begin > MOST_SECONDS:
                return best
            found.append((timed({shape: tile}, 1), tile))
        few = sorted((each for each in found if each[0] < math.inf), key=lambda each: each[0])[:_FEW]
        if few:
            both = [(one + timed({shape: tile}, BLOCK), tile) for one, tile in few]
            best = Tiles({**best.tried, shape: min(both, key=lambda each: each[0])[1]})
    return best


def beginnings(shapes: list[Shape]) -> list[dict[Shape, Tile]]:
    """The tiles of all shapes that trials may begin from, those that differ."""
    guessed = {shape: guess(*shape) for shape in shapes}
    found = [guessed]
    for kind in (held, streamed):
        tiles = guessed | {shape: tile for shape in shapes if (tile := kind(*shape))}
        found += [] if tiles in found else [tiles]
    return found


def read_of(linear: Affine, slots: int = 0) -> int:
    """Bytes of a matrix that a token reads, all of it but for experts."""
    weight = linear.weight
    return int(weight.nbytes // len(weight) * slots if slots and weight.dim() == 3 else weight.nbytes)


def worth_a_trial(shape: Shape) -> list[Tile]:
    first = guess(*shape)
    return [first, *(each for each in candidates(*shape) if each != first)][:MOST_TILES]


def numbered(shapes: list[Shape], number: int) -> Tiles:
    """Of each shape the tile of a number among those worth a trial, which begin again where there are fewer."""
    return Tiles({shape: (tiles := worth_a_trial(shape))[number % len(tiles)] for shape in shapes})


def some_layers(weights: Weights) -> Weights:
    """The model with its first layers alone, as many as a timed pass needs."""

    def sizes() -> Iterator[int]:
        for layer, kind in zip(weights.layers, weights.decoder.layers, strict=True):
            size = sum(read_of(linear) for linear in (layer.qkv, layer.output, layer.gate_up, layer.down))
            if layer.experts and kind.experts:
                mixed = layer.experts
                size += sum(read_of(linear, kind.experts.chosen) for linear in (mixed.gate_up, mixed.down))
            yield size

    count, total = 0, 0
    for size in sizes():
        count, total = count + 1, total + size
        if total >= _BYTES and count >= 2:
            break
    return replace(weights, layers=weights.layers[:count])


def captured_seconds(run: Callable[[], None], device: torch.device) -> float:
    """Of a step in a CUDA graph, the least of a few series."""
    with torch.cuda.device(device):
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            run()
        graph.replay()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        series = []
        for _ in range(_SERIES):
            begin.record()
            for _ in range(_REPLAYS):
                graph.replay()
            end.record()
            end.synchronize()
            series.append(begin.elapsed_time(end) / 1000 / _REPLAYS)
    return min(series)
