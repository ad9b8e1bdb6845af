"""A pair that was loaded before comes back as it was, without transformers, as long as nothing has changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_gguf import KIND, Sizes, write_tiny_gguf

from specdec_tui.backends import agreed, kept_pairs, memory
from specdec_tui.backends.demo import CACHE_VARIABLE
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.kept_pairs import kept_pair
from specdec_tui.backends.lean.model import LeanModel
from specdec_tui.backends.loading import Pair, load_pair
from specdec_tui.backends.pair import LoadAbandoned, Progress
from specdec_tui.settings import ModelChoice

PROMPT, TEXT = [5, 9, 3, 200], [7, 11, 300, 4, 6, 8]


def silent(progress: Progress) -> None:
    """Nobody watches."""


@pytest.fixture
def choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelChoice:
    """A target and a drafter with a token that the target has not, in a cache of their own."""
    monkeypatch.setattr(agreed, "_FOLDER", "agreed")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    write_tiny_gguf(tmp_path / "t.gguf", kinds={"": KIND.Q4_1}, numbers={"general.sampling.temp": 0.7})
    write_tiny_gguf(tmp_path / "d.gguf", sizes=Sizes(layers=1, context=128), seed=1, kinds={"": KIND.Q8_0})
    return ModelChoice(target=str(tmp_path / "t.gguf"), drafter=(str(tmp_path / "d.gguf"),), device="cpu")


def kept(choice: ModelChoice) -> Pair:
    found = kept_pair(choice, silent)
    assert found is not None
    return found


def logits(model: object, ids: list[int]) -> torch.Tensor:
    assert isinstance(model, LeanModel)
    return model.open().extend(ids, len(ids))


@pytest.mark.parametrize("weights", ["auto", "expanded", "packed-int8"])
def test_a_kept_pair_is_the_pair_that_was_loaded(choice: ModelChoice, weights: str) -> None:
    choice = replace(choice, weights=weights)
    assert kept_pair(choice, silent) is None, "nothing is kept of a pair before it is loaded"
    first = load_pair(choice, silent)
    again = kept(choice)
    assert again.info == first.info and again.info.notes and again.end_ids == first.end_ids == {2, 3}
    assert again.asked == first.asked
    for one, other in zip((first.target, *(d.model for d in first.drafters)), models_of(again), strict=True):
        assert isinstance(one, LeanModel) and isinstance(other, LeanModel)
        assert one.form == other.form and one.context_length == other.context_length
        assert torch.equal(logits(one, PROMPT + TEXT), logits(other, PROMPT + TEXT))
        rows = torch.stack(list(one.reference(PROMPT, TEXT)))
        assert torch.equal(torch.stack(list(other.reference(PROMPT, TEXT))), rows)
        assert torch.allclose(rows[-1], logits(other, PROMPT + TEXT[:-1])[-1], atol=1e-3), "of the text before a token"
    for text in ("hello there <|im_end|> 12", "", "Ça\n\t…"):
        assert again.tokenizer.encode(text) == first.tokenizer.encode(text)


def models_of(pair: Pair) -> list[object]:
    return [pair.target, *(drafter.model for drafter in pair.drafters)]


def test_ids_that_no_draft_may_have_are_kept(choice: ModelChoice, tmp_path: Path) -> None:
    names = GgufFile(tmp_path / "t.gguf").header.array("tokenizer.ggml.tokens")
    names[1] = "<begin>"  # an added token that means another in the target
    write_tiny_gguf(tmp_path / "d.gguf", sizes=Sizes(layers=1), seed=1, tokens=names)
    first = load_pair(choice, silent)
    (one,), (other,) = first.drafters, kept(choice).drafters
    assert one.shared_ids is not None and other.shared_ids is not None
    assert torch.equal(one.shared_ids, other.shared_ids) and (~one.shared_ids).nonzero().tolist() == [[1]]


def stamp_of_pair(folder: Path) -> Path:
    (found,) = (path for path in (folder / "cache" / "agreed").iterdir() if '"info"' in path.read_text())
    return found


def rewritten(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "the target": lambda folder: os.utime(folder / "t.gguf", (1, 1)),
    "the drafter": lambda folder: write_tiny_gguf(folder / "d.gguf", sizes=Sizes(layers=1), seed=2),
    "the drafter, gone": lambda folder: os.remove(folder / "d.gguf"),
    "what is kept": lambda folder: rewritten(stamp_of_pair(folder), '"ends": [2, 3]', '"ends": [2, 4]'),
    "what is kept, cut off": lambda folder: rewritten(stamp_of_pair(folder), "}", ""),
    "what is kept, gone": lambda folder: stamp_of_pair(folder).unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_changed_is_loaded_and_tried_as_if_it_were_new(
    choice: ModelChoice, change: str, tmp_path: Path
) -> None:
    load_pair(choice, silent)
    kept(choice)
    CHANGES[change](tmp_path)
    assert kept_pair(choice, silent) is None


@pytest.mark.parametrize("name", ["t.gguf", "d.gguf"])
@pytest.mark.parametrize("stage", ["Loading", "Trying"])
def test_nothing_is_kept_of_files_that_are_replaced_while_they_are_loaded(
    choice: ModelChoice, tmp_path: Path, name: str, stage: str
) -> None:
    write_tiny_gguf(tmp_path / "new.gguf", sizes=Sizes(layers=1), seed=5, base=500000.0)

    def replace_once(step: Progress) -> None:
        if step.stage.startswith(stage) and (tmp_path / "new.gguf").exists():
            os.replace(tmp_path / "new.gguf", tmp_path / name)

    load_pair(choice, replace_once)
    assert not (tmp_path / "new.gguf").exists() and kept_pair(choice, silent) is None
    second = load_pair(choice, silent)
    assert kept(choice).info == second.info


def test_what_other_versions_and_machines_kept_is_not_taken(
    choice: ModelChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_pair(choice, silent)
    for name, value in (("version", lambda name: "9"), ("_processor", lambda: ["another"])):
        with monkeypatch.context() as patch:
            patch.setattr(agreed, name, value)
            assert kept_pair(choice, silent) is None
    kept(choice)


def test_a_pair_that_fails_or_does_not_agree_is_left_to_a_whole_load(
    choice: ModelChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("specdec_tui.backends.lean.fit.agrees", lambda *_: False)
        assert any("its logits on this machine" in note for note in load_pair(choice, silent).info.notes)
    assert kept_pair(choice, silent) is None, "a pair of which a model is expanded by transformers"
    load_pair(choice, silent)
    for name in ("wake", "tokenizer_of", "why_not"):
        with monkeypatch.context() as patch:
            patch.setattr(kept_pairs, name, lambda *_: 1 / 0)
            assert kept_pair(choice, silent) is None
    with monkeypatch.context() as patch:
        patch.setattr(memory, "available_bytes", lambda device: 1000)
        assert kept_pair(choice, silent) is None
    kept(choice)


@pytest.mark.parametrize(
    "other",
    [
        {"dtype": "bfloat16"},
        {"weights": "expanded"},
        {"quantize": "int8"},
        {"drafter": ("none",)},
        {"target": "some/model"},
        {"target_url": "http://localhost:1/v1"},
        {"tokenizer": "some/model"},
    ],
)
def test_another_choice_is_another_pair(choice: ModelChoice, other: dict[str, object]) -> None:
    load_pair(choice, silent)
    assert kept_pair(replace(choice, **other), silent) is None  # type: ignore[arg-type]


def test_a_kept_pair_can_be_abandoned_at_each_step(choice: ModelChoice) -> None:
    load_pair(choice, silent)
    stages: list[str] = []
    kept_pair(choice, lambda step: stages.append(step.stage))
    assert stages[-1] == "Ready" and any(stage.startswith("Loading") for stage in stages)
    for at in range(len(stages)):
        left = iter(range(at))

        def abandon(step: Progress, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise LoadAbandoned

        with pytest.raises(LoadAbandoned):
            kept_pair(choice, abandon)


def test_transformers_layers_can_be_asked_when_the_files_are_gone(choice: ModelChoice, tmp_path: Path) -> None:
    first = load_pair(choice, silent)
    again = kept(choice)
    for name in ("t.gguf", "d.gguf"):
        os.remove(tmp_path / name)
    assert isinstance(first.target, LeanModel) and isinstance(again.target, LeanModel)
    rows = [torch.stack(list(model.reference(PROMPT, TEXT))) for model in (first.target, again.target)]
    assert torch.equal(*rows)


SECOND_LAUNCH = """
import json, sys
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings
engine = LocalEngine()
target, drafter = sys.argv[1:]
engine.load(ModelChoice(target=target, drafter=(drafter,), device="cpu"), lambda step: None)
heavy = [name for name in sorted(sys.modules) if name.split(".")[0] in %r]
engine.loaded.get_checks_ready(lambda: True)
early = "transformers" in sys.modules
engine.loaded.get_checks_ready(lambda: False)
ready = "transformers.modeling_utils" in sys.modules
settings = Settings(strategies=("target", "speculative", "ngram", "lookup"), max_new_tokens=8, gamma=2)
events = list(engine.run("hi", settings, lambda: False))
target = engine.loaded.pair.target
rows = list(target.reference([5, 9], [3, 7]))
print(json.dumps({
    "heavy": heavy,
    "lossless": sum("IDENTICAL" in str(event) for event in events),
    "later": [early, ready],
    "gap": float((rows[-1] - target.open().extend([5, 9, 3], 1)[0]).abs().max()),
}))
"""
HEAVY = {
    "transformers",
    "accelerate",
    "huggingface_hub",
    "sympy",
    "gguf",
    "safetensors",
    "bitsandbytes",
    "pandas",
    "httpx2",
    "jinja2",
}


def test_a_second_launch_imports_transformers_only_when_its_layers_are_asked(
    choice: ModelChoice, tmp_path: Path
) -> None:
    load_pair(choice, silent)
    words = [sys.executable, "-c", SECOND_LAUNCH % (HEAVY,), choice.target, *choice.drafter]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path)
    told = json.loads(re.findall(r"^{.*}$", done.stdout, re.M)[-1])
    assert told["heavy"] == [] and told["lossless"] == 4 and told["later"] == [False, True] and told["gap"] < 1e-3
