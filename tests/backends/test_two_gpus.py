"""Two real GPUs: a target that accelerate spreads over both, and one that leaves its drafter the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from specdec_tui.backends import memory
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.loading import load_pair
from specdec_tui.decoding.records import Checked, LosslessStatus, Notice, RunEnded, Step
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")

STRATEGIES = ("target", "speculative", "lookup")


def choice_of(save_model: Callable[..., Path], dtype: str) -> ModelChoice:
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "head_dim": 64}
    target = save_model("target", intermediate_size=2048, num_hidden_layers=8, **sizes)
    drafter = save_model("drafter", num_hidden_layers=2, **sizes)
    return ModelChoice(target=str(target), drafter=str(drafter), device="cuda", dtype=dtype)


def bytes_of(choice: ModelChoice, name: str) -> int:
    folder = getattr(choice, name)
    dtype = getattr(torch, choice.dtype)
    return memory.estimate(name, AutoConfig.from_pretrained(folder), dtype, "none").total_bytes


def devices(model: object) -> set[torch.device]:
    assert isinstance(model, TransformersModel)
    return {parameter.device for parameter in model.model.parameters()}


def answers(choice: ModelChoice, **settings: object) -> tuple[list[str], list[str]]:
    """Of all strategies, and what was told beside."""
    engine = LocalEngine()
    engine.load(choice, lambda progress: None)
    asked = Settings(strategies=STRATEGIES, max_new_tokens=48, chat=False, **settings)  # type: ignore[arg-type]
    events = list(engine.run("a b c a b", asked, lambda: False))
    ends = [event for event in events if isinstance(event, Step) and isinstance(event.record, RunEnded)]
    assert [end.record.message for end in ends if isinstance(end.record, RunEnded)] == [""] * len(STRATEGIES)
    checks = [event.lossless.status for event in events if isinstance(event, Checked)]
    assert LosslessStatus.DIFFERENT not in checks
    told = [e.record.message for e in events if isinstance(e, Step) and isinstance(e.record, Notice)]
    return [end.answer for end in ends], told


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_target_over_two_gpus_decodes_as_on_one(
    dtype: str, save_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Captured where our kernels compute it; transformers' layers go step by step there."""
    choice = choice_of(save_model, dtype)
    alone, told = answers(choice)
    assert not told
    needed = bytes_of(choice, "target")
    monkeypatch.setattr(memory, "available_bytes", lambda device: memory._RESERVED_BYTES + int(0.7 * needed))
    pair = load_pair(choice, lambda progress: None)
    assert len(devices(pair.target)) == 2 and len(devices(pair.drafters[0].model)) == 1
    del pair
    over, told = answers(choice)
    assert over == alone
    assert len(told) == (0 if dtype == "bfloat16" else len(STRATEGIES))
    assert all("spread over several GPUs" in message for message in told)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("processor", ["greedy", "multinomial"])
def test_rounds_of_a_target_and_a_drafter_on_two_gpus_are_captured_and_those_of_one(
    processor: str, dtype: str, save_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = choice_of(save_model, dtype)
    alone, told = answers(choice, processor=processor)
    assert not told
    needed = bytes_of(choice, "target") + bytes_of(choice, "drafter") - 1
    monkeypatch.setattr(memory, "available_bytes", lambda device: memory._RESERVED_BYTES + needed)
    pair = load_pair(choice, lambda progress: None)
    on, off = devices(pair.target), devices(pair.drafters[0].model)
    assert len(on) == len(off) == 1 and on != off
    del pair
    assert answers(choice, processor=processor) == (alone, [])
