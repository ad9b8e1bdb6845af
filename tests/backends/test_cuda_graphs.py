"""Captured rounds on a GPU: the records of the same program played step by step, and its clock."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from cards_apart import On
from test_device_run import DRAFTERS, GREEDY, PROMPT, RULES, assert_same, drafter_of
from tiny_transformers import tiny_model

from specdec_tui.backends import cuda_graphs
from specdec_tui.backends.cards import Card
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.gpu import model as gpu_model
from specdec_tui.backends.gpu.laid import Where
from specdec_tui.backends.model import StaticSequence
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.drafters import ModelDrafter
from specdec_tui.decoding.lookup import LookupDrafter
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.records import EMITTED, Notice, Record, RoundVerified, tokens_of
from specdec_tui.decoding.sampling import Sampler

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["static", "kernels"])
def pair(request: pytest.FixtureRequest) -> tuple[TransformersModel, TransformersModel]:
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16}
    networks = [
        tiny_model("llama", vocab_size=vocab, num_hidden_layers=layers, **sizes).to("cuda", request.param)
        for vocab, layers in ((64, 2), (60, 1))
    ]
    return TransformersModel(networks[0]), TransformersModel(networks[1])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_captured_run_is_the_run_step_by_step(
    kind: str, rule: str, pair: tuple[TransformersModel, TransformersModel]
) -> None:
    target, small = pair
    captured, stepwise = Programs(cuda_graphs.capture, cuda_graphs.mark), Programs()
    for seed, sampler in enumerate((GREEDY, Sampler("multinomial", 1.0), Sampler("topknucleus", 0.9, 20, 0.9))):
        settings: dict[str, Any] = {"sampler": sampler, "rule": rule, "gamma": 4, "seed": seed, "max_new_tokens": 23}
        ends = frozenset(range(20, 26))
        runs = [
            list(
                decode(
                    target,
                    PROMPT,
                    strategy="tested",
                    drafter=drafter_of(kind, target, small),
                    end_ids=ends,
                    programs=programs,
                    **settings,
                )
            )
            for programs in (stepwise, captured, captured)
        ]
        assert not any(isinstance(record, Notice) for record in runs[1])
        assert_same(runs[0], runs[1])
        assert_same(runs[0], runs[2])


def test_a_captured_greedy_run_is_the_plain_run(pair: tuple[TransformersModel, TransformersModel]) -> None:
    target, small = pair
    if target.dtype is not torch.float32:
        pytest.skip("half precision rounds differently in other kernels")
    for kind in DRAFTERS:
        programs = Programs(cuda_graphs.capture, cuda_graphs.mark)
        settings: dict[str, Any] = {"strategy": "tested", "sampler": GREEDY, "gamma": 3, "max_new_tokens": 40}
        plain, device = (
            list(decode(target, PROMPT, drafter=drafter_of(kind, target, small), programs=way, **settings))
            for way in (None, programs)
        )
        assert_same(plain, device)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", DRAFTERS)
def test_a_captured_what_if_is_the_one_step_by_step_and_goes_on_as_its_run_did_where_nothing_is_other(
    kind: str, rule: str, pair: tuple[TransformersModel, TransformersModel]
) -> None:
    target, small = pair
    captured, stepwise = Programs(cuda_graphs.capture, cuda_graphs.mark), Programs()
    for seed, sampler in enumerate((GREEDY, Sampler("multinomial", 0.8), Sampler("topknucleus", 0.9, 20, 0.9))):
        settings: dict[str, Any] = {"strategy": "tested", "sampler": sampler, "rule": rule, "gamma": 4, "seed": seed}

        def played(programs: Programs, given: list[int], settings: dict[str, Any] = settings) -> list[Record]:
            drafter, length = drafter_of(kind, target, small), 29 - len(given)
            parts = settings | {"drafter": drafter, "max_new_tokens": length, "given": given}
            return list(decode(target, PROMPT, programs=programs, **parts))

        parent = _ids(played(captured, []))
        for kept in (1, 7, 20):
            other = [*parent[: kept - 1], (parent[kept - 1] + 1) % 60]
            for given in (parent[:kept], other):
                child = played(captured, given)
                assert_same(played(stepwise, given), child)
                assert not any(isinstance(record, Notice) for record in child)
            if target.dtype is torch.float32 and (sampler.is_greedy or rule == "coupled"):
                assert parent[:kept] + _ids(played(captured, parent[:kept])) == parent


def _ids(records: list[Record]) -> list[int]:
    return [token.id for record in records for token in tokens_of(record) if token.status in EMITTED]


@pytest.mark.parametrize("name", ["mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gpt2"])
def test_a_captured_run_of_any_family_is_the_plain_run(name: str) -> None:
    model = TransformersModel(tiny_model(name).to("cuda"))
    settings: dict[str, Any] = {"strategy": "tested", "sampler": GREEDY, "gamma": 3, "max_new_tokens": 40}
    programs = Programs(cuda_graphs.capture, cuda_graphs.mark)
    plain, device = (
        list(decode(model, PROMPT, drafter=LookupDrafter(3), programs=way, **settings)) for way in (None, programs)
    )
    assert_same(plain, device)
    assert not any(isinstance(record, Notice) for record in device)


def test_the_parts_of_a_round_are_read_from_the_gpus_clock(pair: tuple[TransformersModel, TransformersModel]) -> None:
    target, small = pair
    programs = Programs(cuda_graphs.capture, cuda_graphs.mark)
    settings: dict[str, Any] = {"strategy": "tested", "sampler": GREEDY, "gamma": 4, "max_new_tokens": 60}
    records = decode(target, PROMPT, drafter=drafter_of("model", target, small), programs=programs, **settings)
    rounds = [record for record in records if isinstance(record, RoundVerified) and record.drafts]
    assert len(rounds) > 5
    for record in rounds:
        assert 1e-6 < record.draft_seconds < 0.1 and 1e-6 < record.verify_seconds < 0.1


@pytest.mark.parametrize("kind", ["none", "model"])
def test_rounds_that_are_under_way_meanwhile_are_those_step_by_step_and_a_pause_is_not_their_time(
    kind: str, pair: tuple[TransformersModel, TransformersModel]
) -> None:
    target, small = pair
    captured, stepwise = Programs(cuda_graphs.capture, cuda_graphs.mark), Programs()

    def played(programs: Programs, pause: float = 0.0, **settings: Any) -> list[Record]:
        records = []
        for record in decode(
            target,
            PROMPT,
            strategy="tested",
            drafter=drafter_of(kind, target, small),
            sampler=Sampler("topknucleus", 1.5, 20, 0.95),
            gamma=3,
            max_new_tokens=40,
            programs=programs,
            **settings,
        ):
            records.append(record)
            time.sleep(pause)
        return records

    played(captured, alone=True)
    ahead, paused = played(captured, alone=True), played(captured, 0.02, alone=True)
    assert_same(played(stepwise), ahead)
    assert_same(ahead, paused)
    assert_same(ahead, played(captured, insight=False))
    for run in (ahead, paused):
        rounds = [record for record in run if isinstance(record, RoundVerified)]
        assert 1e-5 < sum(record.seconds for record in rounds) / len(rounds) < 0.01


class Elsewhere(TransformersModel):
    """A card stands for another one, with a stream of its own."""

    def open_static(self, capacity: int) -> StaticSequence:
        return On(Card(self.device, 1), super().open_static(capacity))


@pytest.mark.parametrize("sampler", [GREEDY, Sampler("topknucleus", 0.9, 20, 0.9)], ids=["greedy", "sampled"])
def test_captured_runs_over_two_cards_that_one_stands_for_are_those_of_one(
    sampler: Sampler, pair: tuple[TransformersModel, TransformersModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, small = pair
    here, there = (Card(target.device, number) for number in (0, 1))
    settings: dict[str, Any] = {"strategy": "tested", "sampler": sampler, "gamma": 3, "max_new_tokens": 40, "seed": 5}

    def run(target: TransformersModel, drafter: TransformersModel | None) -> list[Record]:
        drafting = None if drafter is None else ModelDrafter(drafter, target.vocab_size)
        programs = Programs(cuda_graphs.capture, cuda_graphs.mark)
        found = list(decode(target, PROMPT, drafter=drafting, programs=programs, **settings))
        assert not any(isinstance(record, Notice) for record in found)
        return found

    alone, drafted = run(target, None), run(target, small)
    moved = Elsewhere(small.model)
    assert_same(drafted, run(target, moved))
    if target.dtype is torch.float32:
        return  # the layers of transformers are captured on one card alone
    spread = TransformersModel(target.model)
    with monkeypatch.context() as patch:
        patch.setattr(gpu_model, "where_of", lambda model, decoder: Where(there, (there, here), here))
        spread.open_static(256)
    assert_same(alone, run(spread, None))
    assert_same(drafted, run(spread, small))
    assert_same(drafted, run(spread, moved))


def test_a_capture_that_fails_leaves_the_stream_as_it_was_and_another_can_follow() -> None:
    number = torch.zeros(1, device="cuda")

    def waits() -> None:
        number.add_(1)
        number.item()

    stream = torch.cuda.current_stream()
    with pytest.raises(RuntimeError):
        cuda_graphs.capture(waits, [number])
    assert torch.cuda.current_stream() == stream
    number.zero_()
    play = cuda_graphs.capture(lambda: _discard(number.add_(1)), [number])
    for _ in range(3):
        play()
    assert number.item() == 3


def test_programs_for_which_there_is_no_memory_leave_it_to_the_plain_run(
    pair: tuple[TransformersModel, TransformersModel],
) -> None:
    target, _ = pair

    def greedy_of_memory(step: Any, state: list[torch.Tensor]) -> Any:
        held: list[torch.Tensor] = []

        def more() -> None:
            held.append(torch.empty(1 << 50, dtype=torch.uint8, device="cuda"))
            step()

        return cuda_graphs.capture(more, state)

    programs = Programs(greedy_of_memory, cuda_graphs.mark)
    settings: dict[str, Any] = {"strategy": "tested", "sampler": GREEDY, "max_new_tokens": 9}
    for known in (None, Programs()):  # both ways take memory of libraries once
        list(decode(target, PROMPT, programs=known, **settings))
    known = None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    run = list(decode(target, PROMPT, programs=programs, **settings))
    assert [r.message for r in run if isinstance(r, Notice)] == ["step by step, not captured: out of memory"]
    assert torch.cuda.memory_allocated() <= before
    programs.capture = cuda_graphs.capture
    assert not any(isinstance(r, Notice) for r in decode(target, PROMPT, programs=programs, **settings))


def _discard(value: object) -> None:
    """For steps that must return nothing."""
