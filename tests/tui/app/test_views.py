"""What the views of the panes show together, and what is said of it."""

from __future__ import annotations

import re

from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, toasts, until
from textual.pilot import Pilot
from widget_data import painted

from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.tokens.style import GLYPHS

SIZE = (120, 40)


async def finished(pilot: Pilot[int], runs: int = 1) -> None:
    engine: ScriptedEngine = pilot.app.runs.engine._engine
    await until(pilot, lambda: len(engine.runs) == runs and not pilot.app.runs.running, "run finished")


async def test_the_legend_names_the_fates_of_the_tokens_in_sight_and_no_other() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)

    def named() -> set[str]:
        names = re.sub(r"\(.*?\)", "", painted(app.legend)[0])
        return {word for word in names.split() if len(word) > 1}

    def there() -> set[str]:
        rows = [row for pane in app.grid.shown for row in pane.run_log.rows]
        return {token.status.value for row in rows for token in row.tokens} - {"rejected", "unverified"}

    def drawn() -> set[str]:
        signs = {sign for pane in app.grid.shown for row in painted(pane.shown_view) for sign in row}
        return {status.value for status, glyph in GLYPHS.items() if glyph in signs}

    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        assert app.legend.display and not named(), "there is no token yet"
        await ask(pilot, "go")
        await until(pilot, lambda: app.runs.running)
        engine.step(28)
        await until(pilot, lambda: "pending" in named(), "drafts wait for the target")
        engine.gated = False
        engine.step(1000)
        await finished(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: named() == there(), "the fates of the text")
        for _ in ("rounds", "tree"):
            await pilot.press("v")
            await until(pilot, lambda: named() == drawn() and "rejected" in named(), "the glyphs that are drawn")
        for _ in ("charts", "time"):
            await pilot.press("v")
            await until(pilot, lambda: not app.legend.display, "there are no tokens")
        await pilot.press("v")
        await until(pilot, lambda: named() == there(), "the text again")
        app.action_go_to_pane("target")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: named() == {"sampled"}, "the only pane in sight is that of the target")
        app.grid.panes["target"].begin(4)
        await until(pilot, lambda: not named() and app.legend.display, "nothing is in sight")


def text_of_pane(app: SpecdecApp, name: str = "speculative") -> str:
    return app.grid.panes[name].token_view.layout_text.text


async def test_earlier_turns_of_a_chat_stay_above_each_with_its_figures_until_a_new_chat() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "first question")
        await finished(pilot)
        answer = app.grid.panes["speculative"].answer
        assert text_of_pane(app) == answer
        await ask(pilot, "second question")
        await finished(pilot, 2)
        for pane in app.grid.shown:
            text = text_of_pane(app, pane.strategy)
            assert text.startswith(f"› first question\n{answer}\n── turn 1 · ")
            assert "tok/s" in text and text.endswith(f"\n› second question\n{answer}")
            assert pane.answer == answer  # copied is the present one
        assert "α" in text_of_pane(app) and "×" in text_of_pane(app)
        await pilot.press("escape", "v")
        await until(pilot, lambda: "turn 2" in str(app.grid.panes["speculative"].border_subtitle), "turn 2")
        await pilot.press("n")
        await until(pilot, lambda: app.runs.turns == 0)
        assert text_of_pane(app) == answer
        await ask(pilot, "third question")
        await finished(pilot, 3)
        assert text_of_pane(app) == answer


async def test_the_last_turn_run_again_is_replaced_and_the_ones_before_it_stay() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        for number, prompt in enumerate(("one", "two"), 1):
            await ask(pilot, prompt)
            await finished(pilot, number)
        await pilot.press("escape", "r")
        await finished(pilot, 3)
        assert [line for line in text_of_pane(app).split("\n") if line.startswith("›")] == ["› one", "› two"]
        assert text_of_pane(app).count("── turn") == 1


async def test_an_earlier_turn_opened_and_run_again_is_a_turn_of_its_own_and_no_other_is_lost() -> None:
    """It replaced the last turn, which was another one."""
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        traces = []
        for number, prompt in enumerate(("one", "two"), 1):
            await ask(pilot, prompt)
            await finished(pilot, number)
            traces.append(app.recordings.trace)
        assert traces[0] is not None
        app.recordings.show(traces[0])
        await pilot.press("escape", "r")
        await finished(pilot, 3)
        assert [line for line in text_of_pane(app).split("\n") if line.startswith("›")] == ["› one", "› two", "› one"]


async def test_escape_leads_out_of_a_trace_to_the_last_run_and_its_conversation() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await ask(pilot, "one")
        await finished(pilot, 1)
        first = app.recordings.trace
        await ask(pilot, "two")
        await finished(pilot, 2)
        await pilot.press("escape")
        shown, own = text_of_pane(app), app.recordings.trace
        assert first is not None
        app.recordings.show(first)
        assert app.recordings.opened and "› two" not in text_of_pane(app)
        await pilot.press("escape")
        await until(pilot, lambda: not app.recordings.opened and not app.stage.is_filling)
        assert text_of_pane(app) == shown and "› two" in shown and app.recordings.trace is own
        await ask(pilot, "three")
        await finished(pilot, 3)
        assert [line for line in text_of_pane(app).split("\n") if line.startswith("›")] == ["› one", "› two", "› three"]


async def test_without_chat_and_in_a_trace_a_run_stands_alone_and_the_conversation_comes_back() -> None:
    app = make_app()
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        for number, prompt in enumerate(("one", "two"), 1):
            await ask(pilot, prompt)
            await finished(pilot, number)
            app.action_race("100")
            await until(pilot, lambda: app.racing.race is not None and app.racing.race.over)
        trace = app.recordings.trace
        assert trace is not None
        await pilot.press("escape", "R")
        await until(pilot, lambda: app.racing.race is None and not app.stage.is_filling)
        assert "› one" in text_of_pane(app)  # a race of what is in the panes wipes nothing
        app.recordings.show(trace)
        assert "›" not in text_of_pane(app)
        await ask(pilot, "three")
        await finished(pilot, 3)
        assert [line for line in text_of_pane(app).split("\n") if line.startswith("›")] == ["› one", "› two", "› three"]
        app.preferences.change({"chat": False})
        await ask(pilot, "four")
        await finished(pilot, 4)
        assert "›" not in text_of_pane(app)


async def test_x_shows_refused_drafts_in_the_text_and_the_legend_names_them() -> None:
    app = make_app(prompt="go")
    async with app.run_test(size=SIZE) as pilot:
        await finished(pilot)
        await pilot.press("escape", "x")
        await pilot.pause()
        pane = app.grid.panes["speculative"]
        refused = [
            text
            for row in pane.run_log.rows
            for token, text in zip(row.tokens, row.texts, strict=False)
            if token.status.value == "rejected"
        ]
        assert refused and all(text.strip() in text_of_pane(app) for text in refused)
        assert "✗ rejected  ○ unverified" in painted(app.legend)[0]
        await pilot.press("x")
        await pilot.pause()
        assert text_of_pane(app) == pane.plain_text
        assert "✗" not in painted(app.legend)[0]
        await pilot.press("v", "x")
        assert any("text view" in said for said in toasts(app))
