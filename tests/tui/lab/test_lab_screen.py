"""The γ-lab on the screen: what it says at every size, what moves with a key, and what it asks of the app."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from lab_app import Bench, LabApp, bench, plain, run_of
from textual.widgets import Static

from specdec_tui.decoding.costs import costs
from specdec_tui.decoding.sweep import points_of
from specdec_tui.tui.commands.command import use_keymap
from specdec_tui.tui.lab.gamma_plot import GammaPlot, round_ticks
from specdec_tui.tui.lab.reading import Progress
from specdec_tui.tui.lab.screen import LabScreen, Subject


def said(app: LabApp) -> str:
    """All that stands on the screen in words."""
    return "\n".join(str(part.render()) for part in app.lab.query(Static))


def drawn(app: LabApp) -> str:
    canvas = app.lab.query_one(GammaPlot).query_one("#plot")
    return "\n".join(canvas.render_line(y).text for y in range(canvas.size.height))


async def test_figures_are_those_of_bench_and_what_if_moves_curve_sum_and_round() -> None:
    of = bench()
    run, baseline = of.subjects["speculative"].run, of.subjects["speculative"].baseline
    told = costs(run, baseline)
    app = LabApp(of)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        text = said(app)
        assert f"predicts {told.predicted_speedup:.2f}×" in text
        assert f"α {run.acceptance_rate:.2f}" in text
        assert f"c {told.cost_ratio:.2f}" in text
        assert f"v {told.verify_ratio:.2f}" in text
        assert f"measured {points_of([(run, baseline)])[4].text}" in text
        gives = re.search(r"gives (\S+) tokens", text)
        assert gives is not None and float(gives[1]) == pytest.approx(told.tokens, abs=0.005)
        assert "a pass over 5 tokens costs 1.05 of one" in text
        assert "break-even α" in text
        assert "*" not in text
        assert "●" in drawn(app)
        before = drawn(app)
        await pilot.press("down", "right", "shift+right")
        await pilot.pause()
        moved = said(app)
        assert "▸c 0.19*" in moved
        told = re.search(r"(\S+)c (0\.7\d+) \+ v (1\.05\d*) = ", moved)
        assert told is not None and float(told[1]) * 0.19 == pytest.approx(float(told[2]), abs=0.005)
        assert "×*" in moved
        assert drawn(app) != before
        await pilot.press("enter")
        assert of.asked == []  # no best of what is not
        await pilot.press("0")
        await pilot.pause()
        assert said(app) == text.replace("▸α", " α").replace(" c 0", "▸c 0")
        await pilot.press("plus")
        await pilot.pause()
        assert "γ 5: " in said(app)
        assert "not measured" in said(app)
        await pilot.resize_terminal(109, 24)  # where the heading has room for all marks, and the curve is low
        for keys in ([], ["minus"]):
            await pilot.press(*keys)
            await pilot.pause()
            await pilot.pause()
            heading = str(app.lab.query_one("#lab-heading", Static).render())
            assert [mark in heading for mark in "●◆○?"] == [mark in drawn(app) for mark in "●◆○?"], heading
        assert "○" not in heading, "what was measured lies on it"


async def test_a_sweep_is_begun_told_of_and_stopped_and_the_best_is_taken() -> None:
    of = bench(swept=True)
    app = LabApp(of)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        best = app.lab.reading.best_measured
        assert best is not None and best.runs >= 3
        assert f"best measured γ {best.gamma}: {best.text}" in said(app)
        assert "v measured at γ 1–8" in said(app)
        await pilot.press("enter", "s")
        await pilot.pause()
        assert "1 of 6 parts measured, about 40 s left" in said(app)
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is app.lab
        await pilot.press("s", "ctrl+c")
        assert of.asked == [f"take {best.gamma}", "sweep speculative", "stop", "sweep speculative", "stop"]
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is not app.lab


async def test_strategies_take_turns_and_one_without_drafts_or_baseline_says_what_is_lacking() -> None:
    of = bench()
    of.subjects["ngram"] = Subject("ngram", run_of(strategy="ngram"), None)
    app = LabApp(of)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("1")
        await pilot.pause()
        assert "Target has no drafts: there is no γ to choose." in said(app)
        await pilot.press("tab", "tab")
        await pilot.pause()
        assert "do not speculate" in said(app)
        assert "enter takes γ 0" in said(app)
        await pilot.press("tab")
        await pilot.pause()
        assert "No run of target to measure against" in said(app)
        await pilot.press("left", "plus", "enter", "s", "pagedown")
        assert of.asked == ["sweep ngram"]


async def test_a_measurement_that_no_clock_allows_is_asked_about_and_never_praised() -> None:
    run = run_of(pace=0.5)  # the target's passes took twice as long
    app = LabApp(Bench({"speculative": Subject("speculative", run, plain())}))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "Clock disturbed: nothing can be predicted of this run." in said(app)
        assert "best" not in said(app).replace("◆ best", "")
        assert "?" in drawn(app)


async def test_a_sweep_on_a_disturbed_clock_says_all_the_same_that_every_gamma_loses() -> None:
    pairs = [(run_of(gamma, alpha=0.1, draft=2.0, pace=0.5, seed=seed), plain()) for gamma in (2, 4) for seed in (1, 2)]
    app = LabApp(Bench({"speculative": Subject("speculative", pairs[0][0], plain(), "", pairs)}))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        told = " ".join(said(app).split())
        assert app.lab.reading.lacking and "Clock disturbed: nothing can be predicted of this run." in told
        assert "do not speculate: each γ measured loses, γ 2 least: " in told
        assert "clock disturbed at γ 2, 4: by how much is not known" in told
        assert "enter takes γ 0" in told


async def test_a_small_screen_keeps_room_for_a_curve_whose_speedups_can_be_read() -> None:
    of = bench(swept=True)
    of.progress = Progress("speculative", 1, 6, 42.0)
    app = LabApp(of)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await pilot.pause()
        plot = app.lab.query_one(GammaPlot)
        labels = plot.query_one("#margin-left")
        assert plot.size.height >= 9
        shown = [labels.render_line(y).text.strip() for y in range(labels.size.height)]
        assert len(list(filter(None, shown))) >= 3, shown
        assert said(app).index("1 of 6 parts") < said(app).index("one round"), "in sight without scrolling"


async def test_where_there_is_nothing_to_draw_words_have_the_whole_screen_and_say_what_would_stand_here() -> None:
    app = LabApp(bench())
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("1")
        await pilot.pause()
        await pilot.pause()
        assert app.lab.query_one("#lab-said").size.width > 100
        assert not app.lab.query_one("#lab-picture").display
        assert "Here stand, of a strategy that drafts" in said(app)
        await pilot.press("3")
        await pilot.pause()
        await pilot.pause()
        assert app.lab.query_one("#lab-picture").display and "●" in drawn(app)


async def test_a_recording_says_that_it_is_none_of_the_users_runs_and_is_neither_swept_nor_taken() -> None:
    of = bench()
    app = LabApp(of)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "s sweeps γ, about " in said(app) and "enter takes" in said(app)
        of.notice = "A recording, not your run."
        app.lab.update()
        await pilot.press("s", "enter")
        await pilot.pause()
        assert of.asked == [] and said(app).count("A recording, not your run.") == 1
        assert "sweeps" not in said(app) and "enter takes" not in said(app)
        await pilot.press("right")
        await pilot.pause()
        assert "×*" in said(app)


async def test_a_sweep_that_cannot_be_made_is_not_offered() -> None:
    of = bench()
    of.refusal = "no models are loaded (m)"
    app = LabApp(of)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "sweeps γ" not in said(app) and "enter takes" in said(app)


@pytest.mark.parametrize("ansi", [False, True])
async def test_it_survives_every_size_and_comes_to_rest_in_it(monkeypatch: pytest.MonkeyPatch, ansi: bool) -> None:
    layouts: list[object] = []
    refresh_layout = LabScreen._refresh_layout

    def noted(self: LabScreen, *words: Any, **named: Any) -> None:
        layouts.append(self.size)
        refresh_layout(self, *words, **named)

    monkeypatch.setattr(LabScreen, "_refresh_layout", noted)
    app = LabApp(bench(swept=True), ansi_color=ansi or None)
    async with app.run_test(size=(80, 24)) as pilot:
        for size in ((40, 24), (4, 4), (1, 1), (20, 6), (200, 60), (110, 12), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.press("right")
            await pilot.pause()
            layouts.clear()
            await asyncio.sleep(0.1)  # six frames
            assert len(layouts) < 3, f"laid out again and again at {size}"
        assert "predicts" in said(app)


def test_the_ticks_of_an_axis_that_does_not_begin_at_0_are_round_numbers() -> None:
    assert round_ticks(0.93, 2.1, 6) == pytest.approx([1.0, 1.5, 2.0])
    assert round_ticks(0.0, 1.0, 3) == pytest.approx([0.0, 0.5, 1.0])
    assert len(round_ticks(0.93, 1.38, 2)) >= 3


async def test_the_keys_of_a_user_leave_it_and_stop_its_sweep() -> None:
    keymap = {"lab": "G", "stop-or-quit": "f9,ctrl+c"}
    of = bench()
    app = LabApp(of)
    app.set_keymap(keymap)
    use_keymap(keymap)
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("s", "g")
            await pilot.pause()
            assert app.screen is app.lab and "G leaves" in said(app)
            await pilot.press("f9")
            assert of.asked[-1] == "stop"
            await pilot.press("s", "ctrl+c", "G")
            await pilot.pause()
            assert of.asked[-1] == "stop" and app.screen is not app.lab
    finally:
        use_keymap({})
