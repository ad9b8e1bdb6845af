"""The charts view of a pane: live, at every size, in every theme, and nothing at all while hidden."""

from __future__ import annotations

import re

import pytest
from rich.color import ColorType
from shell import until
from textual.color import Color
from textual.events import MouseScrollDown
from textual.geometry import Size
from textual.pilot import Pilot
from textual.selection import Selection
from textual_hires_canvas import Canvas
from widget_data import STORY, HostApp, painted, run_steps, strips_of, words_of

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import (
    EndReason,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.tui.app.themes import THEMES
from specdec_tui.tui.figures.chart_cells import full_chart
from specdec_tui.tui.figures.chart_layout import Chart
from specdec_tui.tui.figures.charts_view import ChartsView
from specdec_tui.tui.figures.plot import PlotCanvas
from specdec_tui.tui.figures.scale import Scale
from specdec_tui.tui.figures.speed_plot import ticks
from specdec_tui.tui.panes.pane import StrategyPane

PIECES = words_of(STORY)


def baseline() -> RunFigures:
    figures = RunFigures()
    for step in run_steps("target", PIECES, gamma=0):
        figures.add(step.record)
    return figures


def showing(pane: StrategyPane) -> ChartsView:
    """The pane's charts with a whole run in them."""
    pane.begin(len(PIECES))
    pane.view = "charts"
    pane.set_baseline(baseline())
    pane.feed(run_steps("speculative", PIECES))
    return pane.charts_view


def plotted(view: ChartsView) -> str:
    """What the plot paints, line by line; nothing where it is not shown."""
    if view.plot is None or not view.plot.display:
        return ""
    return "\n".join(line for canvas in view.plot.query(Canvas) for line in painted(canvas))


async def until_plotted(pilot: Pilot[None], view: ChartsView, baseline: bool = True) -> None:
    """Wait for the run's line, and for the target's dots."""
    await until(pilot, lambda: braille(plotted(view)) > 5 and ("•" in plotted(view)) == baseline)


def braille(text: str) -> int:
    return sum("⠁" <= character <= "⣿" for character in text)


@pytest.mark.parametrize(
    ("size", "cells", "compact"),
    [
        ((80, 7), [], []),
        ((80, 10), [], ["ms, last 10", "by position", "accepted"]),
        ((60, 16), ["tok/s", "▒draft █verify"], ["by position", "accepted"]),
        ((66, 26), ["tok/s", "accepted", "by position", "ms"], []),
        ((200, 60), ["tokens/s over time", "accepted drafts", "acceptance of", "ms of the last rounds"], []),
    ],
)
async def test_a_pane_shows_as_many_charts_as_it_has_room_for(
    size: tuple[int, int], cells: list[str], compact: list[str]
) -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=size) as pilot:
        view = showing(pane)
        await pilot.pause()
        await pilot.pause()
        lines = view.lines
        assert lines[0].startswith("acceptance") and "0.79, high" in lines[0]
        assert lines[1].startswith("speedup") and "2.15×, faster" in lines[1]
        assert lines[2].startswith("tok/s") and "35.3" in lines[2]
        assert all("last 31" in line for line in lines[:3])
        assert [line[:11].strip() for line in lines[3 : 3 + len(compact)]] == compact
        for title in cells:
            assert title in "\n".join(lines[3:])
        if cells:
            await until_plotted(pilot, view)
            assert braille(plotted(view)) > 5
            assert view.plot is not None and view.region.contains_region(view.plot.region)
        else:
            assert view.plot is None
        assert [strip.cell_length for strip in strips_of(view)] == [view.size.width] * view.size.height


async def test_nothing_is_drawn_or_mounted_before_the_view_is_shown() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(120, 40)) as pilot:
        pane.feed(run_steps("speculative", PIECES))
        await pilot.pause()
        assert pane.charts_view.lines == [] and pane.charts_view.plot is None
        pane.view = "charts"
        await until_plotted(pilot, pane.charts_view, baseline=False)
        drawn = pane.charts_view.lines
        pane.view = "text"
        pane.begin(9)
        pane.feed(run_steps("speculative", PIECES[:20]))
        await pilot.pause()
        assert pane.charts_view.lines == drawn


async def test_the_charts_follow_a_run_and_a_new_one_clears_them() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(120, 40)) as pilot:
        pane.view = "charts"
        pane.begin(len(PIECES))
        await until(pilot, lambda: pane.charts_view.lines[:1] == ["no rounds yet"])
        steps = run_steps("speculative", PIECES)
        pane.feed(steps[:9])
        await until(pilot, lambda: "last 3" in pane.charts_view.lines[0])
        pane.feed(steps[9:])
        assert "last 31" in pane.charts_view.lines[0]
        await until_plotted(pilot, pane.charts_view, baseline=False)
        pane.begin(9)
        await until(pilot, lambda: pane.charts_view.lines[:1] == ["no rounds yet"])
        assert plotted(pane.charts_view) == ""
        pane.feed(steps)
        await until_plotted(pilot, pane.charts_view, baseline=False)


