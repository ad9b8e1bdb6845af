from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest
from textual.css.stylesheet import Stylesheet

from specdec_tui.tui.app import first_minute as recording
from specdec_tui.tui.app import front


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


@pytest.fixture(autouse=True)
def no_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a load takes here: what plays meanwhile has tests of its own."""
    monkeypatch.setattr(recording, "WAIT_SECONDS", inf)


@pytest.fixture(autouse=True)
def no_full_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each run one walks all that the apps before left; for the tests Python's own come soon enough."""
    monkeypatch.setattr(front, "collect_everything", lambda: None)


@pytest.fixture(scope="session", autouse=True)
def _sheets_read_once() -> Iterator[None]:
    """Hundreds of apps are started here: what a style sheet says under the same variables is read for the first one."""
    known: dict[object, Any] = {}
    parse_rules = Stylesheet._parse_rules

    def remembered(self: Stylesheet, *words: Any, **named: Any) -> Any:
        asked = (words, *sorted(named.items()), *sorted(self._variables.items()))
        if asked not in known:
            known[asked] = parse_rules(self, *words, **named)
        return known[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "_parse_rules", remembered)
        yield
