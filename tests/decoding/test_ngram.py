"""N-gram storages and the drafter on top of them."""

from __future__ import annotations

import pytest
import torch
from tiny_models import FunctionModel, emitted, rounds, run, scripted_model, table_model

from specdec_tui.decoding.drafters import DraftSetup, ModelDrafter
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore
from specdec_tui.decoding.rules import RULES
from specdec_tui.decoding.sampling import Dice, Sampler

CPU = torch.device("cpu")


def setup(sampler: Sampler | None = None, end_ids: frozenset[int] = frozenset()) -> DraftSetup:
    return DraftSetup(sampler or Sampler("multinomial"), RULES["rejection"], Dice(0, 16, CPU), end_ids, 100)


def taught(store: NgramStore, *texts: list[int]) -> NgramStore:
    for text in texts:
        store.learn(text, 1)
    return store


def test_basic_prefers_the_longest_known_context() -> None:
    store = taught(NgramStore(3), [1, 2, 3], [9, 2, 4], [8, 2, 4])
    assert store.predict([1, 2]) == 3
    assert store.predict([7, 2]) == 4
    assert store.predict([2]) == 4
    assert store.predict([5, 5]) is None
    assert store.predict([]) is None


def test_basic_stores_one_token_contexts_and_none_longer_than_its_order() -> None:
    store = taught(NgramStore(4), [1, 2, 3, 4, 5])
    assert store.followers([4]) == {5: 1}
    assert store.followers([2, 3, 4]) == {5: 1}
    assert store.followers([1, 2, 3, 4]) == {}


def test_onelevel_knows_contexts_of_exactly_n_minus_1_tokens() -> None:
    store = taught(NgramStore(3, "onelevel"), [1, 2, 3])
    assert store.predict([1, 2]) == 3
    assert store.predict([7, 2]) is None
    assert store.predict([2]) is None
    assert len(store) == 1


def test_the_highest_count_wins_and_ties_go_to_the_most_recent() -> None:
    store = NgramStore(2)
    for token, best in ((5, 5), (6, 6), (5, 5), (6, 6), (7, 6), (5, 5)):
        store.add([1], 1, token)
        assert store.predict([1]) == best
    assert store.followers([1]) == {5: 3, 6: 2, 7: 1}


def test_short_texts_teach_nothing_and_break_nothing() -> None:
    store = taught(NgramStore(5), [], [3])
    assert len(store) == 0
    assert taught(store, [3, 4]).predict([3]) == 4


def test_the_contexts_unused_for_longest_go_first() -> None:
    store = NgramStore(2, most_contexts=3)
    for context in (1, 2, 3):
        store.add([context], 1, 9)
    assert store.predict([1]) == 9  # a look is a use
    store.add([4], 1, 9)
    assert len(store) == 3
    assert store.predict([2]) is None
    assert store.predict([1]) == store.predict([3]) == store.predict([4]) == 9


def test_followers_are_bounded_and_the_rarest_oldest_goes() -> None:
    store = NgramStore(2, most_followers=3)
    for token in (5, 5, 6, 7, 8):
        store.add([1], 1, token)
    assert store.followers([1]) == {5: 2, 7: 1, 8: 1}
    assert store.predict([1]) == 5


def test_a_full_follower_list_still_lets_a_newcomer_rise() -> None:
    store = NgramStore(2, most_followers=1)
    store.add([1], 1, 5)
    store.add([1], 1, 6)
    assert store.followers([1]) == {6: 1}
    assert store.predict([1]) == 6


def test_reset_forgets_everything() -> None:
    store = taught(NgramStore(3), [1, 2, 3])
    store.reset()
    assert len(store) == 0 and store.predict([1, 2]) is None


@pytest.mark.parametrize(("order", "storage"), [(1, "basic"), (3, "trie")])
def test_an_impossible_storage_is_refused(order: int, storage: str) -> None:
    with pytest.raises(ValueError, match="n-gram storage"):
        NgramStore(order, storage)