async def test_the_plot_has_both_lines_and_its_axes_start_at_zero() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(120, 40)) as pilot:
        view = showing(pane)
        await until_plotted(pilot, view)
        assert view.plot is not None and (view.plot._x_min, view.plot._y_min) == (0.0, 0.0)
        shown = plotted(view)
        assert shown.count("•") > 20 and braille(shown) > 10
        pane.set_baseline(None)
        await pilot.pause()
        await pilot.pause()
        assert "•" not in plotted(view)
        assert "no run of the target" in view.lines[1]


async def test_the_target_says_what_does_not_apply() -> None:
    pane = StrategyPane(1, "target")
    async with HostApp(pane, columns="-one").run_test(size=(120, 40)) as pilot:
        pane.view = "charts"
        pane.feed(run_steps("target", PIECES, gamma=0))
        pane.set_baseline(pane.figures)
        await until_plotted(pilot, pane.charts_view, baseline=False)
        text = "\n".join(pane.charts_view.lines)
        assert "no drafts to judge" in text and "speedup" not in text and "acceptance" not in text
        assert "16.4" in text and "•" not in plotted(pane.charts_view)


@pytest.mark.parametrize("rounds", [0, 1, 2])
@pytest.mark.parametrize("seconds", [0.0, 0.05])
async def test_a_cancelled_run_of_few_rounds_is_drawn(rounds: int, seconds: float) -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(120, 40)) as pilot:
        pane.view = "charts"
        pane.feed([Step("speculative", RunStarted("speculative", 3, 2, 9))])
        pane.feed([Step("speculative", PrefillDone(Token(0, Status.SAMPLED, 0), 0.1), ("a",))])
        for index in range(rounds):
            drafts = (Token(1, Status.ACCEPTED, 1),)
            record = RoundVerified(index, drafts, Token(2, Status.BONUS, 2), seconds, seconds, 0.0)
            pane.feed([Step("speculative", record, ("b", "c"))])
        pane.feed([Step("speculative", RunEnded(EndReason.CANCELLED))])
        for _ in range(5):
            await pilot.pause(0.01)
        assert pane.charts_view.lines[0].startswith("acceptance" if rounds else "no rounds yet")
        if rounds and seconds:
            await until_plotted(pilot, pane.charts_view, baseline=False)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
async def test_colours_come_from_the_theme_and_change_with_it(theme: object) -> None:
    other = next(known for known in THEMES if known is not theme)
    pane = StrategyPane(2, "speculative")
    app = HostApp(pane, columns="-one", theme=other.name)
    async with app.run_test(size=(120, 40)) as pilot:
        view = showing(pane)
        await until_plotted(pilot, view)
        app.theme = theme.name  # type: ignore[attr-defined]
        for _ in range(10):
            await pilot.pause(0.01)
        good = Color.parse(theme.variables["token-accepted"])  # type: ignore[attr-defined]
        own = Color.parse(theme.primary)  # type: ignore[attr-defined]
        assert good.rgb in colours_of(view)
        assert view.plot is not None
        assert own.rgb in colours_of(view.plot.query_one("#plot", Canvas))


def colours_of(widget: ChartsView | Canvas) -> set[tuple[int, int, int]]:
    found = set()
    for strip in strips_of(widget):
        for segment in strip:
            color = segment.style.color if segment.style else None
            if color is not None and color.type is ColorType.TRUECOLOR:
                assert color.triplet is not None
                found.add(tuple(color.triplet))
    return found


async def test_without_colours_words_and_marks_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one", ansi_color=True).run_test(size=(120, 40)) as pilot:
        view = showing(pane)
        await until_plotted(pilot, view)
        assert "high" in view.lines[0] and "faster" in view.lines[1]
        assert "▒draft" in "\n".join(view.lines) and "█verify" in "\n".join(view.lines)
        assert braille(plotted(view)) > 5


async def test_a_canvas_without_rows_yet_is_painted_without_colours_too() -> None:
    canvas = PlotCanvas(1, 1)
    async with HostApp(canvas, columns="-one").run_test(size=(30, 9)):
        canvas._canvas_size = Size(0, 0)
        strips = strips_of(canvas)
        assert all(segment.style is not None for strip in strips for segment in strip)
        assert [strip.cell_length for strip in strips] == [canvas.size.width] * canvas.size.height


async def test_the_charts_survive_every_size_and_all_keys_of_a_pane() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(80, 24)) as pilot:
        view = showing(pane)
        pane.focus()
        for size in [(1, 1), (2, 3), (300, 100), (5, 40), (40, 2), (30, 30), (80, 24)]:
            await pilot.resize_terminal(*size)
            await pilot.press("up", "down", "pageup", "pagedown", "home", "end")
            await pilot.pause()
            if view.plot is not None and view.plot.display:
                assert view.region.contains_region(view.plot.region)
        await pilot.resize_terminal(120, 40)
        await until_plotted(pilot, view)
        assert view.plot is not None and view.region.contains_region(view.plot.region)


