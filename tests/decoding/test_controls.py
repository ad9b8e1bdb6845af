"""Controls depend on the text alone: held against transformers' processors, plain loops, and faults that must show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_distribution import CLOSE, END, FAR, PROMPT, TARGET
from tiny_drafters import KINDS, make_drafter
from tiny_models import FunctionModel, emitted, rounds, run, scripted_model
from transformers.generation import logits_process as theirs
from truth import agrees, some

from specdec_tui.decoding import controls as controls_module
from specdec_tui.decoding import records
from specdec_tui.decoding import run as round_by_round
from specdec_tui.decoding.controls import Controls
from specdec_tui.decoding.device_run import need_of
from specdec_tui.decoding.drafters import Proposal
from specdec_tui.decoding.ending import Ending
from specdec_tui.decoding.records import EndReason, RunEnded
from specdec_tui.decoding.sampling import Sampler

WIDTH = 12
TEXT = [3, 1, 2, 3, 1, 4, 2, 3, 1, 2, 3]
PLAIN = Sampler("multinomial", 0.9)


def processors(**asked: Any) -> list[Any]:
    made = {
        "biases": lambda v: theirs.SequenceBiasLogitsProcessor([[list(s), b] for s, b in v]),
        "repetition_penalty": theirs.RepetitionPenaltyLogitsProcessor,
        "no_repeat_ngram": theirs.NoRepeatNGramLogitsProcessor,
        "banned": lambda v: theirs.NoBadWordsLogitsProcessor([list(s) for s in v]),
        "min_length": lambda v: theirs.MinLengthLogitsProcessor(v, [0, 5], device="cpu"),
        "min_new_tokens": lambda v: theirs.MinNewTokensLengthLogitsProcessor(4, v, [0, 5], device="cpu"),
    }
    return [make(asked[name]) for name, make in made.items() if name in asked]


@pytest.mark.parametrize(
    "asked",
    [
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.7},
        {"no_repeat_ngram": 1},
        {"no_repeat_ngram": 2},
        {"no_repeat_ngram": 4},
        {"biases": (((7,), 2.5), ((2, 3, 5), -4.0), ((1, 6), 9.0))},
        {"banned": ((7,), (2, 3, 1), (3, 9), tuple(range(12)))},
        {"min_length": 10},
        {"min_new_tokens": 6},
        {"repetition_penalty": 1.2, "no_repeat_ngram": 3, "banned": ((8,),), "biases": (((1,), 3.0),)},
    ],
)
def test_each_row_is_what_transformers_makes_of_the_text_before_it(asked: dict[str, Any]) -> None:
    logits = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(1))
    kept = logits.clone()
    ours = Controls(**asked, end_ids=frozenset({0, 5})).apply(logits, TEXT, 4)
    for index, row in enumerate(logits):
        wanted, ids = row[None].clone(), torch.tensor([TEXT[: len(TEXT) - 3 + index]])
        for processor in processors(**asked):
            wanted = processor(ids, wanted)
        assert torch.equal(ours[index], wanted[0])
    assert torch.equal(logits, kept)


def test_presence_and_frequency_count_new_tokens_only() -> None:
    row = Controls(presence_penalty=0.5, frequency_penalty=0.25).apply(torch.zeros(1, WIDTH), TEXT, 5)[0]
    counts = {token: TEXT[5:].count(token) for token in range(WIDTH)}
    assert row.tolist() == [-(0.5 + 0.25 * n) if n else 0.0 for n in counts.values()]


def test_ids_beyond_the_logits_change_nothing() -> None:
    wide = Controls(repetition_penalty=2.0, banned=((99,),), biases=(((88,), 1.0),), no_repeat_ngram=0)
    assert wide.apply(torch.ones(1, 3), [1, 77], 1)[0].tolist() == [1.0, 0.5, 1.0]


def plainly(logits: list[float], text: list[int], prompt: int) -> list[float]:
    """Repetition 1.4, presence 0.3, frequency 0.2, no bigram twice, token 2 behind 1 less likely: in plain loops."""
    changed = list(logits)
    if text[-1] == 1:
        changed[2] -= 1.0
    for token in set(text):
        changed[token] = changed[token] * 1.4 if changed[token] < 0 else changed[token] / 1.4
    for token in set(text[prompt:]):
        changed[token] -= 0.3 + 0.2 * text[prompt:].count(token)
    for place in range(len(text) - 1):
        if text[place] == text[-1]:
            changed[text[place + 1]] = -torch.inf
    return changed


ASKED = Controls(
    repetition_penalty=1.4,
    presence_penalty=0.3,
    frequency_penalty=0.2,
    no_repeat_ngram=2,
    biases=(((1, 2), -1.0),),
)
SHORT = [1, 2, 3, 3]  # leaves most bigrams free


def distributed(kind: str, rule: str, sampler: Sampler = PLAIN, few: int = 1000) -> bool:
    def make() -> Any:
        return make_drafter(kind, TARGET, FAR)

    return agrees(few, TARGET, SHORT, make, sampler, rule=rule, end_ids=END, controls=ASKED, change=plainly)


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        pytest.param(*one.values, marks=[*one.marks, *[pytest.mark.large] * (one.values[0] == "lookup")])
        for one in some(KINDS, ("rejection", "coupled", "block"))
    ],
)
def test_sampling_with_penalties_is_distributed_as_the_target_says(kind: str, rule: str) -> None:
    assert distributed(kind, rule)


@pytest.mark.parametrize(
    "sampler", [Sampler("multinomial", 1.1, min_p=0.3), Sampler("topk", 1.2, top_k=3, typical_p=0.7)]
)
def test_min_p_and_typical_p_are_distributed_as_the_target_says(sampler: Sampler) -> None:
    def make() -> Any:
        return make_drafter("model", TARGET, CLOSE)

    assert agrees(1000, TARGET, PROMPT, make, sampler, rule="rejection", end_ids=END)


@pytest.mark.large
def test_rows_that_all_see_the_same_text_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault of a block whose rows forget the drafts before them."""
    apply = Controls.apply

    def forgetful(self: Controls, logits: torch.Tensor, text: Any, prompt: int) -> torch.Tensor:
        known = text[: len(text) - len(logits) + 1]
        return torch.cat([apply(self, row[None], known, prompt) for row in logits])

    monkeypatch.setattr(Controls, "apply", forgetful)
    assert not distributed("model", "rejection")


