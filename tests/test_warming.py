"""Passes before the clock of the first run: what of them is measured, and when nothing is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from test_session import HashModel, never

from specdec_tui.backends.machine import Machine
from specdec_tui.backends.model import PassCost
from specdec_tui.decoding.records import PassLimit, PassSeconds
from specdec_tui.warming import REPEATS, lengths_measured, pass_limit, pass_seconds, warm_up

LENGTHS = (1, 2, 5)


class TimedModel(HashModel):
    """Its passes move a clock of their own: `cost` tells seconds from (number of the pass, tokens)."""

    def __init__(self, cost: Callable[[int, int], float], context_length: int | None = 200) -> None:
        super().__init__(1, context_length)
        self.now, self.cost = 0.0, cost

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> TimedContext:  # type: ignore[override]
        return TimedContext(self, super().open(use_cache=use_cache, capacity=capacity))

    def clock(self) -> float:
        return self.now


class TimedContext:
    def __init__(self, model: TimedModel, inner: object) -> None:
        self.model, self.inner = model, inner

    def extend(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        self.model.now += self.model.cost(len(self.model.passes), len(ids))
        return self.inner.extend(ids, keep)  # type: ignore[attr-defined, no-any-return]

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


def measured(model: TimedModel, lengths: Sequence[int] = LENGTHS) -> PassSeconds:
    return pass_seconds(model, lengths, never, 1.0, model.clock)


def test_a_pass_of_each_length_is_told_by_the_median_of_its_repeats() -> None:
    model = TimedModel(lambda number, tokens: 0.010 + 0.001 * tokens + (0.05 if number % 7 == 5 else 0.0))
    assert dict(measured(model)) == pytest.approx({1: 0.011, 2: 0.012, 5: 0.015})


def test_the_first_pass_of_a_length_is_not_measured() -> None:
    model = TimedModel(lambda number, tokens: 0.1 if number < 4 else 0.001 * tokens)
    assert dict(measured(model)) == pytest.approx({1: 0.001, 2: 0.002, 5: 0.005})
    assert len(model.passes) == 1 + (REPEATS + 1) * len(LENGTHS)


def test_passes_take_turns_and_are_over_unlike_tokens_behind_the_same_text() -> None:
    model = TimedModel(lambda number, tokens: 0.001)
    measured(model)
    assert [len(ids) for ids in model.passes[1:7]] == [1, 2, 5, 1, 2, 5]
    assert len(set(model.passes[3])) == 5


@pytest.mark.parametrize(("seconds", "is_told"), [(0.11, True), (0.12, False)])
def test_a_model_whose_passes_would_keep_a_person_waiting_is_not_measured(seconds: float, is_told: bool) -> None:
    model = TimedModel(lambda number, tokens: seconds)
    assert bool(measured(model)) is is_told  # three repeats of three lengths: a second in all
    assert model.now < 2


def test_a_model_that_gets_slow_is_not_waited_for() -> None:
    model = TimedModel(lambda number, tokens: 0.01 if number < 8 else 1.0)
    assert measured(model) == ()
    assert model.now < 5


def test_nothing_is_told_where_a_longer_pass_took_less() -> None:
    assert measured(TimedModel(lambda number, tokens: 0.02 - 0.002 * tokens)) == ()
    assert measured(TimedModel(lambda number, tokens: 0.02 - 0.0002 * tokens))


def test_nothing_is_told_where_a_person_stops_it() -> None:
    model = TimedModel(lambda number, tokens: 0.001)
    assert pass_seconds(model, LENGTHS, lambda: len(model.passes) > 10, clock=model.clock) == ()
    assert len(model.passes) == 11


def test_a_small_context_is_measured_as_far_as_it_goes() -> None:
    model = TimedModel(lambda number, tokens: 0.001, context_length=11)
    assert [length for length, _ in measured(model, range(1, 10))] == [1, 2, 3]
    warm_up(TimedModel(lambda number, tokens: 0.0, context_length=1), 4, True, never)


def test_the_lengths_are_those_of_every_gamma_up_to_eight_and_reach_beyond_a_larger_one() -> None:
    assert lengths_measured(1) == lengths_measured(8) == tuple(range(1, 10))
    assert all(lengths_measured(gamma)[-1] > gamma for gamma in range(33))


class CostingModel(HashModel):
    pass_cost = PassCost(1000, 400)


def test_a_limit_is_what_a_model_costs_on_the_threads_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_tui.backends.machine.machine", lambda threads: Machine(5e9, 7e9, threads))
    assert pass_limit(CostingModel(1)) == PassLimit(1000, 400, 5e9, 7e9, torch.get_num_threads())
    assert pass_limit(HashModel(1)) is None


class RoundingModel(HashModel):
    def __init__(self, integer_adds: int) -> None:
        super().__init__(1)
        self.pass_cost = PassCost(1000, 400, integer_adds)


@pytest.mark.parametrize(("integers", "rate"), [(400, 40.0), (300, 400 / (100 / 5 + 300 / 40))])
def test_integer_multiply_adds_are_held_against_what_the_machine_does_of_these(
    monkeypatch: pytest.MonkeyPatch, integers: int, rate: float
) -> None:
    monkeypatch.setattr("specdec_tui.backends.machine.machine", lambda threads: Machine(5e9, 5.0, threads))
    monkeypatch.setattr("specdec_tui.backends.machine.integer_adds_per_second", lambda threads: 40.0)
    found = pass_limit(RoundingModel(integers))
    assert found == PassLimit(1000, 400, 5e9, pytest.approx(rate), torch.get_num_threads(), integers)


@pytest.mark.parametrize("unknown", ["machine", "integer_adds_per_second"])
def test_where_the_machine_cannot_be_measured_there_is_no_limit(monkeypatch: pytest.MonkeyPatch, unknown: str) -> None:
    monkeypatch.setattr("specdec_tui.backends.machine.machine", lambda threads: Machine(5e9, 5.0, threads))
    monkeypatch.setattr(f"specdec_tui.backends.machine.{unknown}", lambda threads: None)
    assert pass_limit(RoundingModel(400)) is None
