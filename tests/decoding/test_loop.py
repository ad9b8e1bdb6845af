"""The loop: fates, edges, ends, clocks and errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_drafters import KINDS, ScriptedDrafter, make_drafter
from tiny_models import (
    FunctionContext,
    FunctionModel,
    emitted,
    ended,
    rounds,
    run,
    run_lazily,
    scripted_model,
    table_model,
)

from specdec_tui.decoding.drafters import ModelDrafter
from specdec_tui.decoding.prompt import PREFILL_CHUNK
from specdec_tui.decoding.records import (
    DraftsProposed,
    EndReason,
    Notice,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Token,
)
from specdec_tui.decoding.rules import RULES
from specdec_tui.decoding.sampling import Sampler

SCRIPT = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
SAMPLING = Sampler("multinomial", 1.0)
EVERY_KIND = [*KINDS, "none"]


def drafter_of(kind: str, target: FunctionModel) -> Any:
    return None if kind == "none" else make_drafter(kind, target, scripted_model(SCRIPT))


def fates(record: RoundVerified) -> list[tuple[int, str, int]]:
    tokens = (*record.drafts, *([record.emitted] if record.emitted else []))
    return [(token.id, token.status.value, token.position) for token in tokens]


def test_the_records_of_a_run_come_in_order() -> None:
    records = run(scripted_model(SCRIPT), [1], ScriptedDrafter([3, 4, 9, 9]), gamma=3, max_new_tokens=4)
    assert records[0] == RunStarted("tested", 1, 3, 4)
    kinds = [type(record) for record in records]
    assert kinds == [
        RunStarted,
        PrefillDone,
        DraftsProposed,
        RoundVerified,
        RoundVerified,
        RunEnded,
    ]


def test_the_fates_of_a_round_with_a_rejection() -> None:
    target = scripted_model(SCRIPT)
    records = run(target, [1], ScriptedDrafter([3, 4, 1, 2]), gamma=3, max_new_tokens=5)
    proposed = next(record for record in records if isinstance(record, DraftsProposed))
    assert [(t.id, t.status, t.position) for t in proposed.drafts] == [
        (4, Status.PENDING, 1),
        (1, Status.PENDING, 2),
        (2, Status.PENDING, 3),
    ]
    assert fates(rounds(records)[0]) == [
        (4, "accepted", 1),
        (1, "rejected", 2),
        (2, "unverified", 3),
        (5, "resampled", 2),
    ]
    assert emitted(records) == [3, 4, 5, 6, 7]


def test_a_fully_accepted_round_earns_a_bonus() -> None:
    records = run(scripted_model(SCRIPT), [1], ScriptedDrafter(SCRIPT), gamma=3, max_new_tokens=5)
    assert fates(rounds(records)[0]) == [
        (4, "accepted", 1),
        (5, "accepted", 2),
        (6, "accepted", 3),
        (7, "bonus", 4),
    ]


def test_without_drafts_tokens_are_sampled_and_the_prefill_gives_the_first() -> None:
    records = run(scripted_model(SCRIPT), [1], max_new_tokens=3)
    assert isinstance(records[1], PrefillDone)
    assert records[1].token == Token(3, Status.SAMPLED, 0, p=1.0)
    assert [fates(record) for record in rounds(records)] == [[(4, "sampled", 1)], [(5, "sampled", 2)]]


def test_the_target_is_fed_the_last_token_and_the_drafts_and_nothing_twice() -> None:
    target = scripted_model(SCRIPT)
    run(target, [1], ScriptedDrafter([3, 4, 5, 0, 7, 8, 9]), gamma=3, max_new_tokens=9)
    # Prefill; 3 + drafts 4 5 (0); 6 + 7 8 9; then one draft of no script left.
    assert target.calls == [1, 4, 4, 1]


def test_a_model_drafter_catches_up_in_one_pass() -> None:
    target, model = scripted_model(SCRIPT), scripted_model(SCRIPT)
    run(target, [1], ModelDrafter(model, 16), gamma=2, max_new_tokens=7)
    # Prompt; then per round: what is new (the emitted token, and after a full round the last draft), drafts.
    assert model.calls == [1, 1, 1, 2, 1]


def test_numbers_of_the_rejection_rule_are_in_the_tokens() -> None:
    target, model = table_model(1, 5), table_model(2, 5)
    records = run(target, [1, 2], ModelDrafter(model, 5), sampler=SAMPLING, gamma=3, max_new_tokens=60, seed=3)
    for record in rounds(records):
        for token in record.drafts:
            assert token.p is not None and token.q is not None and token.acceptance is not None
            assert token.acceptance == pytest.approx(min(1, token.p / token.q))
            if token.status is Status.UNVERIFIED:
                assert token.draw is None
            else:
                assert token.draw is not None
                assert (token.draw * token.q < token.p) == (token.status is Status.ACCEPTED)
        assert record.emitted is not None and record.emitted.p is not None and record.emitted.p > 0


def test_model_free_drafts_have_one_hot_q() -> None:
    records = run(table_model(1, 5), [1, 2], ScriptedDrafter([0] * 20), sampler=SAMPLING, max_new_tokens=9)
    assert all(token.q == 1.0 for record in rounds(records) for token in record.drafts)


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("rule", [*RULES, "greedy"])
class TestEdges:
    """Every strategy, under every rule."""

    def settings(self, rule: str) -> dict[str, Any]:
        # Logits of 9 against 0: sampling follows the script too once top-k keeps one token.
        return {"rule": rule, "sampler": Sampler("topk", 1.0, top_k=1)} if rule != "greedy" else {}

    def test_one_new_token_comes_from_the_prefill_alone(self, kind: str, rule: str) -> None:
        target = scripted_model(SCRIPT)
        records = run(target, [1], drafter_of(kind, target), max_new_tokens=1, **self.settings(rule))
        assert emitted(records) == [3] and rounds(records) == []
        assert ended(records).reason is EndReason.LENGTH

    @pytest.mark.parametrize("gamma", [0, 1, 3, 32])
    def test_the_length_is_met_exactly_at_any_gamma(self, kind: str, rule: str, gamma: int) -> None:
        for length in (2, 3, 8):
            target = scripted_model(SCRIPT)
            settings = {"gamma": gamma, "max_new_tokens": length} | self.settings(rule)
            assert emitted(run(target, [1], drafter_of(kind, target), **settings)) == SCRIPT[:length]

    @pytest.mark.parametrize("end", range(6))
    def test_the_run_ends_with_the_first_end_token_wherever_it_falls(self, kind: str, rule: str, end: int) -> None:
        target = scripted_model(SCRIPT)
        ends = frozenset({SCRIPT[end], SCRIPT[end + 1], 15})
        records = run(target, [1], drafter_of(kind, target), gamma=3, end_ids=ends, **self.settings(rule))
        assert emitted(records) == SCRIPT[: end + 1]
        assert ended(records).reason is EndReason.END_TOKEN

    def test_the_context_is_filled_to_its_last_token(self, kind: str, rule: str) -> None:
        for limit in (2, 3, 7):
            target = scripted_model(SCRIPT, context_length=limit)
            records = run(target, [1], drafter_of(kind, target), gamma=3, **self.settings(rule))
            assert emitted(records) == SCRIPT[: limit - 1]
            assert ended(records).reason is EndReason.CONTEXT

    @pytest.mark.parametrize("limit", [3, 2])
    def test_a_prompt_that_leaves_no_room_gives_no_token_and_says_why(self, kind: str, rule: str, limit: int) -> None:
        target = scripted_model(SCRIPT, context_length=limit)
        records = run(target, [1, 2, 3], drafter_of(kind, target), **self.settings(rule))
        assert records[1] == PrefillDone(None, 0.0)
        assert ended(records).reason is EndReason.CONTEXT
        assert "3 tokens" in ended(records).message and str(limit) in ended(records).message
        assert target.calls == []


def test_an_accepted_end_draft_ends_the_run_without_another_token() -> None:
    records = run(scripted_model(SCRIPT), [1], ScriptedDrafter(SCRIPT), gamma=4, end_ids=frozenset({5}))
    (only,) = rounds(records)
    assert fates(only) == [(4, "accepted", 1), (5, "accepted", 2)]
    assert only.emitted is None


def test_drafts_behind_an_end_token_are_cut_even_when_the_end_is_refused() -> None:
    drafter = ScriptedDrafter([3, 4, 15, 6, 7])
    records = run(scripted_model(SCRIPT), [1], drafter, gamma=4, max_new_tokens=6, end_ids=frozenset({15}))
    assert fates(rounds(records)[0]) == [(4, "accepted", 1), (15, "rejected", 2), (5, "resampled", 2)]


def test_an_end_token_can_be_the_correction() -> None:
    drafter = ScriptedDrafter([3, 4, 0, 0])
    records = run(scripted_model(SCRIPT), [1], drafter, gamma=2, end_ids=frozenset({5}))
    assert fates(rounds(records)[0])[-1] == (5, "resampled", 2)
    assert ended(records).reason is EndReason.END_TOKEN


def test_an_end_token_in_the_prompt_ends_nothing() -> None:
    assert emitted(run(scripted_model(SCRIPT), [5], max_new_tokens=2, end_ids=frozenset({5}))) == [3, 4]


def test_never_more_drafts_are_asked_for_than_there_is_room() -> None:
    drafter = ScriptedDrafter(SCRIPT)
    run(scripted_model(SCRIPT), [1], drafter, gamma=5, max_new_tokens=8)
    assert drafter.asked == [5]  # 1 + 6, and the last token has no room for a draft
    drafter = ScriptedDrafter(SCRIPT)
    run(scripted_model(SCRIPT, context_length=5), [1], drafter, gamma=5, max_new_tokens=8)
    assert drafter.asked == [2]


def test_a_drafter_learns_what_holds_after_every_round() -> None:
    drafter = ScriptedDrafter([3, 4, 0, 0, 7])
    run(scripted_model(SCRIPT), [1], drafter, gamma=3, max_new_tokens=5)
    assert drafter.settled == [([1, 3], 1, 1), ([1, 3, 4, 5], 3, 2), ([1, 3, 4, 5, 6], 4, 1), ([1, *SCRIPT[:5]], 5, 1)]


def test_a_full_drafter_context_means_fewer_drafts_then_none_and_one_notice() -> None:
    model = scripted_model(SCRIPT, context_length=4)
    records = run(scripted_model(SCRIPT), [1], ModelDrafter(model, 16), gamma=4, max_new_tokens=9)
    assert emitted(records) == SCRIPT[:9]
    assert [len(record.drafts) for record in rounds(records)] == [3, 0, 0, 0, 0]
    notices = [record for record in records if isinstance(record, Notice)]
    assert len(notices) == 1 and "drafter's context of 4 tokens" in notices[0].message


def test_a_prompt_beyond_the_drafters_context_decodes_without_drafts() -> None:
    model = scripted_model(SCRIPT, context_length=2)
    target = scripted_model(SCRIPT, prompt_length=4)
    records = run(target, [1, 1, 1, 1], ModelDrafter(model, 16), max_new_tokens=5)
    assert emitted(records) == SCRIPT[:5]
    assert sum(isinstance(record, Notice) for record in records) == 1
    assert model.calls == []


@pytest.mark.parametrize("asked", range(5))
def test_a_run_can_be_cancelled_between_any_two_rounds(asked: int) -> None:
    answers = iter([False] * asked + [True])
    records = run(scripted_model(SCRIPT), [1], ScriptedDrafter(SCRIPT), gamma=1, cancelled=lambda: next(answers))
    assert ended(records).reason is EndReason.CANCELLED
    assert emitted(records) == SCRIPT[: 0 if asked == 0 else 1 + 2 * (asked - 1)]


@pytest.mark.parametrize("length", [1, PREFILL_CHUNK, PREFILL_CHUNK + 1, 3 * PREFILL_CHUNK + 5])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_prompt_of_any_length_is_read_whole(length: int, use_cache: bool) -> None:
    target = scripted_model(SCRIPT, prompt_length=length)
    records = run(target, [1] * length, ScriptedDrafter(SCRIPT), max_new_tokens=5, use_cache=use_cache)
    assert emitted(records) == SCRIPT[:5]


def test_a_run_can_be_cancelled_within_a_long_prompt() -> None:
    target = scripted_model(SCRIPT, prompt_length=5 * PREFILL_CHUNK)
    answers = iter([False, False, True])
    records = run(target, [1] * 5 * PREFILL_CHUNK, cancelled=lambda: next(answers))
    assert [type(record) for record in records] == [RunStarted, RunEnded]
    assert ended(records).reason is EndReason.CANCELLED
    assert len(target.calls) == 2


def test_a_run_can_be_cancelled_while_the_drafter_reads_a_long_prompt() -> None:
    target, model = (scripted_model(SCRIPT, prompt_length=5 * PREFILL_CHUNK) for _ in range(2))
    answers = iter([False] * 6 + [True])  # before the prompt, four times within it for the target, and then
    drafter = ModelDrafter(model, 16)
    records = run(target, [1] * 5 * PREFILL_CHUNK, drafter, cancelled=lambda: next(answers))
    assert [type(record) for record in records] == [RunStarted, RunEnded]
    assert ended(records).reason is EndReason.CANCELLED
    assert (len(target.calls), len(model.calls)) == (5, 2)


def test_an_empty_prompt_is_an_error_in_words() -> None:
    end = ended(run(scripted_model(SCRIPT), []))
    assert end.reason is EndReason.ERROR and "no tokens" in end.message


def failing_model(error: Exception, after: int) -> FunctionModel:
    model = scripted_model(SCRIPT)
    right = model.row

    def row(ids: list[int]) -> torch.Tensor:
        if len(ids) > after:
            raise error
        return right(ids)

    model.row = row
    return model


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError("kernel failed\nlong trace"), "RuntimeError: kernel failed"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), "out of memory: try"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out of memory: try"),
        (MemoryError(), "out of memory: try"),
        (KeyError(), "KeyError"),
    ],
)
def test_what_a_model_raises_ends_the_run_in_words_and_keeps_the_text(error: Exception, words: str) -> None:
    records = run(failing_model(error, after=3), [1], max_new_tokens=9)
    assert emitted(records) == SCRIPT[:3]
    assert ended(records).reason is EndReason.ERROR
    assert ended(records).message.startswith(words) and "\n" not in ended(records).message


def test_a_drafter_that_fails_ends_the_run_in_words_too() -> None:
    drafter = ModelDrafter(failing_model(RuntimeError("no luck"), after=3), 16)
    assert ended(run(scripted_model(SCRIPT), [1], drafter)).message == "RuntimeError: no luck"


@pytest.mark.parametrize("sampler", [Sampler("greedy"), SAMPLING])
def test_scores_that_are_not_numbers_are_an_error(sampler: Sampler) -> None:
    model = FunctionModel(8, lambda ids: torch.full((8,), torch.nan))
    end = ended(run(model, [1], sampler=sampler))
    assert end.reason is EndReason.ERROR and "Error" not in end.message
    assert end.message.startswith("the ") and ("not numbers" in end.message or "not finite numbers" in end.message)


def test_closing_the_records_early_is_no_error() -> None:
    records = run_lazily(scripted_model(SCRIPT), [1])
    next(records), next(records)
    records.close()


def test_a_wider_target_and_a_wider_drafter_both_work() -> None:
    for wide, narrow in ((16, 14), (14, 16)):
        target, model = scripted_model(SCRIPT, vocab_size=wide), scripted_model(SCRIPT, vocab_size=narrow)
        for sampler in (Sampler("greedy"), Sampler("nucleus", 1.0, top_p=0.9)):
            for rule in RULES:
                drafter = ModelDrafter(model, wide)
                records = run(target, [1], drafter, sampler=sampler, rule=rule, max_new_tokens=9)
                assert emitted(records) == SCRIPT[:9]
                assert len(rounds(records)) == 2


def test_the_cache_switch_reaches_both_models() -> None:
    opened: list[bool] = []

    class Watching(FunctionModel):
        def open(self, *, use_cache: bool = True, capacity: int = 0) -> FunctionContext:
            opened.append(use_cache)
            return super().open(use_cache=use_cache, capacity=capacity)

    model = Watching(16, scripted_model(SCRIPT).row)
    for use_cache in (True, False):
        run(model, [1], ModelDrafter(model, 16), use_cache=use_cache, max_new_tokens=2)
    assert opened == [True, True, False, False]
