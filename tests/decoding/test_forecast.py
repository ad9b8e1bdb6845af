"""What another γ is expected to bring: as `costs` has it at the γ of the run, by hand elsewhere."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from test_figures import figures_of, round_of

from specdec_tui.decoding.costs import costs, predicted_speedup
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.forecast import (
    Supposed,
    along,
    basis_of,
    best_of,
    break_even,
    curve,
    forecast,
    missing,
    rises,
    top_of,
)
from specdec_tui.decoding.sweep import points_of, with_passes


def run_of(
    gamma: int,
    alpha: float = 0.7,
    rounds: int = 60,
    strategy: str = "speculative",
    draft: float = 0.1,
    wider: float = 0.02,
    stops: float = 0.0,
    seed: int = 3,
) -> RunFigures:
    """Rounds whose drafts are each accepted with probability alpha; a pass takes 1 s, `wider` more for each draft."""
    dice, found = Random(seed), []
    for number in range(rounds):
        drafts = gamma
        while drafts and dice.random() < stops:
            drafts -= 1
        accepted = 0
        while accepted < drafts and dice.random() < alpha:
            accepted += 1
        fates = ("a" * accepted + "r" * (drafts > accepted)).ljust(drafts, "u")
        hiccup = 1 + 0.01 * dice.random()
        found.append(round_of(number, fates, (draft * drafts * hiccup, (1 + wider * drafts) * hiccup, 0.0)))
    return figures_of(*found, gamma=gamma, strategy=strategy)


def plain(run: RunFigures) -> RunFigures:
    return figures_of(*(round_of(i, "", (0.0, 1.0, 0.0)) for i in range(run.new_tokens)), strategy="target", gamma=0)


@pytest.mark.parametrize("strategy", ["speculative", "ngram", "lookup"])
@pytest.mark.parametrize("gamma", [1, 2, 4, 7, 16])
def test_at_the_gamma_of_the_run_it_is_the_prediction_of_bench_to_the_last_digit(strategy: str, gamma: int) -> None:
    run = run_of(gamma, strategy=strategy, stops=0.0 if strategy == "speculative" else 0.4, seed=gamma)
    baseline = plain(run)
    told = costs(run, baseline)
    found = forecast(basis_of(run, baseline), gamma)
    assert told.predicted_speedup is not None
    assert found.speedup == told.predicted_speedup
    assert (found.tokens, found.steps) == (told.tokens, told.steps)
    assert not found.rates_extended
    assert not found.passes_estimated


def test_a_sweep_changes_nothing_at_the_gamma_of_the_run() -> None:
    run = run_of(4)
    baseline = plain(run)
    pairs = [(other, plain(other)) for other in (run_of(gamma, wider=0.5) for gamma in (2, 4, 6))]
    basis = basis_of(run, baseline)
    swept = with_passes(basis, pairs)
    assert forecast(swept, 4) == forecast(basis, 4)
    assert forecast(swept, 6).verifying == pytest.approx(4.0, rel=0.02)
    assert forecast(basis, 6).verifying == pytest.approx(1.12, rel=0.02)
    assert forecast(basis, 6).passes_estimated
    assert not forecast(swept, 6).passes_estimated


def with_passes_before(run: RunFigures, seconds: dict[int, float]) -> RunFigures:
    run._passes = tuple(seconds.items())
    return run


def test_passes_measured_before_the_run_tell_what_others_than_its_own_cost() -> None:
    # Half as fast as in the run: only ratios to the plain pass count. The run's own width is its own.
    seconds = {length: 2 * (1 + 0.02 * (length - 1)) for length in range(1, 6)} | {6: 3.0, 7: 3.2, 9: 4.0}
    run = with_passes_before(run_of(4), seconds)
    basis = basis_of(run, plain(run))
    for gamma, cost in ((2, 1.04), (5, 1.5), (6, 1.6), (7, 1.8), (8, 2.0)):
        found = forecast(basis, gamma)
        assert found.full_verifying == pytest.approx(cost, rel=1e-9)
        assert found.passes_estimated == (gamma == 7)  # between two that were measured
    told = costs(run, plain(run))
    assert forecast(basis, 4).speedup == told.predicted_speedup


def test_passes_that_contradict_those_of_the_run_tell_nothing() -> None:
    for factor, fits in ((1.0, True), (1.08, True), (1.15, False), (0.85, False)):
        seconds = {length: 1.0 if length == 1 else factor * (1 + 0.02 * (length - 1)) for length in range(1, 10)}
        run = with_passes_before(run_of(4), seconds)
        basis = basis_of(run, plain(run))
        assert bool(basis.beforehand) is fits
        assert forecast(basis, 8).passes_estimated is not fits


@pytest.mark.parametrize(
    ("seconds", "fits"),
    [
        ({1: 1.0, 2: 1.02, 4: 1.20, 5: 1.10, 9: 1.5}, True),  # five tokens a little cheaper than four: so it is
        ({1: 66.2, 2: 46.7, 3: 51.1, 4: 51.3, 5: 71.0, 6: 60.1, 7: 80.8}, False),  # seen on a busy machine
        ({1: 1.0, 2: 1.02, 5: 1.08, 9: 1e-9}, False),
        ({1: 1.0, 2: 0.5, 5: 1.08}, False),
        ({1: 0.0, 2: 0.0, 5: 0.0}, False),
        ({2: 1.0, 5: 1.08}, False),
        ({1: 1.0}, True),
        ({}, False),
    ],
)
def test_passes_that_get_cheaper_by_being_longer_tell_nothing(seconds: dict[int, float], fits: bool) -> None:
    assert rises(seconds) is fits
    run = with_passes_before(run_of(4), seconds)
    basis = basis_of(run, plain(run))
    assert bool(basis.beforehand) is (fits and len(seconds) > 1)
    assert (max(found.speedup for found in curve(basis, 8)) > 3) is False


def test_a_run_of_the_sweep_that_stands_in_is_one_of_several_at_its_gamma() -> None:
    run = run_of(4, wider=0.1)
    pairs = [(other, plain(other)) for other in (run, run_of(4, wider=0.2), run_of(4, wider=0.2))]
    basis = with_passes(basis_of(run, plain(run)), pairs)
    assert forecast(basis, 4).full_verifying == pytest.approx(1.4, rel=0.01)
    assert forecast(replace(basis, stands_in=True), 4).full_verifying == pytest.approx(1.8, rel=0.01)


def test_passes_of_a_sweep_go_before_those_of_before_the_run() -> None:
    run = with_passes_before(run_of(4), {length: 1 + 0.02 * (length - 1) for length in range(1, 10)})
    other = run_of(6, wider=0.5)
    swept = with_passes(basis_of(run, plain(run)), [(other, plain(other))])
    assert forecast(swept, 6).verifying == pytest.approx(4.0, rel=0.02)
    assert forecast(swept, 8).full_verifying == pytest.approx(1.16, rel=1e-9)


def test_with_one_rate_for_all_places_it_is_the_formula_of_leviathan() -> None:
    run = run_of(5, alpha=1.0, wider=0.0)
    basis = basis_of(run, plain(run))
    for gamma in (1, 3, 8):
        found = forecast(basis, gamma)
        assert found.speedup == pytest.approx(predicted_speedup(1.0, gamma, 0.1, 1.0), rel=0.02)
    half = Supposed(alpha=0.5)
    assert forecast(basis, 3, half).speedup == pytest.approx(predicted_speedup(0.5, 3, 0.1, 1.0), rel=0.02)


def test_rates_beyond_the_measured_places_are_those_of_the_last_places_together() -> None:
    # Five rounds of two drafts: 4 of 5 accepted at the first place, 2 of 4 at the second.
    run = figures_of(*(round_of(i, fates, (0.2, 1, 0)) for i, fates in enumerate(("aa", "aa", "ar", "ar", "ru") * 2)))
    run._start = figures_of(gamma=2)._start
    basis = basis_of(run, plain(run))
    assert basis.rates == pytest.approx((0.8, 0.5))
    assert basis.beyond == pytest.approx((8 + 4) / (10 + 8))
    kept = 0.8 + 0.8 * 0.5 + 0.8 * 0.5 * basis.beyond
    assert forecast(basis, 3).tokens == pytest.approx(1 + kept)
    assert forecast(basis, 3).rates_extended


def test_a_drafter_that_stops_early_stops_as_often_at_a_larger_gamma() -> None:
    run = figures_of(
        *(round_of(i, "a" * n, (0.0, 1.0, 0.0)) for i, n in enumerate((0, 0, 1, 2, 2, 3, 3, 3) * 3)), strategy="lookup"
    )
    basis = basis_of(run, plain(run))
    # Behind a first and a second draft another one came in 5 of 6, and 3 of 5.
    assert forecast(basis, 4).drafts == pytest.approx((1 + 4 + 9 + 3 * 8 / 11) / 8)
    assert forecast(basis, 2).drafts == pytest.approx((1 + 4 + 6) / 8)
    assert forecast(basis, 3).drafts == pytest.approx((1 + 4 + 9) / 8)


def test_no_forecast_costs_less_than_a_plain_step() -> None:
    run = run_of(4, wider=-0.02, draft=0.0)
    basis = basis_of(run, plain(run))
    assert all(found.steps >= 1 for found in curve(basis, 16))


def test_a_figure_that_is_set_moves_the_whole_curve_and_its_own_measured_value_moves_nothing() -> None:
    run = run_of(4)
    basis = basis_of(run, plain(run))
    same = Supposed(basis.alpha, basis.cost_ratio, basis.verify_ratio)
    for gamma in (1, 4, 9):
        here = forecast(basis, gamma)
        assert forecast(basis, gamma, same) == here
        assert (
            forecast(basis, gamma, Supposed(alpha=0.9)).tokens
            > here.tokens
            > forecast(basis, gamma, Supposed(0.3)).tokens
        )
        assert forecast(basis, gamma, Supposed(cost_ratio=0.3)).drafting == pytest.approx(here.drafting * 3, rel=0.02)
        assert forecast(basis, gamma, Supposed(verify_ratio=2.0)).verifying > here.verifying
    assert forecast(basis, 4, Supposed(verify_ratio=2.0)).verifying == pytest.approx(2.0, rel=0.01)


def test_break_even_is_the_alpha_at_which_the_gamma_gives_one() -> None:
    run = run_of(4)
    basis = basis_of(run, plain(run))
    found = break_even(basis, 4)
    assert found is not None
    assert forecast(basis, 4, Supposed(alpha=found)).speedup == pytest.approx(1.0, abs=1e-6)
    assert break_even(basis, 4, Supposed(cost_ratio=2.0)) is None


def test_where_no_gamma_pays_the_best_is_none() -> None:
    run = run_of(4, alpha=0.1, draft=0.6)
    found = curve(basis_of(run, plain(run)), 8)
    assert best_of(found).gamma == 0
    assert best_of(found).speedup == 1.0


def test_between_measured_widths_a_pass_lies_on_a_straight_line_and_never_falls_beyond_them() -> None:
    assert along({0: 1.0, 4: 2.0}, 3) == pytest.approx(1.75)
    assert along({0: 1.0, 4: 2.0}, 8) == pytest.approx(3.0)
    assert along({0: 1.0, 4: 0.5}, 8) == pytest.approx(0.5)
    assert along({0: 1.0}, 8) == 1.0


def test_the_curve_has_the_present_gamma_on_it() -> None:
    assert [top_of(gamma, 32) for gamma in (0, 4, 6, 12, 32)] == [8, 8, 9, 18, 32]


def test_what_is_lacking_for_a_forecast_is_said() -> None:
    run = run_of(4)
    assert missing(run, plain(run)) == ""
    assert "has no drafts" in missing(plain(run), plain(run))
    assert "no run of target" in missing(run, None)
    assert "no draft yet" in missing(figures_of(), plain(run))


def test_points_of_repeats_are_their_median_from_the_lowest_to_the_highest() -> None:
    pairs = [(run, plain(run)) for run in (run_of(gamma, seed=seed) for gamma in (2, 4) for seed in (1, 2, 3))]
    points = points_of(pairs)
    assert list(points) == [2, 4]
    assert points[2].runs == 3
    assert points[2].low is not None and points[2].ratio is not None and points[2].high is not None
    assert points[2].low <= points[2].ratio <= points[2].high
    one = points_of(pairs[:1])[2]
    assert one.low is not None and one.high is not None and one.low < one.high
