"""Raw or processed: what the figures of a round tell of it."""

from __future__ import annotations

import pytest
import torch
from tiny_models import FunctionModel, rounds, run

from specdec_tui.decoding.chances import MOST_ALTERNATIVES, chances, is_greedy, judgement, known
from specdec_tui.decoding.drafters import ModelDrafter
from specdec_tui.decoding.records import Insight, Status, Token, tokens_of
from specdec_tui.decoding.sampling import Sampler

V = 40
P = torch.arange(1.0, V + 1).pow(2)
P /= P.sum()
Q = P.flip(0)


def records_of(sampler: Sampler, rule: str = "rejection", insight: bool = True) -> list:
    def always(row: torch.Tensor) -> FunctionModel:
        return FunctionModel(V, lambda ids: row.log())

    settings = {"sampler": sampler, "rule": rule, "gamma": 3, "max_new_tokens": 40, "insight": insight}
    return rounds(run(always(P), [1], ModelDrafter(always(Q), V), **settings))


@pytest.mark.parametrize("insight", [True, False])
def test_a_greedy_round_is_known_by_its_figures(insight: bool) -> None:
    records = [record for record in records_of(Sampler(), insight=insight) if record.drafts or insight]
    assert len(records) > 3 and all(is_greedy(tokens_of(record)) for record in records)


@pytest.mark.parametrize("rule", ["rejection", "coupled", "block", "skip-adjustment"])
@pytest.mark.parametrize(
    "sampler", [Sampler("multinomial"), Sampler("nucleus", 0.8, top_p=0.9), Sampler("topk", top_k=1)]
)
def test_a_sampled_round_is_not(rule: str, sampler: Sampler) -> None:
    assert not any(is_greedy(tokens_of(record)) for record in records_of(sampler, rule))


def test_what_was_drafted_and_drawn_is_among_the_alternatives_of_its_place() -> None:
    outside = 0
    for sampler in (Sampler(), Sampler("multinomial")):
        for record in records_of(sampler):
            for token in tokens_of(record):
                seen = token.insight
                here = {t.id for t in tokens_of(record) if t.position == token.position}
                p, q = dict(seen.target_top), dict(seen.drafter_top)
                assert here <= set(p) and (not q or here <= set(q))
                for id in here:
                    assert p[id] == pytest.approx(float(P[id]), rel=1e-4)
                    assert not q or q[id] == pytest.approx(float(Q[id]), rel=1e-4)
                if seen.residual_top:
                    assert record.emitted.id in dict(seen.residual_top)
                outside += len(p) > MOST_ALTERNATIVES or len(q) > MOST_ALTERNATIVES
    assert outside


def test_words_say_what_a_figure_is() -> None:
    seen = Insight(1.5, 0.9, ((4, 0.553), (5, 0.2)), ((4, 0.4),))
    assert chances(Token(4, Status.ACCEPTED, 0, 1.0, 1.0, 1.0, None, seen), greedy=True) == [
        "raw p 0.553 → greedy 1",
        "raw q 0.400 → greedy 1",
    ]
    assert chances(Token(4, Status.ACCEPTED, 0, 0.5, 0.25), greedy=False) == ["processed p 0.500, q 0.250"]
    assert chances(Token(4, Status.ACCEPTED, 0, 1.0, 1.0), greedy=True) == ["greedy p 1", "greedy q 1"]
    assert chances(Token(4, Status.SAMPLED, 0), greedy=False) == []


def test_no_figure_is_rounded_to_nothing_or_to_certainty_unless_it_is() -> None:
    token = Token(4, Status.REJECTED, 0, 0.00001, 1.0, 0.00001, 0.25)
    assert chances(token, greedy=False) == ["processed p 1.0e-05, q 1"]
    assert judgement(token, greedy=False) == ["accept with min(1, p/q) = 1.0e-05", "draw 0.25 ≥ 1.0e-05: rejected"]
    sure = Token(4, Status.ACCEPTED, 0, 0.998, 1.0, 0.998, 0.6)
    assert judgement(sure, greedy=False)[1] == "draw 0.600 < 0.998: accepted"
    assert chances(Token(4, Status.SAMPLED, 0, 0.0), greedy=False) == ["processed p 0"]
    assert chances(Token(4, Status.SAMPLED, 0, 0.99997), greedy=False) == ["processed p >0.999"]


def test_what_is_not_listed_has_no_chance_or_at_most_the_tenths() -> None:
    ten = tuple((n, 0.1 - n / 1000) for n in range(10))
    assert known(ten[:9], 50) == (0.0, True)
    assert known(ten, 50) == (ten[9][1], False)
    assert known((*ten, (50, 1e-6)), 50) == (1e-6, True)
