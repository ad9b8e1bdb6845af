"""The γ-lab in the app: it reads the run on the screen, and takes a γ for the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from scripted_engine import ScriptedEngine, info
from shell import ask, make_app, ready, toasts, until
from textual.widgets import Static
from widget_data import painted

from specdec_tui.decoding.costs import costs
from specdec_tui.decoding.records import Checked, Event, Finished, Origin, Step
from specdec_tui.traces.files import read_trace
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.lab.screen import LabScreen
from specdec_tui.what_ifs import WhatIf


def said(app: SpecdecApp) -> str:
    return "\n".join(str(part.render()) for part in app.screen.query(Static))


async def test_it_reads_a_finished_run_with_the_figures_of_its_panes_and_takes_the_best_gamma() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("escape", "g")
        assert "Nothing has run yet" in " ".join(toasts(app))
        await ask(pilot, "go [/on]")
        await until(pilot, lambda: app.runs.running)
        await pilot.press("escape", "g")
        assert "this one is still at work" in " ".join(toasts(app))
        engine.gated = False
        engine.step(1000)
        await until(pilot, lambda: app.recordings.trace is not None and app.recordings.trace.header.strategies)
        await pilot.press("alt+3", "g")
        await until(pilot, lambda: isinstance(app.screen, LabScreen))
        await pilot.pause()
        panes = app.grid.panes
        told = costs(panes["speculative"].figures, panes["target"].figures)
        assert f"predicts {told.predicted_speedup:.2f}×" in said(app)
        lab = app.screen
        assert isinstance(lab, LabScreen)
        assert lab.query_one("#lab").border_title.startswith("γ-lab · speculative · γ 4 · greedy")
        trace = app.recordings.trace
        assert trace is not None and lab.reading.here is not None
        kept = trace.header.strategies["speculative"]
        assert (
            lab.reading.here.speedup == kept["predicted_speedup"]
        )  # what bench and every export say, to the last digit
        wanted = lab.reading.wanted
        assert wanted is not None and wanted != app.settings.gamma
        await pilot.press("enter")
        assert app.settings.gamma == wanted
        assert f"γ {wanted} from the next run" in " ".join(toasts(app))
        await pilot.press("5")
        await pilot.pause()
        assert lab.reading.subject.strategy == "lookup"
        await pilot.press("g")
        await until(pilot, lambda: not isinstance(app.screen, LabScreen))


class SideBySide(ScriptedEngine):
    """Plays what-ifs in turn, as the engine does: whichever has the fewest tokens next."""

    def what_ifs(self, requests: Sequence[WhatIf], cancelled: Callable[[], bool]) -> Iterator[Event]:
        streams = [list(ScriptedEngine.what_ifs(self, [one], cancelled))[:-1] for one in requests]
        for index in range(max(map(len, streams))):
            yield from (own[index] for own in streams if index < len(own) and isinstance(own[index], Step))
        yield from (own[-1] for own in streams if isinstance(own[-1], Checked))
        yield Finished(cancelled=cancelled())


async def test_a_sweep_adds_its_points_as_they_come_and_keeps_them_in_the_trace_of_the_run() -> None:
    engine = SideBySide()
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "go")
        await until(pilot, lambda: not app.runs.running and app.recordings.trace is not None)
        await pilot.press("escape", "alt+3", "g")
        await until(pilot, lambda: isinstance(app.screen, LabScreen))
        lab = app.screen
        assert isinstance(lab, LabScreen)
        engine.gated = True
        await pilot.press("s")
        await pilot.pause()
        assert app.laboratory.progress is not None, toasts(app)
        assert "sweep of speculative: 0 of 6 parts" in said(app)
        assert app.header.state == "running"
        engine.gated = False
        engine.step(10_000)
        await until(pilot, lambda: app.laboratory.progress is None, "the sweep ends")
        assert sorted(lab.reading.points) == list(range(1, 9))
        assert {point.runs for point in lab.reading.points.values()} == {3}, "the run itself is none of them"
        assert "in 3 runs; the run itself " in said(app)
        assert "best measured" in said(app)
        asked = engine.asked[:5]
        assert [one.name for one in asked] == ["target~1", *(f"speculative~{n}" for n in range(1, 5))]
        assert asked[1].origin == Origin("speculative", 0, None, (("gamma", "1"), ("insight", "off")), swept=True)
        assert [one.settings.gamma for one in asked] == [4, 1, 3, 5, 7]
        trace = app.recordings.trace
        assert trace is not None
        await pilot.press("escape")
        await until(pilot, lambda: len(app.recordings.store.entries()) == 1)
        path = app.recordings.store.entries()[0].path
        await until(pilot, lambda: len(read_trace(path).events) == len(trace.events), "it is in the file")
        assert list(read_trace(path).header.strategies) == ["target", "speculative", "ngram", "lookup"]
        # The same file, opened: its points are there again, and no strategy is left out of the panes.
        app.recordings.open_file(path)
        await until(pilot, lambda: bool(app.recordings.opened))
        assert not any("left out" in text for text in toasts(app))
        await pilot.press("alt+3", "g")
        await until(pilot, lambda: isinstance(app.screen, LabScreen))
        assert isinstance(app.screen, LabScreen)
        assert app.screen.reading.points == lab.reading.points


async def test_a_sweep_goes_on_when_the_lab_is_left_and_ends_for_a_prompt_or_a_key() -> None:
    engine = SideBySide()
    app = make_app(engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot)
        await ask(pilot, "go")
        await until(pilot, lambda: not app.runs.running and app.recordings.trace is not None)
        await pilot.press("escape", "alt+3", "g")
        await until(pilot, lambda: isinstance(app.screen, LabScreen))
        engine.gated = True
        await pilot.press("s", "g")
        await until(pilot, lambda: not isinstance(app.screen, LabScreen))
        assert app.laboratory.progress is not None
        assert "γ sweep: 0 of 6 parts" in painted(app.run_line)[0]
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.laboratory.progress is None)
        assert any("Sweep stopped: 0 of 6 parts measured" in text for text in toasts(app))
        before = app.recordings.trace
        await pilot.press("g", "s", "escape")
        await until(pilot, lambda: app.laboratory.progress is None)
        assert isinstance(app.screen, LabScreen)
        await pilot.press("s", "g")
        assert app.laboratory.progress is not None
        assert app.recordings.trace is before
        await ask(pilot, "another")
        await until(pilot, lambda: app.runs.running and app.laboratory.progress is None)
        engine.gated = False
        engine.step(10_000)
        await until(pilot, lambda: not app.runs.running)
        assert app.grid.panes["speculative"].figures.end is not None


async def test_why_no_sweep_can_be_made_is_said() -> None:
    app = make_app()
    async with app.run_test(size=(100, 30)) as pilot:
        await ready(pilot)
        await ask(pilot, "go")
        await until(pilot, lambda: not app.runs.running and app.recordings.trace is not None)
        await pilot.press("escape", "g")
        await until(pilot, lambda: isinstance(app.screen, LabScreen))
        await pilot.press("1", "s")
        assert any("No sweep: target has no drafts" in text for text in toasts(app))
        await pilot.press("3")
        assert "s sweeps γ" in said(app)
        app.runs.pair = info("another")
        await pilot.press("s")
        assert any("No sweep: this run was made by other models" in text for text in toasts(app))
        assert "s sweeps γ" not in said(app) and "(s, about" not in said(app)  # nor is one offered
        assert app.laboratory.progress is None
