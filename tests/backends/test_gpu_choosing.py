"""The code by which a warp finds a token's experts, played on the CPU: no interpreter of Triton's runs it."""

from __future__ import annotations

import random
import re
import struct

import pytest

pytest.importorskip("triton")

from specdec_tui.backends.gpu.choosing import finding, operands, results

LANES = range(32)
HIGHEST = 0xFFFFFFFF


def signed(number: int) -> int:
    number &= HIGHEST
    return number - (1 << 32) if number >> 31 else number


def bits_of(score: float) -> int:
    return int(struct.unpack("<i", struct.pack("<f", score))[0])


def score_of(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<i", bits))[0])


class Warp:
    """Registers of 32 lanes, and the scores in memory."""

    def __init__(self, scores: list[float], slots: int) -> None:
        self.lanes: list[dict[str, int]] = [{f"${2 * slots}": 0} for _ in LANES]
        self.memory, self.asked = [bits_of(score) for score in scores], 0

    def value(self, lane: int, name: str) -> int:
        if name == "%laneid":
            return lane
        return int(name, 0) if re.fullmatch(r"-?(0x)?[0-9a-f]+", name) else self.lanes[lane][name]

    def run(self, line: str) -> None:
        condition, line = line.split(" ", 1) if line.startswith("@") else ("", line)
        name, _, rest = line.rstrip(";").partition(" ")
        into, *names = [each.strip() for each in rest.split(",")]
        there = [lane for lane in LANES if not condition or self.lanes[lane][condition[1:]]]
        if name.startswith("redux.sync"):
            assert len(there) == len(LANES), "all lanes must be there"
            assert self.value(0, names[1]) == HIGHEST
            choose = {"max": max, "min": min}[name.split(".")[2]]
            most = choose(signed(self.value(lane, names[0])) for lane in LANES)
            found = dict.fromkeys(there, most)
        elif name.startswith("ld.global"):
            place = re.fullmatch(r"\[(\w+)\+(\d+)\]", names[0])
            assert place
            self.asked += 1
            found = {lane: self.memory[(self.lanes[lane][place[1]] + int(place[2])) // 4] for lane in there}
        else:
            found = {lane: self.result(name, [self.value(lane, each) for each in names]) for lane in there}
        for lane, number in found.items():
            self.lanes[lane][into] = number

    @staticmethod
    def result(name: str, given: list[int]) -> int:
        a, b = (*map(signed, given), 0)[:2]
        kinds = {
            "mov": a, "mul": a * b, "add": a + b, "shr": a >> b if 0 <= b < 32 else 0, "and": a & b, "xor": a ^ b,
            "max": max(a, b), "min": min(a, b), "setp.lt": a < b, "setp.eq": a == b,
        }  # fmt: skip
        return signed(
            kinds[name if name in kinds else name.rpartition(".")[0] if "setp" in name else name.split(".")[0]]
        )


def chosen(scores: list[float], slots: int, cached: bool = True) -> tuple[list[int], list[float]]:
    warp = Warp(scores, slots)
    for line in finding(len(scores), slots, cached).splitlines():
        if line not in "{}" and not line.startswith(".reg"):
            warp.run(line)
    assert warp.asked == -(-len(scores) // 32), "each score is asked for once"
    outputs = [[lane[f"${number}"] for number in range(2 * slots)] for lane in warp.lanes]
    assert all(each == outputs[0] for each in outputs), "all lanes find the same"
    return outputs[0][:slots], [score_of(bits) for bits in outputs[0][slots:]]


@pytest.mark.parametrize(("count", "slots"), [(8, 2), (32, 4), (60, 4), (64, 8), (128, 8), (100, 6), (5, 5)])
def test_experts_are_those_of_a_stable_sort(count: int, slots: int) -> None:
    source = random.Random(count)
    for turn in range(20):
        few = turn % 2  # many of them equal
        scores = [
            score_of(bits_of(float(source.randint(-2, 2)) if few else source.gauss(0.0, 1.0))) for _ in range(count)
        ]
        order = sorted(range(count), key=lambda expert: (-scores[expert], expert))[:slots]
        assert chosen(scores, slots) == (order, [scores[expert] for expert in order])


def test_experts_that_nothing_scores_are_chosen_where_all_are_like_that() -> None:
    assert chosen([-float("inf")] * 40, 3, cached=False) == ([0, 1, 2], [-float("inf")] * 3)


@pytest.mark.parametrize("fault", [0x7FC00000, 0xFFC00000, 0xFFFFFFFF])
def test_what_is_no_number_chooses_experts_that_exist(fault: int) -> None:
    scores = [score_of(signed(fault))] * 36
    experts, _ = chosen(scores, 4)
    assert len(experts) == 4 and all(0 <= expert < 36 for expert in experts)


def test_there_is_an_operand_for_each_output_and_the_place() -> None:
    assert operands(2) == "=r,=r,=f,=f,l"
    assert len(results(2)) == 4
