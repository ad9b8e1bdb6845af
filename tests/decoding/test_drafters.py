"""The model drafter, and the registry that builds drafters."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_models import FunctionModel, emitted, run, scripted_model, table_model

from specdec_tui import glossary
from specdec_tui.backends.model import LoadedDrafter
from specdec_tui.decoding.drafters import DraftSetup, ModelDrafter, Proposal
from specdec_tui.decoding.ending import Ending
from specdec_tui.decoding.lookup import LookupDrafter
from specdec_tui.decoding.ngram import NgramDrafter
from specdec_tui.decoding.rows import dense
from specdec_tui.decoding.rules import RULES, rule_for
from specdec_tui.decoding.sampling import Dice, Sampler
from specdec_tui.decoding.strategies import STRATEGIES, Parts, build_drafter, new_store
from specdec_tui.settings import SPECULATIVE, Settings
from specdec_tui.settings import STRATEGIES as SETTING_NAMES


def setup(sampler: Sampler, width: int, end_ids: frozenset[int] = frozenset()) -> DraftSetup:
    return DraftSetup(sampler, rule_for("rejection", sampler), Dice(0, width, torch.device("cpu")), end_ids, 99)


def test_drafts_are_drawn_from_exactly_the_rows_that_are_handed_over() -> None:
    model, sampler = table_model(1, 6), Sampler("topk", 0.9, top_k=2)
    drafter = ModelDrafter(model, 6)
    text = [1, 2, 3]
    drafter.start(text, setup(sampler, 6))
    for position in range(20):
        proposal = drafter.propose(text, 3, position)
        for token, row in zip(proposal.ids, proposal.rows, strict=True):
            assert row is not None and float(row[token]) > 0
            assert torch.allclose(dense(row), sampler.probabilities(model.row(text)), atol=1e-6)
            text.append(token)
        drafter.settle([*text, 0], len(text), dense(row)[None])
        text.append(0)


def test_rows_are_cut_or_padded_to_the_targets_width() -> None:
    for width in (4, 9):
        drafter = ModelDrafter(table_model(1, 6), width)
        drafter.start([1, 2], setup(Sampler("multinomial"), width))
        (row,) = drafter.propose([1, 2], 1, 0).rows
        assert row is not None
        row = dense(row)
        assert row.shape == (width,)
        assert float(row.sum()) == pytest.approx(1)
        assert row[6:].tolist() == [0.0] * max(0, width - 6)


def test_ids_that_only_one_side_has_get_probability_zero() -> None:
    shared = torch.tensor([True, False, True, True, False, True, True, True])
    drafter = ModelDrafter(table_model(1, 6), 8, shared)
    drafter.start([1, 2], setup(Sampler("multinomial"), 8))
    (row,) = drafter.propose([1, 2], 1, 0).rows
    assert row is not None
    assert (dense(row) > 0).tolist() == [True, False, True, True, False, True, False, False]


def test_ids_without_an_embedding_in_the_drafter_are_replaced_not_fed() -> None:
    drafter = ModelDrafter(table_model(1, 6), 9)
    drafter.start([1, 8, 7], setup(Sampler("greedy"), 9))
    assert len(drafter.propose([1, 8, 7, 6], 2, 0).ids) == 2


def test_drafting_stops_behind_an_end_token() -> None:
    drafter = ModelDrafter(scripted_model([4, 5, 6]), 16)
    drafter.start([1], setup(Sampler("greedy"), 16, frozenset({5})))
    assert drafter.propose([1], 3, 0).ids == [4, 5]


def test_a_proposal_is_cut_behind_its_first_end_token() -> None:
    proposal = Proposal([3, 4, 5, 4], [None] * 4)
    proposal.cut(Ending(frozenset({4})), [4])
    assert (proposal.ids, proposal.rows) == ([3, 4], [None, None])
    proposal.cut(Ending(), [4])
    assert proposal.ids == [3, 4]


def test_a_drafter_starts_each_run_afresh() -> None:
    target = scripted_model([4, 5, 6, 7])
    drafter = ModelDrafter(scripted_model([4, 5, 6, 7]), 16)
    texts = [emitted(run(target, [1], drafter, max_new_tokens=4)) for _ in range(2)]
    assert texts == [[4, 5, 6, 7]] * 2


def test_the_registry_has_a_row_for_every_strategy_of_the_settings() -> None:
    assert tuple(STRATEGIES) == SETTING_NAMES
    assert [name for name, row in STRATEGIES.items() if row.needs_drafter] == [
        "drafter",
        "speculative",
        "drafter-beam",
        *SPECULATIVE[1:],
    ]
    assert [STRATEGIES[name].place for name in SPECULATIVE] == [0, 1, 2, 3]
    assert [name for name, row in STRATEGIES.items() if row.runs_on == "drafter"] == ["drafter", "drafter-beam"]
    assert all(row.name == name and name in glossary.STRATEGIES for name, row in STRATEGIES.items())


def parts(model: FunctionModel | None, **changes: str) -> Parts:
    drafters = () if model is None else (LoadedDrafter(model),)
    return Parts(Settings(**changes), scripted_model([1]), drafters)  # type: ignore[arg-type]


def test_every_strategy_builds_its_drafter() -> None:
    model, others = scripted_model([1]), [LoadedDrafter(scripted_model([place])) for place in (2, 3, 4)]
    drafters = (*parts(model).drafters, *others)
    built = {name: build_drafter(name, replace(parts(model), drafters=drafters)) for name in STRATEGIES}
    assert built["target"] is None and built["drafter"] is None
    with_models = [drafter for name in SPECULATIVE if isinstance(drafter := built[name], ModelDrafter)]
    assert [drafter.model for drafter in with_models] == [drafter.model for drafter in drafters]
    assert isinstance(built["ngram"], NgramDrafter)
    assert isinstance(built["lookup"], LookupDrafter)


def test_strategies_without_a_model_of_their_own_need_none() -> None:
    for name in ("target", "ngram", "lookup"):
        build_drafter(name, parts(None, ngram_unknown="drafter"))
    for name in ("drafter", "speculative"):
        with pytest.raises(ValueError, match="needs a drafter model"):
            build_drafter(name, parts(None))
    with pytest.raises(ValueError, match="strategy 'speculative-3' needs 3 drafters, and 1 is loaded"):
        build_drafter("speculative-3", parts(scripted_model([1])))


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"telepathy.*target, drafter"):
        build_drafter("telepathy", parts(None))


def test_the_ngram_store_handed_in_is_the_one_that_learns() -> None:
    settings = Settings(ngram_storage="onelevel", ngram_order=4)
    store = new_store(settings)
    assert (store.order, store.storage) == (4, "onelevel")
    drafter = build_drafter("ngram", Parts(settings, scripted_model([1]), store=store))
    run(scripted_model([4, 5, 6, 7]), [1], drafter, max_new_tokens=4)
    assert store.followers([1, 4, 5]) == {6: 1}
    store.reset()
    assert len(store) == 0


def test_the_built_ngram_drafter_asks_the_model_when_told_to() -> None:
    target, model = scripted_model([4, 5, 6, 7, 8]), scripted_model([4, 5, 6, 7, 8])
    for unknown, passes in (("stop", 5), ("drafter", 2)):
        target.calls.clear()
        run(target, [1], build_drafter("ngram", parts(model, ngram_unknown=unknown)), max_new_tokens=5)
        assert len(target.calls) == passes


def test_every_rule_has_its_name_in_the_settings() -> None:
    from specdec_tui.settings import RULES as RULE_NAMES

    assert tuple(RULES) == RULE_NAMES
