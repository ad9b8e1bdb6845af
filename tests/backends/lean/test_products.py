"""Products over packed weights are those over expanded ones bit for bit, and their order is the one that is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import product_proofs as proofs
import pytest
from llvmlite import binding
from product_proofs import FORMATS, HARD, NAMES, USUAL, as_floats, inputs, laid_out, meant, product, random_rows

from specdec_tui.backends.lean.blocks import order_of
from specdec_tui.backends.lean.vectors import LANES
from specdec_tui.backends.lean.weights import Matrix

each_format = pytest.mark.parametrize("kind", FORMATS, ids=NAMES)
PACKED = pytest.mark.parametrize("kind", list(proofs.SCALES), ids=[proofs.KINDS[kind].name for kind in proofs.SCALES])
OTHER_MACHINES = {
    "no AVX": ("generic", ""),
    "AVX without FMA": ("sandybridge", "+avx"),
    "AVX2": ("haswell", "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt"),
    "AVX-512": ("skylake-avx512", "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+avx512f,+avx512bw,+avx512vl,+avx512dq"),
}


@pytest.mark.parametrize("scales", [USUAL, HARD])
@each_format
def test_expanded_rows_are_those_of_the_formats_own_library(kind: int, scales: str) -> None:
    proofs.prove_expansion(kind, scales)


@pytest.mark.parametrize("scales", [USUAL, HARD])
@each_format
def test_products_over_packed_rows_are_those_over_expanded_ones(kind: int, scales: str) -> None:
    proofs.prove_products(kind, scales)


@pytest.mark.parametrize("scales", [USUAL, HARD])
@each_format
def test_products_with_many_tokens_are_those_with_each(kind: int, scales: str) -> None:
    proofs.prove_many(kind, scales)


@each_format
def test_sums_are_made_in_the_order_that_is_told(kind: int) -> None:
    proofs.prove_order(kind)


def test_the_sum_that_is_rounded_once_is_that_of_exact_numbers() -> None:
    above, below = np.float32(1 + 2.0**-23), np.float32((1 - 2.0**-23) * 2.0**-24)
    # 1 + 2⁻²³ + 2⁻²⁴ − 2⁻⁷⁰ is just under the middle between two numbers, and in float64 it is the middle.
    assert proofs.fused(above, below, above) == above
    assert np.float32(np.float64(above) * below + above) != above, "nothing would be seen"


@PACKED
def test_a_scale_that_is_off_by_one_bit_is_found(kind: int) -> None:
    dice = np.random.default_rng(5)
    matrix = random_rows(kind, 4, proofs.columns_of(kind)[0], USUAL, dice)
    data = matrix.data.copy()
    data[2, proofs.SCALES[kind][0]] ^= 1
    off = Matrix(kind, kind, matrix.columns, data)
    wrong = np.flatnonzero((off.natural().numpy() != meant(matrix)).any(1))
    assert wrong.tolist() == [2]
    x = laid_out(inputs(2, matrix.columns, USUAL, dice), matrix)
    assert not proofs.same_bits(product(off, x), product(as_floats(matrix), x))
    x = laid_out(inputs(17, matrix.columns, USUAL, dice), matrix)
    assert not proofs.same_bits(proofs.product_of_many(off, x), proofs.product_of_many(as_floats(matrix), x))


@each_format
def test_an_order_with_two_places_swapped_is_found(kind: int) -> None:
    dice = np.random.default_rng(6)
    matrix = random_rows(kind, 8, proofs.columns_of(kind)[0], USUAL, dice)
    x = inputs(2, matrix.columns, USUAL, dice)
    order = order_of(kind, matrix.columns, LANES).copy()
    found = product(matrix, laid_out(x, matrix))
    assert proofs.same_bits(found, proofs.sums_in_order(meant(matrix), x, order))
    order[[1, 10]] = order[[10, 1]]
    assert not proofs.same_bits(found, proofs.sums_in_order(meant(matrix), x, order))


@pytest.mark.large
@pytest.mark.parametrize("machine", OTHER_MACHINES)
def test_other_machines_give_the_same_bits_for_both_forms(machine: str, tmp_path: Path) -> None:
    """Compiled as for them, where this one can run it."""
    name, features = OTHER_MACHINES[machine]
    here = binding.get_host_cpu_features()
    if lacking := [feature for feature in features.split(",") if feature and not here.get(feature[1:])]:
        pytest.skip(f"this processor lacks {', '.join(lacking)}")
    told = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(tmp_path)}
    run = [sys.executable, proofs.__file__]
    done = subprocess.run(run, env=os.environ | told, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-800:]
    assert f"{len(FORMATS)} formats proved" in done.stdout
    assert ("fused True" in done.stdout) == ("+fma" in features)


def test_code_that_was_compiled_for_another_machine_is_not_taken(tmp_path: Path) -> None:
    code = "from specdec_tui.backends.lean.products import kernel_of\nprint(kernel_of(0).cache_hits)\n"

    def hits(**told: str) -> str:
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)} | told
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert [hits(), hits(), hits(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="")] == ["0", "1", "0"]
