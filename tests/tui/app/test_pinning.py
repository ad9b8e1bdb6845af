"""`p` pins what the panes show, and later runs say how they differ."""

from __future__ import annotations

import pytest
from scripted_engine import PATTERNS, ScriptedEngine
from shell import ask, make_app, ready, toasts, until
from textual.pilot import Pilot
from widget_data import painted

from specdec_tui.tui.figures.pinned import Changes


async def ended(pilot: Pilot[int], runs: int) -> None:
    app = pilot.app
    engine: ScriptedEngine = app.runs.engine._engine
    await until(pilot, lambda: len(engine.runs) == runs and not app.runs.running and app.recordings.trace is not None)


def change(app: object, name: str = "speculative") -> Changes | None:
    return app.grid.panes[name]._changes  # type: ignore[attr-defined, no-any-return]


async def test_a_pin_holds_over_runs_models_and_traces_until_it_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(ScriptedEngine(), max_new_tokens=48)
    async with app.run_test(size=(120, 50)) as pilot:
        await ready(pilot)
        await pilot.press("escape", "p")
        assert any("Nothing to pin yet" in told for told in toasts(app))
        await pilot.press("P")
        assert any("Nothing is pinned" in told for told in toasts(app))
        await ask(pilot, "why?")
        await ended(pilot, 1)
        await pilot.press("escape", "p")
        assert any(told.startswith("Pinned A: γ 4 · greedy · 48 tokens") for told in toasts(app))
        await pilot.pause()
        assert "pinned A:" in " ".join(painted(app.table)) and change(app) is None

        # Another run of the same prompt, with other drafts accepted.
        monkeypatch.setitem(PATTERNS, "speculative", (4, 4, 4, 3))
        await pilot.press("plus", "r")
        await until(pilot, lambda: (change(app) is None and app.runs.running) or len(app.runs.engine._engine.runs) == 2)
        await ended(pilot, 2)
        await until(pilot, lambda: change(app) is not None)
        found = change(app)
        assert found is not None and not found.why and found.figures["α"].change > 0
        figures = str(app.grid.panes["speculative"]._figure_line.render())
        assert "vs. A " in figures and "tok/s" in figures
        shown = " ".join(painted(app.table))
        assert "Δ tok/s" in shown and "Δ vs. pinned A: γ 4 · greedy · 48 tokens" in shown

        # Another prompt is no A/B; a trace that is opened is compared like a run.
        trace = app.recordings.trace
        await ask(pilot, "another question")
        await ended(pilot, 3)
        await until(pilot, lambda: change(app) is not None)
        assert change(app).why == "another prompt"  # type: ignore[union-attr]
        await pilot.press("escape")
        app.recordings.show(trace)
        await until(pilot, lambda: change(app) is not None and not change(app).why)  # type: ignore[union-attr]
        assert change(app).figures == found.figures  # type: ignore[union-attr]

        # In a race nothing is compared, nor pinned.
        app.action_race("0.05")
        await until(pilot, lambda: app.racing.race is not None)
        await pilot.press("p")
        assert change(app) is None and any("The race is on" in told for told in toasts(app))
        await pilot.press("R")
        await until(pilot, lambda: change(app) is not None)

        # `p` again replaces it, `P` takes it back.
        await pilot.press("p")
        await pilot.pause()
        assert any(told.startswith("Pinned B: γ 5") for told in toasts(app)) and change(app) is None
        await pilot.press("P")
        await pilot.pause()
        assert any(told.startswith("Unpinned B") for told in toasts(app))
        assert "pinned" not in " ".join(painted(app.table)) and app.stage.since_pin.pinned is None


async def test_a_run_at_work_is_neither_pinned_nor_compared_before_its_end() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await ask(pilot, "why?")
        await ended(pilot, 1)
        await pilot.press("escape", "p")
        engine.gated = True
        await pilot.press("r")
        await until(pilot, lambda: app.runs.running)
        await pilot.press("p")
        assert any("pin it when it has ended" in told for told in toasts(app))
        engine.step(8)
        await until(pilot, lambda: app.grid.panes["target"].figures.rounds)
        assert change(app) is None
        engine.gated = False
        engine.step(1000)
        await ended(pilot, 2)
        # The same times to the last digit: this is taken for the pinned run itself.
        assert change(app) is None and app.stage.since_pin.pinned is not None
