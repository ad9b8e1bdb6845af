"""The lossless check: identical, near-ties, different, not applicable."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_drafters import KINDS, make_drafter
from tiny_models import FunctionModel, emitted, run, table_model

from specdec_tui.decoding import lossless
from specdec_tui.decoding.lossless import check, first_difference, near_tie_bound
from specdec_tui.decoding.records import Lossless, LosslessStatus
from specdec_tui.decoding.sampling import Sampler

GREEDY = Sampler("greedy")
TARGET = table_model(1, 6)
PROMPT = [1, 2]
TEXT = emitted(run(TARGET, PROMPT, max_new_tokens=12))
S = LosslessStatus


def checked(ids: list[int], reference: list[int] | None, target: FunctionModel = TARGET, **changes: Any) -> Lossless:
    settings = {"sampler": GREEDY, "rule": "rejection", "seed": 0, "bound": 1e-3} | changes
    return check(target, PROMPT, ids, reference, **settings)


def tied_model(gap: float) -> FunctionModel:
    """Says 3 everywhere, and 4 is behind it by `gap`."""
    logits = torch.tensor([0.0, 0.0, 0.0, 5.0, 5.0 - gap, 0.0])
    return FunctionModel(6, lambda ids: logits)


def test_equal_texts_are_identical_without_asking_the_model() -> None:
    TARGET.calls.clear()
    assert checked(TEXT, TEXT) == Lossless(S.IDENTICAL)
    assert TARGET.calls == []


def test_without_a_reference_teacher_forcing_decides() -> None:
    assert checked(TEXT, None).status is S.IDENTICAL
    wrong = [*TEXT[:5], (TEXT[5] + 1) % 6]
    found = checked(wrong, None)
    assert found.status is S.DIFFERENT and found.first_divergence is None
    assert found.gap is not None and found.gap > 1e-3


def test_a_wrong_token_is_different_and_its_place_is_named() -> None:
    wrong = [*TEXT[:5], (TEXT[5] + 1) % 6, *TEXT[6:]]
    found = checked(wrong, TEXT)
    assert (found.status, found.first_divergence) == (S.DIFFERENT, 5)


def test_a_token_within_the_bound_is_a_near_tie_and_one_beyond_is_not() -> None:
    within = checked([3, 4, 3, 4], [3, 3, 3, 3], tied_model(0.4), bound=0.5)
    assert (within.status, within.ties, within.first_divergence) == (S.NEAR_TIES, 2, 1)
    assert within.gap == pytest.approx(0.4)
    assert "2 near-ties" in within.detail and "0 errors" in within.detail
    beyond = checked([3, 4, 3, 4], [3, 3, 3, 3], tied_model(0.6), bound=0.5)
    assert beyond.status is S.DIFFERENT


def test_an_exact_tie_not_taken_at_the_lowest_id_is_a_near_tie_of_gap_zero() -> None:
    found = checked([4], [3], tied_model(0.0))
    assert (found.status, found.ties, found.gap) == (S.NEAR_TIES, 1, 0.0)


def test_a_tie_taken_by_the_reference_counts_as_a_tie() -> None:
    found = checked([3, 3], [3, 4], tied_model(0.4), bound=0.5)
    assert (found.status, found.ties, found.first_divergence) == (S.NEAR_TIES, 1, 1)


def test_a_cancelled_run_is_compared_over_the_common_prefix() -> None:
    assert checked(TEXT[:4], TEXT, cut_short=True).status is S.IDENTICAL
    assert checked(TEXT, TEXT[:4], cut_short=True).status is S.IDENTICAL
    assert checked([], TEXT, cut_short=True).status is S.IDENTICAL


def test_a_run_that_ended_elsewhere_is_different() -> None:
    found = checked(TEXT[:4], TEXT)
    assert (found.status, found.first_divergence) == (S.DIFFERENT, 4)
    assert "after 4 tokens" in found.detail


def test_no_tokens_on_both_sides_are_identical() -> None:
    assert checked([], []).status is S.IDENTICAL
    assert checked([], None).status is S.IDENTICAL


def test_greedy_is_checked_under_every_rule() -> None:
    for rule in ("rejection", "coupled", "block", "skip-adjustment"):
        wrong = [(TEXT[0] + 1) % 6, *TEXT[1:]]
        assert checked(TEXT, None, rule=rule).status is S.IDENTICAL
        assert checked(wrong, None, rule=rule).status is S.DIFFERENT


def test_sampled_texts_are_not_comparable_and_the_reason_is_given() -> None:
    sampler = Sampler("multinomial", 0.8)
    for rule, words in (
        ("rejection", "same distribution"),
        ("block", "same distribution"),
        ("skip-adjustment", "lossy"),
    ):
        found = checked(TEXT, TEXT, sampler=sampler, rule=rule)
        assert found.status is S.NOT_APPLICABLE and words in found.detail


@pytest.mark.each_value
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sampler",
    [Sampler("multinomial", 0.8), Sampler("nucleus", 1.2, top_p=0.8), Sampler("topknucleus", 0.7, 3, 0.9)],
    ids=lambda sampler: sampler.processor,
)
def test_coupled_texts_are_checked_against_the_noise_of_their_positions(kind: str, sampler: Sampler) -> None:
    drafter = make_drafter(kind, TARGET, table_model(2, 6))
    ids = emitted(run(TARGET, PROMPT, drafter, sampler=sampler, rule="coupled", seed=9, max_new_tokens=60))
    assert checked(ids, None, sampler=sampler, rule="coupled", seed=9).status is S.IDENTICAL
    assert checked(ids, None, sampler=sampler, rule="coupled", seed=8).status is S.DIFFERENT
    wrong = [*ids[:30], (ids[30] + 1) % 6]
    assert checked(wrong, None, sampler=sampler, rule="coupled", seed=9).status is S.DIFFERENT


def test_a_token_just_outside_the_top_k_set_is_a_near_tie_under_coupled() -> None:
    logits = torch.tensor([-50.0, -50.0, -50.0, 5.0, 4.9, -50.0])
    model, sampler = FunctionModel(6, lambda ids: logits), Sampler("topk", 1.0, top_k=1)
    near = checked([4], None, model, sampler=sampler, rule="coupled", seed=3, bound=6.0)
    assert near.status is S.NEAR_TIES
    assert checked([4], None, model, sampler=sampler, rule="coupled", seed=3, bound=0.01).status is S.DIFFERENT


def test_a_choice_just_inside_the_top_k_set_binds_no_other_rounding() -> None:
    """Had 2 taken the place of 1 in the set of two, 0 would have been the choice."""
    logits = torch.tensor([5.0, 3.0, 2.9, -50.0, -50.0, -50.0])
    model, sampler = FunctionModel(6, lambda ids: logits), Sampler("topk", 1.0, top_k=2)

    def says(seed: int) -> list[int]:
        return emitted(run(model, PROMPT, sampler=sampler, rule="coupled", seed=seed, max_new_tokens=1))

    seed = next(seed for seed in range(1000) if says(seed) == [1])
    assert checked([0], None, model, sampler=sampler, rule="coupled", seed=seed, bound=0.2).status is S.NEAR_TIES
    assert checked([0], None, model, sampler=sampler, rule="coupled", seed=seed, bound=0.001).status is S.DIFFERENT


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 128])
def test_long_texts_are_forced_in_pieces_with_the_same_result(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(lossless, "CHUNK", chunk)
    prompt = [1, 2, 3, 4, 5]
    text = emitted(run(TARGET, prompt, max_new_tokens=12))
    settings: dict[str, Any] = {"sampler": GREEDY, "rule": "rejection", "seed": 0, "bound": 1e-3}
    assert check(TARGET, prompt, text, None, **settings).status is S.IDENTICAL
    for place in range(12):
        wrong = [*text[:place], (text[place] + 1) % 6]
        assert check(TARGET, prompt, wrong, None, **settings).status is S.DIFFERENT
    TARGET.calls.clear()
    check(TARGET, prompt, text, None, **settings)
    assert max(TARGET.calls) <= chunk and sum(TARGET.calls) == 5 + 12 - 1


def test_the_first_difference_is_found() -> None:
    assert first_difference([1, 2, 3], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 9, 3]) == 1
    assert first_difference([1, 2], [1, 2, 3]) == 2
    assert first_difference([1, 2], [1, 2, 3], cut_short=True) is None
    assert first_difference([1, 9], [1, 2, 3], cut_short=True) == 1


def test_bounds_widen_with_coarser_types() -> None:
    bounds = [near_tie_bound(dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16)]
    assert bounds == [1e-3, 0.25, 1.0]


def test_a_nucleus_whose_mass_lies_at_its_edge_is_a_near_tie_and_not_different() -> None:
    """One pass sees 0.895 of the mass above the second token, the other 0.904: only one has it in the set."""
    inside = torch.tensor([0.895, 0.06, 0.045]).log()
    outside = torch.tensor([0.904, 0.0548, 0.0412]).log()
    sampler = Sampler("nucleus", 1.0, top_p=0.9)
    differed = 0
    for seed in range(300):
        settings = {"sampler": sampler, "rule": "coupled", "seed": seed, "bound": 1.0}
        texts = [
            emitted(
                run(
                    FunctionModel(3, lambda ids, row=row: row),
                    [0],
                    sampler=sampler,
                    rule="coupled",
                    seed=seed,
                    max_new_tokens=4,
                )
            )
            for row in (inside, outside)
        ]
        if texts[0] != texts[1]:
            differed += 1
            for own, other, row in ((texts[0], texts[1], outside), (texts[1], texts[0], inside)):
                found = check(FunctionModel(3, lambda ids, row=row: row), [0], own, other, **settings)
                assert found.status is S.NEAR_TIES, (seed, found)
    assert differed > 20


def test_a_token_far_outside_the_nucleus_is_different() -> None:
    row = torch.tensor([0.99, 0.007, 0.003]).log()
    sampler = Sampler("nucleus", 1.0, top_p=0.9)
    found = check(FunctionModel(3, lambda ids: row), [0], [1], None, sampler=sampler, rule="coupled", seed=1, bound=1.0)
    assert found.status is S.DIFFERENT


def coupled(row: torch.Tensor, sampler: Sampler, seed: int) -> int:
    model = FunctionModel(len(row), lambda ids: row)
    (token,) = emitted(run(model, [0], sampler=sampler, rule="coupled", seed=seed, max_new_tokens=1))
    return token


@pytest.mark.parametrize(
    "sampler",
    [
        Sampler("nucleus", 1.0, top_p=0.5),
        pytest.param(Sampler("nucleus", 0.7, top_p=0.5), marks=pytest.mark.large),
        Sampler("topk", 1.0, top_k=2),
        Sampler("topknucleus", 1.0, top_k=3, top_p=0.6),
        pytest.param(Sampler("topknucleus", 1.0, top_k=2, top_p=0.8), marks=pytest.mark.large),
    ],
    ids=lambda sampler: f"{sampler.processor}-{sampler.temperature}-{sampler.top_k}-{sampler.top_p}",
)
def test_equal_tokens_that_rounding_swaps_at_an_edge_are_a_near_tie_and_others_are_not(sampler: Sampler) -> None:
    """Rows of an output layer equal to 1e-7: their order, and which of them is in the set, is rounding's choice."""
    rows = [torch.tensor([2.5, 2.0, 2.0, 1.8, 0.3, -1.0]) for _ in range(2)]
    for index, row in enumerate(rows, 1):
        row[index] += 1e-6
    differed = 0
    for seed in range(150):
        texts = [coupled(each, sampler, seed) for each in rows]
        settings = {"sampler": sampler, "rule": "coupled", "seed": seed, "bound": 1e-3}
        model = FunctionModel(6, lambda ids: rows[0])
        wanted = {S.IDENTICAL} if texts[0] == texts[1] else {S.NEAR_TIES}
        found = check(model, [0], [texts[1]], None, **settings)
        assert found.status in wanted, (seed, texts, found)
        differed += texts[0] != texts[1]
        assert check(model, [0], [5], None, **settings).status is S.DIFFERENT
    assert differed > 8


