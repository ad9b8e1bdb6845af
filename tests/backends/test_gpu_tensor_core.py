"""Rows that go to a tensor core as they were loaded, and what becomes of its sums, lane by lane: no GPU is needed."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Any

import pytest
import torch
from ptx_steps import BASE, Memory, bits_of, carried_out, carried_out_together, number_of
from torch import Tensor

from specdec_tui.backends.gpu import tensor_core
from specdec_tui.backends.gpu.packed.codes import half_bits
from specdec_tui.backends.gpu.ptx import MOST_SHARED, arriving, asking
from specdec_tui.backends.gpu.staging import directly, staging
from specdec_tui.backends.gpu.tensor_core import FEW, MANY, MOST_FEW, gap_of, sums_bytes
from specdec_tui.backends.gpu.tiles import Tile, candidates, fitting

THERE, SUMS = 1 << 20, 1 << 16  # where tokens lie on the device; sums in shared memory
ROWS, COLUMNS, PIECES, TOKENS = 16, 128, 2, 12
SHARE = COLUMNS // PIECES
MADE = ("multiplying", "reading_few", "putting", "adding")


def words_of(numbers: Tensor) -> list[int]:
    """The registers that a row of numbers fills, two each."""
    bits = [half_bits(float(number), "bfloat16") for number in numbers]
    return [low | high << 16 for low, high in zip(bits[::2], bits[1::2], strict=True)]


@cache
def numbers(rows: int, seed: int) -> Tensor:
    return torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


def sums_of(count: int, read: bool, made: dict[str, Any] | None = None) -> Tensor:
    """[ROWS, count]: products of rows with tokens, by the programs as a warp for each piece carries them out."""
    program = {name: getattr(tensor_core, name) for name in MADE} | (made or {})
    weights, tokens, few, gap = numbers(ROWS, 1), numbers(TOKENS, 2)[:count], count <= MOST_FEW, gap_of(COLUMNS)
    shared: Memory = {}
    if read:
        given = {THERE + 4 * place: word for place, word in enumerate(words_of(tokens.flatten()))}
        ask = asking(range(count), COLUMNS, PIECES, 0, gap)
        for thread in range(32 * PIECES):
            carried_out(ask, {"%tid.x": thread, "$1": THERE}, shared=shared, given=given)
    size = FEW if few else MANY
    found = torch.zeros(ROWS, count)
    add = program["adding"](PIECES, ROWS, count)
    for tile in range(-(-count // size)):
        for piece in range(PIECES):
            total = [[{f"${12 + n}": 0 for n in range(4)} for _ in range(32)] for _ in range(ROWS // 8)]
            for begin in range(0, SHARE, 32):
                own = []
                for lane in range(32):
                    first = piece * SHARE + begin + lane % 4 * 8
                    token = min(tile * size + lane // 4 % size, count - 1)
                    words = words_of(tokens[token, first : first + 8])
                    if read:
                        arrive = arriving(count, COLUMNS, SHARE, 32, False, few, gap, tile)
                        address = carried_out(arrive, {"%tid.x": 32 * piece + lane})["$0"] + 2 * begin
                        held = carried_out(program["reading_few"](), {"$4": address}, shared=shared)
                        words = [held[f"${n}"] for n in range(4)]
                    own.append({f"${8 + n}": word for n, word in enumerate(words)} | {"%laneid": lane})
                for group in range(ROWS // 8):
                    lanes = []
                    for lane in range(32):
                        first = piece * SHARE + begin + lane % 4 * 8
                        row = words_of(weights[8 * group + lane // 4, first : first + 8])
                        lanes.append(own[lane] | {f"${4 + n}": word for n, word in enumerate(row)} | total[group][lane])
                    left = carried_out_together(program["multiplying"]("bf16", count, read), lanes)
                    total[group] = [{f"${12 + n}": lane[f"${n}"] for n in range(4)} for lane in left]
            for group in range(ROWS // 8):
                for lane in range(32):
                    inputs = {f"${4 + n}": total[group][lane][f"${12 + n}"] for n in range(4)}
                    to = SUMS + 32 * group + (4 * MANY * ROWS * tile if few else 0)
                    inputs |= {"%tid.x": 32 * piece + lane, "$8": to}
                    carried_out(program["putting"](ROWS, count), inputs, shared=shared)
        for n in range(tile * size, min(count, tile * size + size)):
            place = tile * MANY + n % FEW if few else n % MANY
            for row in range(ROWS):
                address = SUMS + 4 * (place * ROWS + row)
                found[row, n] = number_of(carried_out(add, {"$1": address}, shared=shared)["$0"])
    return found


@pytest.mark.parametrize("read", [False, True])
def test_a_token_has_the_same_sums_alone_and_among_others(read: bool) -> None:
    exact = numbers(ROWS, 1).double() @ numbers(TOKENS, 2).double().T
    found = {count: sums_of(count, read) for count in ((1, 3, 4, 5, 8) if read else (1, 4, 7, 9, 12))}
    most = found[max(found)]
    torch.testing.assert_close(most.double(), exact[:, : max(found)], rtol=0, atol=1e-4)
    assert all(torch.equal(sums, most[:, :count]) for count, sums in found.items())
    assert not torch.equal(most.double(), exact[:, : max(found)])  # it does round


@pytest.mark.parametrize(("name", "count", "read", "right", "other"), [
    ("multiplying", 4, True, "{$4, $5, $6, $7}, {$8, $9}", "{$4, $6, $5, $7}, {$8, $9}"),
    ("multiplying", 4, False, "setp.lt.u32 q, t, 16;", "setp.lt.u32 q, t, 8;"),
    ("multiplying", 9, False, "{$4, z, $6, z}, {$8, $10}", "{$4, z, $6, z}, {$8, $9}"),
    ("reading_few", 4, True, "[$4 + 8]", "[$4 + 4]"),
    ("putting", 4, True, "bfe.u32 w, t, 1, 1;", "bfe.u32 w, t, 0, 1;"),
    ("putting", 9, False, "mov.b32 g, $7;", "mov.b32 g, $6;"),
    ("adding", 4, True, "add.rn.f32 v1, v1, s;", "add.rn.f32 v0, v1, s;"),
])  # fmt: skip
def test_a_planted_fault_in_the_way_to_a_tensor_core_is_found(
    name: str, count: int, read: bool, right: str, other: str
) -> None:
    made = getattr(tensor_core, name)

    def faulty(*given: Any) -> str:
        assert right in made(*given)
        return str(made(*given).replace(right, other))

    expected = sums_of(count, read)
    with suppress(KeyError):  # nothing lies there
        assert not torch.equal(sums_of(count, read, {name: faulty}), expected)


@pytest.mark.parametrize("pieces", [2, 8, 16])
@pytest.mark.parametrize("count", [1, 4, 5, 8, 9, 64])
def test_sums_have_room_that_is_declared(count: int, pieces: int) -> None:
    shared: Memory = {}
    tiles = -(-count // FEW) if count <= MOST_FEW else 1
    for thread in range(32 * pieces):
        inputs = {f"${n}": 0 for n in range(4, 8)} | {"%tid.x": thread}
        for place in (BASE + 32 * group + 4 * MANY * 16 * tile for group in range(2) for tile in range(tiles)):
            carried_out(tensor_core.putting(16, count), inputs | {"$8": place}, shared=shared)
    put, size = 4 * MANY * 16 * pieces * tiles, sums_bytes(pieces, 16, count)
    assert sorted(shared) == list(range(BASE, BASE + put, 4))  # each place once
    assert f"[{size}]" in tensor_core.room_for(size)
    assert size == put + (0 if count <= MOST_FEW else 4 * MANY * 16 * -(-count // MANY))  # what tiles leave lies behind


@pytest.mark.parametrize("there", [True, False])
def test_lanes_are_added_up_in_one_order(there: bool) -> None:
    """Lanes 16, 8, 4, 2 and 1 apart."""
    own = torch.randn(32, generator=torch.Generator().manual_seed(4))
    shared: Memory = {}
    lanes = [{"$1": bits_of(float(one)), "$2": BASE if there else 0, "%laneid": lane} for lane, one in enumerate(own)]
    carried_out_together(tensor_core.totalling(), lanes, shared=shared)
    expected = own
    for apart in (16, 8, 4, 2, 1):
        expected = expected[:apart] + expected[apart : 2 * apart]
    assert {place: number_of(bits) for place, bits in shared.items()} == ({BASE: float(expected[0])} if there else {})


@pytest.mark.parametrize("tokens", [2, 4])
@pytest.mark.parametrize("columns", [576, 896, 1600, 2048])
def test_few_tokens_are_read_from_banks_of_which_no_more_than_two_meet(columns: int, tokens: int) -> None:
    """32 lanes read a word each, from 32 banks."""
    code = arriving(tokens, columns, columns, 32, False, True, gap_of(columns))
    words = {carried_out(code, {"%tid.x": lane})["$0"] // 4 for lane in range(32)}
    assert len(words) == 8 * tokens
    assert max(sum(word % 32 == bank for word in words) for bank in range(32)) <= tokens // 2


def test_rows_go_directly_where_lanes_load_eight_columns_at_once() -> None:
    held, streamed = Tile(16, 0, 8, 8, 1, 256, 0), Tile(16, 128, 4, 4, 4, 128, 128)
    x, weight = torch.empty(1, 1600, dtype=torch.bfloat16), torch.empty(64, 1600, dtype=torch.bfloat16)
    assert directly(x, weight, held)
    assert not directly(x, weight, streamed)
    assert not directly(x[:, 4:-4].contiguous()[:, :1588], weight, held)
    assert not directly(x.flatten()[1:-7].view(1, -1), weight, held)
    assert not directly(x, weight.flatten()[1:], held)
    assert not directly(x.float(), weight.float(), held)


def test_what_is_declared_fits_beside_sums() -> None:
    for gated, columns in ((False, 576), (False, 1600), (False, 2048), (False, 8192), (True, 1152), (True, 3072)):
        for tile in candidates(gated, 2048, columns):
            for tokens, apart in ((1, 0), (4, 0), (8, 0), (4, 8)):
                found, count = fitting(tile, columns, tokens, 1 + gated), tokens * (2 if apart else 1)
                x = torch.empty(16, columns, dtype=torch.bfloat16)
                ask, _ = staging(x, tokens, apart, found, 1 + gated)
                size = sums_bytes(found.pieces, (1 + gated) * found.rows, count)
                declared = ask + tensor_core.room_for(size) + tensor_core.room_for_totals(4 * 16)
                assert not ask or sum(map(int, re.findall(r"\.b8 \w+\[(\d+)\]", declared))) <= MOST_SHARED
