"""What a long trace costs: nothing on the screen's thread is in proportion to its length."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence

import pytest
from scripted_engine import ScriptedEngine
from shell import until

from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Event,
    Finished,
    Lossless,
    LosslessStatus,
    Notice,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.format import Trace, new_header
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.recordings import Replay
from specdec_tui.tui.race.race import Race
from specdec_tui.tui.tokens.rows_view import RowsView
from specdec_tui.tui.tokens.token_view import TokenView

NAMES = ("target", "speculative", "ngram", "lookup")
SIZE = (160, 50)


def long_run(strategy: str, rounds: int) -> list[Event]:
    """Rounds of one token behind 0, 1, … 4 accepted drafts in turn; the target has no drafts."""
    events: list[Event] = [Step(strategy, RunStarted(strategy, 12, 4, 32_768), prompt_text="Why?")]
    events.append(Step(strategy, PrefillDone(Token(1, Status.SAMPLED, 0), 0.2), ("Light",)))
    position = 1
    for number in range(rounds):
        accepted = 0 if strategy == "target" else number % 5
        fates = [Status.ACCEPTED] * accepted
        if strategy != "target" and accepted < 4:
            fates += [Status.REJECTED] + [Status.UNVERIFIED] * (3 - accepted)
        drafts = tuple(
            Token(100 + i, fate, position + i, 0.8, 0.6, 0.9, 0.95 if fate is Status.REJECTED else 0.25)
            for i, fate in enumerate(fates)
        )
        last = Token(200, Status.RESAMPLED if drafts else Status.SAMPLED, position + accepted, 0.7)
        words = (*(f" word{i}" for i in range(len(drafts))), " sky")
        events.append(Step(strategy, RoundVerified(number, drafts, last, 0.008, 0.05, 0.001), words))
        position += accepted + 1
    return [*events, Step(strategy, RunEnded(EndReason.LENGTH), answer="Light and so on")]


def long_trace(rounds: int) -> Trace:
    events = [event for name in NAMES for event in long_run(name, rounds)]
    verdicts = [Checked(name, Lossless(LosslessStatus.IDENTICAL)) for name in NAMES]
    whole = (*events, *verdicts, Finished())
    return Trace(new_header("Why?", whole, settings=Settings()), whole)


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events reached the panes at a time."""
    found: list[int] = []
    from specdec_tui.tui.panes.grid import PaneGrid

    deliver = PaneGrid.deliver

    def counted(self: PaneGrid, batch: Sequence[Event]) -> Finished | None:
        found.append(len(batch))
        return deliver(self, batch)

    monkeypatch.setattr(PaneGrid, "deliver", counted)
    return found


async def filling(app: SpecdecApp) -> None:
    """Wait until some of a trace is in the panes; the pilot's own waiting would wait for all of it."""
    while not app.stage.is_filling:
        await asyncio.sleep(0)


async def test_a_long_trace_comes_to_the_panes_in_slices_with_room_for_keys_between(slices: list[int]) -> None:
    trace = long_trace(1000)
    app = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(trace))
    async with app.run_test(size=SIZE) as pilot:
        await filling(app)
        await pilot.press("v")  # a key between two slices
        assert app.grid.panes["target"].view == "rounds"
        await until(pilot, lambda: not app.stage.is_filling)
        assert max(slices) <= 800 and sum(slices) == len(trace.events)
        assert [pane.figures.rounds for pane in app.grid.shown] == [1000] * 4
        assert app.table.display


async def test_another_trace_takes_the_place_of_one_that_is_still_coming(slices: list[int]) -> None:
    app = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(long_trace(1000)))
    async with app.run_test(size=SIZE) as pilot:
        await filling(app)
        app.recordings.show(long_trace(3))
        await until(pilot, lambda: not app.stage.is_filling)
        await pilot.pause(0.1)
        assert [pane.figures.rounds for pane in app.grid.shown] == [3] * 4
        assert sum(slices) < len(long_trace(1000).events)


def test_a_race_whose_rounds_took_no_time_is_shown_in_slices_too() -> None:
    steps = [Step("target", RunStarted("target", 1, 4, 8)), *(Step("target", Notice(str(i))) for i in range(20_000))]
    race = Race(steps, 100)
    told = []
    while not race.over:
        race.advance(1)
    while True:
        due = race.due()
        told.append(len(due.steps))
        if not due.more:
            break
    assert sum(told) == len(steps) and max(told) <= 500


