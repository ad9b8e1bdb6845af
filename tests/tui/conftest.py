from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's own files, and none depends on the terminal it is started in."""
    path = tmp_path / "config" / "config.toml"
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", str(path))
    monkeypatch.setenv("SPECDEC_TUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    return path
