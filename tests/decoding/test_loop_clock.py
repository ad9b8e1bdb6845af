"""What the loop's clock readings contain, and the insight that stays outside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tiny_drafters import ScriptedDrafter
from tiny_models import FunctionContext, FunctionModel, rounds, run, run_lazily, scripted_model, table_model

from specdec_tui.decoding import run as round_by_round
from specdec_tui.decoding.drafters import ModelDrafter
from specdec_tui.decoding.records import PrefillDone, Status
from specdec_tui.decoding.sampling import Sampler

SCRIPT = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]


class FakeClock:
    """Time passes only where somebody makes it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def slow(self, model: FunctionModel, seconds: float) -> FunctionModel:
        """A pass of the model takes this long, a prefill ten times."""
        clock = self

        class SlowContext(FunctionContext):
            def extend(self, ids: Sequence[int], keep: int) -> torch.Tensor:
                clock.now += seconds * (1 if self.ids else 10)
                return super().extend(ids, keep)

        model.open = lambda **_: SlowContext(model)  # type: ignore[method-assign]
        return model


def test_each_reading_contains_its_own_work_and_nothing_of_the_consumer() -> None:
    clock = FakeClock()
    target, model = clock.slow(scripted_model(SCRIPT), 1.0), clock.slow(scripted_model(SCRIPT), 0.125)
    seen = []
    for record in run_lazily(target, [1], ModelDrafter(model, 16), gamma=3, max_new_tokens=10, clock=clock):
        seen.append(record)
        clock.now += 100.0  # whoever reads the records takes its time
    prefill = next(record for record in seen if isinstance(record, PrefillDone))
    assert prefill.seconds == 10 + 1.25
    readings = [(r.draft_seconds, r.verify_seconds, r.other_seconds) for r in rounds(seen)]
    assert readings == [(0.375, 1.0, 0.0), (0.375, 1.0, 0.0), (0.0, 1.0, 0.0)]
    assert rounds(seen)[0].seconds == 1.375


def test_the_clock_is_paused_while_insight_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, right, calls = FakeClock(), round_by_round.insights, []

    def slow_insights(*arguments: Any, **settings: Any) -> Any:
        clock.now += 50.0
        calls.append(1)
        return right(*arguments, **settings)

    monkeypatch.setattr(round_by_round, "insights", slow_insights)
    target = clock.slow(scripted_model(SCRIPT), 1.0)
    records = run(target, [1], ScriptedDrafter(SCRIPT), max_new_tokens=9, insight=True, clock=clock)
    assert len(calls) == 1 + len(rounds(records))
    assert [record.seconds for record in rounds(records)] == [1.0, 1.0]
    assert isinstance(records[1], PrefillDone) and records[1].seconds == 10


def test_both_devices_are_synchronized_at_the_edges_of_the_readings() -> None:
    target, model = scripted_model(SCRIPT), scripted_model(SCRIPT)
    records = run(target, [1], ModelDrafter(model, 16), gamma=1, max_new_tokens=7)
    assert len(rounds(records)) == 3
    assert target.synchronized == 1 + 2 * 3  # prefill; after the pass and at the end of each round
    assert model.synchronized == 1 + 2 * 3  # prefill; after drafting and at the end of each round


def test_insight_tells_entropies_and_alternatives_of_both_models() -> None:
    target, model = table_model(1, 5), table_model(2, 5)
    sampler = Sampler("topk", 0.8, top_k=3)
    records = run(target, [1, 2], ModelDrafter(model, 5), sampler=sampler, gamma=2, max_new_tokens=30, insight=True)
    text = [1, 2]
    assert isinstance(records[1], PrefillDone) and records[1].token and records[1].token.insight
    text.append(records[1].token.id)
    for record in rounds(records):
        drafted = list(text)
        for token in record.drafts:
            seen = token.insight
            p = sampler.probabilities(target.row(drafted))
            q = sampler.probabilities(model.row(drafted))
            assert seen is not None
            assert seen.target_entropy == pytest.approx(float(torch.special.entr(p).sum()), rel=1e-4)
            assert seen.drafter_entropy == pytest.approx(float(torch.special.entr(q).sum()), rel=1e-4)
            assert dict(seen.target_top)[int(p.argmax())] == pytest.approx(float(p.max()), rel=1e-4)
            assert len(seen.target_top) == len(seen.drafter_top) == 3
            assert seen.drafter_top[0][1] == max(value for _, value in seen.drafter_top)
            drafted.append(token.id)
        assert record.emitted is not None and record.emitted.insight is not None
        known = record.emitted.insight.drafter_entropy is not None
        assert known == (record.emitted.status is Status.RESAMPLED)
        text += [token.id for token in record.new_tokens]


def test_insight_under_greedy_shows_the_plain_softmax() -> None:
    records = run(scripted_model(SCRIPT), [1], max_new_tokens=1, insight=True)
    assert isinstance(records[1], PrefillDone) and records[1].token and records[1].token.insight
    seen = records[1].token.insight
    assert seen.target_entropy is not None and seen.target_entropy > 0
    assert seen.target_top[0][0] == 3 and 0.99 < seen.target_top[0][1] < 1
    assert len(seen.target_top) == 10 and seen.drafter_top == ()


def test_the_clock_is_read_behind_the_synchronization() -> None:
    """A device that finishes only when it is waited for: all of its time must be inside the readings."""
    clock = FakeClock()
    target = scripted_model(SCRIPT)
    pending = [0.0]

    class LazyContext(FunctionContext):
        def extend(self, ids: Sequence[int], keep: int) -> torch.Tensor:
            pending[0] += 1.0
            return super().extend(ids, keep)

        def rewind(self, length: int) -> None:
            pending[0] += 0.25
            super().rewind(length)

    def finish() -> None:
        clock.now += pending[0]
        pending[0] = 0.0

    target.open = lambda **_: LazyContext(target)  # type: ignore[method-assign]
    target.synchronize = finish  # type: ignore[method-assign]
    drafter = ScriptedDrafter([3, 4, 15, 6, 15, 8, 9, 10, 11, 12])
    records = run(target, [1], drafter, gamma=2, max_new_tokens=9, clock=clock)
    readings = [(r.verify_seconds, r.other_seconds) for r in rounds(records)]
    assert all(verify == 1.0 for verify, _ in readings)
    rejected = [any(t.status is Status.REJECTED for t in r.drafts) for r in rounds(records)]
    assert any(rejected) and [other for _, other in readings] == [0.25 if r else 0.0 for r in rejected]