@pytest.mark.large
def test_a_draft_that_counts_as_text_of_the_prompt_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Controls.apply
    monkeypatch.setattr(Controls, "apply", lambda self, logits, text, prompt: apply(self, logits, text, prompt + 1))
    assert not distributed("model", "rejection")


def test_the_text_ends_at_the_token_that_completes_a_stop_string_wherever_it_is_in_a_block() -> None:
    script = [4, 5, 6, 7, 8, 9, 10, 11]

    def completes(ids: Any) -> bool:
        return list(ids[-2:]) == [7, 8]

    for gamma in (1, 2, 3, 4, 8):
        for made in (None, scripted_model(script)):
            drafter = None if made is None else make_drafter("model", scripted_model(script), made)
            records = run(scripted_model(script), [1], drafter, gamma=gamma, max_new_tokens=8, completes=completes)
            assert emitted(records) == [4, 5, 6, 7, 8]
            assert isinstance(records[-1], RunEnded) and records[-1].reason is EndReason.END_TOKEN
            assert records[-1].words == "stop string"
            for one in rounds(records):
                assert all(token.id < 9 for token in one.drafts), "what stands behind the end is no draft"


class Apart(FunctionModel):
    """Reads its prompt apart."""

    begin = (0,)

    def longest_text(self, prompt_length: int) -> int | None:
        return None


def test_a_prompt_that_an_encoder_reads_is_no_part_of_a_stop_string() -> None:
    script = [4, 5, 6, 7]
    plain = scripted_model(script, prompt_length=2)
    for model, ids in ((plain, [4]), (Apart(plain.vocab_size, plain.row), script)):
        records = run(model, [9, 3], max_new_tokens=4, completes=lambda ids: list(ids[-2:]) == [3, 4])
        assert emitted(records) == ids


def test_a_proposal_is_cut_where_the_text_ends() -> None:
    proposal = Proposal([3, 4, 5, 4], [None] * 4)
    proposal.cut(Ending(completes=lambda ids: list(ids) == [9, 3, 4, 5]), [9])
    assert proposal.ids == [3, 4, 5] and len(proposal.rows) == 3


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"controls": Controls(no_repeat_ngram=3)}, "no repeat ngram asks what stands before each token"),
        ({"completes": lambda ids: False}, "stop strings are looked for in the text"),
    ],
)
def test_a_captured_round_refuses_what_the_host_must_look_at(asked: dict[str, Callable[..., Any]], why: str) -> None:
    settings: dict[str, Any] = {"sampler": PLAIN, "rule": "rejection", "gamma": 3, "end_ids": END, "capacity": 9}
    need_of(TARGET, None, **settings)
    with pytest.raises(ValueError, match=why):
        need_of(TARGET, None, **settings, **asked)


def test_controls_that_ask_for_nothing_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.ones(1, 3)
    assert Controls(end_ids=frozenset({1})).apply(logits, [1], 1) is logits
    assert controls_module.NO_CONTROLS.asked == () and round_by_round.nothing() == records.PassTimes()
