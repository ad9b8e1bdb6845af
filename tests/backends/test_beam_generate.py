"""A beam search writes what transformers' `generate(num_beams=…)` writes, in float32: families, widths and endings."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from tiny_encoder_decoders import ENCODER_DECODERS, tiny_encoder_decoder
from tiny_transformers import CONFIGS, FAMILIES, LENGTH_DEPENDENT, RECURRENT, tiny_model
from transformers import PreTrainedModel

from specdec_tui.backends.cache import RewindableCache
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.encoder_decoder import EncoderDecoderModel
from specdec_tui.backends.lean import fit
from specdec_tui.backends.lean.model import LeanContext, LeanModel
from specdec_tui.decoding import beam
from specdec_tui.decoding.beam import Beams
from specdec_tui.decoding.branches import SeparateBranches
from specdec_tui.decoding.controls import Controls
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.records import EMITTED, EndReason, Notice, Record, RunEnded, tokens_of
from specdec_tui.decoding.sampling import Sampler

PROMPT = [5, 9, 30, 5, 9, 31, 40, 5, 9]
LENGTH = 14
STOPPING: dict[str, Any] = {"off": False, "on": True, "never": "never"}
ENDS = ([7], [7, *range(12, 320, 25)])
WIDTHS, PENALTIES = (2, 4, 8), (0.0, 1.0, 2.0, -1.0)
PLAIN = ("llama", "gpt2", "gemma2", "t5", "bart")
ALL = (*CONFIGS, *FAMILIES, *LENGTH_DEPENDENT, *ENCODER_DECODERS, *(kind for kind in RECURRENT if kind not in CONFIGS))
# Of these `generate` cannot move the states with the beams, or does not: it is right without a cache alone.
STATES_STAY = ("rwkv", "xlstm", "recurrent_gemma")


def made(kind: str) -> tuple[PreTrainedModel, Any]:
    if kind in ENCODER_DECODERS:
        model = tiny_encoder_decoder(kind)
        return model, EncoderDecoderModel(model)
    model = tiny_model(kind)
    return model, TransformersModel(model)


def generated(model: PreTrainedModel, beams: Beams, ends: list[int], **asked: Any) -> list[int]:
    text = torch.tensor([PROMPT])
    with torch.inference_mode():
        found = model.generate(  # type: ignore[operator]
            text,
            attention_mask=torch.ones_like(text),
            **{"max_new_tokens": LENGTH}
            | {"num_beams": beams.width, "length_penalty": beams.length_penalty, "do_sample": False}
            | {"early_stopping": STOPPING[beams.early_stopping], "eos_token_id": ends, "pad_token_id": 0}
            | asked,
        )
    return list(found[0, 1 if model.config.is_encoder_decoder else len(PROMPT) :].tolist())


def searched(target: Any, beams: Beams, ends: list[int], **asked: Any) -> list[Record]:
    settings: dict[str, Any] = {"sampler": Sampler("greedy"), "max_new_tokens": LENGTH} | asked
    return list(decode(target, PROMPT, strategy="beam", beams=beams, end_ids=frozenset(ends), **settings))


def ids_of(records: list[Record]) -> list[int]:
    return [token.id for record in records for token in tokens_of(record) if token.status in EMITTED]


def ends_of(model: PreTrainedModel) -> tuple[list[int], ...]:
    """None, one that is met on the way, and many of which some are."""
    text = generated(model, Beams(4), [0], eos_token_id=None, use_cache=False)
    return [319], [text[6]], [text[9], *range(3, 320, 25)]


def compare(kind: str, widths: Any, penalties: Any, one_in: int = 1) -> set[EndReason]:
    """Ends met on the way; fails at the first text that differs. Of all combinations so many, evenly spread."""
    model, target = made(kind)
    asked = {"use_cache": False} if kind in STATES_STAY else {}
    met = set()
    for numbered in product(*map(enumerate, (widths, penalties, STOPPING, ends_of(model)))):
        if sum(at for at, _ in numbered) % one_in:
            continue
        width, penalty, stopping, ends = (value for _, value in numbered)
        beams = Beams(width, penalty, stopping)
        records = searched(target, beams, ends)
        assert isinstance(records[-1], RunEnded)
        assert ids_of(records) == generated(model, beams, ends, **asked), (beams, len(ends), records[-1])
        met.add(records[-1].reason)
    return met


@pytest.mark.parametrize("kind", PLAIN)
def test_a_search_writes_what_generate_writes(kind: str) -> None:
    assert compare(kind, (4,), (1.0,)) == {EndReason.END_TOKEN, EndReason.LENGTH}


@pytest.mark.large
@pytest.mark.parametrize("kind", ALL)
def test_every_family_at_every_width_penalty_and_stopping_writes_what_generate_writes(kind: str) -> None:
    assert compare(kind, WIDTHS, PENALTIES, one_in=1 if kind in PLAIN else 12 if kind in RECURRENT else 4)


@pytest.mark.parametrize("width", [2, 4])
def test_the_fast_pass_of_the_cpu_searches_as_generate_does(width: int) -> None:
    model = tiny_model("llama")
    ways = [(Beams(width, 1.0, stopping), ends) for stopping in STOPPING for ends in ENDS]
    wanted = [generated(model, *way) for way in ways]
    assert fit.fits(model) and not fit.why_not()
    lean = LeanModel.of(model)
    assert [ids_of(searched(lean, *way)) for way in ways] == wanted


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_the_search_is_the_same_without_a_cache(kind: str) -> None:
    model, target = made(kind)
    beams = Beams(3, 0.5, "never")
    records = searched(target, beams, ENDS[1], use_cache=False)
    assert ids_of(records) == generated(model, beams, ENDS[1])
    assert Notice("a step is 3 passes here, one for each beam") in records


@pytest.mark.parametrize("kind", ["qwen3_next", "bamba", "llama-dynamic", "phi3-longrope"])
def test_texts_of_models_with_states_or_turning_rotations_are_read_one_by_one(kind: str) -> None:
    model, target = made(kind)
    for beams, ends in zip((Beams(2), Beams(4, 2.0, "on")), ENDS, strict=True):
        records = searched(target, beams, ends)
        assert ids_of(records) == generated(model, beams, ends)
        assert Notice(f"a step is {beams.width} passes here, one for each beam") in records


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("asked", "controls"),
    [
        ({"repetition_penalty": 3.0}, Controls(repetition_penalty=3.0)),
        ({"no_repeat_ngram_size": 2}, Controls(no_repeat_ngram=2)),
        ({"min_new_tokens": 12}, Controls(min_new_tokens=12, end_ids=frozenset(ENDS[1]))),
        ({"bad_words_ids": [[12], [5, 9, 30]]}, Controls(banned=((12,), (5, 9, 30)))),
        ({"sequence_bias": [[[12], 9.0], [[5, 9], -6.0]]}, Controls(biases=(((12,), 9.0), ((5, 9), -6.0)))),
    ],
    ids=["repetition", "ngrams", "least", "banned", "bias"],
)
@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_controls_hold_for_each_beam_as_in_generate(kind: str, asked: dict[str, Any], controls: Controls) -> None:
    model, target = made(kind)
    begin = (target.start,) if kind == "t5" else None
    own = Controls(**{name: getattr(controls, name) for name in controls.asked}, end_ids=controls.end_ids, begin=begin)
    for beams in (Beams(4), Beams(3, 2.0, "never")):
        assert ids_of(searched(target, beams, ENDS[1], controls=own)) == generated(model, beams, ENDS[1], **asked)


@pytest.mark.parametrize("length", [1, 2])
def test_a_search_for_one_or_two_tokens_ends_there(length: int) -> None:
    model, target = made("gpt2")
    records = searched(target, Beams(4), [7], max_new_tokens=length)
    assert ids_of(records) == generated(model, Beams(4), [7], max_new_tokens=length)
    assert records[-1] == RunEnded(EndReason.LENGTH)


def test_a_search_fills_the_context_and_says_so() -> None:
    model = tiny_model("llama", max_position_embeddings=16)
    records = searched(TransformersModel(model), Beams(4), [7])
    assert ids_of(records) == generated(model, Beams(4), [7], max_new_tokens=16 - len(PROMPT))
    message = "prompt and new tokens fill the model's context of 16 tokens"
    assert records[-1] == RunEnded(EndReason.CONTEXT, message)


def test_beams_that_are_not_moved_with_their_texts_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    select = RewindableCache.select
    monkeypatch.setattr(RewindableCache, "select", lambda self, rows: select(self, [*range(len(rows))]))
    with pytest.raises(AssertionError):
        compare("llama", (4,), (1.0,))


def test_a_length_penalty_that_is_off_by_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    end = beam.Search._end_some

    def wrong(self: Any, *given: Any) -> None:
        self._length += 1
        end(self, *given)
        self._length -= 1

    monkeypatch.setattr(beam.Search, "_end_some", wrong)
    with pytest.raises(AssertionError):
        compare("gpt2", (4,), (1.0,))


def test_a_text_that_is_taken_back_to_the_wrong_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model, target = made("llama-dynamic")
    known = SeparateBranches._known
    monkeypatch.setattr(SeparateBranches, "_known", lambda *given: max(len(PROMPT), known(*given) - 1) + 1)
    wrong = [ids_of(searched(target, Beams(4, 1.0, how), ends)) for how in STOPPING for ends in ENDS]
    assert wrong != [generated(model, Beams(4, 1.0, how), ends) for how in STOPPING for ends in ENDS]


def test_keys_that_are_copied_short_of_where_texts_part_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama")
    ways = [(Beams(4, 1.0, stopping), ends) for stopping in STOPPING for ends in ENDS]
    wanted = [generated(model, *way) for way in ways]
    take = LeanContext.take
    monkeypatch.setattr(LeanContext, "take", lambda self, other, begin: take(self, other, begin + 1))
    lean = LeanModel.of(model)
    assert [ids_of(searched(lean, *way)) for way in ways] != wanted