def test_drafting_chains_through_the_store_and_stops_at_an_unknown_context() -> None:
    drafter = NgramDrafter(NgramStore(2))
    drafter.start([1, 2, 3, 4, 1], setup())
    proposal = drafter.propose([1, 2, 3, 4, 1], 9, 0)
    assert proposal.ids == [2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert proposal.rows == [None] * 9
    assert drafter.propose([1, 2, 3, 4, 1, 8], 9, 1).ids == []


def test_drafting_stops_behind_an_end_token() -> None:
    drafter = NgramDrafter(NgramStore(2))
    drafter.start([1, 2, 3, 1], setup(end_ids=frozenset({3})))
    assert drafter.propose([1, 2, 3, 1], 9, 0).ids == [2, 3]


def test_an_unknown_context_asks_the_model_and_then_the_store_again() -> None:
    model = scripted_model([7], prompt_length=4)
    drafter = NgramDrafter(NgramStore(2), fallback=ModelDrafter(model, 16))
    prompt = [7, 1, 2, 9]
    drafter.start(prompt, setup(Sampler("topk", 1.0, top_k=1)))
    proposal = drafter.propose(prompt, 4, 0)
    assert proposal.ids == [7, 1, 2, 9]
    assert [row is None for row in proposal.rows] == [False, True, True, True]


def scores(*rows: dict[int, float]) -> torch.Tensor:
    table = torch.zeros(len(rows), 16)
    for row, values in zip(table, rows, strict=True):
        for token, value in values.items():
            row[token] = value
    return table


def test_the_filler_stores_the_top_tokens_of_each_verified_position() -> None:
    store = NgramStore(2)
    drafter = NgramDrafter(store, top_k_filler=2)
    drafter.start([1], setup())
    # One draft (2) kept, 3 emitted behind it: rows for the places of 2 and of 3.
    drafter.settle([1, 2, 3], 2, scores({2: 0.6, 5: 0.3, 6: 0.1}, {4: 0.8, 3: 0.2}))
    assert store.followers([1]) == {5: 1, 2: 1}
    assert store.followers([2]) == {4: 1, 3: 1}
    assert store.predict([1]) == 2 and store.predict([2]) == 3, "what came wins ties"


def test_the_filler_stores_no_token_of_probability_zero() -> None:
    store = NgramStore(2)
    drafter = NgramDrafter(store, top_k_filler=3)
    drafter.start([1], setup())
    drafter.settle([1, 2], 1, scores({2: 1.0}))
    assert store.followers([1]) == {2: 1}


@pytest.mark.parametrize("filler", [0, 1])
def test_a_filler_of_at_most_one_is_off(filler: int) -> None:
    store = NgramStore(2)
    drafter = NgramDrafter(store, filler)
    drafter.start([1], setup())
    drafter.settle([1, 2], 1, scores({5: 0.6, 2: 0.4}))
    assert store.followers([1]) == {2: 1}


def test_a_run_that_ends_on_a_draft_stores_nothing_behind_the_end() -> None:
    store = NgramStore(2)
    drafter = NgramDrafter(store, top_k_filler=2)
    drafter.start([1], setup())
    drafter.settle([1, 2], 2, scores({2: 1.0}, {4: 0.8, 3: 0.2}))
    assert store.followers([2]) == {}


def test_every_new_token_is_counted_exactly_once() -> None:
    target = table_model(3, 6)
    store = NgramStore(2)
    prompt = [1, 2, 3]
    text = prompt + emitted(run(target, prompt, NgramDrafter(store, 3), max_new_tokens=50))
    again = taught(NgramStore(2), text)
    assert {c: store.followers([c]) for c in range(6)} == {c: again.followers([c]) for c in range(6)}


def test_a_store_kept_between_prompts_drafts_better_and_a_reset_one_does_not() -> None:
    script = list(range(5, 25))
    target = scripted_model(script, vocab_size=32)
    store = NgramStore(3)

    def count() -> int:
        return len(rounds(run(target, [1], NgramDrafter(store), max_new_tokens=20)))

    first, second = count(), count()
    store.reset()
    assert (first, count()) == (19, 19)
    assert second == 4


def test_with_a_fallback_and_no_store_hits_it_is_speculative_decoding() -> None:
    target: FunctionModel = scripted_model([5, 6, 7, 8, 9, 10, 11, 12])
    model: FunctionModel = scripted_model([5, 6, 7, 8, 9, 10, 11, 12])
    records = run(target, [1], NgramDrafter(NgramStore(3), 0, ModelDrafter(model, 16)), max_new_tokens=8)
    assert emitted(records) == [5, 6, 7, 8, 9, 10, 11, 12]
    assert len(rounds(records)) == 2
