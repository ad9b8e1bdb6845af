"""A run that begins behind given tokens goes on as one that wrote them itself would, by the same noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from test_distribution_other_tokenizers import make
from tiny_drafters import KINDS, make_drafter
from tiny_models import FunctionModel, emitted, ended, run, run_lazily, table_model
from truth import LENGTH, first_tokens, joint, process

from specdec_tui.decoding import loop
from specdec_tui.decoding import run as round_by_round
from specdec_tui.decoding.beam import Beams
from specdec_tui.decoding.controls import Controls
from specdec_tui.decoding.drafters import Drafter
from specdec_tui.decoding.lossless import check
from specdec_tui.decoding.records import (
    EndReason,
    LosslessStatus,
    Origin,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    tokens_of,
)
from specdec_tui.decoding.sampling import Dice, PositionNoise, Sampler

VOCAB = 4
TARGET = table_model(31, VOCAB, spread=1.1)
SMALL = table_model(32, VOCAB, like=TARGET)
PROMPT = [1, 2, 3, 1, 0, 2]
WARM = Sampler("multinomial", 0.8)
COUPLED: dict[str, Any] = {"sampler": WARM, "rule": "coupled", "seed": 5}
LENGTH_OF_ALL = 24
CONTROLS = Controls(presence_penalty=0.7, frequency_penalty=0.2, repetition_penalty=1.2, no_repeat_ngram=4)
ALL_KINDS = ("none", *KINDS, "shared", "retokenize")


def drafter_of(kind: str) -> Drafter | None:
    if kind in ("shared", "retokenize"):
        return make(kind)
    return None if kind == "none" else make_drafter(kind, TARGET, SMALL)


def behind(kind: str, given: Sequence[int], **settings: Any) -> list[Any]:
    left = LENGTH_OF_ALL - len(given)
    return run(TARGET, PROMPT, drafter_of(kind), given=given, max_new_tokens=left, **settings)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("settings", [{}, COUPLED, {"controls": CONTROLS}, COUPLED | {"controls": CONTROLS}])
def test_behind_its_own_tokens_a_run_writes_its_own_rest(kind: str, settings: dict[str, Any]) -> None:
    whole = emitted(behind(kind, [], **settings))
    for begun in (1, 2, 7, LENGTH_OF_ALL - 1):
        records = behind(kind, whole[:begun], **settings)
        assert emitted(records) == whole[begun:], begun
        assert ended(records).reason is EndReason.LENGTH
        placed = [token for record in records if isinstance(record, RoundVerified) for token in record.new_tokens]
        assert [token.position for token in placed] == list(range(begun + 1, LENGTH_OF_ALL))


def test_the_records_say_where_it_began() -> None:
    origin = Origin("speculative", 2, 3)
    started, prefilled, *_ = behind("model", [1, 0, 3], origin=origin)
    assert started == RunStarted("tested", len(PROMPT) + 3, 4, LENGTH_OF_ALL - 3, origin=origin)
    assert isinstance(prefilled, PrefillDone) and prefilled.token is not None
    assert prefilled.token.position == 3


def written_plainly(given: Sequence[int], noise: PositionNoise | None) -> list[int]:
    """A loop of nothing but the definition: arg-max of log p + g at each place of the text; greedy without noise."""
    text = [*PROMPT, *given]
    while len(text) < len(PROMPT) + LENGTH_OF_ALL:
        logits = TARGET.row(text).tolist()
        if noise is not None:
            p, place = process(logits, WARM), len(text) - len(PROMPT)
            logits = [value / float(e) for value, e in zip(p, noise.at(place), strict=True)]
        text.append(max(range(VOCAB), key=lambda token: logits[token]))
    return text[len(PROMPT) + len(given) :]


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("given", [[0], [2, 2, 1], [3, 1, 0, 0, 2, 1, 3, 3]])
def test_greedy_and_coupled_texts_are_those_of_the_definition(kind: str, given: list[int]) -> None:
    noise = PositionNoise(5, VOCAB, torch.device("cpu"))
    assert emitted(behind(kind, given)) == written_plainly(given, None)
    assert emitted(behind(kind, given, **COUPLED)) == written_plainly(given, noise)


@pytest.mark.parametrize("rule", ["rejection", "block", "skip-adjustment"])
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_rules_without_noise_decode_as_behind_a_plain_prompt(
    monkeypatch: pytest.MonkeyPatch, kind: str, rule: str
) -> None:
    given, settings = [2, 0, 1], {"sampler": WARM, "rule": rule, "seed": 9}
    branch = behind(kind, given, **settings)
    # The dice of that place, for a run to which the given tokens are a part of its prompt.
    monkeypatch.setattr(loop, "Dice", lambda seed, size, device, _: Dice(seed, size, device, len(given)))
    plain = run(TARGET, [*PROMPT, *given], drafter_of(kind), max_new_tokens=LENGTH_OF_ALL - len(given), **settings)
    assert emitted(branch) == emitted(plain)
    assert [tokens_of(record) and [t.status for t in tokens_of(record)] for record in branch] == [
        tokens_of(record) and [t.status for t in tokens_of(record)] for record in plain
    ]


def first_of_branches(rule: str, prefix: int, seeds: range) -> Iterator[tuple[int, ...]]:
    """Of the seeds whose run begins with the token `prefix`, the first tokens of the branch behind it."""
    settings: dict[str, Any] = {"sampler": WARM, "rule": rule, "gamma": 3}
    for seed in seeds:
        drawn = run(TARGET, PROMPT, max_new_tokens=1, seed=seed, **settings)
        if emitted(drawn) == [prefix]:
            drafter = make_drafter("model", TARGET, SMALL)
            yield first_tokens(
                run_lazily(TARGET, PROMPT, drafter, given=[prefix], max_new_tokens=6, seed=seed, **settings)
            )


def agrees(rule: str, seeds: int = 2400) -> bool:
    """Whether branches of drawn prefixes are distributed as the target says; a low p-value must repeat."""

    def p_value(seeds: range) -> float:
        chances = [process(TARGET.row([*PROMPT, *more]).tolist(), WARM) for more in ([], *([t] for t in range(VOCAB)))]
        # One that is often drawn, and may well be drawn again: a number that is used twice shows most there.
        prefix = max(range(VOCAB), key=lambda token: chances[0][token] * chances[1 + token][token])
        truth = joint(TARGET, [*PROMPT, prefix], WARM, frozenset(), lambda logits, text, prompt: logits)
        found = list(first_of_branches(rule, prefix, seeds))
        assert len(found) > len(seeds) / 6 and all(len(text) == LENGTH for text in found)
        observed = [float(found.count(text)) for text in truth]
        return float(chisquare(observed, [p * len(found) for p in truth.values()]).pvalue)

    return p_value(range(seeds)) >= 1e-3 or p_value(range(10**6, 10**6 + 2 * seeds)) >= 1e-3


@pytest.mark.parametrize("rule", ["rejection", "coupled", pytest.param("block", marks=pytest.mark.large)])
def test_branches_of_a_drawn_prefix_are_distributed_as_the_target_says(rule: str) -> None:
    assert agrees(rule)


def test_dice_that_begin_anew_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first draw of the branch would be made by the number that made its prefix."""
    monkeypatch.setattr(loop, "Dice", lambda seed, size, device, given: Dice(seed, size, device))
    assert not agrees("rejection", 1000)


