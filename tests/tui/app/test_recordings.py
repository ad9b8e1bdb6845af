"""Kept runs: written, opened again, raced, exported; nothing of a run is lost."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, toasts, until
from textual.message import Message
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, OptionList

from specdec_tui.backends.pair import LoadError
from specdec_tui.decoding.figures import speedup
from specdec_tui.decoding.records import Finished
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace, new_header
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.program import keep_unfinished, keep_unsent
from specdec_tui.tui.app.recording_messages import BaselineFound, SummedUp, TraceRead
from specdec_tui.tui.app.recordings import Recordings, Replay
from specdec_tui.tui.app.runs import Run
from specdec_tui.tui.panes.pane import StrategyPane
from specdec_tui.tui.screens.compare import CompareScreen
from specdec_tui.tui.screens.export import ExportScreen
from specdec_tui.tui.screens.history import HistoryScreen
from specdec_tui.tui.screens.history_rows import best

SIZE = (120, 40)


@pytest.fixture(autouse=True)
def figures_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last figures of a run are painted after a moment, which need not be a long one here."""
    monkeypatch.setattr("specdec_tui.tui.panes.figured_pane._FIGURES_SECONDS", 0.02)


class Screen:
    """A screen without an app: writes down what it is asked."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.messages: list[Message] = []
        self.shown: list[tuple[Trace, bool]] = []

    def say(self, text: str, severity: str = "information", timeout: float = 5, holds: object = None) -> None:
        self.said.append(text)

    def post_message(self, message: Message) -> bool:
        self.messages.append(message)
        return True

    def ask(self, dialog: object, answered: object) -> None: ...

    def show_trace(self, trace: Trace, race: bool) -> None:
        self.shown.append((trace, race))

    def photograph(self) -> str:
        return "<svg/>"

    def settle(self) -> None: ...


def test_a_run_is_kept_found_again_and_shown_without_an_app() -> None:
    screen = Screen()
    recordings = Recordings(screen, later=lambda work: work())
    settings = Settings(max_new_tokens=12)
    run = Run("why", settings, list(ScriptedEngine().run("why", settings, lambda: False)))
    recordings.begin(run, None)
    recordings.keep(run, None)
    (entry,) = recordings.store.entries()
    (summed,) = screen.messages
    assert isinstance(summed, SummedUp) and summed.trace is recordings.trace and recordings.opened == ""
    assert summed.whole.header.strategies["target"]["rounds"] and entry.header == summed.whole.header
    recordings.begin(run, None)
    recordings.export("", running=False)
    assert "Nothing to export" in screen.said[-1]
    recordings.read(TraceRead(entry.path, read_trace(entry.path), "race"), running=True)
    assert screen.shown == [] and "A run is at work" in screen.said[-1]
    recordings.read(TraceRead(entry.path, read_trace(entry.path), "race"), running=False)
    ((trace, race),) = screen.shown
    assert race and trace.events == tuple(run.events) and recordings.opened.startswith("trace · 20")


def test_a_run_that_did_not_begin_is_not_kept() -> None:
    recordings = Recordings(Screen(), later=lambda work: work())
    recordings.keep(Run("why", Settings(), [Finished(cancelled=True)]), None)
    assert recordings.trace is None and recordings.store.entries() == []


def test_a_run_without_the_target_looks_for_an_earlier_one_even_where_nothing_is_written() -> None:
    screen = Screen()
    recordings = Recordings(screen, later=lambda work: work())
    for strategies in (("target", "lookup"), ("lookup",)):
        settings = Settings(max_new_tokens=24, strategies=strategies, record=False)
        recordings.keep(Run("why", settings, list(ScriptedEngine().run("why", settings, lambda: False))), None)
    _, found = screen.messages
    assert isinstance(found, BaselineFound) and found.trace is recordings.trace
    assert found.baseline is not None and found.baseline.figures.new_tokens == 24


async def one_run(pilot: Pilot[int], prompt: str = "why blue") -> None:
    app = pilot.app
    await ready(pilot)
    before = len(app.runs.engine._engine.runs)
    await ask(pilot, prompt)
    await until(pilot, lambda: len(app.runs.engine._engine.runs) > before and not app.runs.running, "run finished")
    await pilot.press("escape")


async def kept(pilot: Pilot[int], count: int = 1) -> list[Path]:
    store = pilot.app.recordings.store
    await until(pilot, lambda: len(store.entries()) >= count, "kept")
    return [entry.path for entry in store.entries()]


def shown(app: SpecdecApp) -> dict[str, object]:
    """Everything a person can read in the panes."""
    return {
        pane.strategy: (
            pane.plain_text,
            pane.token_view.layout_text.text,
            str(pane._figure_line.render()),
            str(pane._status_line.render()),
            [row.texts for row in pane.rounds_view.rows],
        )
        for pane in app.grid.shown
    }


async def test_every_run_is_kept_and_its_trace_shows_the_same_panes() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        (path,) = await kept(pilot)
        await pilot.pause(0.2)
        live, table = shown(app), [app.table.cells(name) for name in shown(app)]
    replayed = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(read_trace(path)))
    async with replayed.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: replayed.recordings.trace is not None and not replayed.stage.is_filling)
        await until(pilot, lambda: shown(replayed) == live, "the same panes")
        assert [replayed.table.cells(name) for name in shown(replayed)] == table
        assert replayed.header.state == "trace"
        assert "scripted-target" in str(replayed.header.render())
        assert "why blue" in str(replayed.run_line.render()) and "trace" in str(replayed.run_line.render())
        assert replayed.runs.engine._engine.loads == []


async def test_with_recording_off_nothing_is_written_but_the_run_can_be_raced() -> None:
    app = make_app(record=False, max_new_tokens=400)
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        await pilot.pause(0.2)
        assert app.recordings.store.entries() == [] and app.recordings.trace is not None
        await pilot.press("R")
        assert app.racing.race is not None


async def test_a_race_that_is_on_while_the_app_closes_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panes that are closing were taken for switched off, and then there was none to stand in front: an IndexError."""
    app = make_app(max_new_tokens=400)
    closed: list[str] = []

    def still_racing(pane: StrategyPane) -> None:
        closed.append(pane.strategy)
        app.racing.advance()
        app.stage.end(with_table=False)
        assert app.grid.current.strategy in app.settings.strategies

    monkeypatch.setattr(StrategyPane, "on_unmount", still_racing, raising=False)
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        await until(pilot, lambda: app.recordings.trace is not None)
        app.action_race("0.01")
        timer = app.racing._timer
        assert timer is not None
    assert set(closed) >= set(app.settings.strategies)
    assert timer._callback is not None
    timer._callback()  # one more that was on its way