async def test_a_click_on_the_plot_focuses_the_pane_and_the_wheel_does_not_zoom() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(120, 40)) as pilot:
        view = showing(pane)
        await until_plotted(pilot, view)
        assert view.plot is not None
        limits = view.plot._x_max, view.plot._y_max
        await pilot.click(view.plot, offset=(12, 3))
        assert pane.has_focus
        await pilot.press("plus", "minus", "r", "left")
        await pilot._post_mouse_events([MouseScrollDown], view.plot, offset=(12, 3))
        await pilot.pause()
        assert (view.plot._x_max, view.plot._y_max) == limits


@pytest.mark.parametrize(
    ("top", "most", "expected"),
    [(36.0, 2, [0, 30]), (12.2, 2, [0, 10]), (33.0, 4, [0, 20]), (33.0, 5, [0, 10, 20, 30]), (0.7, 9, [0.0, 0.1])],
)
def test_ticks_are_round_numbers_and_never_one_alone(top: float, most: int, expected: list[float]) -> None:
    found = ticks(top, most)
    assert found[: len(expected)] == pytest.approx(expected)
    assert 2 <= len(found) <= max(2, most) and found[-1] <= top * 1.000001


@pytest.mark.parametrize("top", [1e-6, 0.3, 1.0, 7.7, 20_000.0])
@pytest.mark.parametrize("most", [0, 1, 2, 3, 10])
def test_ticks_fit_whatever_the_scale(top: float, most: int) -> None:
    found = ticks(top, most)
    assert 2 <= len(found) <= max(2, most)
    assert found[0] == 0 and found[-1] <= top * 1.000001


async def test_what_charts_say_in_text_can_be_selected_with_the_mouse() -> None:
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(100, 30)) as pilot:
        view = showing(pane)
        await until_plotted(pilot, view)
        row = next(index for index, line in enumerate(view.lines) if "acceptance" in line)
        line = view.lines[row]
        first, last = line.index("acceptance") + 3, line.index("acceptance") + 15
        await pilot.hover(view, offset=(first, row))
        await pilot.mouse_down(view, offset=(first, row))
        await pilot.hover(view, offset=(last, row))
        await pilot.mouse_up(view, offset=(last, row))
        await pilot.pause()
        assert pilot.app.screen.get_selected_text() == line[first : last + 1]
        marked = view.screen.get_component_rich_style("screen--selection").bgcolor
        cells = [segment.text for segment in view.render_line(row) if segment.style and segment.style.bgcolor == marked]
        assert "".join(cells) == line[first : last + 1]
        view.screen.selections = {view: Selection(None, None)}
        assert pilot.app.screen.get_selected_text() == "\n".join(view.lines).rstrip()


async def test_the_heading_tells_where_the_axis_ends_whatever_the_height_of_a_plot_or_the_pace_of_the_scale() -> None:
    ends = []
    for size, scale in (((200, 60), Scale(peak=80.0)), ((120, 20), Scale(peak=80.0)), ((120, 20), Scale(peak=1.0))):
        pane = StrategyPane(2, "speculative")
        async with HostApp(pane, columns="-one").run_test(size=size) as pilot:
            view = showing(pane)
            pane.set_scale(scale)
            await until_plotted(pilot, view)
            assert view.plot is not None
            ends.append(view.plot._y_max)
            told = re.search(r"0–([\d.]+).*⠤⠒", "\n".join(view.lines[3:]))
            assert told is not None and float(told[1]) == pytest.approx(view.plot._y_max, rel=0.005)
            bars = next(line for line in view.lines if line.startswith("tok/s 0–"))
            assert bars.split()[1] == f"0–{told[1]}", "one scale for bars and plot"
    assert ends[0] == ends[1] == 80 * 1.1 and ends[2] >= pane.figures.course.peak  # a run may be ahead of the scale


@pytest.mark.parametrize("width", [25, 37, 50, 60, 76, 100])
def test_the_heading_of_the_plot_tells_its_scale_wherever_there_is_room_and_both_lines_before_their_numbers(
    width: int,
) -> None:
    run = RunFigures()
    for step in run_steps("speculative", PIECES):
        run.add(step.record)
    (line,) = full_chart(Chart.SPEED, run, run.window(), baseline(), width, 9, Scale(peak=8.0))
    text = "".join(part for part, _ in line)
    assert len(text) <= width and "⠤⠒ run" in text and "•• target" in text
    assert ("0–8.8" in text) == (width >= 37)
    assert ("in all panes" in text) == (width >= 76)
