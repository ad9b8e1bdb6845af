"""The whole app on a scripted engine: prompts, runs, stopping, loading, leaving."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted_engine import ScriptedEngine, info, text_of
from shell import ask, make_app, ready, toasts, until
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widgets import Input

from specdec_tui.backends.pair import LoadError
from specdec_tui.decoding.records import Finished
from specdec_tui.settings import ModelChoice
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.engine_thread import Report
from specdec_tui.tui.commands.palette import Palette
from specdec_tui.tui.panes.pane import VIEWS
from specdec_tui.tui.screens.model_picker import ModelPicker

SIZE = (120, 40)


async def finished(pilot: Pilot[int], runs: int = 1) -> None:
    engine: ScriptedEngine = pilot.app.runs.engine._engine
    await until(pilot, lambda: len(engine.runs) == runs and not pilot.app.runs.running, "run finished")


async def test_the_screen_is_usable_at_once_while_the_models_load_with_visible_progress() -> None:
    engine = ScriptedEngine()
    engine.load_gate.clear()
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.header.progress is not None)
        assert app.header.state == "loading"
        assert "reading the target" in str(app.header.render())
        assert "45%" in str(app.header.render())
        assert app.focused is app.prompt_box
        assert [pane.strategy for pane in app.grid.shown] == ["target", "speculative", "ngram", "lookup"]
        engine.load_gate.set()
        await ready(pilot)
        assert "scripted-target + scripted-drafter" in str(app.header.render())


async def test_a_prompt_fills_every_pane_and_ends_with_the_table() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "why blue")
        await finished(pilot)
        assert engine.runs[0][0] == "why blue"
        assert [pane.plain_text for pane in app.grid.shown] == [text_of(24)] * 4
        assert app.table.display and app.table.row_count == 4
        assert app.header.state == "ready"
        assert app.prompt_box.text == ""
        await pilot.press("escape", "t")
        assert not app.table.display
        await pilot.press("t")
        assert app.table.display


async def test_a_prompt_entered_while_loading_waits_and_runs_when_ready() -> None:
    engine = ScriptedEngine()
    engine.load_gate.clear()
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ask(pilot, "early")
        assert app.runs.waiting == "early"
        assert "early" in str(app.run_line.render())
        await ask(pilot, "second")
        assert app.prompt_box.text == "second"
        engine.load_gate.set()
        await finished(pilot)
        assert [prompt for prompt, _ in engine.runs] == ["early"]
        assert app.prompt_box.text == "second"


async def test_the_prompt_of_the_command_line_runs_as_soon_as_the_models_are_ready() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, prompt="from the flag")
    async with app.run_test(size=SIZE) as pilot:
        await finished(pilot)
        assert engine.runs[0][0] == "from the flag"


async def test_a_waiting_prompt_goes_back_to_the_box_when_no_model_could_be_loaded() -> None:
    engine = ScriptedEngine(load_error=LoadError("no [/x] such \x1b[31mmodel"))
    app = make_app(engine, prompt="keep me")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.header.state == "failed")
        assert app.prompt_box.text == "keep me"
        assert any("no [/x] such ␛[31mmodel" in toast for toast in toasts(app))
        await pilot.press("enter")
        assert app.prompt_box.text == "keep me"
        assert engine.runs == []


async def test_an_empty_prompt_gives_a_hint_only() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("enter", "space", "enter")
        assert engine.runs == []
        assert any("Type a prompt" in toast for toast in toasts(app))


async def test_ctrl_c_stops_within_a_round_and_keeps_the_text_and_another_prompt_can_follow() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "one")
        engine.step(5)
        target = app.grid.panes["target"]
        await until(pilot, lambda: target.plain_text == text_of(6))
        assert app.header.state == "running"
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.runs.running)
        assert app.header.state == "ready"
        assert target.plain_text == text_of(6)
        assert not app.table.display
        await ask(pilot, "two")
        await until(pilot, lambda: len(engine.runs) == 2)
        assert app.header.state == "running"


async def test_ctrl_c_twice_quits() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("ctrl+c")
        assert app.is_running and any("again quits" in toast for toast in toasts(app))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running)
    assert app.return_code == 0


async def test_stop_of_the_palette_never_quits_and_makes_no_ctrl_c_the_second_one() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "one")
        await until(pilot, lambda: app.runs.running)
        await pilot.press("ctrl+p", *"stop", "enter")  # "Stopping" stands as long as it is true
        await until(pilot, lambda: not app.runs.running)
        await pilot.press("ctrl+p", *"stop", "enter")
        await until(pilot, lambda: "No run to stop" in toasts(app))
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app.is_running
        await pilot.press("ctrl+p", *"stop", "enter")
        await pilot.pause(0.1)
        assert app.is_running


async def test_there_is_no_table_while_a_run_has_nothing_to_compare() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "one")
        engine.step(5)
        await until(pilot, lambda: app.grid.panes["target"].plain_text == text_of(6))
        await pilot.press("escape", "t")
        assert not app.table.display and "The table compares strategies after a run" in toasts(app)


async def test_ctrl_c_long_after_the_first_one_does_not_quit(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("specdec_tui.tui.app.stopping.monotonic", lambda: now[0])
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("ctrl+c")
        now[0] += 60
        await pilot.press("ctrl+c")
        assert app.is_running


@pytest.mark.parametrize("moment", ["load", "run"])
async def test_leaving_does_not_wait_for_the_engine(moment: str) -> None:
    engine = ScriptedEngine(gated=True)
    if moment == "load":
        engine.load_gate.clear()
    app = make_app(engine, prompt="hello" if moment == "run" else "")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.header.state == ("running" if moment == "run" else "loading"))
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not app.is_running)
    if moment == "run":
        assert app.runs.engine.join(10)
    engine.load_gate.set()
    assert app.runs.engine.join(10)


async def test_an_engine_that_fails_leaves_the_app_ready_with_the_reason_in_the_panes() -> None:
    engine = ScriptedEngine(run_error=RuntimeError("[/bold] device \x1b]0;title\x07 lost"))
    app = make_app(engine, prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: engine.runs and app.header.state == "ready")
        assert any("device" in toast and "\x1b" not in toast for toast in toasts(app))
        ends = [pane.figures.end for pane in app.grid.shown]
        assert all(end is not None and "device" in end.message for end in ends)
        engine.run_error = None
        await ask(pilot, "again")
        await finished(pilot, runs=2)
        assert app.grid.panes["target"].plain_text == text_of(24)


async def test_a_failed_second_load_keeps_the_pair_in_place() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        engine.load_error = LoadError("gated repository")
        app.front.load(ModelChoice(target="some/other"))
        await until(pilot, lambda: len(engine.loads) == 2 and app.header.state == "ready")
        assert "scripted-target" in str(app.header.render())
        assert app.choice == ModelChoice()
        assert any("gated repository" in toast and "stays" in toast for toast in toasts(app))
        await ask(pilot, "still works")
        await finished(pilot)


async def test_the_previous_pair_is_shown_until_the_new_one_is_ready() -> None:
    engine = ScriptedEngine()
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        engine.load_gate.clear()
        app.front.load(ModelChoice(target="new/[b]model", drafter="new/drafter"))
        await until(pilot, lambda: len(engine.loads) == 2)
        assert app.header.state == "loading"
        assert app.header.pair == info()
        await ask(pilot, "for the new pair")
        assert app.runs.waiting == "for the new pair"
        engine.load_gate.set()
        await finished(pilot)
        assert "new/[b]model + new/drafter" in str(app.header.render())


async def test_hostile_model_names_and_notes_are_shown_as_text() -> None:
    engine = ScriptedEngine(pair=info("evil[/x]\x1b[2J\u202e", "[@click=app.quit]d[/]"))
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        shown = str(app.header.render())
        assert "evil[/x]␛[2J" in shown and "[@click=app.quit]d[/]" in shown
        assert "\x1b" not in shown and "\u202e" not in shown


async def test_number_keys_toggle_strategies_and_their_panes_keep_their_output() -> None:
    app = make_app(prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await finished(pilot)
        await pilot.press("escape", "2")
        assert app.settings.strategies == ("target", "drafter", "speculative", "ngram", "lookup")
        await pilot.press("4", "5")
        assert [pane.strategy for pane in app.grid.shown] == ["target", "drafter", "speculative"]
        assert "ngram off; 4 brings it back" in toasts(app)
        app.grid.panes["speculative"].focus()
        await pilot.press("3", "4")
        assert app.focused is None  # the next key is not text for the prompt, nor for another pane
        assert "speculative off; 3 brings it back" in toasts(app) and "ngram on" in toasts(app)
        assert app.grid.panes["ngram"].display
        assert app.grid.panes["ngram"].plain_text == text_of(24)


async def test_the_last_strategy_cannot_be_switched_off() -> None:
    app = make_app(strategies=("lookup",))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("escape", "5")
        assert app.settings.strategies == ("lookup",)
        assert any("At least one" in toast for toast in toasts(app))


async def test_a_run_may_end_while_the_app_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, prompt="hello")
    held: list[Report] = []
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.running)
        drain = app.runs.engine.drain
        monkeypatch.setattr(app.runs.engine, "drain", list)
        engine.step(1000)

        def over() -> bool:
            held.extend(drain())
            return any(isinstance(report.item, Finished) for report in held)

        await until(pilot, over)
    monkeypatch.setattr(app.runs.engine, "drain", lambda: held)
    app.on_engine_reported()
    assert app.runs.running  # the panes and the table no longer have styles: nothing was shown


async def test_a_change_during_a_run_applies_to_the_next() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.running)
        await pilot.press("escape", "plus", "5")
        assert app.grid.panes["lookup"].display
        engine.step(1000)
        await finished(pilot)
        assert app.grid.panes["lookup"].plain_text == text_of(24)
        assert not app.grid.panes["lookup"].display
        await pilot.press("r")
        await until(pilot, lambda: len(engine.runs) == 2)
        assert engine.runs[1][1].gamma == 5
        assert engine.runs[1][1].strategies == ("target", "speculative", "ngram")
        assert engine.runs[0][1].gamma == 4
        assert engine.repeats == [False, True]


async def test_gamma_keys_stop_at_the_ends_of_the_range() -> None:
    app = make_app(gamma=31)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("escape", "plus", "plus")
        assert app.settings.gamma == 32
        assert any("from 0 to 32" in toast for toast in toasts(app))
        await pilot.press("minus")
        assert app.settings.gamma == 31


async def test_reports_of_another_run_are_dropped() -> None:
    app = make_app(ScriptedEngine(gated=True), prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.running)
        stale = [*ScriptedEngine().run("old", app.settings, lambda: False)]
        for event in stale:
            app.runs.engine._report(99, event)
        await pilot.pause(0.2)
        assert app.runs.running
        assert app.grid.panes["lookup"].plain_text == ""


async def test_the_target_is_the_baseline_of_every_pane() -> None:
    app = make_app(prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await finished(pilot)
        baseline = app.grid.panes["target"].figures
        assert all(pane._baseline is baseline for pane in app.grid.shown)


async def test_views_cycle_for_all_panes_or_for_the_focused_one() -> None:
    app = make_app(prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await finished(pilot)
        await pilot.press("escape", "v")
        assert {pane.view for pane in app.grid.shown} == {"rounds"}
        app.grid.panes["ngram"].focus()
        await pilot.press(*["v"] * (len(VIEWS) - 1))
        assert app.grid.panes["ngram"].view == "text"
        assert app.grid.panes["lookup"].view == "rounds"


async def test_z_maximises_a_pane_and_brings_all_back() -> None:
    app = make_app(prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await finished(pilot)
        await pilot.press("escape", "z")
        assert app.screen.maximized is app.grid.current
        await pilot.press("z")
        assert app.screen.maximized is None
        await pilot.press("z", "slash")
        assert app.screen.maximized is None
        assert app.focused is app.prompt_box


async def test_new_chat_is_told_to_the_engine() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await finished(pilot)
        assert "turn 2" in str(app.prompt_box.border_subtitle)
        await pilot.press("escape", "n")
        await until(pilot, lambda: engine.chats == 1 and "turn" not in str(app.prompt_box.border_subtitle))


async def test_prompts_to_models_without_a_chat_template_are_no_turns_of_a_chat() -> None:
    engine = ScriptedEngine()
    engine.load = lambda choice, progress: replace(info(), chat_template=False)  # type: ignore[method-assign]
    app = make_app(engine, prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await finished(pilot)
        assert app.settings.chat and str(app.prompt_box.border_subtitle).endswith("no chat")
        assert app.runs.run is not None and app.runs.run.turn == 0


async def test_help_lists_every_key_and_closes_again() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("f1")
        assert len(app.screen_stack) == 2
        await pilot.press("f1")
        assert len(app.screen_stack) == 1
        await pilot.press("ctrl+p")
        assert isinstance(app.screen, Palette)
        await pilot.press("escape", "escape", "m")
        assert isinstance(app.screen, ModelPicker)


async def test_dialogs_do_not_pile_up_and_ctrl_q_leaves_from_inside_one() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("ctrl+p", "ctrl+p", "f1")
        assert len(app.screen_stack) == 2
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not app.is_running)


async def test_a_run_goes_on_behind_a_dialog() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.running)
        await pilot.press("f1")
        engine.step(1000)
        await finished(pilot)
        assert app.grid.panes["lookup"].plain_text == text_of(24)
        assert app.table.row_count == 4


async def test_no_color_uses_the_terminals_own_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await finished(pilot)
        assert app.native_ansi_color


@pytest.mark.parametrize(
    "size",
    [
        (1, 1),
        (40, 12),
        *(pytest.param(size, marks=pytest.mark.large) for size in ((10, 3), (2, 1), (20, 5), (300, 100))),
    ],
)
async def test_any_size_of_terminal_is_survived(size: tuple[int, int]) -> None:
    app = make_app(prompt="hello")
    async with app.run_test(size=size) as pilot:
        await finished(pilot)
        await pilot.press("escape", "s", "s", "ctrl+p", "escape", "escape", "m", "escape", "f1", "escape")
        assert app.grid.panes["lookup"].plain_text == text_of(24)


async def test_columns_follow_the_width() -> None:
    app = make_app()
    async with app.run_test(size=(99, 40)) as pilot:
        for width, columns in ((99, 1), (100, 2), (180, 2), (181, 2)):
            await pilot.resize_terminal(width, 40)
            await pilot.pause()
            assert len({pane.region.x for pane in app.grid.shown}) == columns, width


async def test_resizing_while_tokens_stream_loses_none() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, prompt="hello", max_new_tokens=60)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.running)
        for width, height in ((1, 1), (80, 24), (300, 100), (33, 9), (200, 60), (10, 3), (120, 40)):
            await pilot.resize_terminal(width, height)
            engine.step(12)
            await pilot.pause()
        engine.step(1000)
        await finished(pilot)
        assert [pane.plain_text for pane in app.grid.shown] == [text_of(60)] * 4


def burst(app: SpecdecApp, *keys: str) -> None:
    """Keys without a pause between them, as a terminal delivers what was typed ahead."""
    for key in keys:
        name = key if len(key) > 1 else _character_to_key(key)
        app.post_message(events.Key(name, key if len(key) == 1 else "\r" if key == "enter" else None))


_CORRECTED = ("a", "b", "left", "x", "home", "y", "end", "backspace", "z")


async def test_keys_that_correct_keep_their_order_among_letters_in_every_box_of_text() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        app.prompt_box.focus()
        burst(app, *_CORRECTED, "ctrl+p", *_CORRECTED)
        await until(pilot, lambda: any("z" in line.value for line in app.screen.query(Input)))
        assert [app.prompt_box.text, app.screen.query_one(Input).value] == ["yaxz", "yaxz"]


async def test_ctrl_c_right_behind_enter_stops_the_run() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        said: list[str] = []  # what was said goes when the run has stopped, and a slow machine looks late

        def has_stopped() -> bool:
            said.extend(toasts(app))
            return app.runs.last_prompt == "sea" and not app.runs.running

        burst(app, *"sea", "enter", "ctrl+c")
        await until(pilot, has_stopped)
        assert app.is_running and any("Stopping" in toast for toast in said)


async def test_keys_behind_escape_go_where_escape_leads() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        burst(app, "a", "escape", "plus", "slash", "b")
        await until(pilot, lambda: app.prompt_box.text == "ab")
        assert app.settings.gamma == 5


async def test_what_is_typed_behind_a_command_goes_to_the_prompt() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        burst(app, "ctrl+p", *"gamma 5", "enter", *"hello")
        await until(pilot, lambda: app.settings.gamma == 5 and app.prompt_box.text == "hello")
        assert not isinstance(app.screen, Palette)


async def test_ctrl_c_takes_back_a_prompt_that_waits_for_the_models() -> None:
    engine = ScriptedEngine()
    engine.load_gate.clear()
    app = make_app(engine)
    async with app.run_test(size=SIZE) as pilot:
        await ask(pilot, "early")
        assert app.runs.waiting == "early"
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.prompt_box.text == "early")
        assert app.runs.waiting == "" and app.is_running
        engine.load_gate.set()
        await ready(pilot)
        assert engine.runs == []


async def test_a_new_chat_asked_for_during_a_run_begins_at_the_first_turn() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, prompt="hello")
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.running)
        await pilot.press("escape", "n")
        engine.step(1000)
        await until(pilot, lambda: engine.chats == 1 and not app.runs.running)
        await until(pilot, lambda: "turn" not in str(app.prompt_box.border_subtitle))


async def test_a_toast_that_is_still_up_is_not_repeated() -> None:
    app = make_app(ScriptedEngine(gated=True))
    async with app.run_test(size=(40, 12)) as pilot:
        await ready(pilot)
        await ask(pilot, "go")
        await until(pilot, lambda: app.runs.running)
        await pilot.press("escape", "plus", "plus", "plus")
        await until(pilot, lambda: app.settings.gamma == 7)
        assert toasts(app).count("Applies to the next run") == 1
