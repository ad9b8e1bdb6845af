"""Compiled code on disk: nothing that happens to it may keep a model from loading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numba
import numpy as np
import pytest

from specdec_tui.backends.lean import compiled
from specdec_tui.backends.lean.compiled import F1, FLOAT, INT, apart, keep_compiled, link_apart


def _twice(x: float) -> float:
    return 2 * x


def call() -> float:
    function = numba.njit(_twice)
    keep_compiled(function)
    return float(function(2.5))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # By the environment: numba reads all of it again whenever any of its variables has changed.
    with monkeypatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
        numba.config.reload_config()
        yield tmp_path
    numba.config.reload_config()


@pytest.mark.parametrize("ending", [".nbi", ".nbc"])
@pytest.mark.parametrize("length", [0, 30])
def test_damaged_files_are_compiled_again(folder: Path, ending: str, length: int) -> None:
    assert call() == 5
    (file,) = folder.rglob(f"*{ending}")
    whole = file.stat().st_size
    os.truncate(file, length)
    assert call() == 5
    (file,) = folder.rglob(f"*{ending}")
    assert file.stat().st_size == whole, "it was not written again"
    assert call() == 5


def test_a_full_disk_costs_only_the_next_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", full)
    assert call() == 5
    assert not list(folder.rglob("*.nb?"))


def times(factor: float) -> float:
    """Functions of one name and place, as the products of several formats are."""

    def run(x: float) -> float:
        return factor * x

    function = numba.njit(run)
    keep_compiled(function)
    return float(function(2.5))


def test_code_of_another_function_under_its_name_is_compiled_again(folder: Path) -> None:
    """As two processes leave it whose writing crosses."""
    assert (times(2), times(3)) == (5, 7.5)
    one, other = sorted(folder.rglob("*.nbc"))
    kept = other.read_bytes()
    os.replace(one, other)
    assert times(3) == 7.5
    one.write_bytes(kept)
    assert (times(2), times(3)) == (5, 7.5)


@pytest.mark.parametrize("ends", ["full", "killed"])
def test_code_of_older_sources_is_compiled_again(folder: Path, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """An index has been written and what it leads to has not: a file of an older index may go by that name."""

    def end(*arguments: object) -> None:
        raise OSError(28, "No space left on device") if ends == "full" else KeyboardInterrupt

    assert times(2) == 5
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "_stamp_of", lambda function: "of newer sources")
        with patch.context() as fails, suppress(KeyboardInterrupt):
            fails.setattr(compiled._Files, "_save_data", end)
            assert times(3) == 7.5
        assert (times(3), times(2), times(3)) == (7.5, 5, 7.5)


@apart(F1, FLOAT)
def _scale(x, factor):  # type: ignore[no-untyped-def]
    for i in range(len(x)):
        x[i] *= factor


@apart(F1, INT)
def _scale_and_divide(x, by):  # type: ignore[no-untyped-def]
    _scale(x, 8 // by)


def test_what_is_compiled_apart_is_called_and_not_copied_and_its_errors_arrive() -> None:
    @numba.njit
    def scaled(x, by):  # type: ignore[no-untyped-def]
        _scale_and_divide(x[1:], by)
        return x

    link_apart()
    assert scaled(np.array([1, 2, 3], np.float32), 2).tolist() == [1, 8, 12]
    assert "_scale_and_divide" in (code := "".join(scaled.inspect_llvm().values()))
    assert "fmul" not in code and "sdiv" not in code
    with pytest.raises(ZeroDivisionError):
        scaled(np.array([1, 2, 3], np.float32), 0)