@pytest.mark.parametrize("size", [1e-3, 0.05, 0.3])
def test_whatever_rounding_within_the_bound_does_is_no_error(size: float) -> None:
    """Logits off by `size` / 2 at most: pairs of them are by `size`."""
    generator = torch.Generator().manual_seed(int(size * 1000))
    samplers = [
        Sampler("nucleus", 0.8, top_p=0.7),
        Sampler("topk", 1.2, top_k=4),
        Sampler("topknucleus", 1.0, top_k=5, top_p=0.8),
    ]
    for seed in range(100):
        row = torch.randn(12, generator=generator) * 1.5
        row[3:6] = row[3]
        other = row + size * (torch.rand(12, generator=generator) - 0.5)
        for sampler in samplers:
            ids = [coupled(other, sampler, seed)]
            settings = {"sampler": sampler, "rule": "coupled", "seed": seed, "bound": size * 1.01}
            found = check(FunctionModel(12, lambda ids, row=row: row), [0], ids, None, **settings)
            assert found.status is not S.DIFFERENT, (seed, sampler, found)


def test_an_infinite_gap_is_a_token_without_a_chance_and_leaves_a_figure_that_json_can_hold() -> None:
    row = torch.tensor([1.0, -torch.inf, 0.0])
    for changes in ({}, {"sampler": Sampler("nucleus", 1.0, top_p=0.9), "rule": "coupled"}):
        found = checked([1], None, FunctionModel(3, lambda ids: row), **changes)
        assert (found.status, found.gap) == (S.DIFFERENT, None)
        assert found.detail == "a token that the target gives no chance"


