"""The line above the panes."""

from __future__ import annotations

from scripted_engine import ScriptedEngine

from specdec_tui.settings import Settings
from specdec_tui.tui.app.race import Race
from specdec_tui.tui.app.run_line import run_line


def test_the_line_tells_of_the_prompt_that_runs_or_waits_and_of_the_open_trace() -> None:
    assert str(run_line("why [b]blue\x1b", "", "", None)) == "› why [b]blue␛"
    assert str(run_line("why", "next\none", "", None)) == "waiting  next one"
    assert str(run_line("why", "", "trace · 17:31", None)) == "trace · 17:31 › why"


def test_a_race_shows_its_clock() -> None:
    race = Race(ScriptedEngine().run("why", Settings(max_new_tokens=12), lambda: False), 0.5)
    race.advance(1)
    assert str(run_line("why", "", "", race)).startswith("race 0.5×  0.5 of ")
