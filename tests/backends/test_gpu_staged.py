"""Tokens that a product reads from shared memory, and sums that its warps join there, thread by thread."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from ptx_steps import BASE, Memory, bits_of, carried_out, number_of

from specdec_tui.backends.gpu.own_code import allow_both
from specdec_tui.backends.gpu.packed.codes import FORMS, STRAIGHT, filling
from specdec_tui.backends.gpu.packed.cuts import Cut, cut_of
from specdec_tui.backends.gpu.packed.packing import Packed
from specdec_tui.backends.gpu.packed.staged import staging
from specdec_tui.backends.gpu.ptx import arriving, asking, columns_read, constraints, joining, joins
from specdec_tui.backends.gpu.staging import staging as staged_tokens
from specdec_tui.backends.gpu.tensor_core import FEW, gap_of, reading_few
from specdec_tui.backends.gpu.tiles import Tile

THERE = 1 << 20  # where tokens lie on the device


def matrix(form: str, columns: int, group: int = 128, places: bool = False) -> Packed:
    """Without its numbers."""
    planes, width, empty = FORMS[form].planes, min(64, group), torch.empty(0)
    weight = torch.empty(2, -(-columns // (planes * width)), 16 * width, dtype=torch.uint8, device="meta")
    order = torch.empty(columns if places else 0)
    return Packed(form, weight, empty, empty, empty, empty, order, 32, columns, min(group, columns), "bfloat16")


def tokens_of(count: int, columns: int) -> Memory:
    """On the device, each word another."""
    return {THERE + 4 * place: place + 1 for place in range(count * columns // 2)}


def asked(tokens: int, columns: int, warps: int) -> Memory:
    """Shared memory when they have arrived."""
    shared: Memory = {}
    program, given = asking(range(tokens), columns, warps), tokens_of(tokens, columns)
    for thread in range(32 * warps):
        carried_out(program, {"%tid.x": thread, "$1": THERE}, shared=shared, given=given)
    return shared


def addresses(tokens: int, columns: int, chunk: int, width: int, warps: int) -> list[int]:
    """By thread."""
    program = arriving(tokens, columns, chunk, width)
    return [carried_out(program, {"%tid.x": thread})["$0"] for thread in range(32 * warps)]


def wrong_reads(tokens: int, columns: int, planes: int, width: int, warps: int) -> int:
    """How many threads read other columns, in some step, than those that `loads.own_columns` loads for them."""
    shared, chunk, quarter = asked(tokens, columns, warps), planes * width, width // 4
    program, words, wrong = columns_read(quarter), quarter // 2, 0
    for thread, address in enumerate(addresses(tokens, columns, chunk, width, warps)):
        for begin in range(0, columns, warps * chunk):
            for plane in range(planes):
                input = {f"${words}": address + 2 * (begin + plane * width)}
                held = carried_out(program, input, shared=shared)
                token = min(thread // 4 % 8, tokens - 1)
                first = token * columns + begin + thread // 32 * chunk + plane * width + thread % 4 * quarter
                expected = [first // 2 + word + 1 for word in range(words)]
                wrong += [held[f"${word}"] for word in range(words)] != expected
    return wrong


@pytest.mark.parametrize(("planes", "width", "warps", "columns"), [
    (2, 64, 8, 1024), (2, 64, 4, 1536), (2, 32, 8, 512), (1, 64, 4, 512), (1, 16, 2, 96),
])  # fmt: skip
@pytest.mark.parametrize("tokens", [1, 3, 8])
def test_each_thread_reads_the_columns_of_its_token(
    tokens: int, planes: int, width: int, warps: int, columns: int
) -> None:
    assert wrong_reads(tokens, columns, planes, width, warps) == 0


@pytest.mark.parametrize(("name", "right", "other"), [
    ("asking", "q, t, 32;", "q, t, 31;"),  # the last 16 bytes of a token are not asked for
    ("asking", "[a + 2576]", "[a + 2560]"),  # the second token comes to a wrong place
    ("arriving", "and.b32 a, t, 3", "and.b32 a, t, 1"),
    ("arriving", "min.u32 a, a, 1", "min.u32 a, a, 0"),
    ("columns_read", "[$8 + 16]", "[$8 + 0]"),
])  # fmt: skip
def test_a_planted_fault_is_found(name: str, right: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = globals()[name]

    def faulty(*given: Any) -> str:
        program = made(*given)
        assert right in program
        return program.replace(right, other)

    def wrong() -> bool:
        try:
            return wrong_reads(2, 1280, 2, 64, 2) > 0
        except KeyError:  # nothing lies there
            return True

    assert not wrong()
    monkeypatch.setitem(globals(), name, faulty)
    assert wrong()


@pytest.mark.parametrize("tokens", [2, 5, 8])
def test_lanes_that_read_together_read_different_banks(tokens: int) -> None:
    """A load of 16 bytes is done for eight lanes at a time, from 32 banks of 4 bytes."""
    found = addresses(tokens, 1024, 128, 64, 1)
    for begin in range(0, 32, 8):
        units = {address // 16 for address in found[begin : begin + 8]}
        assert len({unit % 8 for unit in units}) == len(units)


@pytest.mark.parametrize("tokens", [1, 4])
def test_tokens_fill_the_memory_that_they_declare(tokens: int) -> None:
    declared = re.match(r"\.shared \.align 128 \.b8 own_tokens\[(\d+)\];", asking(range(tokens), 1024, 8))
    shared = asked(tokens, 1024, 8)
    assert declared and min(shared) == BASE and len(shared) == tokens * 512
    gap = 16 if tokens > 1 else 0
    assert max(shared) + 4 + gap == BASE + int(declared[1])


@pytest.mark.parametrize("count", [16, 8, 4])
def test_what_is_read_has_a_constraint_for_each_register(count: int) -> None:
    named = {int(place) for place in re.findall(r"\$(\d+)", columns_read(count))}
    parts = constraints(count).split(",")
    assert named == set(range(count // 2 + 1))
    assert [part == "=r" for part in parts] == [n < count // 2 for n in range(len(parts))]
    assert len(parts) == count // 2 + count + count // 2  # words, addresses, and a tensor of halves by two


def test_products_of_whole_numbers_of_4_bits_are_staged() -> None:
    assert cut_of(matrix("int4", 3072), False) == cut_of(matrix("uint4", 1024), False) == Cut(8, 8, staged=True)
    assert cut_of(matrix("int4", 512, group=32), False) == Cut(8, 8, staged=True)
    assert cut_of(matrix("int4", 8192), False) == cut_of(matrix("int4", 14336), False) == Cut(8, 8, staged=True)
    for not_so, gated in (
        (matrix("int4", 3072), True),
        (matrix("int4", 2560), False),  # steps would go beyond x
        (matrix("int4", 3072, places=True), False),
        (matrix("nf4", 3072, group=64), False),
        (matrix("int8", 1024), False),
    ):
        assert not cut_of(not_so, gated).staged


def staged(found: Packed, tokens: int, gated: bool = False, cut: Cut | None = None, begin: int = 0) -> bool:
    x = torch.empty(tokens * found.columns + begin, dtype=torch.bfloat16)[begin:].view(tokens, -1)
    ask, arrive = staging(x, found, gated, cut or Cut(8, 8, staged=True))
    assert (ask == "") == (arrive == "")
    return ask != ""


def test_tokens_that_find_no_room_are_read_from_memory() -> None:
    assert [tokens for tokens in range(1, 20) if staged(matrix("int4", 3072), tokens)] == list(range(1, 8))
    assert [tokens for tokens in range(1, 20) if staged(matrix("int4", 1024), tokens)] == list(range(1, 9))
    assert [tokens for tokens in range(1, 20) if staged(matrix("int4", 8192), tokens)] == [1, 2]
    assert [tokens for tokens in range(1, 20) if staged(matrix("nf4", 3072), tokens)] == [1]
    assert not staged(matrix("int4", 1024), 1, cut=Cut(8, 8))
    assert staged(matrix("int4", 3072), 7) and not staged(matrix("int4", 3072), 7, gated=True)
    assert not staged(matrix("int4", 2560), 1) and staged(matrix("int4", 2560), 1, cut=Cut(4, 8, staged=True))
    assert not staged(matrix("int4", 1024, places=True), 1)
    assert staged(matrix("int4", 1024), 1, begin=8) and not staged(matrix("int4", 1024), 1, begin=1)


@pytest.mark.parametrize("form", ["int4", "nf4", "int8"])
@pytest.mark.parametrize("gated", [False, True])
def test_a_program_has_no_more_shared_memory_than_it_gets(form: str, gated: bool) -> None:
    """Of all that its instructions declare."""
    found, most = matrix(form, 1024), 0
    for tokens in range(1, 9):
        for warps in (4, 8):
            x = torch.empty(tokens, 1024, dtype=torch.bfloat16)
            ask, _ = staging(x, found, gated, Cut(warps, 8, staged=True))
            table = filling(warps) if FORMS[form].order == STRAIGHT else ""
            declared = re.findall(r"\.b8 \w+\[(\d+)\]", ask + table + joining(warps, 4 * (1 + gated)))
            most = max(most, sum(map(int, declared)))
    assert 16 << 10 < most <= 48 << 10


def wrong_held(tokens: int, columns: int, pieces: int, paired: bool = False) -> int:
    """How many lanes read other words than a tensor core wants of them, see `tensor_core`, in some step of rows that
    are held, 0 behind the last column."""
    apart, tile = 7, Tile(16, 0, pieces, pieces, 1, 64, 0)
    x = torch.empty(2 if paired else 1, apart, columns, dtype=torch.bfloat16)
    program, room = staged_tokens(x, tokens, apart if paired else 0, tile, 1)
    shared: Memory = {}
    for thread in range(32 * pieces):
        carried_out(program, {"%tid.x": thread, "$1": THERE}, shared=shared, given=tokens_of(2 * apart, columns))
    share, wrong, count = -(-columns // (16 * pieces)) * 16, 0, 2 * tokens if paired else tokens
    for number in range(-(-count // FEW)):
        code = arriving(tokens, room, share, 32, paired, True, gap_of(room), number)
        for thread in range(32 * pieces):
            address, piece, lane = carried_out(code, {"%tid.x": thread})["$0"], thread // 32, thread % 32
            n = FEW * number + lane // 4 % FEW
            row = min(n // 2, tokens - 1) + n % 2 * apart if paired else min(n, tokens - 1)
            for begin in range(0, share, 32):
                held = carried_out(reading_few(), {"$4": address + 2 * begin}, shared=shared)
                first = piece * share + begin + lane % 4 * 8
                for word, name in ((lane // 16, "$0"), (lane // 16 + 2, "$1")):
                    inside = first + 2 * word < columns
                    wrong += held[name] != ((row * columns + first) // 2 + word + 1 if inside else 0)
    return wrong


@pytest.mark.parametrize(("columns", "pieces"), [(2048, 8), (1600, 4), (1600, 16), (576, 4), (1152, 8), (96, 2)])
@pytest.mark.parametrize("tokens", [1, 3, 4])
def test_rows_that_are_held_meet_the_columns_of_their_tokens(tokens: int, columns: int, pieces: int) -> None:
    assert wrong_held(tokens, columns, pieces) == 0
    assert wrong_held(tokens, columns, pieces, paired=True) == 0


@pytest.mark.parametrize(("right", "other"), [
    ("bfe.u32 a, t, 2, 1;", "bfe.u32 a, t, 3, 1;"),  # the branch's tokens in the wrong lanes
    ("bfe.u32 a, t, 3, 1;", "bfe.u32 a, t, 2, 1;"),
    ("bfe.u32 a, t, 4, 1;", "bfe.u32 a, t, 3, 1;"),  # the second words in the wrong half of the lanes
    ("add.u32 a, a, 2;", "add.u32 a, a, 0;"),  # the second tile is the first again
])  # fmt: skip
def test_a_fault_in_where_a_branch_is_read_is_found(right: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = arriving

    def faulty(*given: Any) -> str:
        return made(*given).replace(right, other)

    assert any(right in made(3, 96, 48, 32, True, True, 64, tile) for tile in range(2))
    monkeypatch.setitem(globals(), "arriving", faulty)
    assert wrong_held(3, 96, 2, paired=True) > 0


def test_tokens_behind_rows_that_are_held_are_staged_where_there_is_room() -> None:
    """Of half precision, at most what a tensor core's tile has."""
    held, streamed = Tile(16, 0, 8, 8, 1, 256, 0), Tile(16, 128, 4, 4, 4, 128, 128)

    def some(tokens: int, columns: int, tile: Tile = held, dtype: torch.dtype = torch.bfloat16, apart: int = 0) -> bool:
        ask, room = staged_tokens(torch.empty(16, columns, dtype=dtype), tokens, apart, tile, 1)
        assert (ask != "") == (room >= columns)
        return ask != ""

    assert [tokens for tokens in range(1, 12) if some(tokens, 2048)] == list(range(1, 9))
    assert [tokens for tokens in range(1, 12) if some(tokens, 2048, apart=8)] == list(range(1, 5))
    assert [tokens for tokens in range(1, 12) if some(tokens, 8192)] == [1, 2]
    assert not some(1, 2048, streamed) and not some(1, 2048, dtype=torch.float32) and not some(1, 2044)
    assert some(1, 1600)