@pytest.mark.large
def test_noise_from_the_first_position_on_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def position(self: round_by_round.Run) -> int:
        return len(self.ids) - self.prompt_length - len(self.given)

    monkeypatch.setattr(round_by_round.Run, "position", property(position))
    assert not agrees("coupled", 1000)


def test_a_text_ends_where_its_own_would_across_the_seam() -> None:
    def says_three(text: Sequence[int]) -> bool:
        return list(text[-2:]) == [2, 3]

    whole = emitted(behind("none", []))
    at = next(i for i in range(2, len(whole)) if whole[i] != whole[i - 1])
    pair = whole[at - 1 : at + 1]
    records = behind("model", whole[:at], completes=lambda text: list(text[-2:]) == pair)
    assert (emitted(records), ended(records).reason) == (whole[at : at + 1], EndReason.END_TOKEN)
    for how in ({"end_ids": frozenset({3})}, {"completes": says_three}):
        over = behind("model", [0, 2, 3], **how)
        assert emitted(over) == [] and ended(over).reason is EndReason.END_TOKEN


def test_a_small_number_of_new_tokens_counts_the_given_ones() -> None:
    ends = frozenset(range(VOCAB - 1))
    forced = Controls(min_new_tokens=5, end_ids=ends)
    records = behind("model", [3, 3], controls=forced, end_ids=ends)
    assert emitted(records)[:3] == [3, 3, 3] and len(emitted(records)) < LENGTH_OF_ALL - 2


def test_the_context_holds_the_given_tokens_too() -> None:
    short = FunctionModel(VOCAB, TARGET.row, context_length=12)
    records = run(short, PROMPT, given=[1, 2], max_new_tokens=20)
    assert len(emitted(records)) == 12 - len(PROMPT) - 2 and ended(records).reason is EndReason.CONTEXT


def test_a_search_is_not_gone_on_with() -> None:
    end = ended(run(TARGET, PROMPT, given=[1], beams=Beams(2)))
    assert end == RunEnded(EndReason.ERROR, end.message) and "from the middle of its text" in end.message


@pytest.mark.parametrize("settings", [{}, COUPLED])
def test_the_check_judges_what_was_written_and_not_what_was_given(settings: dict[str, Any]) -> None:
    given = [3, 0, 3, 1]
    ids = emitted(behind("model", given, **settings))
    judge = partial(
        check, TARGET, PROMPT, **{"sampler": Sampler(), "rule": "rejection", "seed": 0, "bound": 1e-3} | settings
    )
    assert judge(ids, None, given=given).status is LosslessStatus.IDENTICAL
    wrong = [*ids[:3], (ids[3] + 1) % VOCAB, *ids[4:]]
    assert judge(wrong, None, given=given).status is LosslessStatus.DIFFERENT
    assert judge(ids, None, given=[]).status is LosslessStatus.DIFFERENT
