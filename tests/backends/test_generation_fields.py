"""What a model's generation config asks and is not done is said: at load, in every run, and in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from tiny_gguf import write_tiny_gguf
from tiny_transformers import tiny_model

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.generation_fields import asked_of_generate, sampling_asked, told
from specdec_tui.backends.loading import load_pair
from specdec_tui.benchmark.report import as_json
from specdec_tui.decoding.records import Notice, RunStarted, Step
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.header import new_header

ASKING: dict[str, Any] = {
    "repetition_penalty": 1.3,
    "encoder_repetition_penalty": 1.1,
    "no_repeat_ngram_size": 3,
    "encoder_no_repeat_ngram_size": 2,
    "suppress_tokens": [7, 8],
    "begin_suppress_tokens": [9],
    "bad_words_ids": [[5]],
    "sequence_bias": [[[5], 2.0]],
    "min_length": 4,
    "min_new_tokens": 4,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 1,
    "stop_strings": ["cat"],
    "exponential_decay_length_penalty": [3, 1.5],
    "guidance_scale": 1.5,
    "typical_p": 0.9,
    "min_p": 0.05,
    "epsilon_cutoff": 0.0003,
    "eta_cutoff": 0.0003,
    "watermarking_config": {"greenlist_ratio": 0.25},
    "num_beams": 4,
    "penalty_alpha": 0.6,
}
NEUTRAL: dict[str, Any] = {
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1,
    "no_repeat_ngram_size": 0,
    "suppress_tokens": [],
    "bad_words_ids": None,
    "min_length": 0,
    "guidance_scale": 1,
    "typical_p": 1.0,
    "min_p": 0.0,
    "num_beams": 1,
    "length_penalty": 2.0,  # of beams, and there are none
    "do_sample": True,
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.8,
    "max_length": 4096,
    "max_new_tokens": 512,
    "use_cache": False,
    "eos_token_id": [1, 2],
    "pad_token_id": 1,
}


def written(folder: Path, name: str = "generation_config.json", **values: Any) -> Path:
    file = folder / name
    old = json.loads(file.read_text()) if name == "config.json" else {}
    file.write_text(json.dumps(old | values))
    return folder


def found_in(folder: Path, **known: Any) -> dict[str, Any]:
    loaded = SimpleNamespace(generation_config=transformers.GenerationConfig(**known))
    asked = asked_of_generate(folder, loaded)  # type: ignore[arg-type]
    return {name: told(value) for name, value in asked.items()}


@pytest.mark.parametrize("name", ASKING)
def test_a_field_that_changes_what_generate_takes_is_found_with_its_value(tmp_path: Path, name: str) -> None:
    found = found_in(written(tmp_path, **{name: ASKING[name]}))
    assert found[name] == ASKING[name]


def test_what_is_neutral_or_the_users_own_setting_is_not_found(tmp_path: Path) -> None:
    assert found_in(written(tmp_path, **NEUTRAL)) == {}


@pytest.mark.parametrize(("least", "asked"), [(5, {"min_new_tokens": 5}), (0, {}), (None, {"min_length": 30})])
def test_of_two_least_lengths_the_one_of_new_tokens_counts_as_in_generate(
    tmp_path: Path, least: int | None, asked: dict[str, int]
) -> None:
    assert found_in(written(tmp_path, min_length=30, min_new_tokens=least)) == asked
    model, ids = tiny_model("llama"), torch.tensor([[3, 4, 5]])

    def generated(**lengths: Any) -> list[int]:
        settings: dict[str, Any] = {"max_new_tokens": 40, "do_sample": False, "pad_token_id": 0, "eos_token_id": ends}
        return model.generate(ids, attention_mask=torch.ones_like(ids), **settings, **lengths)[0].tolist()

    ends: list[int] = [319]
    ends = sorted(set(generated()[3:]) - {3})
    both = generated(min_length=30, **({} if least is None else {"min_new_tokens": least}))
    assert both == generated(**asked) and (both == generated(min_length=30)) == (least is None)


@pytest.mark.parametrize("inner", ["", "text_config", "decoder"])
def test_the_old_places_in_the_config_count_where_the_generation_config_says_nothing(
    tmp_path: Path, inner: str
) -> None:
    fields = {"repetition_penalty": 1.3, "num_beams": 2}
    (tmp_path / "config.json").write_text(json.dumps({inner: fields} if inner else fields))
    assert found_in(tmp_path) == fields
    assert found_in(written(tmp_path, repetition_penalty=1.0)) == {"num_beams": 2}


def test_what_only_the_loaded_model_knows_counts_too(tmp_path: Path) -> None:
    assert found_in(tmp_path, no_repeat_ngram_size=3) == {"no_repeat_ngram_size": 3}


def test_values_of_any_size_and_kind_can_be_reported(tmp_path: Path) -> None:
    deep: Any = []
    for _ in range(60):
        deep = [deep]
    values = {
        "bad_words_ids": deep,
        "suppress_tokens": list(range(5000)),
        "stop_strings": ["x" * 9999],
        "min_p": float("nan"),
    }
    found = found_in(written(tmp_path, **values))
    assert found.keys() == values.keys()
    assert all(isinstance(text, str) and len(text) <= 200 for text in found.values())
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "[" * 100_000, "\xff", "9" * 5000])
def test_a_damaged_file_is_no_field(tmp_path: Path, text: str) -> None:
    (tmp_path / "generation_config.json").write_text(text, encoding="latin-1")
    assert found_in(tmp_path) == {}


def test_a_load_says_which_fields_are_not_applied_and_every_run_keeps_it(save_model: Any) -> None:
    target = written(save_model("target"), num_beams=3, top_h=0.5, repetition_penalty=1.3)
    drafter = written(save_model("drafter"), min_length=5)
    engine = LocalEngine()
    info = engine.load(ModelChoice(target=str(target), drafter=str(drafter), device="cpu"), lambda progress: None)
    assert info.target.generation_config_not_applied == {"num_beams": 3, "top_h": 0.5}
    assert info.target.generation_config_applied == {"repetition_penalty": 1.3}
    assert info.target.not_applied == (
        f"{target}: its generation config asks for top_h 0.5, num_beams 3: not applied here."
    )
    assert info.target.not_applied in info.notes
    settings = Settings(strategies=("target", "drafter", "lookup"), max_new_tokens=2)
    steps = [e for e in engine.run("the cat", settings, lambda: False) if isinstance(e, Step)]
    for strategy, model in (("target", info.target), ("lookup", info.target), ("drafter", info.drafter)):
        records = [step.record for step in steps if step.strategy == strategy]
        assert isinstance(records[0], RunStarted) and model is not None
        assert Notice(model.not_applied) in records


def test_a_model_that_asks_for_nothing_has_no_notice(save_model: Any) -> None:
    info = load_pair(ModelChoice(target=str(save_model("target")), device="cpu"), lambda progress: None).info
    assert info.target.not_applied == "" and len(info.notes) == 1  # that there is no drafter


def test_json_lists_the_fields_under_a_key_of_their_own_and_traces_keep_them(save_model: Any) -> None:
    folder = written(save_model("target"), repetition_penalty=1.3, num_beams=4)
    info = load_pair(ModelChoice(target=str(folder), device="cpu"), lambda progress: None).info
    table = as_json([], [], info, Settings(), {}, {})["models"]["target"]
    assert table["generation_config_not_applied"] == {"num_beams": 4}
    assert table["generation_config_applied"] == {"repetition_penalty": 1.3}
    header = new_header("the cat", [], pair=info)
    assert header.models["target"]["generation_config_not_applied"] == {"num_beams": 4}
    assert header.pair() == info


def test_what_a_gguf_file_asks_of_a_sampler_is_found(tmp_path: Path, tokens: Path) -> None:
    numbers = {"temp": 0.6, "top_k": 20, "penalty_repeat": 1.5, "xtc_probability": 0.0, "mirostat": 2.0}
    write_tiny_gguf(tmp_path / "t.gguf", tokens, numbers={f"general.sampling.{k}": v for k, v in numbers.items()})
    info = load_pair(ModelChoice(target=str(tmp_path / "t.gguf"), device="cpu"), lambda progress: None).info
    assert info.target.generation_config_not_applied == {"penalty_repeat": 1.5, "mirostat": 2.0}
    assert any("ask for sampled text (temp 0.6, top-k 20)" in note for note in info.notes)


def test_how_a_models_files_want_its_tokens_drawn_is_said_once_it_is_loaded(save_model: Any, tmp_path: Path) -> None:
    drawn = {"do_sample": True, "temperature": 0.6, "top_k": 10**400, "top_p": "most"}
    folder = written(save_model("target"), **drawn)
    info = load_pair(ModelChoice(target=str(folder), device="cpu"), lambda progress: None).info
    (told,) = [note for note in info.notes if "sampled text" in note]
    assert told.startswith(f"{folder}: its files ask for sampled text (temperature 0.6, top-k 1000")
    assert told.endswith("here the processor decides, greedy unless you choose another.") and len(told) < 500
    assert told not in info.target.notices  # it is nothing that a run leaves out
    loaded = SimpleNamespace(generation_config=None)
    assert sampling_asked(written(tmp_path, do_sample=False, temperature=0.6), loaded) == ""  # type: ignore[arg-type]


@pytest.mark.each_value
@pytest.mark.parametrize("kind", ["llama", "mamba2"])
@pytest.mark.parametrize("cache", ["dynamic", "static", "hybrid"])
def test_caches_that_keep_what_was_computed_change_no_token(kind: str, cache: str, tmp_path: Path) -> None:
    ids = torch.tensor([[(37 * place + 5) % 90 for place in range(12)]])
    settings: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    model = tiny_model(kind)
    found = model.generate(ids, attention_mask=torch.ones_like(ids), cache_implementation=cache, **settings)
    context, text = TransformersModel(tiny_model(kind)).open(), ids[0].tolist()
    for fed in (text, *([token] for token in found[0, 12:19].tolist())):
        text = [*text, int(context.extend(fed, 1).argmax())]
    assert text == found[0].tolist()
    assert found_in(written(tmp_path, cache_implementation=cache)) == {}


@pytest.mark.parametrize("cache", ["quantized", "paged", ["static"]])
def test_caches_that_keep_something_else_are_named(cache: Any, tmp_path: Path) -> None:
    assert found_in(written(tmp_path, cache_implementation=cache)) == {"cache_implementation": cache}