@pytest.fixture
def counted_to_the_end(monkeypatch: pytest.MonkeyPatch) -> Callable[[RowsView], Awaitable[None]]:
    """Lets a view count what is out of sight, and waits for its last line: not for a time, for each of its turns."""
    allowed: list[RowsView] = []
    turned = asyncio.Event()
    original = RowsView._count_on

    def count_on(self: RowsView) -> None:
        self._counting = None
        if self in allowed:
            original(self)
            turned.set()

    monkeypatch.setattr(RowsView, "_count_on", count_on)

    async def wait(shown: RowsView) -> None:
        allowed.append(shown)
        shown._count_later()
        while shown.lines_at_rest != shown.line_count:
            turned.clear()
            await turned.wait()
        allowed.clear()

    return wait


@pytest.mark.parametrize("view", ["rounds", "tree"])
async def test_lines_of_a_long_run_are_made_for_what_is_in_sight_and_counted_bit_by_bit(
    view: str, monkeypatch: pytest.MonkeyPatch, counted_to_the_end: Callable[[RowsView], Awaitable[None]]
) -> None:
    app = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(long_trace(1500)))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.recordings.trace is not None and not app.stage.is_filling)
        pane = app.grid.panes["speculative"]
        shown = pane.rounds_view if view == "rounds" else pane.tree_view
        made: list[int] = []
        original = type(shown).lines_for

        def counted(self: object, row: object, width: int) -> object:
            made.append(width)
            return original(self, row, width)  # type: ignore[arg-type]

        monkeypatch.setattr(type(shown), "lines_for", counted)
        pane.view = view
        await until(pilot, lambda: shown.line_count)
        assert 0 < len(made) < 400  # of 1,501 rounds
        await counted_to_the_end(shown)
        heights = [len(original(shown, row, shown._width)) for row in shown.rows]  # type: ignore[arg-type]
        assert shown.line_count == sum(heights)
        assert shown.following and shown.scroll_offset.y == shown.max_scroll_y
        shown.scroll_to(y=sum(heights[:700]), animate=False)
        await pilot.pause()
        wide = shown._width
        await pilot.resize_terminal(110, 50)
        await until(pilot, lambda: shown._width < wide)
        await counted_to_the_end(shown)
        heights = [len(original(shown, row, shown._width)) for row in shown.rows]  # type: ignore[arg-type]
        assert shown.line_count == sum(heights)
        assert abs(shown.mark_of(shown.scroll_offset.y) - 700) <= 1  # the reader is where he was


async def test_a_search_through_a_long_run_finds_all_without_holding_the_screen_up() -> None:
    app = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(long_trace(1500)))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.recordings.trace is not None and not app.stage.is_filling)
        pane = app.grid.panes["speculative"]
        pane.view = "rounds"
        pane.focus()
        await pilot.press("f", "s", "k", "y")
        search = pane.rounds_view.search
        assert search is not None
        await until(pilot, lambda: not search.is_reading)
        assert len(search.matches) == 1500


async def test_the_loop_is_free_while_a_long_trace_is_opened() -> None:
    app = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(long_trace(4000)))
    async with app.run_test(size=SIZE):
        await filling(app)
        turns = 0
        while app.stage.is_filling:
            await asyncio.sleep(0)
            turns += 1
        assert turns > 10


async def test_drafts_come_and_go_with_a_few_calls_a_round_and_segments_for_what_is_in_sight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = 2000
    app = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(long_trace(rounds)))
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.recordings.trace is not None and not app.stage.is_filling)
        view = app.grid.panes["speculative"].query_one(TokenView)
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        for wanted in (True, False):
            calls = 0
            sys.setprofile(count)
            try:
                view.with_drafts = wanted
            finally:
                sys.setprofile(None)
            assert view.with_drafts is wanted and 0 < calls < 8 * rounds  # five tokens a round
        drawn: list[int] = []
        original = TokenView.line_segments
        monkeypatch.setattr(TokenView, "line_segments", lambda self, n: drawn.append(n) or original(self, n))
        view.with_drafts = True
        await pilot.pause()
        wide = view._width
        await pilot.resize_terminal(120, 50)
        await until(pilot, lambda: view._width < wide)
        assert 0 < len(drawn) < 12 * SIZE[1] < view.line_count  # of all panes, drawn a few times
