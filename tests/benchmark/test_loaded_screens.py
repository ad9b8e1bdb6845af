"""What the watcher of screens calls a fault."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from loaded_screens import look

from specdec_tui.decoding.figures import RunFigures

sys.path.append(str(Path(__file__).parents[1] / "tui"))
from shell import ask, make_app, ready, until


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_a_speedup_painted_green_above_the_tokens_of_a_call_is_a_fault(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("SPECDEC_TUI_DATA_DIR", str(tmp_path))
    app = make_app(max_new_tokens=64)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await ask(pilot, "why?")
        await until(pilot, lambda: app.runs.turns == 1 and not app.runs.running)
        counts: Counter[str] = Counter()
        faults: list[str] = []
        look(app, {}, counts, faults)
        assert counts["praised"] and faults == []
        monkeypatch.setattr(RunFigures, "tokens_per_target_call", 1.01)
        look(app, {}, counts, faults)
        assert faults and all("painted as good at 1.01 tokens per target call" in fault for fault in faults)
