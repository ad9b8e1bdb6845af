"""What of two runs is compared: measured and expected, over the text both have."""

from __future__ import annotations

from random import Random
from timeit import repeat

import pytest
from test_reliability import drafting, round_of, run_of, target

from specdec_tui.decoding.costs import costs, measured_costs
from specdec_tui.decoding.figures import RunFigures, speedup
from specdec_tui.decoding.stretch import in_common


def growing(place: int) -> float:
    """Passes cost more the longer the text."""
    return (120 + place) / 120


@pytest.mark.parametrize("tokens", [90, 128, 250])
def test_prediction_and_measured_speedup_are_of_the_same_stretch_of_text(tokens: int) -> None:
    """A baseline of another time may be longer or shorter than the run: its steps at other places cost otherwise."""
    baseline = target(tokens, slow=growing, noise=0.0)
    for run in (
        drafting("speculative", slow=growing, noise=0.0, share=1.0, draft=0.004),
        drafting("lookup", slow=growing, noise=0.0),
    ):
        found = measured_costs(run, baseline)
        assert found.predicted_speedup is not None
        assert found.predicted_speedup == pytest.approx(speedup(baseline, run), rel=0.03)
        assert found.remainder == pytest.approx(speedup(baseline, run) / found.predicted_speedup - 1)  # type: ignore[operator]
        assert found.verify_ratio == pytest.approx(1.15, rel=0.12)


def test_drafts_behind_the_text_that_both_have_count_for_neither() -> None:
    good = [round_of(i, 4, 4, (0.0, 0.03, 0.0)) for i in range(20)]  # 100 tokens
    bad = [round_of(20 + i, 0, 4, (0.0, 0.03, 0.0)) for i in range(60)]
    run, baseline = run_of("lookup", [*good, *bad]), target(100, noise=0.0)
    own, other = in_common(run.course, baseline.course)
    assert (own.rounds, own.tokens, other.tokens) == (20, 100, 100)
    assert speedup(baseline, run) == pytest.approx(5, rel=0.02)
    assert costs(run, baseline).predicted_speedup == pytest.approx(5, rel=0.02)
    assert costs(run, baseline).tokens == 5


def test_where_they_share_less_than_half_each_is_taken_as_a_whole() -> None:
    run, baseline = drafting("lookup", 128, noise=0.0), target(40, noise=0.0)
    own, other = in_common(run.course, baseline.course)
    assert (own.rounds, other.rounds) == (run.rounds, 40)
    assert costs(run, baseline).predicted_speedup == pytest.approx(speedup(baseline, run), rel=0.03)


def test_a_stretch_sums_up_as_the_run_does() -> None:
    run = drafting("lookup", 128)
    own, _ = in_common(run.course, run.course)
    assert own.conditional_acceptance == run.conditional_acceptance
    assert sum(n * count for n, count in own.draft_counts.items()) == run.drafted
    assert own.tokens == run.new_tokens - run.prefill_tokens
    assert own.seconds_per_token == pytest.approx(run.decode_seconds / own.tokens)


def test_a_window_is_compared_with_its_place_in_the_text() -> None:
    run, baseline = drafting("lookup", 128, slow=growing, noise=0.0), target(128, slow=growing, noise=0.0)
    own, other = in_common(run.window().course, baseline.course)
    assert own.rounds == 50 and other.tokens == own.tokens and other.first == 128 - own.tokens + (run.new_tokens - 129)


def test_costs_of_a_long_run_are_told_at_every_repaint() -> None:
    dice = Random(4)
    rounds = [
        round_of(i, *dice.choice(((0, 0), (1, 2), (4, 4))), (0.0, dice.gauss(0.03, 0.001), 0.0)) for i in range(20_000)
    ]
    run, baseline = run_of("ngram", rounds), target(20_000)
    assert min(repeat(lambda: costs(run, baseline), number=1, repeat=20)) < 0.01


def test_a_median_over_many_rounds_is_that_of_a_share_of_them() -> None:
    run = target(10_000)
    own, _ = in_common(run.course, run.course)
    assert own.target_seconds(0) == pytest.approx(0.0302, rel=0.005)
    assert RunFigures().course.rounds_with(3).between(0, 0).count == 0
