"""Finding text in a pane: what is marked, where the view goes, and that a run goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from textual.pilot import Pilot
from textual.widgets import Input
from widget_data import HostApp, run_steps, strips_of

from specdec_tui.decoding.records import DraftsProposed, PrefillDone, RoundVerified, Status, Token
from specdec_tui.tui.commands.command import following_view
from specdec_tui.tui.lines.inks import ink
from specdec_tui.tui.lines.line_view import LineView
from specdec_tui.tui.panes.find_bar import FindBar
from specdec_tui.tui.panes.pane import StrategyPane
from specdec_tui.tui.tokens.token_view import TokenView

LINES = [f"line {i}{' with a needle' if i % 20 == 7 else ''}\n" for i in range(200)]


@asynccontextmanager
async def shown(pieces: list[str], size: tuple[int, int]) -> AsyncIterator[tuple[StrategyPane, Pilot[None]]]:
    """A pane with a run that emitted `pieces`."""
    pane = StrategyPane(1, "target")
    async with HostApp(pane, columns="-one").run_test(size=size) as pilot:
        pane.begin(len(pieces))
        pane.feed(run_steps("target", pieces, gamma=0, end=None))
        await pilot.pause()
        yield pane, pilot


def marked(view: LineView, name: str = "find--match") -> list[str]:
    """The texts drawn on the ground of a mark, row by row."""
    ground = ink(view, name, alone=True).bgcolor
    rows = ["".join(s.text for s in strip if s.style and s.style.bgcolor == ground) for strip in strips_of(view)]
    return [row for row in rows if row]


def count(pane: StrategyPane) -> str:
    return str(pane.query_one(".count").render())


async def find(pilot: Pilot[None], pane: StrategyPane, text: str) -> None:
    pane.find()
    await pilot.pause()
    await pilot.press(*["space" if c == " " else c for c in text])
    await pilot.pause()


async def test_typing_marks_all_matches_in_sight_and_the_current_one_more() -> None:
    async with shown(["Blue", " sky", ",", " bl", "ue", " sea,", " BLUE"], (60, 12)) as (pane, pilot):
        await find(pilot, pane, "blue")
        assert marked(pane.token_view) == ["blueBLUE"]
        assert marked(pane.token_view, "find--current") == ["Blue"]
        assert count(pane) == "1 of 3"
        await pilot.press(*["backspace"] * 4, "B")
        await pilot.pause()
        assert count(pane) == "1 of 2"


async def test_a_match_is_marked_across_tokens_and_the_lines_of_the_wrapping() -> None:
    async with shown(["the quick brown", " fox jumps over", " the lazy dog"], (20, 14)) as (pane, pilot):
        await find(pilot, pane, "fox jumps over the")
        assert " ".join(line.strip() for line in marked(pane.token_view, "find--current")) == "fox jumps over the"
        assert len(marked(pane.token_view, "find--current")) > 1


async def test_marks_sit_on_wide_characters_and_behind_tabs() -> None:
    async with shown(["世界\t", "fox 👩\u200d👩 世", "界 fox"], (60, 12)) as (pane, pilot):
        await find(pilot, pane, "fox")
        assert marked(pane.token_view, "find--current") == ["fox"]
        assert marked(pane.token_view) == ["fox"]
        assert all(strip.cell_length == pane.token_view.size.width for strip in strips_of(pane.token_view))


async def test_next_and_previous_go_around_and_bring_the_match_into_sight() -> None:
    async with shown(LINES, (60, 20)) as (pane, pilot):
        pane.token_view.scroll_to(y=0, animate=False)
        await find(pilot, pane, "needle")
        assert count(pane) == "1 of 10"
        for key, at in (("enter", 2), ("down", 3), ("up", 2), ("shift+enter", 1), ("up", 10), ("down", 1)):
            await pilot.press(key)
            await until(pilot, lambda: count(pane) == f"{at} of 10", key)  # noqa: B023
            await until(pilot, lambda: marked(pane.token_view, "find--current") == ["needle"], key)


async def test_escape_closes_keeps_the_place_and_gives_the_keys_back_to_the_pane() -> None:
    async with shown(LINES, (60, 20)) as (pane, pilot):
        pane.token_view.scroll_to(y=0, animate=False)
        await find(pilot, pane, "line 107")
        place = pane.token_view.scroll_offset.y
        assert place > 80
        await pilot.press("escape")
        await pilot.pause()
        assert not pane.query(FindBar)
        assert pane.has_focus
        assert pane.token_view.scroll_offset.y == place
        assert marked(pane.token_view) == marked(pane.token_view, "find--current") == []


async def test_new_text_is_searched_while_the_reader_stays_at_the_match() -> None:
    async with shown(LINES[:60], (60, 20)) as (pane, pilot):
        await find(pilot, pane, "needle")
        place = pane.token_view.scroll_offset.y
        pane.feed(run_steps("target", LINES[60:], gamma=0, end=None)[1:])
        await pilot.press("x", "backspace")
        await pilot.pause()
        assert count(pane).endswith("of 10")
        assert pane.token_view.scroll_offset.y == place


async def test_drafts_that_wait_are_not_found_until_they_are_emitted() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)):
        search = view.begin_search()
        search.look_for("bar", 0)
        view.run_log.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1), ("foo ",))
        view.run_log.add(DraftsProposed(0, (Token(1, Status.PENDING, 1),)), ("bar",))
        view.sync()
        assert len(search.matches) == 0
        verdict = RoundVerified(0, (Token(1, Status.ACCEPTED, 1),), Token(2, Status.BONUS, 2), 0.0, 0.0, 0.0)
        view.run_log.add(verdict, ("ba", "r"))
        view.sync()
        assert len(search.matches) == 1


async def test_a_new_run_is_searched_afresh() -> None:
    async with shown(["needle"], (40, 12)) as (pane, pilot):
        await find(pilot, pane, "needle")
        pane.begin(4)
        assert pane.token_view.search is not None
        assert len(pane.token_view.search.matches) == 0
        pane.feed(run_steps("target", ["a needle", " and a needle"], gamma=0))
        assert len(pane.token_view.search.matches) == 2


async def test_in_rounds_view_the_shown_lines_are_searched_and_rounds_to_come_too() -> None:
    pane = StrategyPane(2, "speculative")
    steps = run_steps("speculative", [f" word{i}" for i in range(40)])
    pane.view = "rounds"
    async with HostApp(pane, columns="-one").run_test(size=(80, 30)) as pilot:
        pane.begin(40)
        pane.feed(steps[:10])
        await pilot.pause()
        await find(pilot, pane, "")
        pane.query_one(Input).value = "✓·word"
        await pilot.pause()
        before = len(pane.rounds_view.search.matches)  # type: ignore[union-attr]
        pane.feed(steps[10:])
        await pilot.pause()
        drawn = "\n".join(pane.rounds_view.line_text(line) for line in range(pane.rounds_view.line_count))
        assert len(pane.rounds_view.search.matches) == drawn.count("✓·word") > before > 0  # type: ignore[union-attr]
        await pilot.resize_terminal(44, 30)
        await pilot.pause()
        assert len(pane.rounds_view.search.matches) == drawn.count("✓·word")  # type: ignore[union-attr]
        assert marked(pane.rounds_view)


async def test_the_next_view_is_searched_for_the_same() -> None:
    async with shown(["a needle", " and", " more"], (60, 12)) as (pane, pilot):
        await find(pilot, pane, "needle")
        pane.view = following_view(pane.view)
        assert pane.token_view.search is None
        await until(pilot, lambda: marked(pane.rounds_view, "find--current") == ["needle"])  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [(1, 1), (3, 4), (12, 6), (200, 60)])
async def test_any_size_is_survived(size: tuple[int, int]) -> None:
    async with shown(LINES, (60, 20)) as (pane, pilot):
        await find(pilot, pane, "needle")
        await pilot.resize_terminal(*size)
        await pilot.pause()
        await pilot.press("enter", "up", "escape")


async def test_f_searches_the_pane_with_the_focus_and_every_key_is_typed_there() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "why blue")
        await until(pilot, lambda: not app.runs.running and app.grid.panes["target"].plain_text)
        await pilot.press("escape")
        app.grid.panes["speculative"].focus()
        await pilot.press("f", "b", "l", "u", "e", "1", "v")
        bar = app.grid.panes["speculative"].query_one(FindBar)
        assert bar.query_one(Input).value == "blue1v"
        await pilot.press("ctrl+f", "b")
        assert bar.query_one(Input).value == "b"
        await pilot.press("escape", "v")
        assert app.grid.panes["speculative"].view == "rounds"


async def test_ctrl_c_in_the_field_still_stops_the_run() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "one")
        engine.step(3)
        await until(pilot, lambda: app.grid.panes["target"].plain_text)
        await pilot.press("escape", "f", "l", "ctrl+c")
        await until(pilot, lambda: not app.runs.running)


@pytest.mark.parametrize("no_colour", [False, True])
async def test_marks_can_be_told_apart_with_and_without_colours(
    no_colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    view = TokenView()
    async with HostApp(view, columns="-one", ansi_color=no_colour or None).run_test(size=(40, 8)):
        match, current = (ink(view, n, alone=True) for n in ("find--match", "find--current"))
        assert (match.reverse or False) == (current.reverse or False) == no_colour
        assert current.bold and current.underline and not match.underline
        assert no_colour or len({match.bgcolor, current.bgcolor, view.base_style.bgcolor}) == 3


async def test_the_palette_opens_the_field_with_the_focus_in_it() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("ctrl+p", *"find", "enter")
        await until(pilot, lambda: app.query(FindBar) and app.focused is app.query_one(FindBar).query_one(Input))
        await pilot.press("x")
        assert app.query_one(FindBar).query_one(Input).value == "x"


async def test_escape_in_a_maximised_pane_closes_the_field_before_the_pane() -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "why")
        await until(pilot, lambda: not app.runs.running and app.recordings.trace is not None)
        await pilot.press("escape", "z", "f", "s", "comma", "slash")
        bar = app.query_one(FindBar)
        assert bar.query_one(Input).value == "s,/"
        await pilot.press("escape")
        await until(pilot, lambda: not app.query(FindBar))
        assert app.screen.maximized is not None
        await pilot.press("escape")
        assert app.screen.maximized is None
