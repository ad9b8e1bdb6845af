"""What a pane says of its run's speed, and of what it should have been."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from shell import until
from test_pane import PIECES, figure_text, status
from widget_data import HostApp, run_steps, with_changed_pace

from specdec_tui.decoding.costs import costs
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import (
    EndReason,
    Lossless,
    LosslessStatus,
    PrefillDone,
    RoundVerified,
    RunEnded,
    Status,
    Step,
    Token,
)
from specdec_tui.decoding.standing import standing
from specdec_tui.tui.figures.chart_lines import gauge_lines
from specdec_tui.tui.figures.scale import Scale
from specdec_tui.tui.figures.words import figure_lines, quotient, speed_words
from specdec_tui.tui.panes.pane import StrategyPane


async def test_a_stopped_run_says_once_that_it_stopped() -> None:
    """It once said: stopped · stopped, not checked."""
    pane = StrategyPane(2, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(100, 20)) as pilot:
        pane.feed(run_steps("speculative", PIECES, end=RunEnded(EndReason.CANCELLED)))
        pane.checked(Lossless(LosslessStatus.NOT_APPLICABLE, detail="stopped, not checked"))
        await pilot.pause()
        assert status(pane).count("stopped") == 1 and "stopped, not checked" in status(pane)


def figures_of(steps: Iterable[Step]) -> RunFigures:
    found = RunFigures()
    for step in steps:
        found.add(step.record)
    return found


def run_of(strategy: str, **settings: Any) -> RunFigures:
    return figures_of(run_steps(strategy, PIECES, **settings))


async def test_a_pane_with_room_says_what_was_to_be_expected_and_how_far_off_it_is() -> None:
    target = run_of("target", gamma=0)
    pane = StrategyPane(3, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(60, 20)) as pilot:
        pane.feed(run_steps("speculative", PIECES))
        pane.set_baseline(target)
        await pilot.pause()
        first, second = figure_text(pane).split("\n")
        found = costs(pane.figures, target)
        expected, off = found.predicted_speedup, found.remainder
        assert expected is not None and off is not None
        assert abs(off) < 0.005 and f"predicted {expected:.2f}×  measured ±0 %" in second
        assert "c 0.13  v 1.00" in second and "predicted" not in first
        await pilot.resize_terminal(120, 20)
        await pilot.pause()
        # By hand: 0.061 s a step of the target, 0.093 s a full round and a drafting time of 8 ms each.
        told = re.search(r"(\S+) tok/round ÷ (\S+) target steps = (\S+)×", figure_text(pane))
        assert told is not None and found.tokens is not None
        tokens, steps = float(told[1]), float(told[2])
        assert abs(tokens - found.tokens) < 0.005 and abs(steps - found.tokens / expected) < 0.005
        assert f"{tokens / steps:.2f}" == told[3] == f"{expected:.2f}"
        mean = pane.figures.decode_seconds / pane.figures.rounds
        assert steps == pytest.approx(mean / 0.061, rel=0.01)
        await pilot.resize_terminal(90, 9)
        await pilot.pause()
        assert "\n" not in figure_text(pane) and "predicted" in figure_text(pane)


@pytest.mark.each_value
@pytest.mark.parametrize("view", ["text", "rounds", "tree", "charts"])
@pytest.mark.parametrize(("width", "height"), [(44, 20), (58, 20), (60, 11), (120, 40), (120, 9)])
async def test_where_step_times_vary_it_is_said_in_the_place_of_what_was_to_be_expected(
    view: str, width: int, height: int
) -> None:
    """Predicted speedup, c and v went without a word."""
    target = RunFigures()
    for step in with_changed_pace(run_steps("target", PIECES, gamma=0)):
        target.add(step.record)
    pane = StrategyPane(3, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(width, height)) as pilot:
        pane.view = view
        pane.feed(with_changed_pace(run_steps("speculative", PIECES)))
        pane.set_baseline(target)
        await pilot.pause()
        found = standing(pane.figures, target)
        assert found is not None and not found.is_disturbed
        assert "step times vary" in figure_text(pane)
        assert height < 20 or "predicted, c, v: step times vary" in figure_text(pane)


async def test_a_disturbed_clock_is_said_in_the_place_of_a_ratio() -> None:
    pane = StrategyPane(5, "lookup")
    async with HostApp(pane, columns="-one").run_test(size=(58, 9)) as pilot:
        pane.feed(run_steps("lookup", PIECES, alpha=0.2, round_seconds=0.057))
        pane.set_baseline(run_of("target", gamma=0, round_seconds=0.171))
        await pilot.pause()
        found = standing(pane.figures, run_of("target", gamma=0, round_seconds=0.171))
        assert found is not None and found.is_disturbed
        assert f"clock disturbed {found.text}" in figure_text(pane) and f"{found.ratio:.2f}×" not in figure_text(pane)
        await pilot.resize_terminal(100, 20)
        await pilot.pause()
        assert "r repeats" in figure_text(pane) and found.reason in figure_text(pane)
        pane.can_repeat = False  # a trace, and no models
        pane.set_baseline(None)
        pane.set_baseline(run_of("target", gamma=0, round_seconds=0.171))
        await pilot.pause()
        assert "r repeats" not in figure_text(pane) and found.reason in figure_text(pane)


@pytest.mark.parametrize(("width", "height"), [(60, 9), (60, 16), (40, 12), (120, 4), (80, 30)])
@pytest.mark.parametrize("view", ["text", "charts"])
async def test_wherever_a_disturbed_clock_is_told_its_reason_is_too(width: int, height: int, view: str) -> None:
    """It said "r repeats" alone in charts at 120 columns, and in panes too low for a second row."""
    pane = StrategyPane(5, "lookup")
    target = run_of("target", gamma=0, round_seconds=0.171)
    async with HostApp(pane, columns="-one").run_test(size=(width, height)) as pilot:
        pane.view = view
        pane.feed(run_steps("lookup", PIECES, alpha=0.2, round_seconds=0.057))
        pane.set_baseline(target)
        await pilot.pause()
        found = standing(pane.figures, target)
        assert found is not None and found.is_disturbed
        assert found.reason[:28] in figure_text(pane)
        shown = pane.query_one(".figures").size.height
        assert figure_text(pane).count("\n") + 1 == shown
        if width >= 80 and height > 4:
            assert found.reason in figure_text(pane)


def disturbed_run(why: str) -> tuple[RunFigures, RunFigures]:
    """A run and a baseline."""
    target = run_of("target", gamma=0, round_seconds=0.281)
    half = PIECES[: len(PIECES) // 2]
    match why:
        case "plain":
            return run_of("lookup", gamma=0, round_seconds=0.0823), target
        case "wide":
            return run_of("speculative", alpha=0.2, round_seconds=0.1942), target
        case "most":
            return figures_of(run_steps("speculative", PIECES[:12], alpha=1.0, round_seconds=0.2)), target
        case "marked":
            steps = run_steps("target", PIECES, gamma=0, round_seconds=0.281)
            target = figures_of(with_changed_pace(steps, factor=0.2))
            return figures_of(run_steps("lookup", half, gamma=0, round_seconds=0.0823)), target
    return figures_of(with_changed_pace(run_steps("speculative", PIECES, round_seconds=0.3))), target


@pytest.mark.parametrize("why", ["plain", "wide", "most", "marked", "pace"])
def test_a_pane_of_half_a_terminal_of_120_columns_has_room_for_the_whole_reason(why: str) -> None:
    """It ended in `where target's over…`, and a run of four tokens in `do not allow a…`."""
    run, target = disturbed_run(why)
    found = standing(run, target)
    assert found is not None and found.is_disturbed and bool(found.marks) == (why == "marked")
    beginning = {"wide": "many-token", "most": "", "pace": "the machine's"}
    assert found.reason.startswith(beginning.get(why, "one-token"))
    assert found.reason in figure_lines(run, target, False, 56, rows=2).plain


@pytest.mark.parametrize("rows", [1, 2])
def test_no_width_shows_a_speed_and_leaves_out_that_its_clock_was_disturbed(rows: int) -> None:
    """Bars of the last rounds took the place of the interval in a pane of half of 80 columns."""
    run, target = disturbed_run("pace")
    found = standing(run, target)
    assert found is not None and found.is_disturbed
    for width in range(28, 90):
        assert "clock disturbed" in figure_lines(run, target, False, width, rows=rows).plain, width


@pytest.mark.parametrize("width", [58, 100])
async def test_what_flatters_a_speedup_is_said_beside_it(width: int) -> None:
    recomputing = recomputing_target()
    pane = StrategyPane(3, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(width, 20)) as pilot:
        pane.feed(run_steps("speculative", PIECES))
        pane.set_baseline(recomputing)
        await pilot.pause()
        assert "2.15× († target recomputes)" in figure_text(pane)
        pane.set_baseline(run_of("target", gamma=0), "target of 17:31")
        await pilot.pause()
        assert "2.15× vs. target of 17:31" in figure_text(pane)


@pytest.mark.parametrize("view", ["text", "charts"])
@pytest.mark.parametrize(("width", "height"), [(44, 20), (58, 20), (76, 30), (120, 40), (58, 4)])
async def test_marks_of_a_speedup_are_told_in_words_in_every_view(width: int, height: int, view: str) -> None:
    pane = StrategyPane(3, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(width, height)) as pilot:
        pane.view = view
        pane.feed(run_steps("speculative", PIECES))
        pane.set_baseline(recomputing_target(), "target of 17:31" if width > 58 else "")
        await pilot.pause()
        assert "† target recomputes" in figure_text(pane)
        assert width <= 58 or "vs. target of 17:31" in figure_text(pane)
        if view == "charts" and height > 4:
            assert "2.15×†" in pane.charts_view.lines[1]


async def test_where_a_speedup_has_room_for_bare_marks_only_the_row_below_tells_them() -> None:
    pane = StrategyPane(3, "speculative")
    late = RoundVerified(99, (), Token(2, Status.SAMPLED, 0), 0.0, 0.2, 0.0)
    async with HostApp(pane, columns="-one").run_test(size=(80, 20)) as pilot:
        pane.feed([*run_steps("speculative", PIECES, end=None), *[Step("speculative", late)] * 10])
        pane.set_baseline(recomputing_target(), "target of 17:31")
        await pilot.pause(1.0)
        first, second = figure_text(pane).split("\n")
        assert "×†‡ vs. target of 17:31" in first
        assert second.startswith("† target recomputes, ‡ over the text both have  predicted")


async def test_the_baseline_says_itself_that_it_recomputes() -> None:
    pane = StrategyPane(1, "target")
    async with HostApp(pane, columns="-one").run_test(size=(58, 20)) as pilot:
        for step in run_steps("target", PIECES, gamma=0):
            record = step.record
            pane.feed(
                [replace(step, record=replace(record, recomputes=True)) if isinstance(record, PrefillDone) else step]
            )
        await pilot.pause()
        for view in ("text", "charts"):
            pane.view = view
            await pilot.pause()
            assert "baseline († recomputes)" in figure_text(pane)


async def test_a_speedup_that_is_not_the_ratio_of_the_speeds_says_over_what_it_is() -> None:
    behind = run_of("target", gamma=0)
    late = RoundVerified(99, (), Token(2, Status.SAMPLED, 0), 0.0, 0.2, 0.0)
    ahead = [*run_steps("speculative", PIECES, end=None), *[Step("speculative", late)] * 10]
    pane = StrategyPane(3, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(100, 20)) as pilot:
        pane.feed(ahead)
        pane.set_baseline(behind)
        await pilot.pause(1.0)
        found = standing(pane.figures, behind)
        own, other = pane.figures.decode_tokens_per_second, behind.decode_tokens_per_second
        assert found is not None and own and other
        assert abs(own / other / found.ratio - 1) > 0.05 and "‡ over the text both have" in figure_text(pane)


def recomputing_target() -> RunFigures:
    found = RunFigures()
    for step in run_steps("target", PIECES, gamma=0):
        record = step.record
        found.add(replace(record, recomputes=True) if isinstance(record, PrefillDone) else record)
    return found


@pytest.mark.parametrize("view", ["text", "charts"])
async def test_where_there_is_nothing_to_compare_with_the_way_to_it_stands_in_place_of_the_speedup(view: str) -> None:
    pane = StrategyPane(3, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(60, 20)) as pilot:
        pane.view = view
        pane.feed(run_steps("speculative", PIECES))
        pane.set_baseline(None, "no baseline: 1 adds target, r repeats")
        await pilot.pause()
        assert "no baseline: 1 adds target, r repeats" in figure_text(pane)


async def test_beside_the_gauges_the_head_line_does_not_repeat_their_numbers() -> None:
    pane = StrategyPane(3, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(76, 30)) as pilot:
        pane.view = "charts"
        pane.feed(run_steps("speculative", PIECES))
        pane.set_baseline(run_of("target", gamma=0))
        await pilot.pause()
        head = figure_text(pane)
        assert head.startswith("τ 3.19  predicted") and "tok/s" not in head and "α" not in head and "2.15×" not in head
        gauges = "\n".join(pane.charts_view.lines[:3])
        assert "0.79" in gauges and "2.15×" in gauges and "35.3" in gauges


def test_a_sum_can_be_done_again_from_the_numbers_that_are_printed() -> None:
    """3.03 ÷ 1.45 = 2.10× stood there, which makes 2.09."""
    for above in range(1001, 5000, 37):
        for below in range(1001, 3000, 29):
            tokens, steps = above / 1000, below / 1000
            printed = quotient(tokens, steps, tokens / steps)
            assert f"{float(printed[0]) / float(printed[1]):.2f}" == f"{tokens / steps:.2f}"
    assert quotient(3.032, 1.4452, 3.032 / 1.4452) == ("3.032", "1.445"), "no digit more than that takes"
    assert quotient(2.0, 1.0, 2.0) == ("2.00", "1.00") and quotient(1e-9, 1e-9, 1.0)[0].startswith("0.")


def test_figures_of_a_run_that_has_ended_are_so_far_while_the_target_still_writes() -> None:
    run, target = run_of("speculative"), figures_of(run_steps("target", PIECES, gamma=0)[:30])
    first, second = figure_lines(run, target, False, 110, rows=2).plain.split("\n")
    assert "× so far" in first and "× predicted so far" in second
    assert "predicted" in figure_lines(run, target, False, 80, rows=2).plain.replace("so far", "", 1)
    (gauge,) = [line for line in gauge_lines(run, run, target, False, 80, Scale()) if line[0][0].startswith("speedup")]
    assert "so far" in "".join(text for text, _ in gauge)
    target.is_of_another_time = True  # it never goes on
    assert "so far" not in figure_lines(run, target, False, 110, rows=2).plain
    still = figures_of(run_steps("speculative", PIECES)[:-1])
    for one, other in (
        (run, run_of("target", gamma=0)),
        (still, figures_of(run_steps("target", PIECES, gamma=0)[:30])),
    ):
        assert (
            "×" in speed_words(one, other, False) and "so far" not in figure_lines(one, other, False, 110, rows=2).plain
        )


def test_a_speedup_of_another_text_says_so() -> None:
    """13.69× looked like the best of all."""
    fast = run_of("drafter", gamma=0, round_seconds=0.003)
    assert re.search(r"×, another text", speed_words(fast, run_of("target", gamma=0), False))
    assert "another text" not in speed_words(run_of("speculative"), run_of("target", gamma=0), False)


async def test_the_border_of_the_rounds_names_the_figures_that_stand_in_them_also_of_a_run_at_rest() -> None:
    pane = StrategyPane(3, "speculative")
    async with HostApp(pane, columns="-one").run_test(size=(100, 12)) as pilot:
        pane.feed(run_steps("speculative", PIECES, insight=True))
        await pilot.pause()
        pane.view = "rounds"
        await until(pilot, lambda: "p target · q drafter · H entropy, nats" in str(pane.border_subtitle))
        await pilot.resize_terminal(44, 12)
        await until(pilot, lambda: "drafter" not in str(pane.border_subtitle), "no word of it is cut")
        assert str(pane.border_subtitle) in ("rounds", "rounds · p target")
