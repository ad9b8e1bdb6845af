"""What the γ-lab reads out of a run and its sweep, where the two agree, contradict each other or lack something."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from lab_app import bench, plain, run_of
from server_runs import drafting, target

from specdec_tui.decoding.forecast import Supposed, basis_of, forecast
from specdec_tui.decoding.sweep import Point, points_of
from specdec_tui.tui.lab.gamma_plot import legend_of
from specdec_tui.tui.lab.reading import Reading, Subject, moved, read, read_on, sweep_seconds, value_of
from specdec_tui.tui.lab.recorded import recorded_laboratory
from specdec_tui.tui.lab.words import (
    about_text,
    advice_lines,
    figure_line,
    losing_lines,
    ranges,
    round_lines,
    source_line,
    sum_line,
)

SUBJECT = bench(swept=True).subjects["speculative"]


def words(line: list[tuple[str, str]]) -> str:
    return "".join(text for text, _ in line)


def with_point(**changes: object) -> Reading:
    """A reading whose measured point at its γ is another one."""
    found = read(replace(SUBJECT, swept=()))
    return replace(found, points={4: replace(found.points[4], **changes)})


def test_a_measurement_beyond_its_prediction_by_more_than_clocks_differ_is_asked_about_and_not_praised() -> None:
    agrees = sum_line(with_point())
    assert "?" not in words(agrees)
    assert any("token-accepted" in ink for _, ink in agrees)
    far = with_point(ratio=3.0, low=2.9, high=3.1)
    assert far.contradicts
    assert words(sum_line(far)).endswith("measured 3.00× [2.90–3.10] clock?")
    assert not any("token-accepted" in ink for _, ink in sum_line(far))


def test_a_point_whose_clock_cannot_be_believed_says_so_and_is_no_best() -> None:
    doubted = with_point(ratio=None, doubt="clock disturbed", low=0.9, high=2.0, is_faster=False)
    assert "measured 0.90–2.00× clock disturbed?" in words(sum_line(doubted))
    points = {
        4: Point(4, 9.9, 9.8, 9.9, 3, "clock disturbed"),
        2: Point(2, 1.2, 1.1, 1.3, 3),
        3: Point(3, 1.1, 1, 1.2, 3),
    }
    reading = replace(doubted, points=points, swept=frozenset(points))
    assert reading.best_measured is not None and reading.best_measured.gamma == 2
    assert reading.wanted == 2


def test_the_best_is_of_one_sweep_and_a_higher_number_beside_it_says_why_it_is_not_compared() -> None:
    points = {
        2: Point(2, 1.2, 1.1, 1.3, 3),
        3: Point(3, 1.39, 1.35, 1.41, 3),
        4: Point(4, 1.48, 1.4, 1.5, 1),
    }
    reading = replace(with_point(), points=points, swept=frozenset({2, 3}))
    assert reading.wanted == 3
    told = words(advice_lines(reading)[-1])
    assert told.startswith("best measured γ 3: 1.39× [1.35–1.41]")
    assert "not compared: γ 4, 1.48× [1.40–1.50] (of the run alone, at another time)" in told
    shaken = {**points, 4: replace(points[4], doubt="clock disturbed")}
    told = words(advice_lines(replace(reading, points=shaken, swept=frozenset(points)))[-1])
    assert "(clock disturbed)" in told
    two = {**shaken, 5: Point(5, None, 1.3, 1.9, 2, "clock disturbed"), 6: replace(points[4], gamma=6, runs=1)}
    told = words(advice_lines(replace(reading, points=two, swept=frozenset({2, 3, 4, 5})))[-1])
    assert "not compared: γ 4, 1.48× [1.40–1.50]; γ 5, 1.30–1.90× (clock disturbed)" in told
    assert "not compared: γ 6, 1.48× [1.40–1.50] (of the run alone, at another time)" in told
    whole = replace(reading, swept=frozenset(points))
    assert whole.wanted == 4 and "not compared" not in words(advice_lines(whole)[-1])


def test_a_sweep_speaks_for_the_gammas_it_measured_and_the_run_itself_stands_beside_it() -> None:
    reading = read(SUBJECT)
    own, swept = points_of([(SUBJECT.run, SUBJECT.baseline)])[4], points_of(SUBJECT.swept)
    assert reading.points == swept and swept[4].runs == 3
    told = words(sum_line(reading))
    assert f"measured {swept[4].text} " in told and told.endswith(f" in 3 runs; the run itself {own.ratio:.2f}×")
    assert "the run itself" not in words(sum_line(read(SUBJECT, 5)))


def test_one_letter_stands_for_one_number_and_what_differs_is_named_otherwise() -> None:
    reading = read(SUBJECT)
    here = reading.here
    assert here is not None and reading.basis is not None and reading.basis.verify_ratio is not None
    v = reading.basis.verify_ratio
    same = replace(reading, here=replace(here, verifying=v, full_verifying=v, drafting=here.drafts * 0.08))
    assert re.search(rf"γ 4: \S+c 0\.3\d+ \+ v {v:.2f}\d* = ", words(sum_line(same)))
    mean = replace(same, here=replace(here, verifying=v + 0.02, full_verifying=v, drafting=here.drafts * 0.05))
    told = words(sum_line(mean))
    assert "a mean round's pass 1.0" in told and " drafts 0.1" in told.replace("0.2", "0.1") and "v 1" not in told
    assert " + v(7) " in words(sum_line(read_on(reading, 7, reading.supposed)))


@pytest.mark.parametrize("of", ["recording", "bench"])
def test_a_sum_adds_up_as_it_is_printed_and_its_names_stand_for_the_figures_above(of: str) -> None:
    recording = recorded_laboratory()
    assert recording is not None
    reading = read(recording.subject("speculative") if of == "recording" else replace(SUBJECT, swept=()))
    for gamma in range(1, 9):
        for supposed in (reading.supposed, Supposed(alpha=0.3), Supposed(cost_ratio=0.2), Supposed(verify_ratio=1.4)):
            at = read_on(reading, gamma, supposed)
            told, here = words(sum_line(at)), at.here
            found = re.match(
                r"γ \d: (\S+?)(c| drafts?) (\S+) \+ (.+) (\S+) = (\S+) steps(?:, no less than (\S+))?; gives (\S+) "
                r"tokens; predicts (\S+)×",
                told,
            )
            assert found is not None and here is not None, told
            count, letter, first, name, second, whole, least, tokens, speedup = found.groups()
            digits = len(whole.partition(".")[2])
            assert f"{float(first) + float(second):.{digits}f}" == whole, told
            assert f"{float(tokens) / float(least or whole):.2f}" == speedup == f"{here.speedup:.2f}", told
            figures = dict(re.findall(r"(\S) (\d\S*?)\*?  ", words(figure_line(at, "α"))))
            if letter == "c":
                assert f"{float(count) * float(figures['c']):.{digits}f}" == first, (told, figures)
            if name == "v":
                assert f"{float(second):.2f}" == figures["v"], (told, figures)
            assert float(first) == pytest.approx(here.drafting, abs=0.0051)
            assert float(second) == pytest.approx(here.verifying, abs=0.0101)


def test_rates_by_place_are_those_of_the_α_that_is_set() -> None:
    reading = read(SUBJECT)
    basis, even = reading.basis, reading.break_even
    assert basis is not None and even is not None and 0 < even < basis.alpha
    assert "α by place: " + " ".join(f"{rate:.2f}" for rate in basis.rates) in words(source_line(reading))
    told = words(source_line(read_on(reading, 4, Supposed(alpha=even))))
    scaled = " ".join(f"{rate * even / basis.alpha:.2f}" for rate in basis.rates)
    assert f"α by place*: {scaled}; beyond 4 estimated as {basis.beyond * even / basis.alpha:.2f}" in told
    advice = "".join(map(words, advice_lines(reading)))
    assert f"break-even α {even:.2f} at γ 4, all places scaled alike" in advice


def test_with_room_the_tokens_of_a_round_say_why_the_pane_has_another_number() -> None:
    reading = read(SUBJECT)
    tau = SUBJECT.run.tokens_per_target_call
    assert f"a round (τ {tau:.2f} counts the prefill too); predicts" in words(sum_line(reading, wide=True))
    for other in (sum_line(reading), sum_line(read(SUBJECT, 5), wide=True)):
        assert "τ" not in words(other)


def test_the_legend_names_just_the_marks_that_are_drawn() -> None:
    reading = read(SUBJECT)
    assert reading.best is not None
    apart = read(SUBJECT, reading.best.gamma + 1)
    assert legend_of(apart) == ["⠤⠒ predicted", "◆ best", "○ γ of the sum", "● measured", "┈ target"]
    assert "○ γ of the sum" not in legend_of(read(SUBJECT, reading.best.gamma)), "the best's mark is on it"
    doubted = read(Subject("speculative", run_of(pace=0.5), plain()))
    assert legend_of(doubted) == ["? clock in doubt", "┈ target"]
    assert legend_of(read(Subject("target", plain(), plain()))) == []
    assert "○ γ of the sum" not in legend_of(apart, "⠤⠒◆●┈"), "the mark of what was measured lies on it"
    assert "○ γ of the sum" in legend_of(apart, "⠤⠒◆●┈○")


def test_where_all_that_was_measured_is_slower_the_best_is_not_to_speculate() -> None:
    reading = replace(with_point(), points={2: Point(2, 0.9, 0.8, 0.95, 3), 4: Point(4, 0.7, 0.6, 0.75, 3)})
    reading = replace(reading, swept=frozenset(reading.points))
    assert reading.wanted == 0
    assert "do not speculate: the fastest measured, γ 2" in "\n".join(map(words, advice_lines(reading)))


DISTURBED = "clock disturbed"


@pytest.mark.parametrize(
    ("points", "told"),
    [
        (
            [Point(1, None, 0.7, 0.9, 2, DISTURBED), Point(2, None, 0.8, 0.96, 2, DISTURBED)],
            "γ 2 least: 0.80–0.96× · clock disturbed at γ 1–2: by how much is not known",
        ),
        (
            [
                Point(1, 0.9, 0.85, 0.95, 2),
                Point(2, None, 0.5, 0.8, 2, DISTURBED),
                Point(4, 0.5, 0.4, 0.6, 2, "too short"),
            ],
            "γ 1 least: 0.90× [0.85–0.95] · clock disturbed at γ 2; too short at γ 4: by how much is not known",
        ),
    ],
)
@pytest.mark.parametrize("lacking", ["", "the clock was disturbed"])
def test_where_all_lose_on_a_disturbed_clock_both_are_said(points: list[Point], told: str, lacking: str) -> None:
    reading = replace(with_point(), points={point.gamma: point for point in points}, lacking=lacking)
    reading = replace(reading, swept=frozenset(reading.points))
    assert reading.best_measured is None and reading.wanted == 0
    expected = f"do not speculate: each γ measured loses, {told}"
    assert [words(line) for line in losing_lines(reading)] == [expected]
    assert expected in map(words, advice_lines(reading))


@pytest.mark.parametrize(
    "points",
    [
        [Point(1, None, 0.7, 0.9, 2, DISTURBED), Point(2, None, 0.8, 1.04, 2, DISTURBED)],  # one may be faster
        [Point(1, None, 0.7, 0.9, 2, DISTURBED), Point(2, None, None, None, 2, DISTURBED)],  # nothing known of one
        [Point(1, None, 0.7, 0.9, 2, DISTURBED), Point(2, 1.3, 0.9, 1.4, 2, DISTURBED)],
        [Point(1, None, 0.7, 0.9, 2, DISTURBED), Point(2, None, 0.9, 0.997, 2, DISTURBED)],  # said to be 1.00
        [Point(2, None, 0.7, 0.9, 2, DISTURBED)],  # one γ says nothing of others
        [Point(1, 0.9, 0.8, 0.95, 2), Point(2, 0.8, 0.7, 0.85, 2)],  # no doubt: the best measured says it
    ],
)
def test_where_it_is_open_whether_all_lose_nobody_says_so(points: list[Point]) -> None:
    reading = replace(with_point(), points={point.gamma: point for point in points})
    reading = replace(reading, swept=frozenset(reading.points))
    assert losing_lines(reading) == []
    assert losing_lines(replace(reading, swept=frozenset())) == []


def test_points_of_a_sweep_are_told_of_a_run_that_drafted_nothing() -> None:
    silent = replace(SUBJECT, run=run_of(gamma=0), swept=SUBJECT.swept)
    assert not silent.run.drafted
    assert list(read(silent).points) == list(read(SUBJECT).points) and read(silent).points


def test_a_run_whose_clock_was_disturbed_is_stood_in_for_by_one_of_its_sweep() -> None:
    disturbed = Subject("speculative", run_of(pace=0.5), plain())
    assert "nothing can be predicted" in read(disturbed).lacking
    reading = read(replace(disturbed, swept=SUBJECT.swept))
    assert not reading.lacking
    assert reading.basis is not None and reading.basis.gamma == 4
    assert "The run itself says nothing (clock disturbed): all of it is from the sweep, γ 4." in words(
        source_line(reading)
    )


def test_a_figure_moves_in_round_steps_as_far_as_it_may() -> None:
    reading = read(SUBJECT)
    up = replace(reading, supposed=moved(reading, "α", 0.01))
    assert value_of(up, "α") == pytest.approx(round(reading.basis.alpha, 2) + 0.01)  # type: ignore[union-attr]
    assert moved(reading, "α", 5).alpha == 1.0
    assert moved(reading, "α", -5).alpha == 0.0
    assert moved(reading, "c", -5).cost_ratio == 0.0
    assert moved(replace(reading, basis=None), "c", 1) == reading.supposed


def test_how_long_a_sweep_takes_is_told_by_the_run_and_its_curve() -> None:
    subject = replace(SUBJECT, swept=())
    run, baseline = subject.run, subject.baseline
    assert baseline is not None
    alone = baseline.prefill_seconds + baseline.decode_seconds
    found = sweep_seconds(read(subject))
    speeds = [forecast(basis_of(run, baseline), gamma).speedup for gamma in range(1, 9)]
    once = 2 * alone + sum(run.prefill_seconds + baseline.decode_seconds / speed for speed in speeds)
    assert found == pytest.approx(3 * once)  # two heats of four γ, three times
    shaken = read(Subject("speculative", run_of(pace=0.5), target := plain()))
    assert shaken.lacking
    assert sweep_seconds(shaken) == pytest.approx(
        3 * (2 * (target.prefill_seconds + target.decode_seconds) + 8 * 0.2 + 8 * shaken.subject.run.decode_seconds)
    )
    assert sweep_seconds(read(replace(subject, baseline=None))) is None


def test_the_recording_has_a_curve_to_look_at() -> None:
    found = recorded_laboratory()
    assert found is not None and list(found.strategies) == ["speculative"]
    reading = read(found.subject("speculative"))
    assert reading.curve and reading.best is not None and reading.break_even is not None
    assert found.about.startswith("a recording · ") and "not your run" in found.notice


def test_numbers_and_times_are_told_in_few_words() -> None:
    assert ranges([1, 2, 3, 5, 7, 8]) == "1–3, 5, 7–8"
    assert [about_text(seconds) for seconds in (0.2, 7, 42, 130)] == [
        "about 1 s",
        "about 7 s",
        "about 40 s",
        "about 2 min",
    ]


def test_a_round_with_a_server_is_drawn_and_summed_up_with_its_way_and_says_from_which_latency_on_it_loses() -> None:
    reading = read(Subject("speculative", drafting(), target()))
    # In tokens of the stream, of 20 ms: 8, 25 + 1, and 30 ms; 3.2 of them in 64 cells.
    bar, ruler, legend = (words(line) for line in round_lines(reading, 78))
    drawn = bar.removeprefix("one round ")
    assert (drawn.count("▒") + drawn.count("░"), drawn.count("█"), drawn.count("━")) == (8, 26, 30)
    assert len(ruler.removeprefix("target    ")) == 20
    assert legend == "▒ 4 drafts · █ server 1.30 · ━ wire 1.50 of a streamed token (├─┤)"
    summed = words(sum_line(reading))
    assert summed.startswith("γ 4: 4c 0.40 + server 1.30 + wire 1.50 = 3.20 steps; gives 4.00 tokens; predicts 1.25×")
    assert [words(line) for line in advice_lines(reading)][1] == (
        "γ 4: drafting wins below 46 ms of latency (now 30 ms)"
    )
    assert "v measured at γ 4, elsewhere as there." in words(source_line(reading))
    farther = read_on(reading, 4, Supposed(verify_ratio=3.8))  # 20 ms more
    assert "server 2.30 + wire 1.50 = 4.20 steps" in words(sum_line(farther))
    assert words(advice_lines(farther)[1]) == "γ 4: drafting loses from 26 ms of latency on (now 30 ms)*"
    assert read_on(reading, 0, Supposed()).far is None and read(SUBJECT).far is None
