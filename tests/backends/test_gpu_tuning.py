"""Tiles of a card: tried once for each shape, kept, and never a matter of how many tokens there are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specdec_tui.backends.decoder import Experts
from specdec_tui.backends.demo import CACHE_VARIABLE
from specdec_tui.backends.gpu import tuning
from specdec_tui.backends.gpu.tiles import (
    Tile,
    Tiles,
    attention_cut,
    candidates,
    fitting,
    guess,
    held,
    power,
    streamed,
    tile_tokens,
)
from specdec_tui.backends.gpu.tuning import numbered, worth_a_trial
from specdec_tui.backends.gpu.weights import NONE, Affine, ExpertWeights

SHAPES = [
    (False, 128256, 2048, 0),
    (True, 8192, 2048, 0),
    (False, 2048, 8192, 0),
    (False, 960, 576, 0),
    (True, 1536, 576, 0),
    (False, 64, 2048, 0),  # a router
    (True, 1024, 2048, 8),
    (False, 2048, 1024, 8),
    (False, 2880, 2880, 4),
]


def test_each_shape_gets_its_fastest_tile() -> None:
    wanted = {shape: candidates(*shape)[-1] for shape in SHAPES}

    def seconds(tiles: Tiles, tokens: int) -> float:
        return float(sum(tiles.tried.get(shape) != wanted[shape] for shape in SHAPES))

    assert tuning.tried(SHAPES, Tiles(), seconds).tried == wanted


def test_of_nearly_as_fast_tiles_the_one_is_taken_that_is_faster_over_a_block_too() -> None:
    shape = SHAPES[2]
    quick, both, slow = candidates(*shape)[1:4]

    def seconds(tiles: Tiles, tokens: int) -> float:
        times = {quick: (1.0, 1.5), both: (1.05, 1.2), slow: (2.0, 0.1)}
        return times.get(tiles.tried.get(shape, slow), (3.0, 3.0))[tokens > 1]

    assert tuning.tried([shape], Tiles(), seconds).tried == {shape: slow}
    assert tuning.BLOCK > 1

    def of_others(tiles: Tiles, tokens: int) -> float:
        return 9.0 if tiles.tried.get(shape) == slow else seconds(tiles, tokens)

    assert tuning.tried([shape], Tiles(), of_others).tried == {shape: both}


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("slow", [1, tuning.BLOCK])
def test_trials_begin_where_all_shapes_together_are_fastest(holds: bool, slow: int) -> None:
    """Over one token and over a block of drafts."""
    shapes = [(True, 8192, 3072, 0), (False, 3072, 8192, 0), (False, 5120, 3072, 0)]
    assert all(held(*shape) and streamed(*shape) for shape in shapes)

    def seconds(tiles: Tiles, tokens: int) -> float:
        held_ones = sum(not tiles.tried.get(shape, guess(*shape)).columns for shape in shapes)
        wanted, other = (len(shapes), 0) if holds else (0, len(shapes))
        return {wanted: 0.5, other: 4.0 if tokens == slow else 0.4}.get(held_ones, 9.0)

    found = tuning.tried(shapes, Tiles(), seconds).tried
    assert all((not found[shape].columns) == holds for shape in shapes)


def test_beginnings_are_not_tried_twice() -> None:
    small, head = (False, 896, 896, 0), (False, 128256, 2048, 0)
    assert tuning.beginnings([small]) == [{small: guess(*small)}] and guess(*small) == held(*small)
    assert tuning.beginnings([head]) == [{head: guess(*head)}]
    large = (True, 14336, 4096, 0)
    assert len(tuning.beginnings([large])) == 2 and guess(*large) == streamed(*large)


def test_what_is_known_is_not_tried_again_and_what_does_not_compile_is_no_tile() -> None:
    known, lame = Tiles({SHAPES[0]: candidates(*SHAPES[0])[1]}), guess(*SHAPES[1])
    asked = []

    def seconds(tiles: Tiles, tokens: int) -> float:
        asked.append(tiles)
        if tiles.tried.get(SHAPES[1]) == lame:
            raise RuntimeError("out of resource: shared memory")
        return float(len(asked))

    found = tuning.tried(SHAPES[:2], known, seconds).tried
    assert found[SHAPES[0]] == known.tried[SHAPES[0]]
    assert found[SHAPES[1]] != lame
    assert all(tiles.tried[SHAPES[0]] == known.tried[SHAPES[0]] for tiles in asked)


def test_trials_end_in_time_and_leave_the_rest_for_later() -> None:
    now = [0.0]

    def seconds(tiles: Tiles, tokens: int) -> float:
        passes = 2 * len(tuning.beginnings(SHAPES)) + len(worth_a_trial(SHAPES[0])) + 3  # three over a block
        now[0] += tuning.MOST_SECONDS / passes
        return 1.0

    found = tuning.tried(SHAPES, Tiles(), seconds, clock=lambda: now[0]).tried
    assert list(found) == SHAPES[:1]


def test_tiles_are_kept_for_a_card_and_a_damaged_file_means_another_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    tiles = Tiles({shape: candidates(*shape)[1] for shape in SHAPES[:2]})
    tuning.keep("a card", tiles)
    assert tuning.kept("a card") == tiles
    assert tuning.kept("another card") == Tiles()
    more = Tiles({SHAPES[2]: candidates(*SHAPES[2])[0]})
    tuning.keep("a card", more)
    assert tuning.kept("a card").tried == {**tiles.tried, **more.tried}
    (file,) = (tmp_path / "tiles").iterdir()
    file.write_text('{"tiles": [[[false, 1, 2], [3]]]}')
    assert tuning.kept("a card") == Tiles()
    file.write_text("[")
    assert tuning.kept("a card") == Tiles()


def test_how_sums_are_cut_does_not_hang_on_the_number_of_tokens() -> None:
    for shape in SHAPES:
        for tile in candidates(*shape) if not shape[3] else ():
            tiles = Tiles({shape: tile})
            assert {tiles.of(*shape[:3], tokens).pieces for tokens in range(1, 65)} == {tile.pieces}
            assert {tiles.of(*shape[:3], tokens).warps for tokens in range(1, 65)} == {tile.warps}
            if tile.early_last:  # what is added last must be the same
                found = {tiles.of(*shape[:3], tokens, pair).early for tokens in range(1, 65) for pair in (False, True)}
                assert len(found) == 1


@pytest.mark.parametrize("tokens", [1, 9, 33, 64])
def test_a_tile_fits_the_shared_memory_of_a_card(tokens: int) -> None:
    for shape in SHAPES:
        gated, rows, columns, slots = shape
        for tile in candidates(*shape):
            tiles = Tiles({shape: tile})
            found = tiles.of_experts(*shape) if slots else tiles.of(gated, rows, columns, tokens)
            lines = found.rows * (1 + gated) + (8 if slots else tile_tokens(tokens))
            pieces = found.pieces * (1 if gated else power(slots))
            assert 2 * pieces * lines * found.columns * (found.stages - 1) <= 160 << 10
            if found.columns:
                assert found.early in (0, 16, 32, 64, 128, 256) and found.ahead % 64 == 0
                assert power(found.columns) == found.columns and power(found.ahead) in (1, found.ahead)
    assert fitting(Tile(16, 512, 4, 4, 4, 0, 0), 8192, 64).columns == 64


def test_rows_that_are_held_fit_into_the_registers_of_a_program() -> None:
    held = 0
    for gated, rows, columns, slots in SHAPES:
        for tile in candidates(gated, rows, columns, slots):
            if tile.columns:
                continue
            held += 1
            share = -(-columns // (16 * tile.pieces)) * 16
            for tokens in (1, 16, 17, 64):
                found = fitting(tile, columns, tokens, 1 + gated)
                numbers = found.rows * (1 + gated) * found.pieces * found.early
                assert numbers // (64 * found.warps) <= 112, "32-bit registers of a thread"
                assert found.early % 32 == 0 < found.early <= min(tile.early, share + 31)
    assert held
    assert not [tile for tile in candidates(True, 28672, 1 << 15) if not tile.columns]


def test_no_shape_has_more_tiles_than_are_compiled_ahead() -> None:
    found = [numbered(SHAPES, number) for number in range(tuning.MOST_TILES)]
    for shape in SHAPES:
        assert {tiles.tried[shape] for tiles in found} == set(worth_a_trial(shape)) == set(candidates(*shape))
        assert found[0].tried[shape] == guess(*shape)


def test_the_matrices_of_a_mixture_are_tried_too() -> None:
    """OLMoE's: of experts a token reads those it chooses."""
    kind = Experts(64, 8, 1024, "softmax", False)
    family = SimpleNamespace(gated=True)
    decoder = SimpleNamespace(family=family, layers=[SimpleNamespace(experts=kind)] * 3)

    def affine(*shape: int) -> Affine:
        return Affine(torch.empty(shape, dtype=torch.bfloat16, device="meta"), NONE)

    nothing = Affine(NONE, NONE)
    mixed = ExpertWeights(
        affine(64, 2048), affine(64, 2048, 2048), affine(64, 2048, 1024), False, nothing, nothing
    )  # fmt: skip
    layer = SimpleNamespace(
        qkv=affine(6144, 2048), output=affine(2048, 2048), gate_up=nothing, down=nothing, experts=mixed
    )
    weights: Any = Holder(decoder, (layer,) * 3, affine(50304, 2048))
    assert tuning.shapes_of(weights) == [
        (False, 50304, 2048, 0),
        (True, 1024, 2048, 8),
        (False, 2048, 1024, 8),
        (False, 6144, 2048, 0),
        (False, 2048, 2048, 0),
        (False, 64, 2048, 0),
    ]
    assert len(tuning.some_layers(weights).layers) == 2  # 134 MB each


