"""Whole models over packed and over expanded weights: the same bits, however a text is cut and whoever computes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_gguf import KIND, Sizes, write_tiny_gguf
from tiny_transformers import in_dtype, tiny_model
from torch import Tensor

from specdec_tui.backends.description import describe
from specdec_tui.backends.lean import decoder_pass as kernels
from specdec_tui.backends.lean.model import LeanModel
from specdec_tui.backends.packed_load import PackedFile
from specdec_tui.backends.presets import resolve
from specdec_tui.decoding.records import (
    EMITTED,
    Checked,
    LosslessStatus,
    PrefillDone,
    RoundVerified,
    Step,
    tokens_of,
)
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

Q4_K_M = {r".*(attn_v|ffn_down|token_embd)": KIND.Q6_K, "": KIND.Q4_K}
MIXTURES: dict[str, Mapping[str, Any]] = {
    "Q4_K_M": Q4_K_M,
    "Q8_0": {"": KIND.Q8_0},
    "Q5": {".*ffn": KIND.Q5_1, ".*attn_k": KIND.Q5_0, ".*attn": KIND.Q5_K, "": KIND.Q8_0},
    "Q4": {".*ffn": KIND.Q4_1, "": KIND.Q4_0},
    "plain": {".*ffn": KIND.F16, ".*attn": KIND.BF16, "": KIND.F32},
}
ARCHITECTURES = ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3"]
LONG = Sizes(hidden=256, inner=256, layers=2, heads=4, kv_heads=2, head=64, context=1024)


def packed(folder: Path, **given: Any) -> LeanModel:
    path = folder / "tiny.gguf"
    write_tiny_gguf(path, **given)
    spec = resolve(ModelChoice(target=str(path))).target
    found = PackedFile.of(describe(spec, lambda step: None), "cpu", torch.float32)
    assert found is not None
    return LeanModel.of_file(found.shell, found.file)


def ids(count: int) -> list[int]:
    return [(37 * i + 11) % 500 for i in range(count)]


def cut(model: LeanModel, text: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """Logits after each token of a text that is given in passes of these sizes, over and over."""
    context, begin, rows = model.open(), 0, []
    for size in itertools.cycle(sizes):
        if begin >= len(text):
            return torch.cat(rows)
        part = text[begin : begin + size]
        rows.append(context.extend(part, len(part)))
        begin += len(part)
    raise AssertionError


def same(found: Tensor, expected: Tensor) -> bool:
    return torch.equal(found.view(torch.int32), expected.view(torch.int32))


@pytest.mark.each_value
@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packed_and_expanded_weights_give_the_same_bits_and_the_logits_of_transformers(
    architecture: str, mixture: str, tmp_path: Path
) -> None:
    sizes = Sizes(layers=4) if architecture == "smollm3" else Sizes()  # its fourth layer turns nothing
    model = packed(tmp_path, architecture=architecture, kinds=MIXTURES[mixture], tied=mixture != "Q5", sizes=sizes)
    assert [layer.rotation for layer in model.decoder.layers][3:] in ([], [-1])
    other, text = model.in_form("expanded"), ids(70)
    assert {matrix.kind for matrix in other.weights.matrices} <= {0, 30}
    rows = cut(model, text, (40, 1, 5, 16, 8))
    assert same(rows, cut(other, text, (40, 1, 5, 16, 8)))
    expected = torch.stack(list(model.reference(text[:1], [*text[1:], 0])))
    torch.testing.assert_close(rows, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "gemma2"])
def test_logits_do_not_depend_on_how_a_text_is_cut(architecture: str, tmp_path: Path) -> None:
    """Over several chunks of attention, windows that begin within them, and more positions than are turned at first."""
    model = packed(tmp_path, architecture=architecture, kinds=Q4_K_M, sizes=LONG)
    text = ids(620)
    whole = model.open().extend(text, len(text))
    expected = torch.stack(list(model.reference(text[:1], [*text[1:], 0])))
    torch.testing.assert_close(whole, expected, atol=1e-3, rtol=1e-3)
    assert same(cut(model, text, (300, 17, 40, *range(1, 17))), whole)
    for behind in (200, 255, 256, 257, 600):
        for size in (1, 2, 5, 11, 16, 17):
            context = model.open()
            context.extend(text[:behind], 1)
            part = text[behind : behind + size]
            assert same(context.extend(part, len(part)), whole[behind : behind + size]), (behind, size)


@pytest.mark.parametrize("form", ["packed", "packed-int8"])
@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_logits_do_not_depend_on_how_many_are_wanted(architecture: str, form: str, tmp_path: Path) -> None:
    """The last layer computes for those that are wanted alone."""
    model = packed(tmp_path, architecture=architecture, kinds=Q4_K_M).in_form(form)
    text = ids(70)
    whole = model.open().extend(text, 70)
    for count, keep in ((70, 1), (70, 16), (70, 17), (70, 69), (20, 2), (12, 5), (5, 1)):
        context = model.open()
        assert same(context.extend(text[:count], keep), whole[count - keep : count]), (count, keep)
        if count < 70:
            assert same(context.extend(text[count:], 3), whole[67:]), "the text behind"


@pytest.mark.parametrize("count", [1, 5, 16, 17, 40])
def test_logits_do_not_depend_on_who_computes(count: int, tmp_path: Path) -> None:
    """More threads than there are here come one after another: the first does all, the rest find nothing left."""
    model, text = packed(tmp_path, kinds=Q4_K_M), ids(count)
    expected = model.open().extend(text, count)
    for threads in (1, 2, 3, 7):
        model._threads = threads
        assert same(model.open().extend(text, count), expected)
    parts = model._tables.sizes[kernels.PARTS]
    for other in (1, 2, 3, 8, 24):
        model._tables.sizes[kernels.PARTS] = other
        assert same(model.open().extend(text, count), expected), "parts of stages"
    model._tables.sizes[kernels.PARTS] = parts


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "gemma3", "phi3", "mistral", "granite"])
def test_logits_of_loaded_layers_do_not_depend_on_how_a_text_is_cut(kind: str, dtype: torch.dtype) -> None:
    model = LeanModel.of(in_dtype(tiny_model(kind), dtype))
    text = [token % 320 for token in ids(120)]
    whole = model.open().extend(text, len(text))
    assert same(cut(model, text, (40, *range(1, 17))), whole) and same(cut(model, text, (1,)), whole)


def test_a_scale_of_one_tensor_that_is_off_by_one_bit_is_found(tmp_path: Path) -> None:
    model = packed(tmp_path, kinds=Q4_K_M)
    rows, text = model.open().extend(ids(9), 9), ids(9)
    matrix = model.weights.layers[1].matrices[3]
    data = matrix.data.copy()
    data[0, 0] ^= 1
    model._tables.matrices[1, 3, 0] = data.ctypes.data
    assert not same(model.open().extend(text, 9), rows)


@pytest.mark.each_value
@pytest.mark.parametrize("gamma", [1, 4, 10])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_every_strategy_writes_the_text_of_the_target_alone(architecture: str, gamma: int, tmp_path: Path) -> None:
    target, drafter = tmp_path / "target.gguf", tmp_path / "drafter.gguf"
    write_tiny_gguf(target, architecture=architecture, kinds=Q4_K_M, seed=gamma)
    write_tiny_gguf(drafter, kinds={"": KIND.Q8_0}, seed=gamma)
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(target), drafter=str(drafter), device="cpu"), lambda step: None)
    settings = Settings(
        max_new_tokens=60, gamma=gamma, strategies=("target", "speculative", "lookup"), ignore_eos=True, chat=False
    )
    texts: dict[str, list[int]] = {name: [] for name in settings.strategies}
    for event in engine.run("def f(x): return 12", settings, lambda: False):
        if isinstance(event, Step) and isinstance(event.record, PrefillDone | RoundVerified):
            texts[event.strategy] += [token.id for token in tokens_of(event.record) if token.status in EMITTED]
        elif isinstance(event, Checked):
            assert event.lossless.status is LosslessStatus.IDENTICAL
    assert len(texts["target"]) == 60 and texts["target"] == texts["speculative"] == texts["lookup"]
