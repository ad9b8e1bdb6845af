"""What is told about the distribution that a correction was drawn from."""

from __future__ import annotations

import pytest
import torch
from tiny_drafters import ScriptedDrafter
from tiny_models import FunctionModel, rounds, run

from specdec_tui.decoding import insight
from specdec_tui.decoding.drafters import Drafter, ModelDrafter
from specdec_tui.decoding.insight import insights
from specdec_tui.decoding.records import Insight, RoundVerified, Status
from specdec_tui.decoding.sampling import Sampler

P = torch.tensor([0.5, 0.3, 0.2, 0.0])
Q = torch.tensor([0.1, 0.3, 0.4, 0.2])
PLAIN = Sampler("multinomial")


def always(row: torch.Tensor) -> FunctionModel:
    """A model that thinks the same at every place."""
    return FunctionModel(4, lambda ids: row.log())


def records_of(
    rule: str, drafter: Drafter | None = None, sampler: Sampler = PLAIN, gamma: int = 3
) -> list[RoundVerified]:
    drafter = ModelDrafter(always(Q), 4) if drafter is None else drafter
    settings = {"sampler": sampler, "rule": rule, "gamma": gamma, "max_new_tokens": 60, "insight": True}
    return rounds(run(always(P), [1], drafter, **settings))


def corrections(records: list[RoundVerified]) -> list[tuple[RoundVerified, Insight]]:
    found = []
    for record in records:
        if record.emitted is not None and record.emitted.status is Status.RESAMPLED:
            assert record.emitted.insight is not None
            found.append((record, record.emitted.insight))
    assert found, "nothing was resampled"
    return found


def test_under_rejection_a_correction_tells_its_residual() -> None:
    records = records_of("rejection")
    for _, seen in corrections(records):
        assert [token for token, _ in seen.residual_top] == [0]  # p - q is above nothing there alone
        assert seen.residual_top[0][1] == pytest.approx(1.0)


def test_a_draft_without_a_distribution_is_taken_out_of_the_residual() -> None:
    for _, seen in corrections(records_of("rejection", ScriptedDrafter([0, 1] * 60))):
        refused = next(token for token in range(4) if token not in dict(seen.residual_top) and P[token] > 0)
        left = 1.0 - float(P[refused])
        wanted = {token: float(P[token]) / left for token in range(4) if token != refused and P[token] > 0}
        assert dict(seen.residual_top) == pytest.approx(wanted, rel=1e-4)


def test_under_the_block_rule_the_residual_has_its_joint_weight() -> None:
    weighted = 0
    for record, seen in corrections(records_of("block", gamma=4)):
        weight = 1.0
        accepted = [draft for draft in record.drafts if draft.status is Status.ACCEPTED]
        for draft in accepted:
            weight = min(1.0, weight * float(P[draft.id] / Q[draft.id]))
        rest = (weight * P - Q).clamp(min=0)
        rest = P if rest.amax() <= 0 else rest
        rest = rest / rest.sum()
        assert dict(seen.residual_top) == pytest.approx({i: float(rest[i]) for i in range(4) if rest[i] > 0}, rel=1e-4)
        weighted += weight < 1.0
    assert weighted, "no case had a weight of its own"


@pytest.mark.parametrize(
    ("rule", "sampler"),
    [("skip-adjustment", PLAIN), ("coupled", PLAIN), ("rejection", Sampler("greedy")), ("block", Sampler("greedy"))],
)
def test_where_no_residual_is_drawn_from_none_is_told(rule: str, sampler: Sampler) -> None:
    records = records_of(rule, sampler=sampler)
    assert corrections(records)
    assert not any(token.insight and token.insight.residual_top for r in records for token in r.drafts)
    assert not any(r.emitted and r.emitted.insight and r.emitted.insight.residual_top for r in records)


def test_a_place_without_a_correction_has_no_residual() -> None:
    for record in records_of("rejection"):
        for token in record.drafts:
            assert token.insight is not None
            assert bool(token.insight.residual_top) == (token.status is Status.REJECTED)
        if record.emitted is not None and record.emitted.status is not Status.RESAMPLED:
            assert record.emitted.insight is not None and not record.emitted.insight.residual_top


def test_of_logits_the_same_is_told_with_compiled_functions_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(3, 5000, generator=torch.Generator().manual_seed(1)) * 4
    logits[1, 7] = logits[1].amax() + 1e-3
    named = [[17], [4999], [3]]
    assert insight.surveyor() is not None
    compiled = insights(logits, [None, logits[0]], named, greedy=True)
    monkeypatch.setattr(insight, "surveyor", lambda: None)
    for one, other in zip(compiled, insights(logits, [None, logits[0]], named, greedy=True), strict=True):
        assert one.target_entropy == pytest.approx(other.target_entropy, rel=1e-4)
        assert [token for token, _ in one.target_top] == [token for token, _ in other.target_top]
        assert dict(one.target_top) == pytest.approx(dict(other.target_top), rel=1e-4)
        assert dict(one.drafter_top) == pytest.approx(dict(other.drafter_top), rel=1e-4)
    assert len(compiled[0].target_top) == 11 and compiled[1].drafter_entropy is not None


def test_logits_that_are_no_distribution_have_no_entropy() -> None:
    logits = torch.zeros(2, 200)
    logits[0, 5] = float("nan")
    broken, whole = insights(logits, [], greedy=True)
    assert broken.target_entropy is None and whole.target_entropy == pytest.approx(5.2983)
