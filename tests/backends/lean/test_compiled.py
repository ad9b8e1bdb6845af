"""Compiled code on disk: nothing that happens to it may keep a model from loading."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

from specdec_tui.backends.lean.compiled import keep_compiled


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
