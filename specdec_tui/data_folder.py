"""Where the app keeps what a user makes with it: recorded runs, earlier prompts."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

VARIABLE = "SPECDEC_TUI_DATA_DIR"


def data_folder() -> Path:
    """The user's data folder; `SPECDEC_TUI_DATA_DIR` names another. It need not exist yet."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else platformdirs.user_data_path("specdec-tui")
