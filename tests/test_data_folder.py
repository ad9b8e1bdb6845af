from __future__ import annotations

from pathlib import Path

import platformdirs
import pytest

from specdec_tui.data_folder import data_folder


def test_the_users_data_folder_is_the_platforms_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECDEC_TUI_DATA_DIR", raising=False)
    assert data_folder() == platformdirs.user_data_path("specdec-tui")


def test_a_variable_names_another_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECDEC_TUI_DATA_DIR", str(tmp_path))
    assert data_folder() == tmp_path