@pytest.mark.parametrize(("warps", "count"), [(4, 4), (8, 8), (16, 4), (2, 16)])
def test_warps_get_what_they_make_together_in_the_order_of_triton(warps: int, count: int) -> None:
    """Of each lane the sums of the warps, those half of them apart first; all in single precision."""
    own = torch.randn(32 * warps, count, generator=torch.Generator().manual_seed(3))
    shared: Memory = {}
    before, after = joining(warps, count).split("bar.sync 0;")
    for thread in range(32 * warps):
        inputs = {f"${count + n}": bits_of(float(own[thread, n])) for n in range(count)}
        carried_out(before, {"%tid.x": thread} | inputs, shared=shared)
    expected = own.view(warps, 32, count)
    while len(expected) > 1:
        half = len(expected) // 2
        expected = expected[:half] + expected[half:]
    for thread in (0, 5, 32 * warps - 1):
        held = carried_out(after, {"%laneid": thread % 32, "a": BASE}, shared=shared)
        found = torch.tensor([number_of(held[f"${n}"]) for n in range(count)])
        assert torch.equal(found, expected[0, thread % 32])


def test_more_sums_than_gain_by_it_are_not_joined_so() -> None:
    assert joins(4, 4) and joins(16, 4) and joins(8, 8) and not joins(16, 8) and not joins(4, 2)


class Driver:
    """Of a card whose programs have 227 KB, and a kernel that declares some of that."""

    def __init__(self, declared: int) -> None:
        self.declared, self.allowed = declared, dict[int | None, int]()

    def cuFuncGetAttribute(self, value: Any, attribute: int, kernel: Any) -> None:
        value._obj.value = {1: self.declared}[attribute]

    def cuCtxGetDevice(self, device: Any) -> None:
        device._obj.value = 3

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> None:
        value._obj.value = {(97, 3): 232448}[attribute, device.value]

    def cuFuncSetAttribute(self, kernel: Any, attribute: int, value: int) -> None:
        assert attribute == 8
        self.allowed[kernel.value] = value


def test_a_kernel_has_what_it_declares_beside_what_triton_takes() -> None:
    driver, plain = Driver(4096), Driver(0)
    allow_both(driver, 1, 77, "a kernel", {}, "")
    allow_both(plain, 1, 77, "a kernel", {}, "")
    assert driver.allowed == {77: 232448 - 4096} and plain.allowed == {}
