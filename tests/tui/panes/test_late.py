"""Panes and views join the screen when they are first looked at, and lose nothing by it."""

from __future__ import annotations

from asyncio import sleep

from scripted_engine import ScriptedEngine, text_of
from shell import ask, make_app, ready, until
from widget_data import STORY, HostApp, run_steps, strips_of, words_of

from specdec_tui.decoding.records import Status
from specdec_tui.tui.commands.command import VIEWS
from specdec_tui.tui.panes.pane import StrategyPane

STEPS = run_steps("speculative", words_of(STORY * 3), insight=True)


async def test_a_view_chosen_late_shows_what_one_does_that_was_there_from_the_beginning() -> None:
    early, late = panes = StrategyPane(3, "speculative"), StrategyPane(3, "speculative")
    async with HostApp(*panes).run_test(size=(120, 30)) as pilot:
        for view in (*VIEWS, VIEWS[0]):
            early.view = view
            await pilot.pause()
        assert len(late.children) < len(early.children)
        for pane in panes:
            pane.begin(len(STEPS))
        for part in (STEPS[:20], STEPS[20:]):
            for pane in panes:
                pane.feed(part)
            await pilot.pause()
        pilot.app.theme = "specdec-light"
        for inspected in (False, True):
            for view in reversed(VIEWS):
                for pane in panes:
                    pane.view = view
                    if inspected:
                        pane.inspect(pane.run_log.first(True))
                await until(pilot, lambda: all(pane._views[pane.view].size for pane in panes), "laid out")
                shown = [pane._views[pane.view] for pane in panes]
                assert [one.scroll_offset for one in shown] == [shown[0].scroll_offset] * 2, (view, inspected)
                assert strips_of(shown[0]) == strips_of(shown[1]), (view, inspected)
                assert early.border_subtitle == late.border_subtitle
                assert early.fates.now == late.fates.now
        assert len(late.children) == len(early.children)


async def test_a_pane_shown_late_stands_in_its_place_and_takes_part_in_the_next_run() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, strategies=("target", "ngram"))
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        assert {pane.strategy for pane in app.grid.children} == {"target", "ngram"}
        await ask(pilot, "one")
        await until(pilot, lambda: len(engine.runs) == 1 and not app.runs.running)
        late = app.grid.panes["speculative"]
        app.preferences.change({"strategies": ("target", "speculative", "ngram"), "theme": "specdec-light"})
        await until(pilot, lambda: late.size)
        assert [pane.strategy for pane in app.grid.shown] == ["target", "speculative", "ngram"]
        places = [pane.region.offset.transpose for pane in app.grid.shown]  # row, then column
        assert places == sorted(places)
        app.going_about.to(late)
        await until(pilot, lambda: late.has_focus)
        late.view = "rounds"
        await ask(pilot, "two")
        await until(pilot, lambda: len(engine.runs) == 2 and not app.runs.running)
        assert late.plain_text == text_of(24)
        assert "waves" in "".join(strip.text for strip in strips_of(late.rounds_view))


class Listening(HostApp):
    """Notes the fates in sight whenever a pane says that they are others, as a legend does."""

    def __init__(self, pane: StrategyPane) -> None:
        super().__init__(pane)
        self.pane = pane
        self.told: list[frozenset[Status]] = []

    def on_strategy_pane_fates_changed(self) -> None:
        self.told.append(self.pane.fates.now)


async def test_the_fates_in_sight_are_told_again_once_a_view_is_laid_out_however_long_that_takes() -> None:
    pane = StrategyPane(3, "speculative")
    app = Listening(pane)
    async with app.run_test(size=(120, 30)) as pilot:
        pane.begin(len(STEPS))
        pane.feed(STEPS)
        for view in ("rounds", "tree", "text"):
            app.told.clear()
            with app.batch_update():  # nothing is laid out inside
                pane.view = view
                await until(pilot, lambda: app.told, "told at once")
                await sleep(0.05)
            app.screen.refresh(layout=True)
            await until(pilot, lambda: pane.fates.now and app.told[-1] == pane.fates.now, "told again")
