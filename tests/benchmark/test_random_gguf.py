"""Files of random weights: as llama.cpp mixes their kinds, read by transformers and run by the product's own side."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from random_gguf import DEVIATION, SHAPES, uses_more_bits, vocabulary, write_random_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.model import LoadedDrafter


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("random") / "tiny.gguf"
    write_random_gguf(path, SHAPES["tiny"])
    return path


def test_half_of_the_value_and_down_products_have_more_bits() -> None:
    more = [layer for layer in range(28) if uses_more_bits(layer, 28)]
    assert more == [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]
    kinds = Counter(kind for _, _, kind in SHAPES["qwen2.5-1.5b"].tensors())
    assert kinds == {Kind.F32: 1 + 28 * 5, Kind.Q6_K: 1 + 2 * 14, Kind.Q4_K: 28 * 7 - 2 * 14}
    assert SHAPES["qwen2.5-1.5b"].size == pytest.approx(0.98e9, rel=0.01)


def test_its_weights_are_spread_as_those_of_a_new_model_and_the_same_for_a_seed(tiny: Path, tmp_path: Path) -> None:
    for tensor in gguf.GGUFReader(tiny).tensors:
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if weights.ndim == 2:
            assert abs(weights.mean()) < DEVIATION / 10, tensor.name
            assert 0.9 * DEVIATION < weights.std() < 1.2 * DEVIATION, tensor.name
    for seed in (0, 1):
        write_random_gguf(tmp_path / f"{seed}.gguf", SHAPES["tiny"], seed)
    assert (tmp_path / "0.gguf").read_bytes() == tiny.read_bytes() != (tmp_path / "1.gguf").read_bytes()
    assert not list(tmp_path.glob("*.part"))


def test_a_vocabulary_is_as_large_as_asked_and_each_token_a_merge_of_two_before_it() -> None:
    tokens, merges = vocabulary(3000, np.random.default_rng(0))
    assert len(tokens) == len(set(tokens)) == 3000
    for token, merge in zip(tokens[256:], merges, strict=True):
        left, right = merge.split(" ")
        assert left + right == token
        assert max(tokens.index(left), tokens.index(right)) < tokens.index(token)
    with pytest.raises(ValueError, match="at least 256"):
        vocabulary(255, np.random.default_rng(0))


def test_transformers_reads_it(tiny: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny.parent, gguf_file=tiny.name)
    ids = tokenizer("a fox, 3 times").input_ids
    assert tokenizer.decode(ids) == "a fox, 3 times"
    model = AutoModelForCausalLM.from_pretrained(tiny.parent, gguf_file=tiny.name, dtype=torch.float32)
    assert model.config.tie_word_embeddings
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits
    assert logits.shape == (1, len(ids), 600)
    assert logits.isfinite().all()
    assert logits.std() > 0.1


@pytest.mark.large
def test_our_side_runs_it_and_drafts_for_it_without_changing_its_text(tiny: Path) -> None:
    from our_side import Ours

    side = Ours()
    loaded = side.load({"target": str(tiny), "drafter": [str(tiny)], "device": "cpu"}, threads=1)
    assert loaded["load_seconds"] > 0
    ids = side.text(40)["ids"]
    assert len(ids) == 40
    check(side, ids)


def test_our_side_counts_steps_behind_the_prefill_and_drafts_change_no_token() -> None:
    from dialled_pair import dialled_pair
    from our_side import Ours

    network = TransformersModel(dialled_pair("tiny").target)
    side = Ours()
    side.pair = cast("Any", SimpleNamespace(target=network, drafters=(LoadedDrafter(network),)))
    check(side, [5, 6, 7])


def check(side: Any, ids: list[int]) -> None:
    """A target that is its own drafter."""
    plain, drafted = side.run(ids, 12), side.run(ids, 12, strategy="speculative", gamma=3)
    assert plain["ids"] == drafted["ids"]
    assert len(plain["ids"]) == 13  # the prefill gives one
    assert plain["rounds"] == 12
    assert (drafted["rounds"], drafted["accepted"], drafted["judged"]) == (3, 9, 9)
    with pytest.raises(ValueError, match="ended early"):
        side.run([], 5)
