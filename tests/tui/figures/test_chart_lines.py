"""Gauges and bars in words and numbers, against runs counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import (
    Beam,
    EndReason,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Token,
)
from specdec_tui.tui.figures.chart_cells import applicable, compact_chart, full_chart, ms_text
from specdec_tui.tui.figures.chart_layout import Chart
from specdec_tui.tui.figures.chart_lines import (
    Ink,
    Line,
    acceptance_verdict,
    bar,
    bar_rows,
    cells,
    gauge,
    gauge_lines,
    padded,
    percent,
)
from specdec_tui.tui.figures.scale import common_scale

FATES = {"a": Status.ACCEPTED, "r": Status.REJECTED, "u": Status.UNVERIFIED}


def run_of(*rounds: tuple[str, float, float], end: bool = False) -> RunFigures:
    """Rounds as (fates of drafts, drafting seconds, verifying seconds)."""
    figures = RunFigures()
    figures.add(RunStarted("speculative" if any(fates for fates, *_ in rounds) else "target", 3, 2, 99))
    figures.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    for index, (fates, drafting, verifying) in enumerate(rounds):
        drafts = tuple(Token(1, FATES[fate], 0) for fate in fates)
        figures.add(RoundVerified(index, drafts, Token(2, Status.BONUS, 0), drafting, verifying, 0.0))
    if end:
        figures.add(RunEnded(EndReason.CANCELLED))
    return figures


TARGET = run_of(("", 0.0, 0.1), ("", 0.0, 0.1))
RUN = run_of(("aa", 0.02, 0.08), ("au", 0.02, 0.08), ("ru", 0.02, 0.18))
SCALE = common_scale([TARGET, RUN], TARGET)


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


def gauges(run: RunFigures, baseline: RunFigures | None = TARGET, target: bool = False, width: int = 76) -> list[str]:
    return [text(line) for line in gauge_lines(run, run.window(), baseline, target, width, SCALE)]


@pytest.mark.parametrize(
    ("alpha", "word", "ink"),
    [
        (0.0, "low", Ink.POOR),
        (0.499, "low", Ink.POOR),
        (0.5, "fair", Ink.FAIR),
        (0.749, "fair", Ink.FAIR),
        (0.75, "high", Ink.GOOD),
        (1.0, "high", Ink.GOOD),
    ],
)
def test_acceptance_is_low_fair_or_high_in_word_and_colour(alpha: float, word: str, ink: Ink) -> None:
    assert acceptance_verdict(alpha) == (word, ink)


def test_gauges_give_the_run_and_its_window_in_numbers_and_words() -> None:
    acceptance, speedup, speed = gauges(RUN)
    assert "0.75, high" in acceptance and acceptance.endswith("last 3    0.75")
    # Six tokens in 0.4 s against 10 tokens/s; three rounds are too few to call it faster.
    assert "1.50×" in speedup and "faster" not in speedup and speedup.endswith("last 3   1.50×")
    assert "15.0" in speed
    assert "┃" in speedup and "█" in acceptance


def many(rounds: int, fates: str, drafting: float, verifying: float, other: float = 0.0) -> RunFigures:
    return run_of(*[(fates, drafting, verifying)] * rounds)


def test_the_longer_bar_is_the_faster_run_on_a_scale_that_is_told() -> None:
    """1.77× once had 12 of 13 cells and 2.03× 9 of them: each on a scale of its own."""
    target = many(60, "", 0.0, 0.1)
    slow, fast = many(20, "aa", 0.0, 0.1695), many(20, "aa", 0.0, 0.1478)
    scale = common_scale([target, slow, fast], target)
    shown = [gauge_lines(run, run.window(), target, False, 76, scale) for run in (slow, fast)]
    (_, slow_ratio, slow_speed), (_, fast_ratio, fast_speed) = ([text(line) for line in lines] for lines in shown)
    assert "1.77×, faster" in slow_ratio and "2.03×, faster" in fast_ratio
    assert slow_ratio.startswith("speedup 0–3×") and fast_ratio.startswith("speedup 0–3×")
    # 29 cells: 1.77 / 3 · 29 = 17.1 and 2.03 / 3 · 29 = 19.6, the mark on the tenth.
    assert slow_ratio.count("█") + 1 == 17 and fast_ratio.count("█") + 1 == 20
    assert slow_speed.startswith("tok/s 0–27.5") and fast_speed.startswith("tok/s 0–27.5")
    # 17.7 and 20.3 of 27.5 tokens/s: 18.7 and 21.4 cells; the target's 10 on the eleventh.
    assert slow_speed.count("█") + 1 == 19 and fast_speed.count("█") + 1 == 21
    own = text(gauge_lines(target, target.window(), target, True, 76, scale)[0])
    assert own.startswith("tok/s 0–27.5") and own.count("█") == 11


def test_a_disturbed_clock_has_an_interval_in_words_and_bar_and_no_good_colour() -> None:
    target = many(40, "", 0.0, 0.172)
    run = run_of(*[("ru", 0.0, 0.07), ("", 0.0, 0.058), ("aa", 0.0, 0.07), ("", 0.0, 0.058)] * 6)
    scale = common_scale([target, run], target)
    line = gauge_lines(run, run.window(), target, False, 76, scale)[1]
    said = text(line)
    assert "clock disturbed" in said and "faster" not in said and "▒" in said and "–" in said.split("×")[1]
    assert Ink.GOOD not in {ink for _, ink in line}


def test_last_rounds_with_a_disturbed_clock_have_no_bare_ratio_beside_a_steady_run() -> None:
    """One token a round cannot be 2.50× as fast, however steady the rounds before were."""
    target = many(1200, "", 0.0, 0.1)
    run = run_of(*[("r", 0.0, 0.1)] * 950, *[("r", 0.0, 0.04)] * 50)
    line = text(gauge_lines(run, run.window(), target, False, 76, common_scale([target, run], target))[1])
    assert line.split()[-4:] == ["1.03×°", "last", "50", "–"]
    steady = run_of(*[("r", 0.0, 0.1)] * 1000)
    line = text(gauge_lines(steady, steady.window(), target, False, 76, common_scale([target, run], target))[1])
    assert line.split()[-3:] == ["last", "50", "1.00×"]


def test_a_slower_run_says_so() -> None:
    slow = run_of(("ru", 0.2, 0.2))
    assert "0.25×, short" in gauges(slow)[1], "three rounds are too few for more"
    slow, target = many(20, "ru", 0.2, 0.2), many(60, "", 0.0, 0.1)
    lines = gauge_lines(slow, slow.window(), target, False, 76, common_scale([target, slow], target))
    assert "0.25×, slower" in text(lines[1])


@pytest.mark.parametrize("seconds", [0.0, 5e-324, 1e-12, 1e6])
def test_rounds_without_measurable_time_or_without_tokens_are_survived(seconds: float) -> None:
    bare = RunFigures()
    bare.add(RunStarted("speculative", 3, 2, 99))
    bare.add(RoundVerified(0, (Token(1, Status.REJECTED, 0),), None, seconds, seconds, seconds))
    for figures in (bare, run_of(("aa", seconds, seconds), ("ru", seconds, seconds))):
        for baseline in (TARGET, figures):
            scale = common_scale([figures, baseline], baseline)
            assert gauge_lines(figures, figures.window(), baseline, False, 60, scale)
        for chart in Chart:
            full_chart(chart, figures, figures.window(), TARGET, 60, 12, scale)
            compact_chart(chart, figures, TARGET, 60, scale)
        assert all(0 <= speed < 1e10 for _, speed in figures.course.speeds(40))


def test_a_search_in_progress_says_when_its_speedup_is_told() -> None:
    search = RunFigures()
    search.add(RunStarted("beam", 3, 2, 99, beams=4))
    search.add(PrefillDone(None, 0.1, beams=(Beam((1,), -1.0),)))
    search.add(RoundVerified(0, (), None, 0.0, 0.1, 0.0, (), (Beam((1, 2), -1.0),)))
    assert "speedup      told when the search has ended" in gauges(search)
    assert "speedup      no run of the target to compare with" in gauges(search, None)


def test_what_does_not_apply_is_said_in_a_line() -> None:
    assert gauges(RunFigures()) == ["no rounds yet"]
    assert "no drafts to judge" in gauges(TARGET, None, True)[1]
    assert "no drafts so far" in gauges(run_of(("", 0.0, 0.1)))[0]
    assert "no drafts in this run" in gauges(run_of(("", 0.0, 0.1), end=True))[0]
    assert "no run of the target" in gauges(RUN, None)[1]
    assert "no measurable time" in gauges(run_of(("a", 0.0, 0.0)), None)[2]


@pytest.mark.parametrize("width", [20, 30, 45, 57, 76, 120, 200])
def test_columns_of_the_gauges_stand_under_each_other(width: int) -> None:
    lines = gauges(RUN, width=width)[:2]
    assert len({len(line) for line in lines}) == 1
    if width >= 45:
        assert all(len(line) <= width for line in lines)
        assert lines[0].index("0.75,") + len("0.75,") == lines[1].index("1.50×,") + len("1.50×,")


def test_a_line_is_padded_or_cut_to_its_width() -> None:
    assert text(padded([("abc", Ink.LABEL), ("def", Ink.VALUE)], 5)) == "abcde"
    assert text(padded([("abc", Ink.LABEL)], 5)) == "abc  "
    assert text(padded([], 0)) == ""


def test_bars_are_as_long_as_their_share() -> None:
    assert bar(0.5, 4) == "██  "
    assert bar(0.625, 2) == "█▎"
    assert bar(2.0, 3) == "███" and bar(-1.0, 3) == "   "
    assert text(gauge(0.5, 4, Ink.GOOD, 0.75)) == "██░┃"
    assert text(gauge(1.0, 4, Ink.GOOD, 1.0)) == "███┃"
    assert gauge(0.3, 0, Ink.GOOD, 0.5) == []
    assert text(gauge(0.5, 4, Ink.GOOD, None, 0.75)) == "██▒░"
    # Longer than its track, which is that of all panes: said, and no scale of its own.
    assert text(gauge(1.2, 4, Ink.GOOD)) == "███▸" and text(gauge(0.5, 4, Ink.GOOD, None, 1.2)) == "██▒▸"


def test_the_histogram_counts_rounds_by_their_accepted_drafts() -> None:
    lines = [text(line) for line in full_chart(Chart.LENGTHS, RUN, RUN.window(), None, 50, 8, SCALE)]
    assert lines[0].startswith("accepted, rounds with drafts") and lines[0].endswith("last 3")
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2"]
    assert all(line.count("33 %") == 2 for line in lines[1:])


def test_acceptance_by_position_counts_judged_drafts_alone() -> None:
    lines = [text(line) for line in full_chart(Chart.POSITIONS, RUN, RUN.window(), None, 50, 8, SCALE)]
    assert lines[1].strip().startswith("1 ") and "0.67" in lines[1]
    assert lines[2].strip().startswith("2 ") and "1.00" in lines[2]


def test_latencies_are_given_round_by_round_with_the_means_of_window_and_run() -> None:
    lines = [text(line) for line in full_chart(Chart.LATENCY, RUN, RUN.window(), None, 60, 9, SCALE)]
    assert [line.split()[0] for line in lines[1:4]] == ["1", "2", "3"]
    assert lines[3].split()[-2:] == ["20.0", "180.0"]
    assert lines[4].split()[0] == "run" and lines[4].split()[-2:] == ["20.0", "113.3"]
    assert lines[1].count("▒") * 4 == pytest.approx(lines[1].count("█"), abs=4)
    assert len(lines) == 5  # the window is the whole run
    run = run_of(*[("r", 0.01, 0.03)] * 10, *[("aa", 0.01, 0.02)] * 50)
    lines = [text(line) for line in full_chart(Chart.LATENCY, run, run.window(), None, 60, 20, SCALE)]
    assert lines[-2].split()[:2] == ["last", "50"] and lines[-2].split()[-2:] == ["10.0", "20.0"]
    assert lines[-1].split()[0] == "run" and lines[-1].split()[-2:] == ["10.0", "21.7"]


def test_no_more_than_ten_rounds_are_drawn() -> None:
    run = run_of(*[("aa", 0.01, 0.02)] * 30)
    lines = [text(line) for line in full_chart(Chart.LATENCY, run, run.window(), None, 60, 40, SCALE)]
    assert len(lines) == 1 + 10 + 1
    assert lines[1].split()[0] == "21" and lines[10].split()[0] == "30"


def test_too_many_rows_are_left_out_and_counted() -> None:
    rows = [(str(i), 0.5, 0.5, Ink.RUN) for i in range(9)]
    lines = [text(line).strip() for line in bar_rows(("title",), rows, "last 9", 40, 6, percent)]
    assert len(lines) == 6
    assert lines[-2].startswith("3 ") and lines[-1] == "… 5 more"


def test_a_row_of_text_says_what_a_chart_would() -> None:
    assert text(compact_chart(Chart.LENGTHS, RUN, None, 76, SCALE)) == "accepted     0: 33 %  1: 33 %  2: 33 %  "
    assert text(compact_chart(Chart.POSITIONS, RUN, None, 76, SCALE)) == "by position  1: 0.67  2: 1.00  "
    assert text(compact_chart(Chart.LATENCY, RUN, None, 76, SCALE)) == "ms, last 3   draft 20.0 ▁▁▁  verify 113.3 ▄▄█"
    assert "draft" not in text(compact_chart(Chart.LATENCY, TARGET, None, 76, SCALE))


@pytest.mark.parametrize("chart", [Chart.LENGTHS, Chart.POSITIONS, Chart.LATENCY])
@pytest.mark.parametrize("width", [30, 40, 57, 76])
def test_a_row_of_text_fits_its_width(chart: Chart, width: int) -> None:
    run = run_of(*[("a" * 15 + "r", 0.01, 0.02)] * 30)
    assert cells(compact_chart(chart, run, None, width, SCALE)) <= width


def test_numbers_are_never_cut_where_a_pane_is_narrow() -> None:
    run = run_of(("aa", 0.0483, 0.1013), ("ar", 0.0483, 0.1013))
    for width in range(30, 60):
        line = text(compact_chart(Chart.LATENCY, run, None, width, SCALE))
        assert len(line.rstrip()) <= width and "verify 101.3 " in line + " ", line
    for width in range(22, 60):
        assert "no drafts to judge" in " ".join(gauges(TARGET, None, True, width))
        assert all(len(line) <= width for line in gauges(TARGET, None, True, width)[-1:])


@pytest.mark.parametrize("chart", list(Chart))
@pytest.mark.parametrize("width", [1, 10, 25, 60])
@pytest.mark.parametrize("height", [0, 1, 2, 9])
def test_charts_survive_every_size_and_empty_runs(chart: Chart, width: int, height: int) -> None:
    for run in (RunFigures(), TARGET, RUN, run_of(("a", 0.0, 0.0))):
        lines = full_chart(chart, run, run.window(), TARGET, width, height, SCALE)
        assert len(lines) <= max(height, 1)
        compact_chart(chart, run, None, width, SCALE)
        assert all(cells(padded(line, width)) == width for line in lines)


def test_only_charts_that_apply_are_drawn() -> None:
    assert applicable(RunFigures()) == ()
    assert applicable(TARGET) == (Chart.SPEED, Chart.LATENCY, Chart.PASSES)
    assert applicable(RUN) == tuple(Chart)


def test_milliseconds_keep_three_figures() -> None:
    assert all(len(ms_text(10.0**power)) <= 7 for power in range(-9, 7))
    assert [ms_text(s) for s in (0.0, 0.00012, 0.0123, 0.456, 12.3456)] == ["0.00", "0.12", "12.3", "456.0", "12346"]


def test_the_targets_own_step_is_a_line_across_the_bars_of_rounds() -> None:
    run = many(20, "aa", 0.02, 0.12)
    scale = common_scale([TARGET, run], TARGET)
    assert scale.round_seconds == pytest.approx(0.25)  # 1.5 · 140 ms, as a round number
    lines = [text(line) for line in full_chart(Chart.LATENCY, run, run.window(), TARGET, 80, 9, scale)]
    assert "bars 0–250" in lines[0] and "┃ target's mean 100.0" in lines[0]
    room = 80 - len("last 50 ") - 15
    places = {line.index("┃") - len("last 50 ") for line in lines[1:]}
    assert places == {round(100 / 250 * room)}
    assert all(line.count("▒") + line.count("█") + 1 == round(140 / 250 * room) for line in lines[1:])
    narrow = [text(line) for line in full_chart(Chart.LATENCY, run, run.window(), TARGET, 27, 9, scale)]
    assert narrow[0].startswith("▒draft █verify ┃target") and narrow[1].endswith("140.0") and "┃" in narrow[1]
    assert "target's mean 100.0" in text(compact_chart(Chart.LATENCY, run, TARGET, 76, scale))


def test_under_a_changing_load_the_line_of_the_target_is_a_mean_like_the_bars_beside_it() -> None:
    """It was a median near 22 ms while the bar of the target's own run stood at 49.9."""
    target = run_of(*[("", 0.0, 0.022)] * 30, *[("", 0.0, 0.0917)] * 20)
    run = many(20, "aa", 0.02, 0.05)
    scale = common_scale([target, run], target)
    own = text(full_chart(Chart.LATENCY, target, target.window(), target, 80, 9, scale)[-1])
    assert own.split()[0] == "run" and own.split()[-1] == "49.9"
    assert "┃ target's mean 49.9" in text(full_chart(Chart.LATENCY, run, run.window(), target, 80, 9, scale)[0])
    assert "┃target 49.9" in text(full_chart(Chart.LATENCY, run, run.window(), target, 31, 9, scale)[0])
    assert "target's mean 49.9" in text(compact_chart(Chart.LATENCY, run, target, 76, scale))


