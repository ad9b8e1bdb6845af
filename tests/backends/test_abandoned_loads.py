"""A load asks between its steps whether anyone still wants it, and nothing that libraries draw gets out."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.modules import module
from tqdm.std import tqdm

from specdec_tui.backends import loading, memory, quiet
from specdec_tui.backends.loading import load_pair
from specdec_tui.backends.pair import LoadAbandoned, LoadError, Progress
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice


def choice(folder: Path) -> ModelChoice:
    return ModelChoice(target=str(folder), device="cpu")


def abandon_at(stage: str, after: int = 0) -> Callable[[Progress], None]:
    """Raises at the report number `after` of a stage: the first is the stage's own, others come from within it."""
    count = -1

    def progress(step: Progress) -> None:
        nonlocal count
        count += stage in step.stage
        if count >= after:
            raise LoadAbandoned

    return progress


def global_state() -> tuple[object, ...]:
    hooks = len(module._global_forward_pre_hooks), len(module._global_module_registration_hooks)
    return (
        vars(tqdm)["__init__"],
        vars(tqdm)["__iter__"],
        hooks,
        torch.get_default_dtype(),
        torch.nn.Linear.__init__,
        torch.empty(1).device,
    )


@pytest.mark.parametrize(
    ("stage", "after"), [("Reading", 0), ("Reading", 3), ("Loading", 0), ("Loading", 5), ("Trying", 0), ("Trying", 2)]
)
def test_a_load_is_abandoned_at_any_step_and_leaves_nothing_behind(
    save_model: Any, monkeypatch: pytest.MonkeyPatch, stage: str, after: int
) -> None:
    monkeypatch.setattr(quiet, "_PAUSE", 0.0)
    folder = save_model("target")
    load_pair(choice(folder), lambda progress: None)  # what libraries change as they are first imported stays
    before = global_state()
    with pytest.raises(LoadAbandoned):
        load_pair(choice(folder), abandon_at(stage, after))
    assert global_state() == before
    load_pair(choice(folder), lambda progress: None)


def test_the_previous_pair_answers_when_a_load_is_abandoned(save_model: Any) -> None:
    engine = LocalEngine()
    engine.load(choice(save_model("one")), lambda progress: None)
    pair = engine._pair
    with pytest.raises(LoadAbandoned):
        engine.load(choice(save_model("two", num_hidden_layers=1)), abandon_at("Trying"))
    assert engine._pair is pair is not None


def test_a_model_of_many_layers_is_left_while_it_is_counted(save_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    config = transformers_config(save_model, 5000)
    asked = 0

    def ask(step: Progress) -> None:
        nonlocal asked
        asked += 1
        if asked > 3:
            raise LoadAbandoned

    heart = quiet.Heart(ask)
    heart.report(Progress("counting"))
    start = time.monotonic()
    with pytest.raises(LoadAbandoned), quiet.quiet(heart.beat):
        memory.estimate("m", config, torch.float32, "none")
    assert time.monotonic() - start < 20


def transformers_config(save_model: Any, layers: int) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=8, intermediate_size=8, num_attention_heads=1, vocab_size=16, num_hidden_layers=layers
    )


def test_a_step_that_turns_out_to_be_another_one_has_none_of_the_share_that_was_counted() -> None:
    told: list[Progress] = []
    heart = quiet.Heart(told.append)
    heart.report(Progress("Reading the weights", 1.0))
    heart.beat_at("Compiling")
    assert told == [Progress("Reading the weights", 1.0), Progress("Compiling")]


def test_a_model_whose_modules_alone_fill_the_memory_is_not_built_to_the_end(
    save_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda device: 10_000_000)
    with pytest.raises(LoadError, match=r"^Not enough memory: m needs about 10 MB"):
        memory.estimate("m", transformers_config(save_model, 5000), torch.float32, "none")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("std::bad_alloc"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        OSError(12, "Cannot allocate memory"),
        RuntimeError("Storage size calculation overflowed with sizes=[9]"),
    ],
)
@pytest.mark.parametrize("where", ["describe", "load_weights", "from_pretrained", "fast"])
def test_every_word_for_too_little_memory_becomes_not_enough_memory(
    save_model: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, where: str
) -> None:
    folder = save_model("target")

    def fail(*arguments: object, **options: object) -> None:
        raise error

    if where == "from_pretrained":
        monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", fail)
    elif where == "fast":
        monkeypatch.setattr("specdec_tui.backends.lean.model.LeanModel.of", fail)
    else:
        monkeypatch.setattr(loading, where, fail)
    if where == "fast" and not isinstance(error, torch.OutOfMemoryError):
        return  # the plain layers, which take less, are tried
    with pytest.raises(LoadError, match=r"^Not enough memory: ") as caught:
        load_pair(choice(folder), lambda progress: None)
    assert "\n" not in str(caught.value)


def test_no_bar_of_any_library_is_drawn(tiny_gguf: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    load_pair(choice(tiny_gguf), lambda progress: None)
    with quiet.quiet():
        assert list(tqdm(range(3), desc="any")) == [0, 1, 2]
        with tqdm(total=5) as bar:
            bar.update(2)
    assert capfd.readouterr() == ("", "")


def test_what_libraries_log_in_a_run_is_silenced_too(save_model: Any, capfd: pytest.CaptureFixture[str]) -> None:
    engine = LocalEngine()
    engine.load(choice(save_model("target")), lambda progress: None)
    capfd.readouterr()
    import transformers

    transformers.utils.logging.get_logger("transformers.tokenization_utils_base").warning("longer than the maximum")
    assert capfd.readouterr() == ("", "")
