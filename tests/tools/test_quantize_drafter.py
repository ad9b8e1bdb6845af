"""Weights in the blocks of GGUF files: what is lost, what is refused, and that the file is the model."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import quantize_drafter
import torch
from distil.blocks import FORMS, Array, quantize
from distil.gguf_files import read_gguf, write_gguf
from distil.llama import Shape, from_state, hidden_states, read_shape, read_state
from transformers import LlamaConfig, LlamaForCausalLM

from specdec_tui.backends.demo import drafter_file
from specdec_tui.backends.loading import load_pair
from specdec_tui.settings import ModelChoice

# Root mean square error over that of the weights, of normal numbers: with some room over what is measured.
LOST = {
    "Q4_0": 0.083,
    "Q4_1": 0.072,
    "Q5_0": 0.042,
    "Q5_1": 0.035,
    "Q8_0": 0.0052,
    "Q4_K": 0.073,
    "Q5_K": 0.037,
    "Q6_K": 0.018,
}
COUNT = 3


def expanded(form: str, packed: Array) -> Array:
    return np.asarray(gguf.quants.dequantize(packed, gguf.GGMLQuantizationType[form]))


def lost(found: Array, weights: Array) -> float:
    return float(np.sqrt(np.square(found - weights).mean() / np.square(weights).mean()))


@pytest.fixture(scope="module")
def weights() -> Array:
    return np.random.default_rng(0).standard_normal((48, 768)).astype(np.float32) * np.float32(0.05)


@pytest.mark.parametrize("form", FORMS)
def test_blocks_lose_no_more_than_their_bits(form: str, weights: Array) -> None:
    assert lost(expanded(form, quantize(form, weights)), weights) < LOST[form]


@pytest.mark.parametrize("form", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_searched_scales_lose_less_than_the_plain_ones(form: str, weights: Array) -> None:
    plain = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[form])
    assert lost(expanded(form, quantize(form, weights)), weights) < 0.97 * lost(expanded(form, plain), weights)


@pytest.mark.parametrize("form", FORMS)
def test_blocks_of_nothing_and_of_one_number_stay_what_they_are(form: str) -> None:
    rows = np.zeros((3, 256), np.float32)
    rows[1], rows[2] = 0.25, -0.25
    found = expanded(form, quantize(form, rows))
    assert not found[0].any()
    np.testing.assert_allclose(found[1:], rows[1:], rtol=0.02)


def test_columns_that_matter_lose_less(weights: Array) -> None:
    importance = np.where(np.arange(768) % 8 == 0, 100.0, 1.0).astype(np.float32)
    even, chosen = (expanded("Q4_1", quantize("Q4_1", weights, given)) for given in (None, importance))
    assert lost(chosen[:, ::8], weights[:, ::8]) < 0.7 * lost(even[:, ::8], weights[:, ::8])


def test_rows_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="blocks of 256, and the rows have 64"):
        quantize("Q4_K", np.zeros((1, 64), np.float32))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with grouped queries and the demo's tokens, whose rows are whole blocks."""
    folder = tmp_path_factory.mktemp("toy")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def packed(toy: Path, file: Path, *words: str) -> None:
    quantize_drafter.main([str(toy), "--tokenizer", str(drafter_file()), "--out", str(file), *words])


def test_a_packed_file_is_the_model_of_its_folder(toy: Path, tmp_path: Path) -> None:
    packed(toy, file := tmp_path / "toy.gguf", "--form", "Q8_0", "--embedding-form", "Q5_1")
    shape, state = read_gguf(file)
    assert shape == read_shape(toy)._replace(eps=shape.eps)
    for name, weight in read_state(toy, shape).items():
        most = 0 if weight.dim() == 1 else LOST["Q5_1" if "embed" in name else "Q8_0"]
        assert lost(state[name].numpy(), weight.float().numpy()) <= most
    # The loader of the app has the same numbers, so that heads and halves are where it looks for them.
    pair = load_pair(ModelChoice(target=str(file), drafter=("none",), device="cpu"), lambda step: None)
    model = from_state(shape, state, torch.device("cpu"), torch.float32)
    ids = [(37 * i + 1) % 49152 for i in range(20)]
    expected = (hidden_states(model, torch.tensor([ids])) @ model.head.t())[0, -COUNT:]
    torch.testing.assert_close(pair.target.open().extend(ids, COUNT), expected, atol=1e-4, rtol=1e-4)


def test_what_does_not_fit_is_told_in_one_line(toy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        packed(toy, tmp_path / "toy.gguf", "--form", "Q4_K")
    assert "Q4_K has blocks of 256, and model.embed_tokens.weight has 64 columns" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        quantize_drafter.main([str(toy), "--tokenizer", str(toy / "config.json"), "--out", str(tmp_path / "toy.gguf")])
    assert "config.json cannot be read as a GGUF file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_of_other_tokens_is_refused(tmp_path: Path) -> None:
    shape = Shape(64, 1, 4, 4, 16, 64, 100, 1e4, 1e-5)
    with pytest.raises(ValueError, match=r"has 49,152 tokens, and the model 100"):
        write_gguf(tmp_path / "x.gguf", "x", shape, 64, {}, ("Q8_0", "Q8_0"), drafter_file())