@pytest.mark.parametrize("width", [27, 36, 60, 80])
def test_the_same_milliseconds_end_in_the_same_cell_whether_a_run_was_short_or_long(width: int) -> None:
    """Labels of a run of fewer than 50 rounds are shorter: its bars were wider, on a scale that a low pane has no
    room to tell."""
    short, long = many(20, "aa", 0.02, 0.08), many(60, "aa", 0.02, 0.08)
    scale = common_scale([TARGET, short, long], TARGET)
    ends = {
        tuple(line.rindex(part) for part in "▒█┃")
        for run in (short, long)
        for line in (text(row) for row in full_chart(Chart.LATENCY, run, run.window(), TARGET, width, 9, scale)[1:])
    }
    assert len(ends) == 1


@pytest.mark.parametrize("width", [45, 57, 76, 120])
def test_a_speedup_over_a_baseline_that_recomputes_is_marked_and_not_green(width: int) -> None:
    target, run = recomputing(many(60, "", 0.0, 0.1)), many(20, "aa", 0.0, 0.148)
    assert Ink.GOOD in inks(gauge_lines(run, run.window(), many(60, "", 0.0, 0.1), False, width, SCALE)[1])
    line = gauge_lines(run, run.window(), target, False, width, SCALE)[1]
    assert Ink.GOOD not in inks(line) and "faster" not in text(line)
    assert "2.03×†, target recomputes" in text(line)
    slow = many(20, "ru", 0.2, 0.2)
    assert "0.25×†, slower" in text(gauge_lines(slow, slow.window(), target, False, 76, SCALE)[1])


