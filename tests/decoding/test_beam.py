"""A beam search on models that can be enumerated: what it settles, what it tells, and how it stops."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from tiny_models import FunctionModel, emitted, table_model

from specdec_tui.decoding.beam import Beams
from specdec_tui.decoding.beam_run import NO_CHANCE, STEP_BY_STEP
from specdec_tui.decoding.costs import Costs, costs
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.figures import RunFigures, speedup
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.records import (
    DraftsProposed,
    EndReason,
    Notice,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Token,
)
from specdec_tui.decoding.sampling import Sampler
from specdec_tui.decoding.standing import Verdict, standing

PROMPT = [1, 2]


def search(target: FunctionModel, beams: Beams, **settings: Any) -> list[Record]:
    settings = {"sampler": Sampler("greedy"), "max_new_tokens": 4} | settings
    return list(decode(target, PROMPT, strategy="beam", beams=beams, **settings))


def test_a_search_as_wide_as_all_texts_finds_the_most_probable_one() -> None:
    target = table_model(4, 4)
    scores = {}
    for text in product(range(4), repeat=3):
        rows = [target.row([*PROMPT, *text[:place]]).log_softmax(-1) for place in range(3)]
        scores[text] = sum(float(row[token]) for row, token in zip(rows, text, strict=True))
    best = max(scores, key=lambda text: scores[text])
    found = emitted(search(target, Beams(32), max_new_tokens=3))
    assert tuple(found) == best
    greedy = emitted(list(decode(target, PROMPT, strategy="target", sampler=Sampler("greedy"), max_new_tokens=3)))
    assert found != greedy, "else nothing was shown"


@pytest.mark.parametrize("seed", range(12))
def test_what_is_settled_is_never_taken_back_and_what_is_open_stands_behind_it(seed: int) -> None:
    """Replayed as a reader would: pending tokens are the best beam's, and rounds come with nothing but beams."""
    records = search(table_model(seed, 9), Beams(3, 1.0, "never"), max_new_tokens=24, end_ids=frozenset({5}))
    text: list[int] = []
    pending: list[int] = []
    beams: Any = ()
    for record in records:
        match record:
            case PrefillDone():
                text += [record.token.id] if record.token else []
                beams = record.beams
            case DraftsProposed(drafts=drafts, kept=kept):
                assert [token.position for token in drafts] == list(
                    range(len(text) + kept, len(text) + kept + len(drafts))
                )
                pending = [*pending[:kept], *(token.id for token in drafts)]
                best = beams[0]
                assert len(pending) == best.before + len(best.ids)
                assert tuple(pending[best.before :]) == best.ids
            case RoundVerified():
                assert not record.drafts and record.emitted is None
                assert all(token.status is Status.SAMPLED for token in record.settled)
                assert [token.position for token in record.settled] == list(
                    range(len(text), len(text) + len(record.settled))
                )
                text += [token.id for token in record.settled]
                del pending[: len(record.settled)]
                beams = record.beams
                assert list(beams) == sorted(beams, key=lambda beam: -beam.score)
    assert not beams and isinstance(records[-1], RunEnded) and text


def test_probabilities_of_settled_tokens_are_the_models_own() -> None:
    target = table_model(3, 4)
    text = list(PROMPT)
    for record in search(target, Beams(4), max_new_tokens=6, insight=True):
        for token in record.settled if isinstance(record, RoundVerified) else ():
            row = target.row(text).softmax(-1)
            assert token.p == pytest.approx(float(row[token.id]), rel=1e-4)
            assert token.insight is not None and dict(token.insight.target_top)[token.id] == pytest.approx(
                token.p, rel=1e-3
            )
            text.append(token.id)


@pytest.mark.each_value
@pytest.mark.parametrize("penalty", [-10.0, -4.0, 10.0])
@pytest.mark.parametrize("stopping", ["off", "on", "never"])
def test_every_penalty_that_is_allowed_has_an_answer(penalty: float, stopping: str) -> None:
    for length in (1, 2, 60):
        for width in (2, 9, 32):
            records = search(table_model(3, 9), Beams(width, penalty, stopping), max_new_tokens=length)
            assert isinstance(records[-1], RunEnded) and records[-1].reason is not EndReason.ERROR, records[-1]
            assert emitted(records)


def test_a_stopped_search_keeps_its_best_text() -> None:
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 8

    records = search(table_model(3, 9), Beams(3), max_new_tokens=50, cancelled=cancelled)
    shown = next(record for record in reversed(records) if isinstance(record, DraftsProposed))
    assert records[-1] == RunEnded(EndReason.CANCELLED)
    assert len(emitted(records)) > shown.drafts[-1].position, "no less than was shown of it"


