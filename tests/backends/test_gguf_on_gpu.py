"""Which GGUF files stay packed on a GPU, and what becomes of those that do not. No GPU and no Triton here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_gguf import KIND, write_tiny_gguf

from specdec_tui.backends import weights
from specdec_tui.backends.description import ModelDescription, describe
from specdec_tui.backends.gpu.packed import gguf_model
from specdec_tui.backends.memory import Placement
from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.presets import ModelSpec

HALF = torch.bfloat16
PLACE = Placement("cuda:0")


def described(path: Path, **more: Any) -> ModelDescription:
    write_tiny_gguf(path, **more)
    return describe(ModelSpec(str(path), "auto", "auto", "none"), lambda _: None)


def test_files_of_known_names_are_packed_unless_told_otherwise(tmp_path: Path) -> None:
    model = described(tmp_path / "t.gguf", kinds={"": KIND.Q8_0})
    held = weights.bytes_packed_on_gpu(model, "cuda", HALF)
    numbers = sum(parameter.numel() for parameter in _plain(model).parameters())
    assert held is not None and 1.2 * numbers < held < 1.7 * numbers  # a small model's embedding is much of it
    assert weights.bytes_packed_on_gpu(model, "cpu", HALF) is None
    assert weights.bytes_packed_on_gpu(model, "cuda", torch.float32) is None
    asked = replace(model, spec=replace(model.spec, weights="expanded"))
    assert weights.bytes_packed_on_gpu(asked, "cuda", HALF) is None
    other = described(tmp_path / "g.gguf", architecture="gemma2", kinds={"": KIND.Q8_0})
    assert weights.bytes_packed_on_gpu(other, "cuda", HALF) is None


def _plain(model: ModelDescription) -> torch.nn.Module:
    from specdec_tui.backends.packed_load import shell_of

    return shell_of(model.config)


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (ValueError("the packed kernels do not give its products here"), "the packed kernels do not give its products"),
        (ModuleNotFoundError("No module named 'triton'"), "our kernels fail (ModuleNotFoundError: No module named"),
    ],
)
def test_where_kernels_fail_weights_are_expanded_and_the_reason_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, why: str
) -> None:
    model = described(tmp_path / "t.gguf", kinds={"": KIND.Q4_K})

    def fail(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(gguf_model, "load", fail)
    found, told = weights._packed_on_gpu(model, HALF, PLACE)
    assert found is None and told.startswith(why)
    assert weights._packed_on_gpu(model, HALF, Placement("cuda:0", {0: 1})) == (
        None,
        "it is spread over several devices",
    )
    asked = replace(model, spec=replace(model.spec, weights="expanded"))
    assert weights._packed_on_gpu(asked, HALF, PLACE) == (None, "")


def test_what_is_packed_is_handed_on_and_a_full_card_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, made = described(tmp_path / "t.gguf", kinds={"": KIND.Q4_K}), torch.nn.Linear(1, 1)
    monkeypatch.setattr(gguf_model, "load", lambda *_: made)
    assert weights.load_weights(model, HALF, PLACE) == (made, ())

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(gguf_model, "load", full)
    with pytest.raises(LoadError, match="out of memory on cuda:0"):
        weights.load_weights(model, HALF, PLACE)
