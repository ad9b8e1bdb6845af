"""Generation controls under speculation write what transformers' `generate` writes with the same: greedy, float32."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_transformers import CONFIGS, FAMILIES, tiny_model, tiny_tokenizer

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.generation_asks import settings_asked
from specdec_tui.backends.loading import load_pair
from specdec_tui.backends.stop_strings import StopStrings
from specdec_tui.benchmark.report import as_json
from specdec_tui.decoding.controls import Controls
from specdec_tui.decoding.drafters import ModelDrafter
from specdec_tui.decoding.lookup import LookupDrafter
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore
from specdec_tui.decoding.records import (
    EMITTED,
    Checked,
    LosslessStatus,
    Notice,
    PrefillDone,
    RoundVerified,
    RunStarted,
    Step,
    tokens_of,
)
from specdec_tui.decoding.sampling import Sampler
from specdec_tui.run_settings import controls_of
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

LENGTH, END = 20, 7
PROMPT = [5, 9, 30, 5, 9, 31, 40, 5, 9]
STRONG = [[[12], 9.0], [[5, 9], -6.0]]
# What `generate` is given, and without what its text must be another one.
ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "repetition": ({"repetition_penalty": 3.0}, "repetition_penalty"),
    "ngrams": ({"sequence_bias": STRONG, "no_repeat_ngram_size": 2}, "no_repeat_ngram_size"),
    "least": ({"sequence_bias": [[[END], 9.0]], "min_new_tokens": 12}, "min_new_tokens"),
    "banned": ({"sequence_bias": STRONG, "bad_words_ids": [[12], [5, 9, 30]]}, "bad_words_ids"),
    "bias": ({"sequence_bias": STRONG}, "sequence_bias"),
    "all": (
        {"sequence_bias": STRONG, "repetition_penalty": 4.0, "no_repeat_ngram_size": 3, "min_new_tokens": 5},
        "repetition_penalty",
    ),
}
FAMILY = [kind for kind in (*CONFIGS, *FAMILIES) if kind != "mamba"]


def ids_of(records: Any) -> list[int]:
    return [
        token.id
        for record in records
        if isinstance(record, PrefillDone | RoundVerified)
        for token in tokens_of(record)
        if token.status in EMITTED
    ]


def generated(model: Any, **asked: Any) -> list[int]:
    text = torch.tensor([PROMPT])
    with torch.inference_mode():
        found = model.generate(
            text,
            attention_mask=torch.ones_like(text),
            max_new_tokens=LENGTH,
            do_sample=False,
            eos_token_id=END,
            pad_token_id=0,
            **asked,
        )
    return list(found[0, len(PROMPT) :].tolist())


@pytest.mark.each_value
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.large] * (kind not in ("llama", "gpt2"))) for kind in FAMILY]
)
@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize(
    "turn", [0, pytest.param(1, marks=pytest.mark.large), pytest.param(2, marks=pytest.mark.large)]
)
def test_every_strategy_writes_what_generate_writes(kind: str, name: str, turn: int) -> None:
    """In a turn each drafter has one γ, over all controls all of them: any two of the three meet in the first."""
    model = tiny_model(kind)
    asked, decisive = ASKED[name]
    wanted = generated(model, **asked)
    assert wanted != generated(model, **{key: value for key, value in asked.items() if key != decisive})
    target = TransformersModel(model)
    small = TransformersModel(tiny_model(kind, **{"n_layer" if kind == "gpt2" else "num_hidden_layers": 1}))
    makes = (
        lambda: None,
        lambda: ModelDrafter(small, target.vocab_size),
        lambda: ModelDrafter(target, target.vocab_size),
        lambda: NgramDrafter(NgramStore(3, "basic")),
        lambda: LookupDrafter(3),
    )
    fields, _ = settings_asked(asked)
    controls = controls_of(Settings(), fields, frozenset({END}), lambda word: [])
    for place, make in enumerate(makes, [*ASKED].index(name) + turn):
        gamma = (1, 3, 8)[place % 3]
        records = decode(
            target,
            PROMPT,
            strategy="tested",
            drafter=make(),
            sampler=Sampler("greedy"),
            gamma=gamma,
            max_new_tokens=LENGTH,
            end_ids=frozenset({END}),
            controls=controls,
        )
        assert ids_of(records) == wanted, gamma


def test_a_drafter_that_is_the_target_is_always_right_under_controls() -> None:
    target = TransformersModel(tiny_model("llama"))
    records = list(
        decode(
            target,
            PROMPT,
            strategy="tested",
            drafter=ModelDrafter(target, target.vocab_size),
            sampler=Sampler("greedy"),
            max_new_tokens=LENGTH,
            controls=Controls(repetition_penalty=1.5, no_repeat_ngram=2, presence_penalty=0.4),
        )
    )
    full = [record for record in records if isinstance(record, RoundVerified)][:-1]
    assert full and all(token.status in EMITTED for record in full for token in record.drafts)


@pytest.fixture
def engine(save_model: Any) -> Any:
    """An engine on a tiny pair whose target's files ask what is given."""

    def load(**asked: Any) -> LocalEngine:
        folder = save_model("target")
        (folder / "generation_config.json").write_text(json.dumps(asked))
        drafter = save_model("drafter", num_hidden_layers=1)
        loaded = LocalEngine()
        loaded.load(ModelChoice(target=str(folder), drafter=str(drafter), device="cpu"), lambda progress: None)
        return loaded

    return load


