"""In which form a preset's models are loaded on a card, where nobody asked for one. The card is faked."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from transformers import LlamaConfig

from specdec_tui.backends import hub, memory, preset_form
from specdec_tui.backends.description import ModelDescription
from specdec_tui.backends.gpu import launches
from specdec_tui.backends.presets import resolve
from specdec_tui.settings import ModelChoice

HALF = torch.bfloat16
CONFIG = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=128,
)  # fmt: skip
ROOM = memory._RESERVED_BYTES + 4_000_000


@pytest.fixture(autouse=True)
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """An H100 with room for both models in bfloat16, and kernels that run."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(memory, "available_bytes", lambda device: ROOM)
    monkeypatch.setattr(launches, "kernels", lambda: cast(Any, torch))
    monkeypatch.setitem(sys.modules, "bitsandbytes", torch)


def models(**choice: Any) -> list[ModelDescription]:
    spec = resolve(ModelChoice(preset="llama3.2", **choice))
    location = hub.Location("nowhere", Path("/nowhere"))
    return [ModelDescription(each, location, CONFIG, cast(Any, None)) for each in (spec.target, *spec.drafters)]


def quantizations(found: list[ModelDescription]) -> list[str]:
    return [model.spec.quantization for model in found]


def test_what_our_kernels_read_packed_stays_as_the_preset_has_it() -> None:
    found, told = preset_form.faster(models(), "cuda", HALF)
    assert quantizations(found) == ["int8", "int8"]
    assert told == "In int8, as the preset has it: read packed here, it is faster than bfloat16."


@pytest.mark.parametrize(
    ("lacking", "why"),
    [
        ("triton", "packed weights need Triton"),
        ("card", "packed weights need compute capability 8.0"),
        ("bitsandbytes", "bitsandbytes does not work"),
    ],
)
def test_without_packed_kernels_bfloat16_is_faster_where_it_fits(
    monkeypatch: pytest.MonkeyPatch, lacking: str, why: str
) -> None:
    if lacking == "triton":
        monkeypatch.setattr(launches, "kernels", lambda: None)
    elif lacking == "card":
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (7, 5))
    else:
        monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    found, told = preset_form.faster(models(), "cuda:0", HALF)
    assert quantizations(found) == ["none", "none"]
    assert told.startswith(f"In bfloat16, not in the preset's int8: it fits the GPU and is faster here, as {why}")
    monkeypatch.setattr(memory, "available_bytes", lambda device: memory._RESERVED_BYTES + 100_000)
    found, told = preset_form.faster(models(), "cuda:0", HALF)
    assert quantizations(found) == ["int8", "int8"] and told == ""


def test_float32_has_no_packed_kernels() -> None:
    found, told = preset_form.faster(models(dtype="float32"), "cuda", torch.float32)
    assert quantizations(found) == ["none", "none"] and "packed weights are not for float32" in told


@pytest.mark.parametrize("asked", ["int8", "int4", "none"])
def test_what_a_person_asks_for_stays(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setattr(launches, "kernels", lambda: None)
    held = models(quantize=asked)
    assert preset_form.faster(held, "cuda", HALF) == (held, "")
    assert quantizations(held) == [asked, asked]
    mixed, _ = preset_form.faster(models(target_quantize=asked), "cuda", HALF)
    assert quantizations(mixed) == [asked, "none"]


def test_on_a_cpu_and_for_other_models_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "kernels", lambda: None)
    held = models()
    assert preset_form.faster(held, "cpu", torch.float32) == (held, "")
    own = [replace(model, spec=replace(model.spec, by_preset=False)) for model in held]
    assert preset_form.faster(own, "cuda", HALF) == (own, "")
