"""What the inspector tells of rounds that were really played: every sentence agrees with its record."""

from __future__ import annotations

import pytest
import torch
from tiny_models import FunctionModel, rounds, run

from specdec_tui.decoding.drafters import ModelDrafter
from specdec_tui.decoding.records import Status, tokens_of
from specdec_tui.decoding.sampling import Sampler
from specdec_tui.tui.inspector.look import Look, Manner
from specdec_tui.tui.inspector.reasons import why

TEXTS = {n: f" w{n}" for n in range(12)}


@pytest.mark.parametrize("rule", ["rejection", "coupled", "block", "skip-adjustment"])
def test_of_real_rounds_every_sentence_agrees_with_its_record(rule: str) -> None:
    vocabulary = 12
    p = torch.arange(1.0, vocabulary + 1).pow(2)
    p /= p.sum()

    def always(row: torch.Tensor) -> FunctionModel:
        return FunctionModel(vocabulary, lambda ids: row.log())

    records = rounds(
        run(
            always(p),
            [1],
            ModelDrafter(always(p.flip(0)), vocabulary),
            sampler=Sampler("multinomial"),
            rule=rule,
            gamma=3,
            max_new_tokens=60,
            insight=True,
        )
    )
    refused = 0
    for record in records:
        for token in tokens_of(record):
            look = Look(record, token, "", TEXTS, Manner(rule))
            found = why(look)
            assert "would not do" not in found.rule and "recorded" not in found.rule
            if token.status is not Status.REJECTED:
                continue
            refused += 1
            assert (rule == "coupled") == (found.draw is None)
            if look.residual:
                # Recomputed from p and q of both lists: what the correction was drawn from.
                top, other = dict(token.insight.target_top), dict(token.insight.drafter_top)
                spare = {n: max(0.0, look.weight * float(p[n]) - float(p.flip(0)[n])) for n in range(vocabulary)}
                assert set(top) and set(other)
                for n, share in look.residual:
                    assert share == pytest.approx(spare[n] / sum(spare.values()), abs=2e-4), (rule, n)
    assert refused > 5