def test_scores_that_are_no_numbers_are_different_and_leave_no_nan() -> None:
    row = torch.tensor([1.0, float("nan"), 0.0])
    found = checked([0, 0], None, FunctionModel(3, lambda ids: row))
    assert (found.status, found.gap) == (S.DIFFERENT, None)


@pytest.mark.parametrize("worst", [float("nan"), float("inf")])
@pytest.mark.parametrize("token", [0, 1, 2])
def test_no_token_is_the_first_choice_of_scores_that_are_not_finite(worst: float, token: int) -> None:
    row = torch.tensor([1.0, worst, 0.0])
    found = checked([token, token], None, FunctionModel(3, lambda ids: row))
    assert (found.status, found.gap, found.detail) == (S.DIFFERENT, None, "the target's scores are not numbers")


def test_what_goes_on_behind_a_cut_short_reference_is_forced_through_the_target() -> None:
    wrong = [*TEXT[:10], (TEXT[10] + 1) % 6, *TEXT[11:]]
    assert checked(wrong, TEXT[:8], cut_short=True).status is S.DIFFERENT
    assert checked(TEXT, TEXT[:8], cut_short=True).status is S.IDENTICAL


class RoundingModel(FunctionModel):
    """A model of coarse rounding that knows how coarse."""

    measured: float | None = None

    def rounding(self, prompt_ids: list[int], ids: list[int]) -> float | None:
        return self.measured


@pytest.mark.parametrize(
    ("measured", "status"),
    [(0.3, S.DIFFERENT), (0.7, S.NEAR_TIES), (None, S.NEAR_TIES), (9.0, S.NEAR_TIES)],
)
def test_a_wide_bound_is_narrowed_to_what_rounding_does_on_the_text(
    measured: float | None, status: LosslessStatus
) -> None:
    """Two tokens 0.5 apart are no near-tie of a model whose rounding moves them by 0.3."""
    logits = torch.tensor([0.0, 0.0, 0.0, 5.0, 4.5, 0.0])
    model = RoundingModel(6, lambda ids: logits)
    model.measured = measured
    found = checked([3, 4, 3], [3, 3, 3], model, bound=near_tie_bound(torch.int8))
    assert found.status is status
    assert checked([3, 0, 3], [3, 3, 3], model, bound=near_tie_bound(torch.int8)).status is S.DIFFERENT
