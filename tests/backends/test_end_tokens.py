"""A text ends where `generate` ends it; where it ends elsewhere on purpose, that is told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_gguf import write_tiny_gguf
from tiny_transformers import tiny_tokenizer
from transformers import AutoModelForCausalLM, GenerationConfig, GgufConfig, PreTrainedModel

from specdec_tui.backends.loading import Pair, load_pair
from specdec_tui.backends.pair import LoadError
from specdec_tui.decoding.records import Notice, PrefillDone, Record, RoundVerified, Step
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

LENGTH = 30
SETTINGS = Settings(strategies=("target", "lookup"), max_new_tokens=LENGTH, chat=False)


def load(folder: Path, drafter: Path | None = None) -> Pair:
    named = ModelChoice(target=str(folder), drafter=str(drafter or ""), device="cpu")
    return load_pair(named, lambda progress: None)


def change_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def written(folder: Path, **values: Any) -> Path:
    (folder / "generation_config.json").write_text(json.dumps(values))
    return folder


def generated(folder: Path, ids: tuple[int, ...], **asked: Any) -> list[int]:
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    wanted = GenerationConfig(max_new_tokens=LENGTH, do_sample=False, pad_token_id=0, **asked)
    inputs = torch.tensor([ids])
    found = model.generate(inputs, attention_mask=torch.ones_like(inputs), generation_config=wanted)
    return found[0, len(ids) :].tolist()


def emitted(records: Sequence[Record]) -> list[int]:
    first = [record.token.id for record in records if isinstance(record, PrefillDone) and record.token is not None]
    return first + [token.id for record in records if isinstance(record, RoundVerified) for token in record.new_tokens]


def ours(folder: Path) -> tuple[tuple[int, ...], dict[str, list[int]]]:
    """The ids of a prompt and of what the strategies write after it."""
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(folder), device="cpu"), lambda progress: None)
    steps = [event for event in engine.run("the cat sat on", SETTINGS, lambda: False) if isinstance(event, Step)]
    texts = {name: emitted([s.record for s in steps if s.strategy == name]) for name in SETTINGS.strategies}
    return tuple(load(folder).tokenizer.encode("the cat sat on", (), False).ids), texts


# Where the end ids are named: the config, the generation config ("none": no file, "without": one that names none).
# A letter stands for a token that the model writes, a early, b later; -1 for no token.
@pytest.mark.parametrize(
    ("config", "generation"),
    [
        pytest.param(config, generation, marks=[pytest.mark.large] * ((at + place) % 2 > 0))
        for at, config in enumerate(("a", "b", ["b", -1], None))
        for place, generation in enumerate(("none", "without", "b", ["b", "a"]))
    ],
)
def test_a_text_ends_where_generate_ends_it(save_model: Any, config: Any, generation: Any) -> None:
    folder = save_model("target", tokenizer=tiny_tokenizer(chat_template=None))
    (folder / "generation_config.json").unlink()
    change_config(folder, eos_token_id=None)
    prompt, free = ours(folder)
    text = free["target"]
    letters = {"a": text[3], "b": next(token for token in text[5:] if token != text[3])}

    def ids(names: Any) -> Any:
        return [letters.get(name, name) for name in names] if isinstance(names, list) else letters.get(names)

    change_config(folder, eos_token_id=ids(config))
    if generation != "none":
        written(folder, **({"max_length": 99} if generation == "without" else {"eos_token_id": ids(generation)}))
    assert ours(folder)[1] == {name: generated(folder, prompt) for name in SETTINGS.strategies}


def test_what_ends_a_text_only_here_is_named_and_every_run_keeps_it(save_model: Any) -> None:
    folder = written(save_model("target"), eos_token_id=[7, 9])
    engine = LocalEngine()
    info = engine.load(ModelChoice(target=str(folder), device="cpu"), lambda progress: None)
    assert load(folder).end_ids == {7, 9, 3}
    assert info.target.caveats == (
        f"{folder}: its texts end at token 3 (<|im_end|>) too, as chat turns do; generate goes on.",
        f"{folder}: its texts go on after token 1 (</s>), as those of generate do: "
        "its config or tokenizer calls it an end, its generation config does not.",
    )
    assert set(info.target.caveats) <= set(info.notes)
    settings = replace(SETTINGS, max_new_tokens=1)
    steps = [event for event in engine.run("the cat", settings, lambda: False) if isinstance(event, Step)]
    for strategy in settings.strategies:
        told = [step.record for step in steps if step.strategy == strategy]
        assert all(Notice(caveat) in told for caveat in info.target.caveats)


def test_a_model_whose_files_agree_has_no_word_on_ends(save_model: Any) -> None:
    pair = load(save_model("target", tokenizer=tiny_tokenizer(chat_template=None), eos_token_id=1))
    assert pair.end_ids == {1} and pair.info.target.caveats == ()


def test_the_demo_pair_ends_at_one_token_and_has_no_notes(demo_pair: Pair) -> None:
    assert demo_pair.end_ids == {2} and demo_pair.info.notes == ()


def test_a_drafter_that_ends_its_own_texts_elsewhere_says_so(save_model: Any) -> None:
    target, drafter = save_model("target"), written(save_model("drafter"), eos_token_id=7)
    info = load(target, drafter).info
    assert info.drafter is not None
    assert info.drafter.caveats == (
        f"{drafter}: its texts end where the target's do, at tokens 1, 3; those of generate end at token 7.",
    )


@pytest.mark.parametrize("end", [2, 7, None])
def test_a_gguf_file_ends_its_texts_where_its_header_says(tmp_path: Path, tokens: Path, end: int | None) -> None:
    write_tiny_gguf(tmp_path / "t.gguf", tokens, end=end)
    model = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="t.gguf", dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    own = model.generation_config.eos_token_id  # what its class has, where the file names none
    assert load(tmp_path / "t.gguf").end_ids == {end, 3} - {None} and (end is None or own == end)


def test_ends_of_turns_and_of_messages_end_a_gguf_files_texts(tmp_path: Path, tokens: Path) -> None:
    fields = {"tokenizer.ggml.eot_token_id": 9, "tokenizer.ggml.eom_token_id": 11}
    write_tiny_gguf(tmp_path / "t.gguf", tokens, end=2, fields=fields)
    assert load(tmp_path / "t.gguf").end_ids == {2, 3, 9, 11}


@pytest.mark.parametrize("value", ["2", [2, "3"], 2.5, {"a": 1}])
def test_an_end_that_is_no_id_is_refused_by_name(save_model: Any, value: Any) -> None:
    folder = save_model("target")
    change_config(folder, eos_token_id=value)
    with pytest.raises(LoadError, match=r"eos_token_id"):
        load(folder)


def test_of_many_ends_a_few_are_named(save_model: Any) -> None:
    folder = written(save_model("target"), max_length=9)
    change_config(folder, eos_token_id=list(range(10, 300)))
    assert all(len(caveat) < 400 for caveat in load(folder).info.target.caveats)