def recomputing(figures: RunFigures) -> RunFigures:
    figures.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1, recomputes=True))
    return figures


def inks(line: Line) -> set[Ink]:
    return {ink for _, ink in line}


def test_a_figure_above_the_scale_keeps_the_scale() -> None:
    """In a race, whose scale is that of the whole run, a ratio may be larger on the way: `0–2.02963×` stood there."""
    target, run = many(40, "", 0.0, 0.1), many(20, "aa", 0.0, 0.12)
    scale = replace(common_scale([target, run], target), speedup=2.0, peak=18.0)
    _, ratio, speed = (text(line) for line in gauge_lines(run, run.window(), target, False, 76, scale))
    assert ratio.startswith("speedup 0–2× ") and "▸" in ratio and "2.50×, faster" in ratio
    assert speed.startswith("tok/s 0–19.8 ") and "▸" in speed


def test_a_round_longer_than_the_scale_says_so_and_flattens_no_other() -> None:
    run = run_of(*[("aa", 0.0, 0.1)] * 30, ("aa", 0.0, 5.0), ("aa", 0.0, 0.1))
    scale = common_scale([TARGET, run], TARGET)
    lines = [text(line) for line in full_chart(Chart.LATENCY, run, run.window(), None, 60, 9, scale)]
    hiccup = next(line for line in lines if "5000" in line)
    assert "▸" in hiccup and sum("▸" in line for line in lines) == 1
    assert next(line for line in lines if line.endswith(" 100.0")).count("█") > 8


def test_an_acceptance_rate_has_one_form_everywhere() -> None:
    shown = [
        *gauges(RUN)[:1],
        *(text(line) for line in full_chart(Chart.POSITIONS, RUN, RUN.window(), None, 60, 9, SCALE)),
    ]
    shown.append(text(compact_chart(Chart.POSITIONS, RUN, None, 76, SCALE)))
    assert not any("%" in line for line in shown) and "0.75" in shown[0]


def test_bars_of_shares_are_on_one_scale_in_all_panes() -> None:
    """A share of one third once filled its bar where it was the largest."""
    lines = [text(line) for line in full_chart(Chart.LENGTHS, RUN, RUN.window(), None, 58, 8, SCALE)]
    room = 58 - 2 - 1 - 7 - 8
    assert all(line.count("█") in (room // 3, room // 3 + 1) for line in lines[1:])