def over(app: SpecdecApp) -> bool:
    """Whether a race stands at its end."""
    return app.racing.race is not None and app.racing.race.over


@pytest.mark.large
async def test_a_race_ends_where_the_run_ended_and_can_be_stopped_and_its_speed_changed() -> None:
    app = make_app(max_new_tokens=400)
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        await pilot.pause(0.2)
        before = shown(app)
        await pilot.press("R")
        assert app.racing.race is not None and app.racing.race.speed == 1
        await until(pilot, lambda: app.grid.panes["target"].figures.rounds > 0)
        assert "race ▶ 1×" in str(app.run_line.render())
        await pilot.press("comma")
        assert app.racing.race.speed == 0.5
        await pilot.press("R")
        assert app.racing.race is None
        await pilot.pause(0.2)
        assert shown(app) == before
        app.action_race("100")
        await until(pilot, lambda: over(app), "the race is over")
        await pilot.press("escape")
        await pilot.pause(0.2)
        assert app.racing.race is None and shown(app) == before
        app.action_race("nonsense")
        await until(pilot, lambda: any("give a speed from 0.01 to 100" in text for text in toasts(app)))


async def test_a_new_prompt_ends_a_race_and_runs() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        app.action_race("0.05")
        await ask(pilot, "next")
        await until(pilot, lambda: len(engine.runs) == 2 and not app.runs.running, "the next run")
        assert (
            app.racing.race is None
            and app.recordings.trace is not None
            and app.recordings.trace.header.prompt == "next"
        )


