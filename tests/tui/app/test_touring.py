"""The guided tour on the app."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, toasts, until
from textual.pilot import Pilot

from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.laboratory import Laboratory
from specdec_tui.tui.figures.words import PaneState
from specdec_tui.tui.tokens.run_log import Place
from specdec_tui.tui.tour.steps import HARD, IN_SHORT, STEPS


def title(app: SpecdecApp) -> str:
    return re.sub(r"\[/?bold\]", "", str(app.explaining.border_title)) if app.explaining.display else ""


async def arrived(pilot: Pilot[int], step: int) -> None:
    app = pilot.app
    assert isinstance(app, SpecdecApp)
    await until(pilot, lambda: f"{step}/8" in title(app) and "space" in title(app), f"step {step}")


@pytest.mark.parametrize("size", [(80, 24), pytest.param((200, 60), marks=pytest.mark.large)])
async def test_the_tour_goes_through_eight_steps_on_the_app_and_leaves_all_as_it_was(
    size: tuple[int, int], config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ScriptedEngine()
    app = make_app(engine, gamma=3)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await ask(pilot, "mine")
        await until(pilot, lambda: app.recordings.trace is not None, "mine has run")
        mine = app.grid.panes["speculative"].plain_text
        settings, trace = app.settings, app.recordings.trace
        await pilot.press("escape", "question_mark")
        for number, step in enumerate(STEPS, 1):
            await arrived(pilot, number)
            assert engine.runs[-1] == (step.ask.prompt, step.ask.settings) and engine.asides[-1]
            assert {pane.view for pane in app.grid.shown} == {step.view}
            assert app.grid.focused is app.grid.panes[step.strategy]
            assert app.grid.panes[step.strategy].inspecting == step.inspects
            assert app.explaining.region.height <= 7 and app.explaining.text
            assert ("esc esc ends" in title(app)) == step.inspects and len(title(app)) <= size[0] - 2, title(app)
            assert "tour" in str(app.prompt_box.border_subtitle) and app.footer.place == "tour"
            if number < 8:
                await pilot.press("space")
        assert len(engine.runs) == 1 + len({id(step.ask) for step in STEPS})
        await pilot.press("backspace")
        await arrived(pilot, 7)
        count = len(engine.runs)
        await pilot.press("r")
        await until(pilot, lambda: len(engine.runs) > count, "the step's run again")
        await arrived(pilot, 7)
        assert engine.asides[-1]
        await pilot.press("space")
        await arrived(pilot, 8)
        assert "space next: γ-lab" in title(app)
        await pilot.press("space")
        await until(pilot, lambda: app.dialog_is_open, "the γ-lab")
        await pilot.press("enter")  # takes the best γ, which is not to outlive the tour
        assert app.settings.gamma != 3 and any("only until the tour ends" in one for one in toasts(app))
        await pilot.press("escape")
        assert app.tour.is_on and "was the last step: esc ends · space next: γ-lab again" in title(app)
        monkeypatch.setattr(Laboratory, "draws_a_curve", lambda *_: False)  # as on a disturbed clock
        await pilot.press("space")
        await until(pilot, lambda: app.dialog_is_open, "the lab of the recording")
        assert "a recording" in str(app.screen.query_one("#lab").border_title)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.grid.panes["speculative"].plain_text == mine, "mine is back")
        assert not app.tour.is_on and not app.explaining.display
        assert "tour" not in str(app.prompt_box.border_subtitle)
        assert any(IN_SHORT in one for one in toasts(app)), "the end says in a line what it was about"
        assert app.settings == settings and app.recordings.trace == trace and app.runs.last_prompt == "mine"
        assert app.runs.turns == 1 and {pane.view for pane in app.grid.shown} == {"text"}
        assert not config_file.exists()
        assert len(list(app.recordings.store.folder.glob("*.jsonl"))) <= 1  # mine, none of the tour's
        assert app.texts.prompts.entries == ["mine"]
        await pilot.press("r")
        await until(pilot, lambda: engine.runs[-1] == ("mine", settings), "r repeats mine")
        assert engine.repeats[-1] and not engine.asides[-1]


async def test_the_tour_can_be_left_in_the_middle_of_a_run() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: app.runs.running, "the first step runs")
        engine.step(3)
        await pilot.press("space")
        assert any("still at work" in one for one in toasts(app)) and "1/8" in title(app)
        await pilot.press("escape")
        await until(pilot, lambda: not app.runs.running, "it is stopped")
        assert not title(app) and {pane.state for pane in app.grid.panes.values()} == {PaneState.IDLE}
        assert app.runs.last_prompt == "" and app.recordings.trace is None
        assert "tour" not in str(app.prompt_box.border_subtitle)
        await pilot.press("r")
        assert any("Nothing has run yet" in one for one in toasts(app))


async def test_a_stopped_run_is_told_of_and_the_tour_goes_on() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: app.runs.running, "the first step runs")
        await pilot.press("ctrl+c")
        await arrived(pilot, 1)
        assert "did not get so far" in app.explaining.text
        engine.gated = False
        for _ in range(3):
            await pilot.press("space")
            await until(pilot, lambda: not app.runs.running, "no run")
        await arrived(pilot, 4)
        assert engine.runs[-1][1] == HARD.settings


async def test_a_prompt_of_ones_own_ends_the_tour() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("escape", "question_mark")
        await arrived(pilot, 1)
        await ask(pilot, "mine")
        await until(pilot, lambda: not app.runs.running and app.runs.last_prompt == "mine", "mine has run")
        assert not app.tour.is_on and not title(app) and app.runs.run is not None and not app.runs.run.is_aside
        assert {pane.view for pane in app.grid.shown} == {"text"}


async def test_the_tour_waits_for_models_and_says_what_it_lacks() -> None:
    engine = ScriptedEngine()
    engine.load_gate.clear()
    app = SpecdecApp(engine, Settings(), ModelChoice(), tour=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: any("as soon as the models are ready" in one for one in toasts(app)), "said")
        assert not app.tour.is_on
        engine.load_gate.set()
        await arrived(pilot, 1)
    engine = ScriptedEngine(load_error=RuntimeError("no such model"))
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.header.state == "failed", "failed")
        await pilot.press("escape", "question_mark")
        assert any("needs models" in one for one in toasts(app)) and not app.tour.is_on


async def test_beside_what_is_at_work_no_tour_begins_and_one_that_waits_is_taken_back() -> None:
    engine = ScriptedEngine(gated=True)
    engine.load_gate.clear()
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("escape", "question_mark", "escape")
        assert any("does not begin by itself" in one for one in toasts(app))
        engine.load_gate.set()
        await ready(pilot)
        assert not app.tour.is_on and not engine.runs
        await ask(pilot, "mine")
        await until(pilot, lambda: app.runs.running, "at work")
        await pilot.press("escape", "question_mark")
        assert any("A run is at work: ctrl+c stops it, then ?" in one for one in toasts(app))
        engine.gated = False
        await until(pilot, lambda: not app.runs.running, "it ends")
        assert not app.tour.is_on and not app.tour.waits and len(engine.runs) == 1


async def test_a_closed_inspector_comes_back_and_empty_panes_do_not_offer_a_tour_that_was_walked() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        assert "New here?" in str(app.grid.front._welcome.content)
        await pilot.press("escape", "question_mark")
        await arrived(pilot, 1)
        await pilot.press("space")
        await arrived(pilot, 2)
        pane = app.grid.panes["speculative"]
        marked = pane.cursor
        assert pane.inspecting and marked is not None
        await pilot.press("escape")
        assert app.tour.is_on and not pane.inspecting and "i marks the token again" in title(app)
        await pilot.press("i")
        await until(pilot, lambda: pane.inspecting and pane.cursor == marked, "marked again")
        assert "esc esc ends" in title(app)
        app.explaining.explain("t", "", "needed", ("long " * 100, "short"))
        assert app.explaining.text == "needed short", "what has no room gives it to what has"
        for number in range(3, 9):
            await pilot.press("space")
            await arrived(pilot, number)
        await pilot.press("escape")
        await until(pilot, lambda: not app.tour.is_on and bool(app.grid.front._welcome.display), "over")
        assert "New here?" not in str(app.grid.front._welcome.content)
        assert "new here" not in str(app.prompt_box.placeholder)


@pytest.mark.large
@pytest.mark.parametrize("size", [(40, 12), (4, 4)])
async def test_the_tour_survives_small_screens_and_no_colours(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(ScriptedEngine())
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await pilot.press("escape", "question_mark")
        for number in range(1, 5):
            await until(pilot, lambda n=number: f"{n}/8" in title(app) and not app.runs.running, f"step {number}")
            await pilot.press("enter")
        await pilot.resize_terminal(120, 40)
        await arrived(pilot, 5)


async def test_leaving_the_tour_brings_back_pane_focus_and_what_was_hidden(config_file: Path) -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "mine")
        await until(pilot, lambda: app.recordings.trace is not None and not app.runs.running, "mine has run")
        await pilot.press("escape", "5", "alt+4")  # lookup is hidden, ngram in front
        assert not app.grid.panes["lookup"].display and app.grid.focused is app.grid.panes["ngram"]
        shown = [pane.strategy for pane in app.grid.shown]
        await pilot.press("question_mark")
        await arrived(pilot, 1)
        await pilot.press("4")
        await pilot.press("escape")
        await until(pilot, lambda: not app.tour.is_on and app.grid.focused is not None, "back in the pane")
        assert [pane.strategy for pane in app.grid.shown] == shown
        assert app.grid.focused is app.grid.panes["ngram"] and app.grid.front.strategy == "ngram"
        assert "ngram" in app.settings.strategies


@pytest.mark.large
async def test_what_a_tour_says_of_its_keys_and_rounds_is_what_is_there() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("escape", "question_mark")
        await until(pilot, lambda: app.runs.running, "the first step runs")
        assert app.footer.place == "tour at work" and not app.explaining.text.startswith(" ")
        engine.gated = False
        engine.step(1000)
        await arrived(pilot, 1)
        number = int(re.findall(r"Round (\d+):", app.explaining.text)[0])
        view = app.grid.panes["speculative"].rounds_view
        rows = app.grid.panes["speculative"].run_log.rows
        row = next(i for i, one in enumerate(rows) if getattr(one.record, "round", None) == number - 1)
        line = view.lines_of(Place(row, 0))[0]
        await until(pilot, lambda: view.scroll_offset.y <= line < view.scroll_offset.y + view.size.height, "in sight")
        assert title(app).endswith("space next · esc ends")
        app.prompt_box.focus()
        await pilot.press("x")
        assert "esc leaves the prompt, then space next" in title(app)
        await pilot.press("escape")
        assert "leaves the prompt" not in title(app) and app.prompt_box.text == "x"
        for step in range(2, 8):
            await pilot.press("space")
            await until(pilot, lambda: f"{step}/8" in title(app) and not app.runs.running, f"step {step}")  # noqa: B023

        def drawn() -> str:
            return "\n".join(app.grid.panes["speculative"].charts_view.lines)

        # The charts are laid out once more when the tour's own words have taken their lines.
        await until(pilot, lambda: "Row ms" in app.explaining.text and "▒draft" not in drawn(), "small")
        assert "verify " in drawn() and "▒ drafting" not in app.explaining.text
        await pilot.resize_terminal(200, 60)
        await until(pilot, lambda: "▒ drafting" in app.explaining.text, "the charts have room")
        assert "▒draft" in drawn()


async def test_a_tour_that_waited_does_not_take_the_focus_from_one_who_writes() -> None:
    engine = ScriptedEngine()
    engine.load_gate.clear()
    app = SpecdecApp(engine, Settings(), ModelChoice(), tour=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("w", "h", "backspace", "backspace")
        engine.load_gate.set()
        await until(pilot, lambda: any("The tour is ready: esc, then ? begins it" in one for one in toasts(app)))
        await pilot.press("q", "r", "g")
        assert app.prompt_box.has_focus and app.prompt_box.text == "qrg" and not app.tour.is_on and not engine.runs
        await pilot.press("escape", "question_mark")
        await arrived(pilot, 1)