@dataclass(frozen=True)
class Holder:
    decoder: Any
    layers: tuple[Any, ...]
    head: Affine


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("width", [64, 80, 128, 256])
@pytest.mark.parametrize("key_heads", [1, 2, 8, 32, 500])
def test_shares_of_attention_are_whole_tiles_that_cover_a_text_and_run_side_by_side(
    width: int, key_heads: int, half: bool
) -> None:
    for capacity in (256, 512, 2048, 4096, 34_816, 133_120):
        cut = attention_cut(width, key_heads, capacity, half)
        assert cut.share % cut.keys == 0
        assert (cut.shares(capacity) - 1) * cut.share < capacity <= cut.shares(capacity) * cut.share
        assert cut.shares(capacity) * key_heads <= max(400, key_heads)
        if cut.whole:  # most programs have a multiprocessor, each warp 16 keys, and what they leave finds room
            shares = cut.shares(capacity)
            assert half and shares * key_heads * cut.slices <= (400 if shares <= 32 else 128)
            assert cut.share == cut.keys and cut.keys // cut.warps % 16 == 0
            assert 64 * cut.slices >= width and 4 * cut.warps * 16 * 74 <= 48 << 10
    assert attention_cut(128, 8, 34_816).share == 768, "46 shares of 8 heads: 368 programs"
    assert attention_cut(64, 2, 256).share == 256
    assert attention_cut(256, 1, 512).whole and not attention_cut(256, 1, 16_384).whole
    assert attention_cut(128, 8, 6144).whole and not attention_cut(128, 8, 8192).whole