async def test_before_any_run_race_and_export_say_what_is_missing() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("escape", "R", "e", "comma")
        for words in ("Nothing has run yet", "Nothing to export", "No race is on"):
            await until(pilot, lambda words=words: words in " ".join(toasts(app)), words)
        assert len(app.screen_stack) == 1


async def test_at_80_columns_compared_runs_stand_whole() -> None:
    """The table was one column too wide: a scroll bar lay over its last row."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await one_run(pilot, "first prompt")
        await one_run(pilot, "second prompt")
        await kept(pilot, 2)
        await pilot.press("H")
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count == 2)
        await pilot.press("home", "space", "space", "c")
        await until(pilot, lambda: isinstance(app.screen, CompareScreen))
        table = app.screen.query_one(DataTable)
        await until(pilot, lambda: table.row_count == 8 and table.size.width > 0)
        assert table.max_scroll_x == 0


async def test_the_history_lists_opens_compares_and_deletes() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot, "first prompt")
        app.preferences.change({"gamma": 2})
        await one_run(pilot, "second prompt")
        await kept(pilot, 2)
        await pilot.press("H")
        assert isinstance(app.screen, HistoryScreen)
        options = app.screen.query_one(OptionList)
        await until(pilot, lambda: options.option_count == 2)
        assert "second prompt" in str(options.get_option_at_index(0).prompt)
        await pilot.press("c")
        assert "Mark two or more" in str(app.screen.query_one("#history-note").render())
        await pilot.press("home", "space", "space", "c")
        assert isinstance(app.screen, CompareScreen)
        table = app.screen.query_one(DataTable)
        assert table.row_count == 8
        assert "γ 2" in str(app.screen.query_one("#compare-runs").render())
        await pilot.press("escape")
        await pilot.press("home", "space", "space")  # unmark both
        await pilot.press("end", "enter")
        await until(
            pilot, lambda: app.recordings.trace is not None and app.recordings.trace.header.prompt == "first prompt"
        )
        assert "first prompt" in str(app.run_line.render())
        await pilot.press("H")
        await until(pilot, lambda: app.screen.query_one(OptionList).option_count == 2)
        await pilot.press("home", "d")
        assert len(app.recordings.store.entries()) == 2
        await pilot.press("d")
        assert [entry.header.prompt for entry in app.recordings.store.entries() if entry.header] == ["first prompt"]
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


async def test_a_damaged_trace_is_listed_with_its_fault_and_never_opened() -> None:
    app = make_app()
    app.recordings.store.folder.mkdir(parents=True)
    (app.recordings.store.folder / "2026-01-01T00-00-00-broken.jsonl").write_text('{"specdec_tui_trace": 99}\n')
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("escape", "H")
        options = app.screen.query_one(OptionList)
        await until(pilot, lambda: options.option_count == 1)
        assert "newer" in str(options.get_option_at_index(0).prompt)
        await pilot.press("enter")
        assert isinstance(app.screen, HistoryScreen)
        await pilot.press("escape")
        app.action_open_trace("/nowhere/x.jsonl")
        await until(pilot, lambda: any("/nowhere/x.jsonl" in text for text in toasts(app)))


async def test_exports_are_written_where_they_are_wanted_and_never_over_a_file_unasked(tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        for kind, begins in (
            ("json", "{"),
            ("csv", "strategy"),
            ("svg", "<svg"),
            ("html", "<!doctype html"),
            ("picture", "<svg"),
        ):
            file = tmp_path / f"out.{kind}"
            app.action_export(f"{kind} {file}")
            await until(pilot, lambda file=file: any(file.name in text for text in toasts(app)), kind)
            assert file.read_text(encoding="utf-8").lower().startswith(begins)
        assert json.loads((tmp_path / "out.json").read_text())
        assert not re.search(r"url\(.?http", (tmp_path / "out.svg").read_text(encoding="utf-8"))
        app.action_export("pdf x")
        await until(pilot, lambda: any("one of json, csv, svg, html" in text for text in toasts(app)))
        await pilot.press("e")
        assert isinstance(app.screen, ExportScreen)
        box = app.screen.query_one(Input)
        assert box.value.endswith(".html")
        await pilot.press("up")
        assert box.value.endswith(".svg")
        taken = tmp_path / "out.svg"
        taken.write_text("mine")
        box.value = str(taken)
        await pilot.press("enter")
        assert taken.read_text() == "mine" and isinstance(app.screen, ExportScreen)
        await pilot.press("enter")
        await until(pilot, lambda: taken.read_text().startswith("<svg"))


@pytest.mark.large
async def test_in_a_replay_nothing_runs_and_it_is_said_why(tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        (path,) = await kept(pilot)
    trace = read_trace(path)
    racing = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(trace, 0.05))
    async with racing.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: racing.racing.race is not None and racing.racing.race.speed == 0.05)
    replayed = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(trace))
    async with replayed.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: replayed.recordings.trace is not None)
        await pilot.press("v")
        assert {pane.view for pane in replayed.grid.shown} == {"rounds"}  # keys are for all panes, not for the prompt
        await ask(pilot, "hello")
        assert replayed.prompt_box.text == "hello" and not replayed.runs.running
        await pilot.press("escape", "r")
        await until(pilot, lambda: "No models are loaded" in toasts(replayed)[-1])
        assert not replayed.runs.waiting


async def test_in_a_replay_digits_show_and_hide_gamma_stays_and_nothing_is_saved(config_file: Path) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        (path,) = await kept(pilot)
    replayed = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(read_trace(path)))
    async with replayed.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: replayed.recordings.trace is not None)
        await pilot.press("3", "4", "2", "plus", "minus")
        assert [pane.strategy for pane in replayed.grid.shown] == ["target", "lookup"]
        said = toasts(replayed)
        assert "speculative hidden; 3 shows it again" in said and "The trace has no drafter" in said
        assert any("keeps its γ 4" in text and "m loads models" in text for text in said)
        replayed.action_race("100")
        await until(pilot, lambda: over(replayed))
        assert [pane.strategy for pane in replayed.grid.shown] == ["target", "lookup"]
        await pilot.press("1", "5", "3")
        assert [pane.strategy for pane in replayed.grid.shown] == ["speculative", "lookup"]
        await until(pilot, lambda: "At least one pane stays" in toasts(replayed))
        assert replayed.settings == Settings() and not config_file.exists()
        await pilot.press("ctrl+p", *"gamma", "space", "6", "enter")  # what is asked for by name holds for this session
        await until(pilot, lambda: replayed.settings.gamma == 6)
        only_here = "for this session: in a replay nothing is saved"
        await until(pilot, lambda: f"Applies to the next run; {only_here}" in toasts(replayed))
        replayed.preferences.change({"theme": "specdec-light"})
        await until(pilot, lambda: f"Set; {only_here}" in toasts(replayed))
        assert not config_file.exists()


@pytest.mark.parametrize("record", [True, False])
async def test_without_a_target_speedups_are_against_its_last_comparable_run_and_say_so(record: bool) -> None:
    app = make_app(record=record, max_new_tokens=60)
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        pane, target = app.grid.panes["speculative"], app.grid.panes["target"].figures
        await pilot.press("1", "4", "5")
        await one_run(pilot, "next")
        await until(pilot, lambda: " vs. target of " in str(pane._figure_line.render()))
        expected = speedup(target, pane.figures)
        assert expected is not None and f"{expected:.2f}×" in str(pane._figure_line.render())
        app.action_race("100")
        await until(pilot, lambda: over(app))
        await until(pilot, lambda: " vs. target of " in str(pane._figure_line.render()))
        app.action_race()
        app.preferences.change({"cache": False})  # other steps: no longer comparable
        await one_run(pilot, "another")
        missing = "no baseline: 1 adds target, r repeats"  # it was a notice, which went
        await until(pilot, lambda: missing in str(pane._figure_line.render()))
        assert " vs. " not in str(pane._figure_line.render())
        app.action_race("100")
        await until(pilot, lambda: over(app))
        await until(pilot, lambda: missing in str(pane._figure_line.render()))
        await pilot.press("1")
        await until(pilot, lambda: "no baseline: r repeats with target" in str(pane._figure_line.render()))
        await pilot.press("r")
        await until(pilot, lambda: len(app.runs.engine._engine.runs) == 4 and not app.runs.running)
        await until(pilot, lambda: "×" in str(pane._figure_line.render()))
        assert "no baseline" not in str(pane._figure_line.render())


async def test_exports_of_a_run_without_target_have_the_ratio_and_the_mark_of_the_app(tmp_path: Path) -> None:
    """They had dashes: nothing but JSON knew the earlier run."""
    app = make_app(max_new_tokens=60, strategies=("target", "speculative"))
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        created = app.recordings.trace.header.created if app.recordings.trace else ""
        await pilot.press("1")
        await one_run(pilot, "next")
        line = app.grid.panes["speculative"]._figure_line
        await until(pilot, lambda: " vs. target of " in str(line.render()))
        ratio = re.search(r"(\S+×)\S*,? (?:clock unchecked |\(.*\) )*vs\. target of ", str(line.render()))
        assert ratio is not None
        for kind in ("html", "csv"):
            app.action_export(f"{kind} {tmp_path / f'out.{kind}'}")
            await until(pilot, lambda kind=kind: any(f"out.{kind}" in text for text in toasts(app)), kind)
        page = re.sub("<[^>]*>", "", (tmp_path / "out.html").read_text(encoding="utf-8"))
        assert re.search(rf"{re.escape(ratio[1])}[ †‡]* vs\. target of {created}", page)
        row = next(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text(encoding="utf-8"))))
        assert row["baseline_created"] == created and f"{float(row['speedup']):.2f}×" == ratio[1]


@pytest.mark.parametrize("view", ["text", "charts"])
async def test_while_it_runs_a_run_without_a_target_is_measured_against_the_earlier_one_already(view: str) -> None:
    """The charts said "no run of the target to compare with" until the run had ended, and never which it was."""
    engine = ScriptedEngine()
    app = make_app(engine, max_new_tokens=60, strategies=("target", "speculative"))
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        pane, target = app.grid.panes["speculative"], app.grid.panes["target"].figures
        app.action_cycle_view(view)
        await pilot.press("1")
        engine.gated = True
        await ask(pilot, "next")
        engine.step(9)
        await until(pilot, lambda: "vs. target of " in str(pane._figure_line.render()), "the earlier run")
        assert app.runs.running and pane.figures.end is None
        ratio = f"{speedup(target, pane.figures) or 0:.2f}×"
        shown = lambda: " ".join([*pane.charts_view.lines, str(pane._figure_line.render())])  # noqa: E731
        await until(pilot, lambda: ratio in shown(), "the speedup")
        engine.gated = False
        engine.step(1000)
        await until(pilot, lambda: app.recordings.trace is not None and not app.runs.running, "its end")
        await until(pilot, lambda: "vs. target of " in str(pane._figure_line.render()), "the earlier run")
        ratio = f"{speedup(target, pane.figures) or 0:.2f}×"
        await until(pilot, lambda: ratio in shown() and "no run of the target" not in shown(), "the speedup")


async def test_a_run_that_is_not_comparable_is_measured_against_nothing_while_it_runs() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, max_new_tokens=60, strategies=("target", "speculative"))
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        pane = app.grid.panes["speculative"]
        await pilot.press("1")
        app.preferences.change({"cache": False})
        engine.gated = True
        await ask(pilot, "next")
        engine.step(9)
        await until(pilot, lambda: pane.figures.rounds >= 9)
        await pilot.pause(0.5)
        assert pane._baseline is None and "×" not in str(pane._figure_line.render())
        engine.gated = False
        engine.step(1000)
        await until(pilot, lambda: not app.runs.running)


async def test_a_kept_run_without_a_target_is_measured_against_the_one_before_it() -> None:
    app = make_app(max_new_tokens=60)
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        await pilot.press("1")
        await one_run(pilot, "next")
        path = (await kept(pilot, 2))[0]
    trace = read_trace(path)
    assert trace.strategies == ["speculative", "ngram", "lookup"]
    assert best(trace.header).endswith("× vs. earlier")
    racing = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(trace, 0.05))
    async with racing.run_test(size=SIZE) as pilot:  # the baseline is found when the race is on
        await until(pilot, lambda: racing.racing.race is not None and racing.grid.baseline[0] is not None)
    replayed = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(trace))
    async with replayed.run_test(size=SIZE) as pilot:
        pane = replayed.grid.panes["ngram"]
        await until(pilot, lambda: " vs. target of " in str(pane._figure_line.render()))
        assert "speedups vs. target of " in str(replayed.table.render())


async def test_a_run_under_way_when_the_app_is_left_is_kept() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "long")
        engine.step(5)
        await until(pilot, lambda: app.grid.panes["target"].figures.rounds == 5)
        keep_unfinished(app)
        (path,) = await kept(pilot)
        assert read_trace(path).header.strategies["target"]["rounds"] == 5
        engine.step(10_000)
        await until(pilot, lambda: not app.runs.running)


async def test_a_text_not_sent_when_the_app_is_left_is_an_earlier_prompt_next_time(tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        app.prompt_box.insert("half a thou")
    keep_unsent(app)
    keep_unsent(app)
    following = make_app()
    async with following.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("up")
        assert following.prompt_box.text == "half a thou"
        assert following.texts.prompts.entries == ["half a thou"]


async def test_leaving_is_quiet_where_an_unsent_text_cannot_be_kept(tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        app.prompt_box.insert("half a thou")
    (tmp_path / "data").write_text("not a folder")
    keep_unfinished(app)
    keep_unfinished(make_app())  # one that never opened


async def test_a_run_that_broke_off_says_so_and_has_its_figures_everywhere(tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        (path,) = await kept(pilot)
    lines = path.read_text().splitlines(keepends=True)
    ended = next(i for i, line in enumerate(lines) if '"strategy":"lookup"' in line and "run_ended" in line)
    whole = read_trace(path)
    cut = Trace(new_header(whole.header.prompt, whole.events[: ended - 2]), whole.events[: ended - 2])
    path.unlink()
    app.recordings.store.save(cut)
    replayed = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(cut))
    async with replayed.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: replayed.recordings.trace is not None)
        pane = replayed.grid.panes["lookup"]
        for _ in ("opened", "raced"):
            assert "not ended" in str(pane._status_line.render())
            assert "not ended" not in str(replayed.grid.panes["target"]._status_line.render())
            assert not replayed.table.display
            replayed.action_race("0.05")
            assert all(figures.rounds == 0 for _, figures, _ in replayed.stage.rows)
            replayed.action_race("100")
            await until(pilot, lambda: over(replayed), "the race is over")
            assert "not ended" in str(pane._status_line.render())
            replayed.action_race()
            await until(pilot, lambda: not replayed.stage.is_filling)
        await pilot.press("escape", "t")
        row = replayed.table.cells("lookup")
        assert row["tok/s"] == f"{pane.figures.decode_tokens_per_second:.1f}" and row["prefill s"] == "0.21"
        await pilot.press("H")
        history = replayed.screen.query_one(OptionList)
        await until(pilot, lambda: history.option_count == 1)
        assert "not ended" in str(history.get_option_at_index(0).prompt)


async def test_a_replay_needs_neither_torch_nor_a_model(tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        (path,) = await kept(pilot)
    code = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from specdec_tui.session import LocalEngine\n"
        "from specdec_tui.settings import ModelChoice, Settings\n"
        "from specdec_tui.traces.files import read_trace\n"
        "from specdec_tui.tui.app.app import SpecdecApp\n"
        "from specdec_tui.tui.app.recordings import Replay\n"
        "async def main():\n"
        "    replay = Replay(read_trace(Path(sys.argv[1])))\n"
        "    app = SpecdecApp(LocalEngine(), Settings(), ModelChoice(), replay=replay)\n"
        "    async with app.run_test(size=(120, 40)) as pilot:\n"
        "        while app.recordings.trace is None:\n"
        "            await pilot.pause(0.05)\n"
        "        await pilot.press('v', 'v', 'v', 'i', 'escape', 'R')\n"
        "        while not app.racing.race.over:\n"
        "            await pilot.pause(0.05)\n"
        "        print(app.grid.panes['target'].plain_text)\n"
        "asyncio.run(main())\n"
        "print(sorted({'torch', 'transformers', 'numba'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    *shown_text, modules = done.stdout.strip().splitlines()
    assert "\n".join(shown_text) == app.grid.panes["target"].plain_text.strip()
    assert modules == "[]"


async def test_an_export_by_name_never_writes_over_a_file_unasked_nor_to_a_device(tmp_path: Path, device: Path) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        taken = tmp_path / "mine.csv"
        taken.write_text("mine")
        link = tmp_path / "link.csv"
        link.symlink_to(taken)
        app.action_export(f"csv {link}")
        await until(pilot, lambda: isinstance(app.screen, ExportScreen))
        await pilot.pause(0.1)
        assert taken.read_text() == "mine"
        assert "exists already" in str(app.screen.query_one("#export-note").render())
        await pilot.press("enter")
        await until(pilot, lambda: taken.read_text().startswith("strategy"))
        assert link.is_symlink()
        for words, said in (
            (f"csv {device}", "is a device"),
            (f"csv {'a' * 300}", "File name too long"),
            (f"csv {tmp_path}/{'b' * 300}/x", "File name too long"),
            ("json ~nosuch/x.json", "no such home folder"),
            (f"json {tmp_path}", "is a folder"),
        ):
            app.action_export(words)
            await until(pilot, lambda said=said: any(said in text for text in toasts(app)), said)
        app.action_open_trace("~nosuch/x")
        await until(pilot, lambda: any("open trace: '~nosuch/x'" in text for text in toasts(app)))
        assert len(app.screen_stack) == 1


async def test_a_trace_without_a_known_strategy_says_so_and_the_app_stays_usable(tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        (path,) = await kept(pilot)
    strange = tmp_path / "strange.jsonl"
    header, *events = path.read_text().splitlines(keepends=True)
    told = json.loads(header)
    told["app"] = "99.0"  # another version's, which judges speeds in its own way
    told["strategies"] = {f"new-{name}": figures for name, figures in told["strategies"].items()}
    renamed = [line.replace('"strategy":"', '"strategy":"new-') for line in events]
    strange.write_text(json.dumps(told) + "\n" + "".join(renamed))
    replayed = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(read_trace(strange)))
    async with replayed.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: any("no strategy that this version knows" in text for text in toasts(replayed)))
        assert replayed.header.state == "trace"
        # What it is stays after the notice; it said: type a prompt and press enter.
        said = "\n".join(str(pane._welcome.render()) for pane in replayed.grid.shown)
        assert "The trace has no strategy that this version knows: new-target" in said
        assert "m loads models" in said and "Type a prompt" not in said and "switches it on" not in said
        await pilot.press("escape", "R", "i", "e", "v")
        assert replayed.recordings.trace is None


async def test_where_no_models_could_be_loaded_nothing_invites_to_type_a_prompt() -> None:
    app = make_app(ScriptedEngine(load_error=LoadError("no such model")))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "No models are loaded." in str(app.grid.front._welcome.render()))
        said = str(app.grid.front._welcome.render())
        assert "m loads models" in said and "Type a prompt" not in said
        await pilot.press("escape", "m")
        models = app.screen.query_one("#picker-list", OptionList)
        await until(pilot, lambda: any("demo" in str(option.prompt) for option in models.options))
        assert not any(str(option.prompt).startswith("✓") for option in models.options)


@pytest.mark.large
async def test_the_header_of_a_trace_need_not_list_its_strategies(tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        (path,) = await kept(pilot)
    trace = read_trace(path)
    bare = Trace(replace(trace.header, strategies={}), trace.events)
    replayed = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(bare))
    async with replayed.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: replayed.recordings.trace is not None)
        assert replayed.grid.panes["target"].plain_text == app.grid.panes["target"].plain_text
        assert "trace: γ 4" in str(replayed.prompt_box.border_subtitle)


async def test_a_table_opened_during_a_run_compares_finished_strategies_alone() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "long")
        engine.step(26)
        await until(pilot, lambda: app.grid.panes["speculative"].figures.rounds > 0)
        await pilot.press("escape", "t")
        assert app.table.cells("speculative")["tok/s"] == "–"
        assert app.table.cells("target")["tok/s"] != "–"
        engine.step(10_000)
        await until(pilot, lambda: not app.runs.running)
        assert app.table.cells("speculative")["tok/s"] != "–"


async def test_a_race_leaves_a_hidden_table_hidden() -> None:
    app = make_app(max_new_tokens=12)
    async with app.run_test(size=SIZE) as pilot:
        await one_run(pilot)
        await pilot.press("t")
        assert not app.table.display
        app.action_race("100")
        await until(pilot, lambda: over(app))
        await pilot.press("R")
        assert app.racing.race is None and not app.table.display


async def test_a_strategy_that_has_ended_is_on_disk_while_others_are_at_work(tmp_path: Path) -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, schedule="sequential")
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "long")
        engine.step(25)
        (path,) = await kept(pilot)
        assert app.runs.running and read_trace(path).strategies == ["target"]
        assert best(read_trace(path).header) == "not ended"
        engine.step(10_000)
        await until(pilot, lambda: not app.runs.running and best(read_trace(path).header) != "not ended")
        assert len(read_trace(path).strategies) == 4 and await kept(pilot) == [path]


async def test_a_folder_that_takes_nothing_is_told_in_a_run_that_goes_on_and_when_it_is_left(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, schedule="sequential")
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "long")
        engine.step(28)
        await until(pilot, lambda: any("cannot keep the trace in" in said for said in toasts(app)))
        await until(pilot, lambda: app.grid.panes["speculative"].figures.rounds > 1)
        assert app.runs.running
        problem = keep_unfinished(app)
        assert problem.startswith("cannot keep the trace in") and "\n" not in problem
        engine.step(10_000)
        await until(pilot, lambda: not app.runs.running)


async def test_settings_that_are_left_out_are_told_over_the_trace() -> None:
    events = tuple(ScriptedEngine().run("go", Settings(max_new_tokens=8), lambda: False))
    replay = Replay(Trace(new_header("go", events), events), left_out=["gamma: 'many' is not valid"])
    app = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=replay)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "left out: gamma: 'many' is not valid" in toasts(app))


async def test_what_killed_writers_left_is_swept_at_the_next_start(tmp_path: Path, config_file: Path) -> None:
    left = [folder / ".0123456789abcdef.new" for folder in (tmp_path / "data" / "traces", tmp_path / "data")]
    left.append(config_file.parent / ".fedcba9876543210.new")
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
        os.utime(path, (0, 0))
    async with make_app().run_test(size=SIZE) as pilot:
        await ready(pilot)
        assert not any(path.exists() for path in left)
