"""Target and drafter on different cards: the records of one card, with what is needed taken over and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cards_apart import HERE, THERE, Apart, Carried, LateCuda, On, Table
from test_device_run import GREEDY, RULES, SAMPLERS
from test_rounds_at_once import decoding, told
from tiny_transformers import tiny_model

from specdec_tui.backends import cuda_graphs
from specdec_tui.backends.cards import Card, cross
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.model import StaticSequence
from specdec_tui.decoding.device_round import DeviceRound
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.drafters import ModelDrafter
from specdec_tui.decoding.records import Notice
from specdec_tui.decoding.round_state import Plan
from specdec_tui.decoding.sampling import Sampler

CASES = [(GREEDY, "rejection"), *((SAMPLERS[i % 4], rule) for i, rule in enumerate(RULES))]


class Elsewhere(TransformersModel):
    """In name only: it computes here."""

    def open_static(self, capacity: int) -> StaticSequence:
        return On(THERE, super().open_static(capacity))


@pytest.fixture(scope="module")
def target() -> TransformersModel:
    return TransformersModel(tiny_model("llama", vocab_size=64, num_hidden_layers=1))


@pytest.fixture(scope="module")
def small() -> TransformersModel:
    return TransformersModel(tiny_model("llama", vocab_size=60, num_hidden_layers=1))


@pytest.fixture(scope="module")
def moved(small: TransformersModel) -> TransformersModel:
    return Elsewhere(small.model)


def played(carried: Carried) -> Programs:
    def capture(step: Callable[[], None], state: list[torch.Tensor]) -> Callable[[], None]:
        def play() -> None:
            with carried.step():
                step()

        return play

    return Programs(capture)


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": GREEDY, "alone": True},
        {"sampler": SAMPLERS[0], "rule": "block", "insight": True, "end_ids": frozenset({24, 25})},
    ],
    ids=["greedy", "sampled"],
)
def test_a_run_over_two_cards_has_the_records_of_one_to_the_last_bit(
    settings: dict[str, Any], target: TransformersModel, small: TransformersModel, moved: TransformersModel
) -> None:
    carried = Carried()
    one, two = (
        [*decoding(target, ModelDrafter(model, 64), programs, seed=4, **settings)]
        for model, programs in ((small, Programs()), (moved, played(carried)))
    )
    assert told(two[1:]) == told(one[1:])
    assert not any(isinstance(record, Notice) for record in two) and carried.crossings >= 2


def made(sampler: Sampler, rule: str, there: Card) -> DeviceRound:
    rule = "" if sampler.is_greedy else rule
    plan = Plan(3, 31, sampler, rule, (4,), 2, lambda row: torch.nn.functional.pad(row, (0, 2), value=-torch.inf), 29)
    found = DeviceRound(Table(HERE, 1, 31), Table(there, 2, 29), plan)
    found.begin([3, 5, 3, 5], 2, 60, [0.013 * (i % 75) for i in range(found.uniforms)], 7)
    return found


def results(played: DeviceRound) -> list[float]:
    """Without the clock."""
    return [value for row in played._state.out.nan_to_num(7)[:, 2:].tolist() for value in row]


@pytest.mark.parametrize(
    ("sampler", "lost"),
    [(GREEDY, 0), (GREEDY, 1), (SAMPLERS[0], 0), (SAMPLERS[0], 1), (SAMPLERS[0], 2)],
    ids=["state there", "drafts back", "sampled: state there", "sampled: drafts back", "what they were drawn from"],
)
def test_a_copy_that_is_left_out_changes_the_results(sampler: Sampler, lost: int) -> None:
    def without(*lost: int) -> list[float]:
        over, carried = made(sampler, "rejection", THERE), Carried(*lost)
        found = []
        for _ in range(4):
            with carried.step():
                over.step()
            found += results(over)
        return found

    whole = without()
    assert without() == whole and without(lost) != whole
    assert without(2 if sampler.is_greedy else 3) == whole, "no more is taken over"


@pytest.mark.parametrize(("sampler", "rule"), CASES, ids=str)
def test_memory_of_the_other_card_is_not_touched(sampler: Sampler, rule: str) -> None:
    right, one = (made(sampler, rule, card) for card in (THERE, HERE))
    apart = Apart()
    for _ in range(3):
        with apart.step():
            right.step()
        one.step()
    assert results(right) == results(one) and apart.crossings == 6
    wrong = made(sampler, rule, THERE)
    wrong._theirs, wrong._drawing = wrong._state, wrong._choosing
    with pytest.raises(AssertionError, match="memory of"), Apart().step():
        wrong.step()


@pytest.mark.parametrize(("sampler", "rule"), CASES, ids=str)
def test_captured_stretches_follow_each_other_however_late_their_streams_run(
    sampler: Sampler, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(sampler, rule, HERE)
    for _ in range(3):
        one.step()
    found = []
    for deaf in (False, True):
        two, cuda = made(sampler, rule, THERE), LateCuda(deaf)
        monkeypatch.setattr(cuda_graphs, "torch", cuda.torch)
        cuda_graphs._side_stream.cache_clear()
        before = [tensor.clone() for tensor in two.state]
        play = cuda_graphs.capture(two.step, two.state)
        assert all(map(torch.equal, two.state, before))
        with cuda.playing():
            for _ in range(3):
                play()
            cuda.run()
        found.append(results(two))
    cuda_graphs._side_stream.cache_clear()
    assert found[0] == results(one) and found[1] != found[0], "without events it is something else"


def test_a_capture_that_fails_on_another_card_leaves_the_stream_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, number = LateCuda(), torch.zeros(1)
    monkeypatch.setattr(cuda_graphs, "torch", cuda.torch)
    cuda_graphs._side_stream.cache_clear()
    steps = []

    def fails() -> None:
        cross(HERE, THERE, number)
        steps.append(None)
        if len(steps) > 2:
            raise RuntimeError("not while it is captured")
        cross(THERE, HERE, number)

    stream = cuda.torch.cuda.current_stream()
    with pytest.raises(RuntimeError, match="not while it is captured"):
        cuda_graphs.capture(fails, [number])
    assert cuda.torch.cuda.current_stream() is stream and cuda.captures == 2 and not cuda.capturing
    cuda_graphs._side_stream.cache_clear()


def test_a_step_crosses_only_from_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, number = LateCuda(), torch.zeros(1)
    monkeypatch.setattr(cuda_graphs, "torch", cuda.torch)
    with pytest.raises(AssertionError, match="crosses from where it is"):
        cuda_graphs.capture(lambda: cross(THERE, HERE, number) and None, [number])
    cuda_graphs._side_stream.cache_clear()
