"""The benchmark under a changing load: what it calls a fault, from runs made by hand, and its load itself."""

from __future__ import annotations

import time

import pytest
from changing_load import Load, Run, rows_of


def runs(
    loaded: list[tuple[float, str]],
    *,
    quiet: float = 2.0,
    schedule: str = "interleaved",
    most: float = 3.0,
    low: float = 1.0,
) -> list[Run]:
    kinds = [(quiet, "steady", False)] * len(loaded) + [(speedup, word, True) for speedup, word in loaded]
    return [
        Run("lookup", schedule, under_load, speedup, most, word, low=low, high=3.0)
        for speedup, word, under_load in kinds
    ]


def faults(found: list[Run]) -> list[str]:
    return [fault for row in rows_of(found) for fault in row.faults()]


def test_ratios_that_hold_are_no_fault() -> None:
    (row,) = rows_of(runs([(1.9, "steady"), (2.1, "steady"), (2.6, "disturbed")]))
    assert (row.quiet, row.loaded, row.loaded_steady, row.loaded_disturbed, row.runs) == (2.0, 2.1, 2.0, 1, 3)
    assert row.faults() == []


def test_a_steady_run_above_its_tokens_per_round_is_a_fault_and_a_disturbed_one_is_not() -> None:
    assert faults(runs([(2.0, "steady"), (3.4, "steady"), (2.0, "steady")])) == [
        "interleaved lookup: 1 steady runs with a speedup above what their tokens per round allow"
    ]
    assert faults(runs([(2.0, "steady"), (3.4, "disturbed"), (2.0, "steady")])) == []
    assert faults(runs([(2.0, "steady"), (3.2, "steady"), (2.0, "steady")])) == [], "within a tenth"


def test_steady_runs_that_flatter_are_a_fault_under_both_schedules() -> None:
    flattered = [(2.5, "steady"), (2.5, "steady"), (2.6, "steady")]
    assert faults(runs(flattered, schedule="sequential")) == [
        "sequential lookup: steady runs under load are +25% off the quiet ones"
    ]
    assert len(faults(runs(flattered))) == 2


def test_runs_whose_clock_nobody_could_check_count_as_neither_steady_nor_disturbed() -> None:
    (row,) = rows_of(runs([(0.8, "unchecked")] * 3 + [(2.0, "steady")], schedule="sequential"))
    assert (row.steady, row.loaded_steady, row.loaded_disturbed) == (1, 2.0, 0)
    assert row.faults() == []


def test_disturbed_runs_are_a_fault_only_where_the_schedule_promises_more() -> None:
    disturbed = [(2.5, "disturbed")] * 4
    assert faults(runs(disturbed, schedule="sequential")) == []
    assert faults(runs(disturbed)) == ["interleaved lookup: runs under load are +25% off the quiet ones"]


def test_intervals_that_mostly_miss_the_quiet_figure_are_a_fault() -> None:
    missed = runs([(2.5, "disturbed")] * 4, schedule="sequential", low=2.3)
    assert faults(missed) == ["sequential lookup: 0 of 4 intervals have the quiet median in them"]
    assert faults(runs([(2.5, "disturbed")] * 4, schedule="sequential", low=2.1)) == [], "within a tenth"


def test_the_load_stands_still_until_it_is_told_to_go_and_again_when_it_pauses() -> None:
    load = Load(1, 0.2, 0.0, "cpu")
    try:
        (spinner,) = load._spinners
        still = seconds_of(spinner.pid)
        time.sleep(0.2)
        assert seconds_of(spinner.pid) == still
        load.go()
        deadline = time.monotonic() + 60
        while seconds_of(spinner.pid) < still + 0.05:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        load.pause()
        while seconds_of(spinner.pid) != still:  # what it began it ends
            assert time.monotonic() < deadline
            still = seconds_of(spinner.pid)
            time.sleep(0.2)
    finally:
        load.end()
    assert spinner.returncode is not None


def seconds_of(pid: int) -> float:
    """Processor seconds a process has had."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
    except FileNotFoundError:
        pytest.skip("needs /proc")
    return (int(fields[11]) + int(fields[12])) / 100
