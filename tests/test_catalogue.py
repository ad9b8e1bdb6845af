"""The `models` command: every preset with what it needs, also before anything was fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from specdec_tui.catalogue import show_models
from specdec_tui.settings import PRESET_NAMES, ModelChoice


@pytest.fixture(autouse=True)
def _empty_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECDEC_TUI_CACHE_DIR", str(tmp_path / "demo"))
    monkeypatch.setattr("specdec_tui.backends.hub_cache.scan_cache", list)


def test_presets_that_are_not_cached_are_estimated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec_tui.backends.memory.available_bytes", lambda device: 10e9)
    assert show_models(ModelChoice(device="cpu")) == 0
    shown = capsys.readouterr().out
    assert "The local hub cache holds no language model" in shown
    rows = {line.split()[1]: line for line in shown.splitlines() if line.startswith("│")}
    assert set(PRESET_NAMES) <= set(rows)
    assert "about 4.9 GB (int8)" in rows["llama3.2"] and "probably" in rows["llama3.2"]
    assert "about 35.7 GB" in rows["qwen2.5"] and rows["qwen2.5"].rstrip("│ ").endswith("no")


def test_a_device_that_is_not_there_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_models(ModelChoice(device="cuda:99")) == 2
    assert "cuda:99" in capsys.readouterr().err
