"""The instructions that turn packed codes into numbers, carried out here one by one: no GPU is needed."""

from __future__ import annotations

import pytest
import torch
from ptx_steps import BASE, Memory, carried_out, number

from specdec_tui.backends.gpu.packed.codes import FORMS, HALVES, STRAIGHT, conversion, filling, shrunk, tables
from specdec_tui.backends.gpu.packed.packing import Codes, pack, packable, plain_weights

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def filled(form: str, half: str, warps: int) -> Memory:
    """Shared memory after all threads of a program have put their part of a table there."""
    shared: Memory = {}
    given = {4096 + 4 * place: word for place, word in enumerate(tables(form, half))}
    for thread in range(32 * warps):
        inputs = {"%tid.x": thread, "%laneid": thread % 32, "$1": 4096}
        assert carried_out(filling(warps), inputs, half, shared, given)["$0"] == 4 * (thread % 32)
    return shared


def converted(form: str, half: str, words: torch.Tensor) -> torch.Tensor:
    """The numbers of words int64 [n]: [planes, n, 4 columns]."""
    outputs = 2 * FORMS[form].planes
    program = conversion(form, half)
    shared = filled(form, half, 4) if FORMS[form].order == STRAIGHT else {}
    found = []
    for place, word in enumerate(words.tolist()):
        inputs = {f"${outputs}": int(word), f"${outputs + 1}": 4 * (place % 32)}
        held = carried_out(program, inputs, half, shared)
        found.append([held[f"${out}"] for out in range(outputs)])
    numbers = [[number(part >> shift & 0xFFFF, half) for part in row for shift in (0, 16)] for row in found]
    found_numbers = torch.tensor(numbers, dtype=torch.float64) / shrunk(form, half)
    return found_numbers.view(len(words), -1, 4).transpose(0, 1)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("form", FORMS)
def test_the_instructions_give_the_number_of_every_code(form: str, half: str) -> None:
    numbers = torch.tensor(FORMS[form].numbers, dtype=torch.float64).to(DTYPES[half]).double()
    generator = torch.Generator().manual_seed(1)
    if FORMS[form].bits == 8:
        codes = torch.arange(256).view(64, 4)
        if form == "fp8":
            codes[codes % 128 == 127] = 0  # no number
        words = sum(codes[:, place] << 8 * place for place in range(4))
        assert torch.equal(converted(form, half, words)[0], numbers[codes])
        return
    codes = torch.stack([torch.randperm(16, generator=generator) for _ in range(8)], 1)  # each code in each place
    words = sum(codes[:, place] << 4 * place for place in range(8))
    straight = FORMS[form].order == STRAIGHT
    order = torch.arange(8) if straight else torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])
    expected = numbers[codes[:, order]].view(16, 2, 4).transpose(0, 1)
    assert torch.equal(converted(form, half, words), expected)


def test_whole_numbers_of_bfloat16_are_shrunk_by_one_power_of_two() -> None:
    """Which a product takes back at its end; they are made by few instructions, as these take a product's time."""
    made = {(form, half): shrunk(form, half) for form in FORMS for half in HALVES}
    assert {kind for kind, by in made.items() if by != 1.0} == {
        (form, "bfloat16") for form in ("int4", "uint4", "int8")
    }
    assert set(made.values()) == {1.0, 2.0**-6}
    for form, count in (("int4", 9), ("uint4", 9), ("int8", 5)):
        for half in HALVES:
            steps = [
                line for line in conversion(form, half).split("\n") if not line.startswith(("{", "}", ".reg", "mov"))
            ]
            assert len(steps) == count


@pytest.mark.parametrize("width", [64, 32, 16])
@pytest.mark.parametrize("form", ["nf4", "mxfp4", "int4", "int8"])
def test_packed_rows_read_by_the_instructions_are_the_rows(form: str, width: int) -> None:
    """Word by word in the order of a warp's lanes: [u, g, t, k, h, m, c]."""
    planes, columns = FORMS[form].planes, 4 * width
    codes = torch.randint(0, len(FORMS[form].numbers), (16, columns), dtype=torch.uint8)
    plain = Codes(form, codes, torch.ones(16, columns // width), torch.empty(0), width, torch.empty(0).int())
    packed = pack(plain, torch.bfloat16)
    words = packed.weight[0].contiguous().view(torch.int32).long() & 0xFFFFFFFF  # [chunks, words]
    numbers = converted(form, "bfloat16", words.flatten()).view(
        planes, len(words), -1, 8, 4, min(2, width // 16), 2, 2, 2
    )
    rows = numbers.permute(6, 3, 1, 0, 4, 2, 7, 5, 8).reshape(16, columns)  # h g, chunk plane t u m k c
    assert torch.equal(rows, plain_weights(plain).bfloat16().double())


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
def test_each_lane_has_its_own_copy_of_a_table(warps: int) -> None:
    shared, words = filled("nf4", "bfloat16", warps), tables("nf4", "bfloat16")
    assert shared == {BASE + 128 * byte + 4 * lane: words[byte] for byte in range(256) for lane in range(32)}


def test_the_check_finds_a_planted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    words = torch.tensor([0x76543210, 0xFEDCBA98])
    right = converted("nf4", "bfloat16", words)
    wrong = conversion("nf4", "bfloat16").replace("$4, 9", "$4, 8")
    monkeypatch.setitem(globals(), "conversion", lambda form, half: wrong)
    assert not torch.equal(converted("nf4", "bfloat16", words), right)
    monkeypatch.undo()
    for form, fault in (("int4", ("00f000f0", "007000f0")), ("int8", ("0x4342", "0x4341"))):
        right, wrong = converted(form, "bfloat16", words), conversion(form, "bfloat16").replace(*fault)
        monkeypatch.setitem(globals(), "conversion", lambda form, half, wrong=wrong: wrong)
        assert not torch.equal(converted(form, "bfloat16", words), right)
        monkeypatch.undo()


def test_numbers_are_those_of_their_sources() -> None:
    from bitsandbytes.functional import get_4bit_type

    for form in ("nf4", "fp4"):
        theirs = get_4bit_type(form, device="cpu")
        ours = torch.tensor(FORMS[form].numbers)
        if form == "fp4":  # theirs in units of the largest, from numbers in twelfths
            ours = ours / ours.abs().max()
        assert torch.allclose(ours, theirs, rtol=1e-6, atol=0), (form, ours - theirs)
    e4m3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    there = ~e4m3.isnan()
    assert torch.equal(torch.tensor(FORMS["fp8"].numbers)[there], e4m3[there])
    assert there.sum() == 254


def test_groups_that_do_not_fill_steps_are_not_packable() -> None:
    empty = torch.empty(0)
    codes = torch.zeros(16, 96, dtype=torch.uint8)
    for group, fine in ((8, False), (48, False), (16, True), (32, True), (64, True), (96, True)):
        plain = Codes("int4", codes, torch.ones(16, -(-96 // group)), empty, group, empty)
        assert packable(plain) == fine
        if not fine:
            with pytest.raises(ValueError, match=f"groups of {group} columns are not packed"):
                pack(plain, torch.float16)
