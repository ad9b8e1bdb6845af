"""What the views of the panes show together, and what is said of it."""

from __future__ import annotations

from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from textual.pilot import Pilot
from widget_data import painted

SIZE = (120, 40)


async def finished(pilot: Pilot[int], runs: int = 1) -> None:
    engine: ScriptedEngine = pilot.app.runs.engine._engine
    await until(pilot, lambda: len(engine.runs) == runs and not pilot.app.runs.running, "run finished")


async def test_the_legend_names_the_fates_that_can_stand_in_the_views_shown() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        emitted = "✓ accepted  ↻ resampled  + bonus  › sampled"
        assert painted(app.legend)[0].strip() == emitted
        await ask(pilot, "go")
        await until(pilot, lambda: app.runs.running)
        engine.step(28)
        await until(pilot, lambda: "? pending" in painted(app.legend)[0], "drafts wait for the target")
        engine.gated = False
        engine.step(1000)
        await finished(pilot)
        await pilot.press("escape")
        assert painted(app.legend)[0].strip() == emitted
        for _ in ("rounds", "tree"):
            await pilot.press("v")
            await pilot.pause()
            assert painted(app.legend)[0].split()[::2] == ["✓", "✗", "○", "↻", "+", "›"]
        await pilot.press("v")
        assert not app.legend.display
        await pilot.press("v")
        assert painted(app.legend)[0].strip() == emitted