def test_a_search_that_fails_keeps_its_best_text_and_tells_why() -> None:
    good = table_model(3, 9)

    def row(ids: list[int]) -> torch.Tensor:
        if len(ids) >= len(PROMPT) + 5:
            raise RuntimeError("the fan has stopped")
        return good.row(ids)

    records = search(FunctionModel(9, row), Beams(3), max_new_tokens=50)
    shown = next(record for record in reversed(records) if isinstance(record, DraftsProposed))
    end = records[-1]
    assert isinstance(end, RunEnded) and end.reason is EndReason.ERROR and "the fan has stopped" in end.message
    stopped = iter([False] * 5 + [True] * 50)
    whole = search(good, Beams(3), max_new_tokens=50, cancelled=lambda: next(stopped))
    assert emitted(records) == emitted(whole)[: len(emitted(records))]
    assert len(emitted(records)) == shown.drafts[-1].position + 1 == 5, "all that was shown of it"


def test_scores_that_are_no_numbers_end_a_search_in_words() -> None:
    target = FunctionModel(4, lambda ids: torch.full((4,), float("nan")))
    end = search(target, Beams(2))[-1]
    assert isinstance(end, RunEnded) and end.reason is EndReason.ERROR
    assert "no token can follow: the target's scores are not numbers, or all are forbidden" in end.message


def test_a_search_says_that_it_draws_nothing_and_is_not_captured() -> None:
    plain = search(table_model(3, 4), Beams(2))
    drawing = search(table_model(3, 4), Beams(2), sampler=Sampler("multinomial", 0.7), programs=Programs())
    assert [one.message for one in drawing if isinstance(one, Notice)][:2] == [NO_CHANCE, STEP_BY_STEP]
    assert emitted(plain) == emitted(drawing)


def figures_of(strategy: str, rounds: list[tuple[float, int]], beams: int, ended: bool = True) -> RunFigures:
    """Rounds of so many seconds and new tokens."""
    figures = RunFigures()
    figures.add(RunStarted(strategy, 2, 4, 99, beams=beams))
    first = None if beams else Token(0, Status.SAMPLED, 0)
    record = search(table_model(3, 4), Beams(2))[1]
    assert isinstance(record, PrefillDone)
    figures.add(PrefillDone(first, 0.5, beams=record.beams if beams else ()))
    place = 0
    for number, (seconds, tokens) in enumerate(rounds):
        new = tuple(Token(1, Status.SAMPLED, place + i) for i in range(tokens))
        place += tokens
        told = ((), None, 0.0, seconds, 0.0, new) if beams else ((), new[0], 0.0, seconds, 0.0)
        figures.add(RoundVerified(number, *told))
    if ended:
        figures.add(RunEnded(EndReason.LENGTH))
    return figures


def test_figures_of_a_search_are_of_its_answer() -> None:
    target = figures_of("target", [(0.1, 1)] * 16, 0)
    run = figures_of("beam", [(0.2, 0)] * 15 + [(0.2, 9)], 4)
    assert (run.new_tokens, run.prefill_tokens, run.rounds, run.target_calls) == (9, 1, 16, 17)
    assert run.decode_tokens_per_second == pytest.approx(8 / 3.2)
    assert speedup(target, run) == pytest.approx(0.5 * 8 / 16)
    assert run.acceptance_rate is None and costs(run, target) == Costs()


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("name", ["beam", "drafter-beam"])
def test_a_search_has_no_tokens_per_target_pass_as_a_step_may_be_many_passes(name: str, ended: bool) -> None:
    run = figures_of(name, [(0.2, 1)] * 20, 4, ended)
    assert run.tokens_per_target_call is None and run.window().tokens_per_target_call is None
    assert figures_of("target", [(0.1, 1)] * 20, 0).tokens_per_target_call == 1.0


def test_a_search_in_progress_has_a_pace_and_no_speedup() -> None:
    target = figures_of("target", [(0.1, 1)] * 16, 0)
    run = figures_of("beam", [(0.2, 0)] * 10, 4, ended=False)
    assert run.decode_tokens_per_second == pytest.approx(5.0)
    assert speedup(target, run) is None and standing(run, target) is None


@pytest.mark.parametrize("strategy", ["beam", "drafter-beam"])
def test_a_search_is_never_praised_for_being_faster(strategy: str) -> None:
    target = figures_of("target", [(0.1, 1)] * 16, 0)
    found = standing(figures_of(strategy, [(0.09, 1)] * 15 + [(0.09, 2)], 4), target)
    assert found is not None and found.verdict is not Verdict.FASTER


def test_steps_of_a_search_are_no_plain_passes() -> None:
    run = figures_of("beam", [(0.2, 1)] * 16, 4)
    assert run.course.plain_passes(0, 16).count == 0 and run.course.wide_passes(0, 16).count == 16
