"""What the strip says of a pane is what the pane says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from scripted_engine import ScriptedEngine
from shell import make_app, ready
from widget_data import painted, run_steps

from specdec_tui.decoding.records import PrefillDone, Step
from specdec_tui.decoding.standing import Standing, Verdict
from specdec_tui.settings import SPECULATIVE, STRATEGIES
from specdec_tui.several_drafters import key_of
from specdec_tui.tui.figures.words import GOOD
from specdec_tui.tui.panes.pace import Pace
from specdec_tui.tui.panes.pane import StrategyPane
from specdec_tui.tui.panes.strip import Tab, brief, strip_line, tab_of

PIECES = ["x"] * 120
NAMES = ("target", "speculative")


def side_by_side(recomputes: bool = False) -> list[Step]:
    """The rounds of both in turn, as they come while they run."""
    runs = run_steps("target", PIECES, gamma=0), run_steps("speculative", PIECES, alpha=0.9)
    steps = [step for pair in zip(*runs, strict=False) for step in pair]
    steps += [step for run in runs for step in run if step not in steps]
    if not recomputes:
        return steps
    return [
        replace(step, record=replace(step.record, recomputes=True)) if isinstance(step.record, PrefillDone) else step
        for step in steps
    ]


async def test_tab_and_pane_tell_of_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tab once said 1.04× beside a pane's 0.88×, too short: it was drawn at another time."""
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(72, 24)) as pilot:
        await ready(pilot)
        app.grid.begin(NAMES, len(PIECES))
        pane, steps = app.grid.panes["speculative"], side_by_side()
        for begin, end, is_time in ((0, 8, True), (8, 30, False), (30, 60, True), (60, 90, False), (90, 999, True)):
            monkeypatch.setattr(Pace, "is_time", is_time)
            monkeypatch.setattr(app.grid, "_scaled", -1e9)  # as often as it may be
            app.grid.deliver(steps[begin:end])
            strip = str(app.grid.strip.render())
            told = re.search(r"(\S+×)\S*( too short)?", str(pane._figure_line.render()))
            assert told is not None
            assert f"3 speculative {'short' if told[2] else told[1]}" in strip
            rate = re.match(r"[\d.]+", str(app.grid.panes["target"]._figure_line.render()))
            assert rate is not None and f"1 target {float(rate[0]):.0f}/s" in strip


async def test_of_a_baseline_that_recomputes_no_tab_is_green_and_the_mark_is_told() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(72, 24)) as pilot:
        await ready(pilot)
        for recomputes in (False, True):
            app.grid.begin(NAMES, len(PIECES))
            app.grid.deliver(side_by_side(recomputes))
            await pilot.pause()
            tab = tab_of(app.grid.panes["speculative"])
            assert (tab.style == GOOD, tab.word.endswith("×\N{DAGGER}")) == (not recomputes, recomputes)
            assert ("\N{DAGGER} target recomputes" in painted(app.grid.strip)[0]) == recomputes


@pytest.mark.parametrize("width", [10, 30, 44, 60, 120])
def test_what_marks_mean_stands_behind_the_tabs_where_there_is_room(width: int) -> None:
    remarks = "† target recomputes, ‡ over the text both have"
    tabs = [Tab(1, "target", "40/s", ""), Tab(3, "speculative", "1.97×†‡", "", remarks)]
    line, spans = strip_line(tabs, "speculative", width)
    assert cell_len(line.plain) <= max(width, 3 * len(tabs))
    assert (remarks in line.plain) == (width >= 120) and spans[-1][1] <= max(width, 3 * len(tabs))


def test_a_tab_tells_another_text_in_place_of_a_speedup_and_marks_a_figure_that_still_changes() -> None:
    """The drafter's 13.69× looked like the winner, and speedups of runs that had ended kept changing."""
    tabs = []
    for name, so_far in (("drafter", False), ("ngram", True), ("lookup", False)):
        pane = StrategyPane(2, name)
        pane.told, pane.told_so_far = (Standing(13.69, Verdict.OPEN), 400.0), so_far
        tabs.append(tab_of(pane))
    assert [(tab.word, tab.remarks) for tab in tabs] == [("≠ text", ""), ("13.69×…", "… so far"), ("13.69×", "")]
    assert strip_line(tabs, "ngram", 80)[0].plain.endswith(" … so far")


def test_names_are_whole_brief_or_left_out_behind_the_longest_first_and_the_one_in_front_last() -> None:
    """`1 ta`, `3 sp` and `5 lo` stood there."""
    tabs = [Tab(1, "target", "8/s", ""), Tab(3, "speculative", "1.31×", "")]
    tabs += [Tab(4, "ngram", "1.10×", ""), Tab(5, "lookup", "1.10×", "")]
    assert strip_line(tabs, "speculative", 60)[0].plain == " 1 8/s ▸3 speculative 1.31×  4 ngram 1.10×  5 lookup 1.10× "
    assert strip_line(tabs, "ngram", 60)[0].plain == " 1 target 8/s  3 spec 1.31× ▸4 ngram 1.10×  5 lookup 1.10× "
    for width in range(1, 90):
        words = {word for word in strip_line(tabs, "ngram", width)[0].plain.split() if word.isalpha()}
        assert words <= {tab.strategy for tab in tabs} | {"spec"}


def test_the_tab_of_a_further_drafter_has_a_name_as_long_as_there_is_room_for_any() -> None:
    """`8 0.73×` stood there, or a bare `8`: which of the drafters that is was told nowhere."""
    figures = "6/s", "9.0–13.0×", "1.95×", "0.87–1.04×", "0.7–1.0×", "0.24×", "2.0–2.6×", "0.80×", "1.02×", "…"
    names = (*STRATEGIES[:7], *SPECULATIVE[1:])
    assert len({brief(name) for name in STRATEGIES}) == len(STRATEGIES)
    for count in (8, 10):
        tabs = [Tab(key_of(name), name, word, "") for name, word in zip(names[:count], figures, strict=False)]
        for front in ("speculative", "speculative-2"):
            for width in (80, 120, 200):
                line, spans = strip_line(tabs, front, width)
                assert cell_len(line.plain) <= width
                for begin, end, strategy in spans:
                    told = line.plain[begin:end].split()
                    assert strategy not in SPECULATIVE[1:] or {strategy, brief(strategy)} & set(told), line.plain
    without = [replace(tab, word="") for tab in tabs[:8]]
    assert " 8 spec-2 " in strip_line(without, "speculative", 60)[0].plain
