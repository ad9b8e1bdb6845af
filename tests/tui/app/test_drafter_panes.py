"""Two drafters in the app: a pane, a row and a key for each, named after it, and none where there is but one."""

from __future__ import annotations

from scripted_engine import ScriptedEngine, info
from shell import ask, make_app, toasts, until
from textual.content import Content
from textual.widgets import Input
from widget_data import painted

from specdec_tui.settings import STRATEGIES, ModelChoice, Settings
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.commands.palette_rows import rows_for
from specdec_tui.tui.panes.pane import StrategyPane
from specdec_tui.tui.screens.help import help_text
from specdec_tui.tui.screens.model_picker import ModelPicker
from specdec_tui.tui.screens.side_bar import Tick

SIZE = (120, 40)
_TICKS = {f"strategy-{name}" for name in STRATEGIES}
TWO = info("org/target", "org/small", "/models/tiny-one")


async def test_each_drafter_has_its_pane_its_row_and_its_key() -> None:
    app = make_app(engine=ScriptedEngine(pair=TWO), strategies=("target", "speculative"))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.pair is not None)
        assert [pane.strategy for pane in app.grid.shown] == ["target", "speculative", "speculative-2"]
        titles = [Content.from_markup(str(pane.border_title)).plain for pane in app.grid.shown]
        assert titles == ["1 target", "3 speculative · small", "8 speculative-2 · tiny-one"]
        assert app.settings.strategies == ("target", "speculative")
        await pilot.press("escape", "8")
        assert app.settings.strategies == ("target", "speculative-1")
        assert [pane.strategy for pane in app.grid.shown] == ["target", "speculative"]
        await pilot.press("8", "9")
        assert app.settings.strategies == ("target", "speculative")
        assert "speculative-3 takes 3 drafters: m loads them" in toasts(app)
        app.front.load(ModelChoice(target="other", drafter=("a/one",)))
        await until(pilot, lambda: app.runs.pair is not None and app.runs.pair.target.name == "other")
        assert [pane.strategy for pane in app.grid.shown] == ["target", "speculative"]


async def test_the_side_bar_names_the_drafters_of_its_strategies() -> None:
    app = make_app(engine=ScriptedEngine(pair=TWO), strategies=("target", "speculative"))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.pair is not None)
        await pilot.press("escape", "s")
        await until(pilot, lambda: app.side_bar is not None and app.side_bar.query("#strategy-target"))
        rows = side_bar_rows(app)
        assert "speculative · small" in rows[2] and "speculative-2 · tiny-one" in rows[7]
        long = "a-drafter-whose-name-is-far-too-long-for-the-bar"
        assert app.side_bar is not None
        app.side_bar.meet(info("org/target", "org/small", f"/models/{long}"))
        await pilot.pause()
        assert "speculative-2 · a-drafter" in side_bar_rows(app)[7] and side_bar_rows(app)[7].endswith("…")
        app.side_bar.meet(info("org/target", "org/small"))
        await pilot.pause()
        assert side_bar_rows(app)[2].endswith(" speculative")


def side_bar_rows(app: SpecdecApp) -> list[str]:
    """The strategies as the screen has them."""
    assert app.side_bar is not None
    return [painted(tick)[0].rstrip() if tick.display else "" for tick in app.side_bar.query(Tick) if tick.id in _TICKS]


def test_what_cannot_run_stands_neither_in_the_palette_nor_in_the_help() -> None:
    for drafters in (0, 1, 2, 4):
        rows = {row.text for row in rows_for("toggle", Settings(), ModelChoice(), drafters=drafters)}
        for place in (2, 3, 4):
            assert (f"toggle speculative-{place}" in rows) == (place <= drafters)
            assert (f"speculative-{place} on or off" in help_text(drafters=drafters).plain) == (place <= drafters)


async def test_behind_the_last_drafter_of_the_picker_there_is_room_for_another() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.pair is not None)
        chosen: list[ModelChoice] = []
        app.front.ask(ModelPicker(ModelChoice(target="t", drafter=("a/one", "b/two"))), chosen.append)
        await until(pilot, lambda: len(_boxes(app)) == 3, "an empty one behind the two")
        assert [box.value for box in _boxes(app)] == ["a/one", "b/two", ""]
        _boxes(app)[-1].value = "c/three"
        await until(pilot, lambda: len(_boxes(app)) == 4)
        _boxes(app)[-1].value = "d/four"
        await pilot.pause()
        assert len(_boxes(app)) == 4, "no more than four"
        await pilot.press("ctrl+l")
        await until(pilot, lambda: chosen)
        assert chosen == [ModelChoice(target="t", drafter=("a/one", "b/two", "c/three", "d/four"))]


def _boxes(app: SpecdecApp) -> list[Input]:
    return [box for box in app.screen.query(Input) if str(box.id).startswith("drafter")]


def rows(pane: StrategyPane) -> str:
    """All that it shows below its title."""
    return " ".join(line for child in pane.children if child.display for line in painted(child))


async def test_beside_the_last_run_no_pane_tells_of_an_earlier_one() -> None:
    """The pane of a second drafter once stood beside a later run with text, verdict and speedup of an earlier one."""
    engine = ScriptedEngine(pair=TWO)
    app = make_app(engine=engine, strategies=("target", "speculative", "speculative-2"))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.pair is not None)
        second = app.grid.panes["speculative-2"]
        await ask(pilot, "the first")
        await until(pilot, lambda: second.lossless is not None and not app.runs.running)
        await pilot.press("escape", "8", "8")
        assert second.display and second.plain_text, "what is only hidden is of the last run, too"
        app.front.load(ModelChoice(target="other", drafter=("a/one",)))
        await until(pilot, lambda: app.runs.pair is not None and app.runs.pair.target.name == "other")
        await ask(pilot, "the second")
        await until(pilot, lambda: len(engine.runs) == 2 and not app.runs.running)
        app.front.load(ModelChoice(target="org/target", drafter=("org/small", "/models/tiny-one")))
        await until(pilot, lambda: second.display and rows(second), "its pane")
        assert (second.plain_text, second.figures.rounds, second.lossless, second.told) == ("", 0, None, (None, None))
        assert "not in the last run" in rows(second) and "identical" not in rows(second) and "×" not in rows(second)
        assert app.grid.panes["target"].plain_text, "the last run stays"


async def test_a_strategy_that_sits_a_turn_out_has_its_earlier_turns_above_its_next() -> None:
    app = make_app(strategies=("target", "ngram"))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.runs.pair is not None)
        pane = app.grid.panes["ngram"]
        for turn, keys in enumerate((("escape", "4"), ("escape", "4"), ("escape",)), 1):
            await ask(pilot, f"question {turn}")
            await until(pilot, lambda turn=turn: app.runs.turns == turn and not app.runs.running)
            await pilot.press(*keys)
        assert [turn.prompt for turn in pane.token_view.transcript.turns] == ["question 1"]