RUN = Settings(strategies=("target", "speculative", "ngram", "lookup"), max_new_tokens=LENGTH, chat=False, gamma=3)


def texts_of(engine: LocalEngine, settings: Settings) -> tuple[dict[str, list[int]], list[str], list[Checked]]:
    ids: dict[str, list[int]] = {}
    notices: list[str] = []
    checks: list[Checked] = []
    for event in engine.run("the cat sat on the cat", settings, lambda: False):
        if isinstance(event, Checked):
            checks.append(event)
        if isinstance(event, Step):
            ids.setdefault(event.strategy, []).extend(ids_of([event.record]))
            if isinstance(event.record, Notice) and event.strategy == "target":
                notices.append(event.record.message)
    return ids, notices, checks


def test_what_the_models_files_ask_is_done_and_said_and_a_setting_comes_before_it(engine: Any) -> None:
    loaded = engine(repetition_penalty=1.5, no_repeat_ngram_size=2, suppress_tokens=[9], num_beams=2)
    pair = loaded._pair
    prompt = pair.tokenizer.encode("the cat sat on the cat", chat=False).ids
    model = pair.target
    asked, notices, checks = texts_of(loaded, RUN)
    assert len({tuple(ids) for ids in asked.values()}) == 1
    assert all(check.lossless.status is LosslessStatus.IDENTICAL for check in checks)
    assert "as the model's generation config asks: repetition penalty 1.5, no repeat ngram 2, bad words (1)" in notices
    assert pair.info.target.generation_config_not_applied == {"num_beams": 2}
    plain = load_pair(ModelChoice(target=pair.info.target.name, device="cpu"), lambda progress: None)
    assert plain.asked == {"repetition_penalty": 1.5, "no_repeat_ngram": 2, "bad_words": [[9]]}
    off = replace(RUN, repetition_penalty=1.0, no_repeat_ngram=0, bad_words=())
    own, notices, _ = texts_of(loaded, off)
    assert not any("asks:" in text for text in notices)
    assert own["target"] != asked["target"]
    bare = ids_of(
        decode(model, prompt, strategy="target", sampler=Sampler("greedy"), max_new_tokens=LENGTH, end_ids=pair.end_ids)
    )
    assert own["target"] == bare
    table = as_json([], [], pair.info, Settings(), {}, {})["models"]["target"]
    assert table["generation_config_applied"] == {
        "repetition_penalty": 1.5,
        "no_repeat_ngram_size": 2,
        "suppress_tokens": [9],
    }


@pytest.mark.parametrize(
    "asked",
    [
        {"repetition_penalty": -1.0},
        {"repetition_penalty": "much"},
        {"no_repeat_ngram_size": 2.5},
        {"bad_words_ids": [[]]},
        {"stop_strings": [1]},
        {"sequence_bias": [[[1], float("inf")]]},
        {"suppress_tokens": [-5]},
    ],
)
def test_what_is_not_valid_is_told_and_not_done(save_model: Any, asked: dict[str, Any]) -> None:
    folder: Path = save_model("target")
    (folder / "generation_config.json").write_text(json.dumps(asked))
    pair = load_pair(ModelChoice(target=str(folder), device="cpu"), lambda progress: None)
    assert pair.asked == {} and list(pair.info.target.generation_config_not_applied) == list(asked)


def test_a_run_ends_where_a_stop_string_is_complete_for_every_strategy(engine: Any) -> None:
    loaded = engine()
    whole, _, _ = texts_of(loaded, RUN)
    tokenizer = loaded._pair.tokenizer
    pieces = [tokenizer.decode([id]) for id in whole["target"]]
    at = next(i for i in range(3, 15) if pieces[i].isascii() and pieces[i].strip() and pieces[i] not in pieces[:i])
    for gamma in (1, 3, 8):
        cut, _, checks = texts_of(loaded, replace(RUN, stop_strings=(pieces[at],), gamma=gamma))
        assert all(ids == whole["target"][: at + 1] for ids in cut.values())
        assert {check.lossless.status for check in checks} == {LosslessStatus.IDENTICAL}


def test_a_stop_string_is_found_across_tokens_and_only_where_it_is_completed() -> None:
    tokenizer = tiny_tokenizer()
    ids = tokenizer("one two STOP three é end", add_special_tokens=False)["input_ids"]
    for stop in ("STOP", "o STO", "é", "three é"):
        found = [n for n in range(1, len(ids) + 1) if StopStrings(tokenizer, [stop])(ids[:n])]
        whole = [n for n in range(1, len(ids) + 1) if stop in tokenizer.decode(ids[:n])]
        assert found == whole[:1], stop
    assert not StopStrings(tokenizer, ["absent"])(ids)


def test_a_forbidden_word_is_not_written_in_any_spelling(engine: Any) -> None:
    loaded = engine()
    whole, _, _ = texts_of(loaded, RUN)
    tokenizer = loaded._pair.tokenizer
    word = next(text for id in whole["target"] if len(text := tokenizer.decode([id]).strip()) > 0 and text.isascii())
    kept, _, _ = texts_of(loaded, replace(RUN, bad_words=(word,)))
    banned = {ids[0] for ids in tokenizer.ids_of_word(word) if len(ids) == 1}
    assert banned and len({tuple(ids) for ids in kept.values()}) == 1
    assert not banned & set(kept["target"])
    assert isinstance(next(loaded.run("x", RUN, lambda: False)).record, RunStarted)
