"""What the machine can do: that the loops do what is counted of them, and how a rate is made of their times."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from specdec_tui.backends import machine as measuring
from specdec_tui.backends import machine_kernels as kernels
from specdec_tui.backends.lean import int8_adding
from specdec_tui.backends.lean.int8_blocks import PATHS
from specdec_tui.backends.machine import PIECES, READ_BYTES, Machine, integer_adds_per_second, machine


@pytest.fixture(autouse=True)
def anew() -> None:
    machine.cache_clear()
    integer_adds_per_second.cache_clear()


def test_reading_adds_up_each_word_of_its_part_once() -> None:
    words = np.arange(64, dtype=np.int64)
    assert kernels.read(words, 8, 24) == sum(range(8, 24))
    assert kernels.read(words, 0, 32) + kernels.read(words, 32, 64) == words.sum()


@pytest.mark.parametrize("lanes", kernels.ADDING)
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_each_step_is_a_multiply_add_on_every_lane_of_every_sum(lanes: int, steps: int) -> None:
    sums = [float(number + 1) for number in range(kernels.SUMS)]
    for _ in range(steps):
        sums = [0.5 * one + 0.5 for one in sums]
    assert kernels.ADDING[lanes](steps) == pytest.approx(lanes * sum(sums))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_each_step_adds_to_every_integer_sum_the_products_of_its_bytes(path: int, steps: int) -> None:
    total = 0
    for number in range(int8_adding.SUMS):
        value = np.full(8, number + 1, np.int32)
        for _ in range(steps):
            products = int8_adding.WEIGHT * value.view(np.int8).astype(np.int32)
            assert len(products) == int8_adding.COLUMNS
            value = value + products.reshape(8, 4).sum(1, dtype=np.int32)
        total += int(value.sum())
    assert int8_adding.ADDING[path](steps) == total


def test_the_rate_of_integers_is_of_the_best_try_of_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_ADDS", 1000)
    steps: list[int] = []
    monkeypatch.setitem(int8_adding.ADDING, PATHS[0], steps.append)
    seconds = iter([1.0, 0.5, 2.0, *[1.0] * 9])

    def timed(work: Callable[[int], None], threads: int) -> float:
        for part in range(threads):
            work(part)
        return next(seconds)

    monkeypatch.setattr(measuring, "_together", timed)
    assert integer_adds_per_second(2) == 2 * 1000 * int8_adding.SUMS * int8_adding.COLUMNS / 0.5
    assert set(steps[1:]) == {1000} and len(steps[1:]) % 2 == 0
    monkeypatch.undo()
    rate = integer_adds_per_second(2)
    assert rate == 2 * 1000 * int8_adding.SUMS * int8_adding.COLUMNS / 0.5, "measured once in a process"


def test_rates_are_of_the_best_try_of_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "READ_BYTES", PIECES * 640)
    monkeypatch.setattr(measuring, "_ADDS", 1000)
    read_parts: list[tuple[int, int]] = []
    monkeypatch.setattr(kernels, "read", lambda array, begin, end: read_parts.append((begin, end)))
    added: list[int] = []
    adding = {lanes: (lambda steps, lanes=lanes: added.append(lanes)) for lanes in (16, 8)}
    monkeypatch.setattr(kernels, "ADDING", adding)
    calls: list[int] = []

    def timed(work: Callable[[int], None], threads: int) -> float:
        before = len(read_parts)
        for part in range(threads):
            work(part)
        calls.append(threads)
        if len(read_parts) > before:
            return 0.5 if len(calls) == 2 else 1.0  # one try was faster
        return 2.0 if added[-1] == 16 else 0.5

    monkeypatch.setattr(measuring, "_together", timed)
    found = machine(2)
    assert found == Machine(640 / 0.5, 2 * 1000 * kernels.SUMS * 8 / 0.5, 2)
    assert set(calls) == {2}
    # Every piece is read by both threads, without a gap and without reading anything twice.
    first = sorted(set(read_parts))
    assert [begin for begin, _ in first] == [0, *(end for _, end in first[:-1])]
    assert first[-1][1] == PIECES * 80


def test_a_machine_is_measured_once_and_has_positive_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "READ_BYTES", 8 << 20)
    found = machine(2)
    assert found is not None and found.threads == 2
    assert 1e7 < found.read_bytes_per_second < 1e13
    assert 1e7 < found.multiply_adds_per_second < 1e14
    assert machine(2) is found


def test_without_numba_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "specdec_tui.backends.machine_kernels", None)  # importing it fails
    monkeypatch.delattr("specdec_tui.backends.machine_kernels", raising=False)
    assert machine(2) is None
    monkeypatch.setitem(sys.modules, "specdec_tui.backends.lean.int8_adding", None)
    monkeypatch.delattr("specdec_tui.backends.lean.int8_adding", raising=False)
    assert integer_adds_per_second(2) is None


def test_what_is_read_is_far_more_than_a_cache_holds() -> None:
    assert READ_BYTES == 256 * 2**20
