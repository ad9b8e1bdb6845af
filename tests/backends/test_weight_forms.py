"""The setting `weights`: what of it becomes of a pair, and what is refused, in one line that says what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from specdec_tui.backends import weights
from specdec_tui.backends.gpu.packed import model as packed_model
from specdec_tui.backends.loading import load_pair
from specdec_tui.backends.memory import Placement
from specdec_tui.backends.pair import LoadError, ModelInfo
from specdec_tui.backends.presets import ModelSpec, resolve
from specdec_tui.backends.weight_forms import (
    INT8,
    as_asked,
    check_asked,
    difference_told,
    form_of,
    in_form,
    with_form,
)
from specdec_tui.settings import WEIGHT_FORMS, ModelChoice


@dataclass
class Formed:
    """A model over weights in forms."""

    form: str = "packed"
    forms: tuple[str, ...] = ("packed", "expanded")
    memory_bytes: int = 1

    def in_form(self, form: str) -> Formed:
        return Formed(form, self.forms)


def described(weights: str, gguf: str | None) -> Any:
    spec = ModelSpec("some/model", "auto", "cpu", "none", weights)
    return SimpleNamespace(spec=spec, location=SimpleNamespace(gguf_file=gguf))


def test_the_form_is_demanded_of_the_target_and_drafters_follow_as_far_as_they_are_gguf_files() -> None:
    def asked(weights: str) -> tuple[str, str]:
        pair = resolve(ModelChoice(weights=weights))
        return pair.target.weights, pair.drafters[0].weights

    assert asked("auto") == ("auto", "auto")
    assert asked("packed") == ("packed", "auto")
    assert asked("expanded") == ("expanded", "expanded")
    assert asked(INT8) == (INT8, "auto"), "drafters are packed"


@pytest.mark.parametrize("form", ["packed", INT8])
def test_what_files_and_device_rule_out_is_one_line_before_weights_are_read(form: str) -> None:
    with pytest.raises(LoadError, match=f"^some/model: weights {form} takes a GGUF file, and this is none: give"):
        check_asked(described(form, None), "cpu", "float32")
    with pytest.raises(LoadError, match=f"weights {form} is for the CPU, and this goes to cuda: .*, or device cpu.$"):
        check_asked(described(form, "m.gguf"), "cuda", "float32")
    with pytest.raises(LoadError, match=r", which dtype bfloat16 is not: give dtype float32 or auto, or weights exp"):
        check_asked(described(form, "m.gguf"), "cpu", "bfloat16")
    check_asked(described(form, "m.gguf"), "cpu", "float32")
    for other in ("auto", "expanded"):
        check_asked(described(other, None), "cuda", "bfloat16")


def test_a_model_comes_in_the_form_that_is_asked_for() -> None:
    model = Formed()
    spec = described("auto", "m.gguf").spec
    assert as_asked(spec, model) is model
    assert as_asked(described("packed", "m").spec, model) is model
    assert as_asked(described("expanded", "m").spec, model).form == "expanded"
    with pytest.raises(LoadError, match=r"^some/model: weights packed-int8: it can be held in packed or expanded\.$"):
        as_asked(described(INT8, "m").spec, model)
    plain = object()
    assert as_asked(described("expanded", None).spec, plain) is plain
    with pytest.raises(LoadError, match="weights packed is for the fast CPU pass, which does not run this model: give"):
        in_form("some/model", plain, "packed")


def test_the_form_is_told_of_a_model_that_has_a_choice() -> None:
    info = ModelInfo("m", "cpu", "float32", "none", 1, 4, None)
    assert with_form(info, object()) == info and form_of(object()) == "" and info.precision == "float32"
    told = with_form(info, Formed())
    assert (told.weights, told.weight_forms) == ("packed", ("packed", "expanded"))
    assert told.precision == "float32 (packed)"
    assert [difference_told(form) != "" for form in ("", *WEIGHT_FORMS)] == [False, False, False, True]


def test_a_folder_is_refused_where_packed_weights_are_asked_for(save_model: Callable[..., Path]) -> None:
    folder = str(save_model("target"))
    with pytest.raises(LoadError, match="takes a GGUF file"):
        load_pair(ModelChoice(target=folder, device="cpu", weights="packed"), lambda progress: None)
    assert load_pair(ModelChoice(target=folder, device="cpu", weights="expanded"), lambda progress: None)


def test_what_cannot_be_packed_on_a_gpu_stays_with_its_library_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def packed(model: object) -> str:
        assert model is loaded
        if fault is not None:
            raise fault
        return "its layers compute in torch.float32"

    loaded: Any = SimpleNamespace(is_quantized=True, device=torch.device("cuda"))
    monkeypatch.setattr(packed_model, "pack_quantized", packed)
    fault: Exception | None = None
    assert weights._kept_by_its_library(loaded, Placement("cuda")) == "its layers compute in torch.float32"
    assert weights._kept_by_its_library(loaded, Placement("cuda", {0: 1})) == ""
    fault = torch.OutOfMemoryError("CUDA out of memory")
    assert weights._kept_by_its_library(loaded, Placement("cuda")) == "there is no memory to pack them"
    fault = RuntimeError("no compiler\nhere")
    assert weights._kept_by_its_library(loaded, Placement("cuda")) == "our kernels fail (RuntimeError: no compiler)"
    loaded.device = torch.device("cpu")
    assert weights._kept_by_its_library(loaded, Placement("cpu")) == ""
